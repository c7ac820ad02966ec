"""One call to the judge's model: its text, its identity, and how it is made to fit the model's context.

Text of submissions and papers stands between tags that carry a key, `<file 3fa9c1>` to `</file 3fa9c1>`. The key is
taken from a hash of all texts of the call and occurs in none of them, so none can hold a tag that ends it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

from pcgeval.core.files import sha256_json, sha256_text
from pcgeval.llm.protocol import CallError, Message
from pcgeval.llm.tokens import MESSAGE_OVERHEAD, TokenCounter, shortened

CallKind = Literal["rank", "grade", "parse"]
CALL_KINDS: tuple[CallKind, ...] = ("rank", "grade", "parse")
MIN_TOKENS = 24  # of a part; a part with less room is left out
MAX_CHARACTERS_PER_TOKEN = 16  # of the context: a longer part is cut before its tokens are counted
_SHORTEST_KEY = 6  # characters; a short key costs few tokens
_FIELD = re.compile(r"\{([a-z]+)\}")
# The marks of turns in the chat templates of common models; llama.cpp interprets them within a text, too.
_MARKS = re.compile(
    r"(?:<(?=[|｜]|</?s>|/?s>|(?:start|end)_of_turn>|[be]os>|<SYS>>|</SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]))"
)


class ContextError(CallError):
    """The criterion and the answer's format alone have more tokens than the context leaves for a prompt."""


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt.

    Attributes:
        name: The field of the template that it fills; of material, the tag between which it stands.
        text: Its text.
        tail: If it is cut, the share of the kept text that is taken from its end.
        weight: Its share of the room, relative to the other parts. 0 is text of our own that is never cut; any other
            part is material: written by others, and shown between tags.
    """

    name: str
    text: str
    tail: float = 0.0
    weight: float = 0.0

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return sha256_text(self.text)

    @cached_property
    def escaped_text(self) -> str:
        """The text with a space in every mark by which a chat template would end the message or begin another."""
        return _MARKS.sub(lambda mark: f"{mark.group()} ", self.text)

    def bounded_text(self, most: int) -> str:
        """Return the escaped text, without its middle where it is longer than `most` characters."""
        text = self.escaped_text
        if len(text) <= max(most, 1):
            return text
        tail = round(most * self.tail)
        left_out = f"\n[... {len(text) - most} characters left out ...]\n"
        return text[: most - tail] + left_out + text[len(text) - tail :]


@dataclass(frozen=True)
class JudgeCall:
    """One question to the model, whole; `attempt` 1 is the second, after an answer that could not be parsed."""

    kind: CallKind
    leaf: str
    vote: int
    attempt: int
    prompt_version: str
    parts: tuple[PromptPart, ...]
    schema: Mapping[str, Any] | None
    output_tokens: int
    rooms: int = 1  # how often the usual room the answer has: 2 after one that was cut off

    def identity(self) -> dict[str, Any]:
        """Return all that determines the call before anything is cut, as JSON values; texts stand as their SHA-256."""
        parts = [
            {"name": part.name, "sha256": part.digest, "tail": part.tail, "weight": part.weight} for part in self.parts
        ]
        schema = None if self.schema is None else dict(self.schema)
        values = {name: value for name, value in vars(self).items() if name != "rooms" or self.rooms > 1}
        return {**values, "parts": parts, "schema": schema}

    def messages(self, context: int, counter: TokenCounter, answer_tokens: int = 0) -> tuple[Message, ...]:
        """Return the messages, which together with the answer fit into a context of so many tokens.

        Our own text, the criterion included, stays whole. The remaining room is divided among the other parts by their
        weights; room that one does not need goes to the others. A part too long for its share loses its middle, or its
        beginning or end, according to its `tail`. Parts for which fewer than 24 tokens remain are left out, those of
        the least weight first.

        Raises:
            ContextError: Our own text has no room.
        """
        room = context - (answer_tokens or self.output_tokens)
        material = [part for part in self.parts if part.weight > 0]
        texts = [part.bounded_text(room * MAX_CHARACTERS_PER_TOKEN) for part in material]
        key = fence_key([part.escaped_text for part in material], [part.digest for part in material])
        needs = [counter.count(text) for text in texts]
        tags = [counter.count(fenced(part.name, key, "")) + 2 for part in material]

        def rendered(shown: Mapping[int, int]) -> tuple[Message, ...]:
            """Return the messages with so many tokens of the material at each place."""
            blocks = []
            for place, tokens in sorted(shown.items()):
                text, part = texts[place], material[place]
                text = text if needs[place] <= tokens else shortened(text, tokens, counter, tail=part.tail)
                blocks.append(fenced(part.name, key, text))
            fields = {part.name: part.text for part in self.parts if part.weight == 0}
            fields |= {"key": key, "material": "\n\n".join(blocks)}
            system, user = template(self.kind)
            return Message("system", filled(system, fields)), Message("user", filled(user, fields))

        def excess(messages: Sequence[Message]) -> int:
            return sum(counter.count(message.content) + MESSAGE_OVERHEAD for message in messages) - room

        bare = rendered({})
        budget = -excess(bare)
        if budget < 0:
            raise ContextError(
                f"the {self.kind} call for {self.leaf}: the criterion and the answer's format have {room - budget} "
                f"tokens, the context leaves {room} for the prompt. Judge with a larger context "
                "(`rubric.context`, or --context)."
            )
        while budget > 0:
            messages = rendered(_shown(budget, needs, tags, [part.weight for part in material]))
            if (over := excess(messages)) <= 0:
                return messages
            budget -= max(over, budget // 16, 1)  # tokens of the parts and of the whole differ a little
        return bare


def _shown(budget: int, needs: Sequence[int], tags: Sequence[int], weights: Sequence[float]) -> dict[int, int]:
    """Return how many tokens each part gets, by its place; parts with too little room are left out."""
    kept = list(range(len(needs)))
    while kept:
        room = budget - sum(tags[place] for place in kept)
        shares = allotted(room, [needs[place] for place in kept], [weights[place] for place in kept])
        shown = dict(zip(kept, shares, strict=True))
        starved = [place for place, tokens in shown.items() if tokens < min(MIN_TOKENS, needs[place])]
        if not starved:
            return shown
        kept.remove(min(starved, key=lambda place: (weights[place], -place)))
    return {}


def allotted(room: int, needs: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return how many tokens each part gets: all it needs, or its share by weight of the room that the others leave.

    The needs and the room for all parts together are in tokens; weights are above 0.
    """
    allotments = [0] * len(needs)
    left, weight_left = max(room, 0), sum(weights)
    # a part that needs least for its weight is served first, so that its unused room reaches the others
    for place in sorted(range(len(needs)), key=lambda place: needs[place] / weights[place]):
        share = int(left * weights[place] / weight_left) if weight_left > 0 else 0
        allotments[place] = min(needs[place], share, left)
        left -= allotments[place]
        weight_left -= weights[place]
    return allotments


