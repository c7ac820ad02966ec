"""One call to the judge's model: what it says, what identifies it, and how it is made to fit the model's context."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pcgeval.core.files import sha256_bytes
from pcgeval.judge.budget import allotted
from pcgeval.judge.fencing import fence_key, fenced, harmless
from pcgeval.judge.templates import filled, template
from pcgeval.llm.protocol import CallError, Message
from pcgeval.llm.tokens import MESSAGE_OVERHEAD, TokenCounter, shortened

CallKind = Literal["rank", "grade", "parse"]
MIN_TOKENS = 24  # of a part; with less nothing can be told from it, and it is left out
MAX_CHARACTERS_PER_TOKEN = 16  # of the context: a longer part is cut before its tokens are counted


class DoesNotFit(CallError):  # noqa: N818 - says what happened, as its siblings in other modules do
    """The criterion and the answer's shape alone have more tokens than the context leaves for a prompt."""


@dataclass(frozen=True)
class Part:
    """A piece of a prompt.

    Attributes:
        name: The field of the template that it fills; of material, the tag between which it stands.
        text: What it says.
        tail: Where it has to be cut, the share of what is kept that is taken from its end.
        weight: Its share of the room, against that of the other parts. 0 is a piece of our own that is never cut; any
            other part is material: written by others, and shown between tags.
    """

    name: str
    text: str
    tail: float = 0.0
    weight: float = 0.0

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return sha256_bytes(self.text.encode("utf-8", "surrogatepass"))

    @cached_property
    def harmless_text(self) -> str:
        """The text without anything that a chat template takes for the end of a message."""
        return harmless(self.text)


@dataclass(frozen=True)
class Call:
    """One question to the model, whole; `attempt` 1 is the second, after an answer that was of no use."""

    kind: CallKind
    leaf: str
    vote: int
    attempt: int
    prompt_version: str
    parts: tuple[Part, ...]
    schema: Mapping[str, Any] | None
    output_tokens: int

    def identity(self) -> dict[str, Any]:
        """Return all that determines the call before anything is cut, as JSON values; texts stand as their SHA-256."""
        parts = [
            {"name": part.name, "sha256": part.digest, "tail": part.tail, "weight": part.weight} for part in self.parts
        ]
        schema = None if self.schema is None else dict(self.schema)
        return {**vars(self), "parts": parts, "schema": schema}

    def messages(self, context: int, counter: TokenCounter) -> tuple[Message, ...]:
        """Return the messages, which together with the answer fit into a context of so many tokens.

        Our own words, the criterion among them, stay whole. What is left is divided among the other parts by their
        weights, and what one does not need goes to the others. A part too long for its share loses its middle, or its
        beginning or end, as its `tail` says. Parts for which fewer than 24 tokens remain are left out, those of the
        least weight first.

        Raises:
            DoesNotFit: Our own words have no room.
        """
        return _Fitting(self, context - self.output_tokens, counter).messages()


class _Fitting:
    """One call on its way into a number of tokens."""

    def __init__(self, call: Call, room: int, counter: TokenCounter) -> None:
        self._call, self._room, self._counter = call, room, counter
        self._material = [part for part in call.parts if part.weight > 0]
        self._texts = [_bounded(part, room * MAX_CHARACTERS_PER_TOKEN) for part in self._material]
        self._key = fence_key([part.harmless_text for part in self._material], [part.digest for part in self._material])
        self._tags = [counter.count(fenced(part.name, self._key, "")) + 2 for part in self._material]
        self._needs = [counter.count(text) for text in self._texts]

    def messages(self) -> tuple[Message, ...]:
        bare = self._rendered({})
        least = self._tokens(bare)
        if least > self._room:
            raise DoesNotFit(
                f"the {self._call.kind} call for {self._call.leaf}: the criterion and the answer's shape have {least} "
                f"tokens, the context leaves {self._room} for the prompt. Judge with a larger context "
                "(`rubric.context`, or --context)."
            )
        budget = self._room - least
        while budget > 0:
            messages = self._rendered(self._shown(budget))
            excess = self._tokens(messages) - self._room
            if excess <= 0:
                return messages
            budget -= max(excess, budget // 16, 1)  # tokens are counted a little differently in parts and as a whole
        return bare

    def _shown(self, budget: int) -> dict[int, str]:
        """Return the texts to show by their place among the material."""
        kept = list(range(len(self._material)))
        while kept:
            room = budget - sum(self._tags[place] for place in kept)
            allotments = allotted(
                room, [self._needs[place] for place in kept], [self._material[place].weight for place in kept]
            )
            starved = [
                place
                for place, tokens in zip(kept, allotments, strict=True)
                if tokens < min(MIN_TOKENS, self._needs[place])
            ]
            if not starved:
                return {place: self._cut(place, tokens) for place, tokens in zip(kept, allotments, strict=True)}
            kept.remove(min(starved, key=lambda place: (self._material[place].weight, -place)))
        return {}

    def _cut(self, place: int, tokens: int) -> str:
        if self._needs[place] <= tokens:
            return self._texts[place]
        return shortened(self._texts[place], tokens, self._counter, tail=self._material[place].tail)

    def _rendered(self, shown: Mapping[int, str]) -> tuple[Message, ...]:
        material = [fenced(self._material[place].name, self._key, text) for place, text in sorted(shown.items())]
        fields = {part.name: part.text for part in self._call.parts if part.weight == 0}
        fields |= {"key": self._key, "material": "\n\n".join(material)}
        parts = template(self._call.kind)
        return Message("system", filled(parts.system, fields)), Message("user", filled(parts.user, fields))

    def _tokens(self, messages: tuple[Message, ...]) -> int:
        return sum(self._counter.count(message.content) + MESSAGE_OVERHEAD for message in messages)


def _bounded(part: Part, most: int) -> str:
    """Return a part's harmless text, cut by characters where it is far longer than any context."""
    text = part.harmless_text
    if len(text) <= max(most, 1):
        return text
    tail = round(most * part.tail)
    left_out = f"\n[... {len(text) - most} characters left out ...]\n"
    return text[: most - tail] + left_out + text[len(text) - tail :]
