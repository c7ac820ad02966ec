"""One call to the judge's model: its text, its identity, and how it is made to fit the model's context.

What is the same in all calls of a grading stands first - instructions, paper, addenda, reproduce.sh and its log - so
that an endpoint reads it once and has it in its cache for all other calls; the criterion stands last.

A submission's text stands between tags that carry a key, `<file 3fa9c1>` to `</file 3fa9c1>`. There is one key for a
grading, and a text that holds it is shown with a space in it, so that none can hold a tag that ends it. What the
paper's and the rubric's authors wrote stands between tags without the key.

An entry in a competition is small and has little in common with the next call: each of its calls has a key of its own,
which occurs in none of its texts. The replies that the demo has recorded are to exactly these prompts.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

from pcgeval.core.files import sha256_json, sha256_text
from pcgeval.llm.protocol import CallError, Message
from pcgeval.llm.tokens import MESSAGE_OVERHEAD, CountedText, Cut, JudgeTokens, left_out

CallKind = Literal["rank", "grade", "parse"]
CALL_KINDS: tuple[CallKind, ...] = ("rank", "grade", "parse")
MIN_TOKENS = 24  # of a part; a part with less room is left out
MAX_CHARACTERS_PER_TOKEN = 16  # of the context: a longer part is cut before its tokens are counted
SMALL_CONTEXT = 32_000  # tokens; below it the files that fit are shown whole, in the order of their rank
_MOST_SHARED = 0.85  # of the context, with the answer
_OWN_SHARE = 3  # the files of a leaf may have at least a third of that
_LEAST_CHARACTERS_PER_TOKEN = 3
_MOST_COUNTED = 200  # texts in memory, each of at most half a megabyte
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
        weight: Its share of the room, relative to the other parts. 0 is what is never cut: our own text, the criterion.
        is_data: Whether it is a submission's, and stands between tags with the key.
    """

    name: str
    text: str
    tail: float = 0.0
    weight: float = 0.0
    is_data: bool = True

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
        return text[: most - tail] + left_out(len(text) - most) + text[len(text) - tail :]

    def identity(self) -> dict[str, Any]:
        """Return all that determines the part, as JSON values; its text stands as its SHA-256."""
        return {**{name: getattr(self, name) for name in ("name", "tail", "weight", "is_data")}, "sha256": self.digest}


@dataclass(frozen=True)
class GradingPrompt:
    """The common parts of the prompts of one grading.

    Attributes:
        family: The family of prompts.
        about: What is graded.
        run: What we know of the run of reproduce.sh.
        key: The key of the tags; empty: each call has its own.
        parts: What all calls may be shown, in this order: always the same cut of it.
        file_characters: How many characters the files of a leaf may have at most.
    """

    family: str
    about: Literal["paper", "competition"]
    run: str = ""
    key: str = ""
    parts: tuple[PromptPart, ...] = ()
    file_characters: int = 0


@dataclass(frozen=True)
class JudgeCall:
    """One question to the model, whole; `attempt` 1 is the second, after an answer that could not be parsed.

    `shared` names the parts of the grading's prompt that it shows, before its own parts. `order` has the labels of the
    files in the order in which a large context shows them, which is no part of the call's identity.
    """

    kind: CallKind
    leaf: str
    vote: int
    attempt: int
    prompt: GradingPrompt
    shared: tuple[str, ...]
    parts: tuple[PromptPart, ...]
    schema: Mapping[str, Any] | None
    order: tuple[str, ...] = ()
    rooms: int = 1  # how often the usual room the answer has: 2 after one that was cut off

    def identity(self) -> dict[str, Any]:
        """Return all that determines the call before anything is cut, as JSON values; texts stand as their SHA-256."""
        values = {name: getattr(self, name) for name in ("kind", "leaf", "vote", "attempt", "rooms")}
        prompt = self.prompt
        return {
            **values,
            "prompts": [prompt.family, prompt_version(prompt.family), prompt.about, prompt.run],
            "shared": [part.identity() for part in self.shared_parts],
            "parts": [part.identity() for part in self.parts],
            "schema": None if self.schema is None else dict(self.schema),
        }

    @property
    def shared_parts(self) -> tuple[PromptPart, ...]:
        """The parts of the grading's prompt that this call shows."""
        return tuple(part for part in self.prompt.parts if part.name in self.shared)

    @cached_property
    def key(self) -> str:
        """The key of the tags."""
        material = [part for part in (*self.shared_parts, *self.parts) if part.weight > 0]
        return self.prompt.key or fence_key(
            [part.escaped_text for part in material], [part.digest for part in material]
        )

    @property
    def fields(self) -> dict[str, str]:
        """The texts that are never cut, by the field of the template that they fill."""
        own = {part.name: part.escaped_text for part in self.parts if part.weight == 0}
        about = section(self.prompt.family, f"about {self.prompt.about}")
        return {**own, "key": self.key, "run": self.prompt.run, "about": about}

    @property
    def system(self) -> str:
        """The instructions."""
        name = "paper" if self.prompt.about == "paper" else f"competition {self.kind}"
        return filled(section(self.prompt.family, f"system {'parse' if self.kind == 'parse' else name}"), self.fields)