def fence_key(texts: Sequence[str], digests: Sequence[str]) -> str:
    """Return a key that occurs in no text: as much of a hash of the texts' hashes as that needs."""
    digest = sha256_json(list(digests))
    lengths = range(_SHORTEST_KEY, len(digest) + 1)
    # no text can contain the whole of a hash that depends on the text
    return next(key for key in (digest[:length] for length in lengths) if not any(key in text for text in texts))


def fenced(name: str, key: str, text: str) -> str:
    """Return a text between its tags."""
    return f"<{name} {key}>\n{text}\n</{name} {key}>"


@cache
def template(kind: str) -> tuple[str, str]:
    """Return the system and the user message of one kind of call, with `{fields}`."""
    system, _, user = _prompt_file(kind).partition("\n===\n")
    return system.strip(), user.strip()


@cache
def phrase(name: str) -> str:
    """Return a short text of phrases.md by its heading."""
    sections = re.split(r"^## (.*)\n", _prompt_file("phrases"), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))[name].rstrip()


@cache
def prompt_version() -> str:
    """Return the beginning of the SHA-256 of all templates; replies to other templates do not count for these."""
    return sha256_json({name: _prompt_file(name) for name in (*CALL_KINDS, "phrases")})[:16]


def filled(text: str, fields: Mapping[str, str]) -> str:
    """Return a template with its fields, empty where there is none; the values are not searched for fields."""
    return _FIELD.sub(lambda field: fields.get(field[1], ""), text)


def _prompt_file(name: str) -> str:
    return files("pcgeval.judge").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
