"""One call to the judge's model: its messages, and how they are made to fit the model's context.

What is the same in all calls of a grading stands first (instructions, paper, addenda, reproduce.sh and its log), so
that an endpoint has it in its cache for all other calls; the criterion stands last. The messages follow from the
submission, the rubric and the settings alone, never from the endpoint: replies are found by their SHA-256. So tokens
are estimated, a little too high for common texts.

A submission's text stands between tags that carry a key, `<file 3fa9c1>` to `</file 3fa9c1>`. There is one key for a
grading, and a text that holds it is shown with a space in it, so that none can hold a tag that ends it. What the
paper's and the rubric's authors wrote stands between tags without the key.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any, Literal

from pcgeval.core.files import sha256_json, sha256_text
from pcgeval.core.untrusted import well_formed
from pcgeval.llm.protocol import CallError, Message

CallKind = Literal["rank", "grade", "parse"]
CALL_KINDS: tuple[CallKind, ...] = ("rank", "grade", "parse")
_LEAST_SHOWN = 24  # tokens of a text of which there is no room for all
_TAGS = 24  # tokens of a text's two tags, at most
_MESSAGE_OVERHEAD = 32  # tokens that a chat template adds for a message, at most
_SHARED_SHARE = 2 / 3  # of the context without the answer: what the calls of a grading share has at most
_EARLIER_SHARE = 1 / 4  # of what is left: the criteria before the one to be graded have at most
_TEXTS_KEPT = 128  # texts in memory, each of at most half a megabyte
_PIECE = 400  # characters at which a long line may be cut
_KEY_LENGTH = 6  # characters; a short key costs few tokens
_FIELD = re.compile(r"\{([a-z]+)\}")
# words, numbers, repeated marks, line ends and indents, and bytes beyond ASCII
_TOKEN = re.compile(rb"([A-Za-z]+)|([0-9]+)|([\x80-\xff]+)|([!-/:-@\[-`{-~])\4*|\s*\n\s*|\s{2,}")
# The marks of turns in the chat templates of common models; llama.cpp interprets them within a text, too.
_MARKS = re.compile(
    r"(?:<(?=[|｜]|</?s>|/?s>|(?:start|end)_of_turn>|[be]os>|<SYS>>|</SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]))"
)


def _without_marks(text: str) -> str:
    return _MARKS.sub(lambda mark: f"{mark.group()} ", text)


class ContextError(CallError):
    """The criterion and the answer's format alone have more tokens than the context leaves for a prompt."""


@dataclass(frozen=True)
class PromptPart:
    """A text that a call shows between tags."""

    name: str  # its tag
    text: str  # the text, whole
    tail: float = 0.0  # if it is cut, the share of what is shown that comes from its end
    is_data: bool = True  # whether it is a submission's, so that its tags have the key

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return sha256_text(self.text)

    @cached_property
    def escaped_text(self) -> str:
        """The text with a space in every mark by which a chat template would end the message or begin another."""
        return _without_marks(self.text)

    @property
    def label(self) -> str:
        """How a reader is told of it: a file by its name."""
        return self.text.partition("\n")[0][:300] if self.name == "file" else self.name


@dataclass(frozen=True)
class GradingPrompt:
    """The common parts of the prompts of one grading."""

    family: str  # of prompts
    about: Literal["paper", "competition"]  # what is graded
    run: str  # what we know of the run of reproduce.sh
    key: str  # the key of the tags
    parts: tuple[PromptPart, ...] = ()  # what all calls may be shown, in this order: always the same cut of it

    def shown(self, room: int, names: Sequence[str] | None = None) -> list[tuple[PromptPart, str]]:
        """Return the parts, or those with these names, as they are shown in so many tokens: the smallest are whole."""
        texts = {part: self.keyless(part) for part in self.parts if names is None or part.name in names}
        left, rooms = room, {}
        for number, part in enumerate(sorted(texts, key=lambda part: count_tokens(texts[part]))):
            share = left // (len(texts) - number)
            rooms[part] = share - _TAGS
            left -= min(count_tokens(texts[part]) + _TAGS, share)
        return [(part, cut(text, rooms[part], part.tail)) for part, text in texts.items()]

    def keyless(self, part: PromptPart) -> str:
        """Return a part's text with a space in the grading's key wherever it holds it."""
        text, key = part.escaped_text, self.key
        while key in text:  # again where two of them overlap
            text = text.replace(key, f"{key[:3]} {key[3:]}")
        return text


@dataclass(frozen=True)
class FittedCall:
    """The messages of a call, and the share of each part that is not shown whole, by its label."""

    messages: tuple[Message, ...]
    shown: Mapping[str, float]