@dataclass(frozen=True)
class FittedCall:
    """The messages of a call, their tokens as counted, and the share of each part that is not shown whole."""

    messages: tuple[Message, ...]
    counted: int
    shown: Mapping[str, float]


class ContextFitter:
    """Fits the calls of one grading into the context; several threads may use it.

    What the calls share is cut once for all of them, so that it stays the same prefix, and each text is counted once.
    """

    def __init__(self, context: int, tokens: JudgeTokens) -> None:
        """Take the context in tokens, and what counts them."""
        self.context = context
        self._tokens = tokens
        self._lock = threading.Lock()
        self._counted: dict[tuple[str, str], CountedText] = {}
        self._shared: dict[str, Cut] = {}  # what is shown of the shared parts, by name
        self._cut_when_settled: bool | None = None  # whether the tokens' scale was known when they were cut

    def fit(self, call: JudgeCall, answer_tokens: int = 0) -> FittedCall:
        """Return the messages, which together with the answer fit into the context.

        Our own text, the criterion included, stays whole. What is shared comes next. Of the room that is left, each
        part of the call gets a share by its weight; room that one does not need goes to the others. Below a context
        of 32 000 tokens, files are whole in the order of their rank, and the last ends at a line.

        Raises:
            ContextError: Our own text has no room.
        """
        with self._lock:
            room = int((self.context - answer_tokens) / self._tokens.scale)
            bare = self._rendered(call, {}, {}, {})
            left = room - sum(self._count(message.content) + MESSAGE_OVERHEAD for message in bare)
            if left < 0:
                raise ContextError(
                    f"the {call.kind} call for {call.leaf}: the criterion and the answer's format have {room - left} "
                    f"tokens, the context leaves {room} for the prompt. Judge with a larger context "
                    "(`rubric.context`)."
                )
            shared = self._shared_cut(call, left, answer_tokens)
            left -= sum(each.tokens + self._tag_tokens(call, name) for name, each in shared.items())
            own = self._own_cut(call, left)
            left -= sum(each.tokens + self._tag_tokens(call, call.parts[at].name) for at, each in own.items())
            more = self._continued(call, shared, left) if call.kind == "grade" else {}
            left -= sum(each.tokens + self._tag_tokens(call, f"{name}-continued") for name, each in more.items())
            messages = self._rendered(call, shared, own, more)
        shown = {label_of(part): 0.0 for part in (*call.shared_parts, *call.parts) if part.weight > 0}
        shown |= {name: cut.share + (more[name].share if name in more else 0) for name, cut in shared.items()}
        shown |= {label_of(call.parts[at]): cut.share for at, cut in own.items()}
        return FittedCall(messages, room - left, {name: round(share, 3) for name, share in shown.items() if share < 1})

    def _shared_cut(self, call: JudgeCall, left: int, answer_tokens: int) -> dict[str, Cut]:
        """Return what the call shows of the shared parts: the same as all other calls, unless it has no room for it."""
        tokens = self._tokens
        is_too_long = sum(each.tokens for each in self._shared.values()) * tokens.scale > _MOST_SHARED * self.context
        if self._cut_when_settled != tokens.is_settled or is_too_long:
            self._cut_when_settled = tokens.is_settled
            # what is left of the context beside the answer and a criterion of usual length; the same for all calls
            room = int((_MOST_SHARED * self.context - answer_tokens) / tokens.scale) - self._count(call.system)
            files = int(call.prompt.file_characters / _LEAST_CHARACTERS_PER_TOKEN / tokens.scale)
            self._shared = self._cut(call, call.prompt.parts, max(room - min(room // _OWN_SHARE, files), 0))
        found = {part.name: self._shared[part.name] for part in call.shared_parts if part.name in self._shared}
        if sum(each.tokens + self._tag_tokens(call, name) for name, each in found.items()) <= left:
            return found
        return self._cut(call, call.shared_parts, left * 2 // 3)

    def _cut(self, call: JudgeCall, parts: Sequence[PromptPart], room: int) -> dict[str, Cut]:
        texts = [self._text(call, part) for part in parts]
        tags = [self._tag_tokens(call, part.name) for part in parts]
        allotments = _shown(room, [text.tokens for text in texts], tags, [part.weight for part in parts])
        cut = {parts[place].name: texts[place].cut(most, parts[place].tail) for place, most in allotments.items()}
        return {name: found for name, found in cut.items() if found.tokens or found.share == 1}

    def _continued(self, call: JudgeCall, shared: Mapping[str, Cut], left: int) -> dict[str, Cut]:
        """Return what else the call has room for of the shared parts that were cut for all."""
        more = {}
        for part in call.shared_parts:
            room = left - self._tag_tokens(call, f"{part.name}-continued")
            if part.name in shared and shared[part.name].end and room > self.context // 50:
                more[part.name] = self._text(call, part).missing(shared[part.name], room)
                left = room - more[part.name].tokens
        return more

    def _own_cut(self, call: JudgeCall, left: int) -> dict[int, Cut]:
        """Return what is shown of the call's own parts, by their places."""
        places = [place for place, part in enumerate(call.parts) if part.weight > 0]
        parts = [call.parts[place] for place in places]
        texts = [self._text(call, part) for part in parts]
        tags = [self._tag_tokens(call, part.name) for part in parts]
        needs = [text.tokens for text in texts]
        if self.context >= SMALL_CONTEXT:
            allotments = _shown(left, needs, tags, [part.weight for part in parts])
        else:
            allotments = _filled_up(left, parts, needs, tags)
        small = self.context < SMALL_CONTEXT
        cut = {
            places[at]: texts[at].cut(most, 0.0 if small and parts[at].name == "file" else parts[at].tail)
            for at, most in allotments.items()
        }
        return {place: found for place, found in cut.items() if found.tokens or found.share == 1}

    def _rendered(
        self, call: JudgeCall, shared: Mapping[str, Cut], own: Mapping[int, Cut], more: Mapping[str, Cut]
    ) -> tuple[Message, ...]:
        key = call.key
        blocks = [_block(part, part.name, key, shared[part.name]) for part in call.shared_parts if part.name in shared]
        places = sorted(own)
        if call.prompt.key:  # files stand first, so that leaves that chose the same ones have them in their prefix
            order = {} if self.context < SMALL_CONTEXT else {label: at for at, label in enumerate(call.order)}
            places.sort(key=lambda at: (call.parts[at].name != "file", order.get(label_of(call.parts[at]), 0)))
        blocks += [_block(call.parts[at], call.parts[at].name, key, own[at]) for at in places]
        continued = [part for part in call.shared_parts if part.name in more]
        blocks += [_block(part, f"{part.name}-continued", key, more[part.name]) for part in continued]
        task = filled(section(call.prompt.family, call.kind), call.fields)
        return Message("system", call.system), Message("user", "\n\n".join([*blocks, task]))

    def _text(self, call: JudgeCall, part: PromptPart) -> CountedText:
        at = (part.digest, call.prompt.key)
        counted = self._counted.pop(at, None)
        if counted is None:
            text, key = part.bounded_text(self.context * MAX_CHARACTERS_PER_TOKEN), call.prompt.key
            text = text.replace(key, f"{key[:3]} {key[3:]}") if key else text
            counted = CountedText(text, self._tokens.counter)
        self._counted[at] = counted  # the latest at the end
        if len(self._counted) > _MOST_COUNTED:
            del self._counted[next(iter(self._counted))]
        return counted

    def _tag_tokens(self, call: JudgeCall, name: str) -> int:
        return self._count(fenced(name, call.key, "")) + 4

    def _count(self, text: str) -> int:
        return self._tokens.counter.count(text)


def _filled_up(left: int, parts: Sequence[PromptPart], needs: Sequence[int], tags: Sequence[int]) -> dict[int, int]:
    """Return the tokens of each part, by its place: what is no file has at most a quarter, then file after file."""
    shown = {}
    others = left // 4 if any(part.name == "file" for part in parts) else left
    for place, part in enumerate(parts):
        room = (left if part.name == "file" else min(others, left)) - tags[place]
        if room < min(MIN_TOKENS, needs[place]):
            continue
        shown[place] = min(needs[place], room)
        left -= shown[place] + tags[place]
    return shown


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
    """Return a key that occurs in none of the texts: as much of a hash of the texts' hashes as that needs."""
    digest = sha256_json(list(digests))
    lengths = range(_SHORTEST_KEY, len(digest) + 1)
    # no text can contain the whole of a hash that depends on the text
    return next(key for key in (digest[:length] for length in lengths) if not any(key in text for text in texts))


def fenced(name: str, key: str, text: str) -> str:
    """Return a text between its tags."""
    return f"<{name} {key}>\n{text}\n</{name} {key}>"


def _block(part: PromptPart, name: str, key: str, cut: Cut) -> str:
    return fenced(name, key, cut.text) if part.is_data else f"<{name}>\n{cut.text}\n</{name}>"


def label_of(part: PromptPart) -> str:
    """Return how a part is named where a reader is told how much of it was shown: of a file, by its name."""
    return part.text.partition("\n")[0][:300] if part.name == "file" else part.name


@cache
def _sections(family: str) -> Mapping[str, str]:
    sections = re.split(r"^## (.*)\n", _prompt_file(family), flags=re.MULTILINE)
    return {name: text.rstrip() for name, text in zip(sections[1::2], sections[2::2], strict=True)}


def section(family: str, name: str) -> str:
    """Return a text of a family of prompts by its heading, with `{fields}`."""
    return _sections(family)[name]


@cache
def prompt_version(family: str) -> str:
    """Return the beginning of the SHA-256 of a family's texts; replies to other texts do not count for these."""
    return sha256_text(_prompt_file(family))[:16]


def filled(text: str, fields: Mapping[str, str]) -> str:
    """Return a template with its fields, empty where there is none; the values are not searched for fields."""
    return _FIELD.sub(lambda field: fields.get(field[1], ""), text)


def _prompt_file(family: str) -> str:
    return files("pcgeval.judge").joinpath("prompts", f"{family}.md").read_text(encoding="utf-8")