@dataclass(frozen=True)
class JudgeCall:
    """One question to the model, whole."""

    kind: CallKind  # what it asks for
    leaf: str  # the path of the criterion
    prompt: GradingPrompt  # what the calls of the grading have in common
    fields: Mapping[str, str]  # our own text and the criterion, by the field of the template; never cut
    shared: tuple[str, ...] = ()  # the names of the grading's parts that it shows
    # the criteria before, and for a ranking or an answer to be read, the text that it is about
    earlier: tuple[PromptPart, ...] = ()
    files: tuple[PromptPart, ...] = ()  # the files in the order of their rank
    order: tuple[str, ...] = ()  # the labels of the files in the order in which they are shown
    last: tuple[str, ...] = ()  # of these, the labels of those that are shown after the criteria before
    schema: Mapping[str, Any] | None = None  # the JSON schema of the answer, if it is JSON
    vote: int = 0  # the number of the vote, from 0
    rooms: int = 1  # how often the usual room the answer has: 2 after one that was cut off
    _fitted: dict[tuple[int, int], FittedCall] = field(init=False, default_factory=dict, compare=False, repr=False)

    def fitted(self, context: int, answer_tokens: int) -> FittedCall:
        """Return the messages, which have room in a context of so many tokens together with the answer.

        Our own text and the criterion stay whole. What is shared comes next, always in the same cut. Files are whole
        in the order of their rank until the context is full; the last one ends at a line. Raises ContextError where our
        own text has no room.
        """
        if (context, answer_tokens) not in self._fitted:
            self._fitted[context, answer_tokens] = self._fit(context - answer_tokens - 2 * _MESSAGE_OVERHEAD)
        return self._fitted[context, answer_tokens]

    def _fit(self, room: int) -> FittedCall:
        system, task = self._instructions()
        left = room - count_tokens(system) - count_tokens(task)
        if left < 0:
            raise ContextError(
                f"the {self.kind} call for {self.leaf}: the criterion and the answer's format have {room - left} "
                f"tokens, the context leaves {room} for the prompt. Judge with a larger context (`rubric.context`)."
            )
        shared = [pair for pair in self.prompt.shown(int(room * _SHARED_SHARE)) if pair[0].name in self.shared]
        if sum(count_tokens(text) + _TAGS for _, text in shared) > left:
            shared = self.prompt.shown(int(left * _SHARED_SHARE), self.shared)
        left -= sum(count_tokens(text) + _TAGS for _, text in shared)
        earlier = []
        for part in self.earlier:
            most = int(left * _EARLIER_SHARE) if self.files else left
            earlier.append((part, cut(self.prompt.keyless(part), most - _TAGS, part.tail)))
            left -= count_tokens(earlier[-1][1]) + _TAGS
        files = []
        for part in self.files:
            whole = self.prompt.keyless(part)
            if text := cut(whole, left - _TAGS, part.tail):
                files.append((part, text))
            left = left - count_tokens(text) - _TAGS if text == whole else 0
        files.sort(key=lambda pair: self.order.index(pair[0].label) if self.order else 0)
        first, last = ([pair for pair in files if (pair[0].label in self.last) is is_last] for is_last in (False, True))
        blocks = [self._block(part, text) for part, text in (*shared, *first, *earlier, *last) if text]
        messages = Message("system", system), Message("user", "\n\n".join([*blocks, task]))
        lengths = {part.label: 0 for part in self.files} | {part.label: len(text) for part, text in (*shared, *files)}
        wholes = {part.label: len(part.escaped_text) for part in (*self.files, *(part for part, _ in shared))}
        shares = {label: round(lengths[label] / whole, 3) for label, whole in wholes.items() if whole}
        return FittedCall(messages, {label: share for label, share in shares.items() if share < 1})

    def _instructions(self) -> tuple[str, str]:
        family, about = self.prompt.family, self.prompt.about
        system = section(family, f"system {'parse' if self.kind == 'parse' else about}")
        fields = {name: _without_marks(text) for name, text in self.fields.items()}
        fields |= {"key": self.prompt.key, "run": self.prompt.run, "about": section(family, f"about {about}")}
        question = section(family, self.kind)
        return filled(system, fields), filled(question, fields)

    def _block(self, part: PromptPart, text: str) -> str:
        tag = f"{part.name} {self.prompt.key}" if part.is_data else part.name
        return f"<{tag}>\n{text}\n</{tag}>"


@lru_cache(_TEXTS_KEPT)
def count_tokens(text: str) -> int:
    """Return an estimate of a text's tokens: six letters, two digits or two bytes beyond ASCII are one at most."""
    total = 0
    for token in _TOKEN.finditer(well_formed(text).encode()):
        letters, digits, others, _ = token.groups()
        if letters:
            total += 1 + (len(letters) - 1) // 6
        elif digits or others:
            total += 1 + (len(digits or others) - 1) // 2
        else:
            total += 1 + (len(token[0]) - 1) // 8
    return total


@lru_cache(_TEXTS_KEPT)
def cut(text: str, most: int, tail: float) -> str:
    """Return what is shown of a text in at most so many tokens: whole, or without its middle, which ends at lines.

    `tail` is the share of what is shown that comes from the end. With hardly any room nothing is shown.
    """
    if count_tokens(text) <= most:
        return text
    if most < _LEAST_SHOWN:
        return ""
    pieces = re.findall(rf"[^\n]{{0,{_PIECE}}}(?:\n|$)|[^\n]{{{_PIECE}}}", text)
    sizes = [count_tokens.__wrapped__(piece) for piece in pieces]  # so many would fill the memory of sizes
    room = most - _LEAST_SHOWN // 2
    first, used = 0, 0
    while used + sizes[first] <= room * (1 - tail):
        used += sizes[first]
        first += 1
    last = len(pieces)
    while last > first and used + sizes[last - 1] <= room and tail:
        last -= 1
        used += sizes[last]
    head, end = "".join(pieces[:first]), "".join(pieces[last:])
    return f"{head}\n[... {len(text) - len(head) - len(end)} characters left out ...]\n{end}"


def grading_key(digests: Sequence[str]) -> str:
    """Return the key of a grading's tags: the beginning of the SHA-256 of what its prompts have in common."""
    return sha256_json(list(digests))[:_KEY_LENGTH]


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
