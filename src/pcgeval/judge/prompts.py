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
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from pcgeval.core.files import sha256_text
from pcgeval.core.text import well_formed
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
_FIELD = re.compile(r"\{([a-z]+)\}")
# words, numbers, repeated marks, line ends and indents, and bytes beyond ASCII
_TOKEN = re.compile(rb"([A-Za-z]+)|([0-9]+)|([\x80-\xff]+)|([!-/:-@\[-`{-~])\4*|\s*\n\s*|\s{2,}")
# The marks of turns in the chat templates of common models; llama.cpp interprets them within a text, too.
_MARKS = re.compile(
    r"(?:<(?=[|｜]|</?s>|/?s>|(?:start|end)_of_turn>|[be]os>|<SYS>>|</SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]))"
)


class ContextError(CallError):
    """The criterion and the answer's format alone have more tokens than the context leaves for a prompt."""


@dataclass(frozen=True)
class PromptPart:
    """A text that a call shows between tags."""

    name: str  # its tag
    text: str  # the text, whole
    tail: float = 0.0  # if it is cut, the share of what is shown that comes from its end
    is_data: bool = True  # whether it is a submission's, so that its tags have the key

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

    def visible_parts(self, room: int, names: Sequence[str] | None = None) -> list[tuple[PromptPart, str]]:
        """Return the parts, or those with these names, as they are shown in so many tokens: the smallest are whole."""
        texts = {part: escaped(part.text, self.key) for part in self.parts if names is None or part.name in names}
        left, rooms = room, {}
        for number, part in enumerate(sorted(texts, key=lambda part: count_tokens(texts[part]))):
            share = left // (len(texts) - number)
            rooms[part] = share - _TAGS
            left -= min(count_tokens(texts[part]) + _TAGS, share)
        return [(part, visible_part(text, rooms[part], part.tail)) for part, text in texts.items()]


class FittedCall(NamedTuple):
    """The messages of a call, and the share of each part that is not shown whole, by its label."""

    messages: tuple[Message, ...]
    visible_shares: Mapping[str, float]


@dataclass(frozen=True)
class JudgeCall:
    """One question to the model, whole."""

    kind: CallKind  # what it asks for
    leaf: str  # the path of the criterion
    prompt: GradingPrompt  # what the calls of the grading have in common
    fields: Mapping[str, str]  # our own text and the criterion, by the field of the template; never cut
    shared: tuple[str, ...] = ()  # the names of the grading's parts that it shows
    # the criteria before, or for a ranking or an answer to be read, the text that it is about
    earlier: PromptPart | None = None
    files: tuple[PromptPart, ...] = ()  # the files in the order of their rank
    first: tuple[PromptPart, ...] | None = None  # of these, those before the criteria, in this order; None: all
    last: tuple[PromptPart, ...] = ()  # those after the criteria
    schema: Mapping[str, Any] | None = None  # the JSON schema of the answer, if it is JSON
    vote: int = 0  # the number of the vote, from 0
    rooms: int = 1  # how often the usual room the answer has: 2 after one that was cut off

    def fitted(self, context: int, answer_tokens: int) -> FittedCall:
        """Return the messages, which have room in a context of so many tokens together with the answer.

        Our own text and the criterion stay whole. What is shared comes next, always in the same cut. Files are whole
        in the order of their rank until the context is full; the last one ends at a line. Raises ContextError where our
        own text has no room.
        """
        room = context - answer_tokens - 2 * _MESSAGE_OVERHEAD
        system, task = self._instructions()
        left = room - count_tokens(system) - count_tokens(task)
        if left < 0:
            raise ContextError(
                f"the {self.kind} call for {self.leaf}: the criterion and the answer's format have {room - left} "
                f"tokens, the context leaves {room} for the prompt. Judge with a larger context (`rubric.context`)."
            )
        shared = [pair for pair in self.prompt.visible_parts(int(room * _SHARED_SHARE)) if pair[0].name in self.shared]
        if sum(count_tokens(text) + _TAGS for _, text in shared) > left:
            shared = self.prompt.visible_parts(int(left * _SHARED_SHARE), self.shared)
        left -= sum(count_tokens(text) + _TAGS for _, text in shared)
        earlier = []
        if (part := self.earlier) is not None:
            most = int(left * _EARLIER_SHARE) if self.files else left
            earlier = [(part, visible_part(escaped(part.text, self.prompt.key), most - _TAGS, part.tail))]
            left -= count_tokens(earlier[0][1]) + _TAGS
        texts = dict(shared)
        for part in self.files:
            whole = escaped(part.text, self.prompt.key)
            texts[part] = visible_part(whole, left - _TAGS, part.tail)
            left = left - count_tokens(texts[part]) - _TAGS if texts[part] == whole else 0
        first, last = (
            [(part, texts[part]) for part in parts]
            for parts in (self.files if self.first is None else self.first, self.last)
        )
        blocks = [self._block(part, text) for part, text in (*shared, *first, *earlier, *last) if text]
        messages = Message("system", system), Message("user", "\n\n".join([*blocks, task]))
        wholes = {part: len(escaped(part.text, self.prompt.key)) for part in texts}
        shares = {part.label: round(len(texts[part]) / whole, 3) for part, whole in wholes.items() if whole}
        return FittedCall(messages, {label: share for label, share in shares.items() if share < 1})

    def _instructions(self) -> tuple[str, str]:
        """Return the system's message and the question."""
        family, about = self.prompt.family, self.prompt.about
        fields = {name: _without_marks(text) for name, text in self.fields.items()}
        fields |= {"key": self.prompt.key, "run": self.prompt.run, "about": section(family, f"about {about}")}
        names = (f"system {'parse' if self.kind == 'parse' else about}", self.kind)
        # empty where there is no such field; values are not searched for fields
        system, question = (_FIELD.sub(lambda name: fields.get(name[1], ""), section(family, name)) for name in names)
        return system, question

    def _block(self, part: PromptPart, text: str) -> str:
        tag = f"{part.name} {self.prompt.key}" if part.is_data else part.name
        return f"<{tag}>\n{text}\n</{tag}>"


@lru_cache(_TEXTS_KEPT)
def escaped(text: str, key: str) -> str:
    """Return a text without a grading's key and without the marks of chat templates."""
    text = _without_marks(text)
    while key in text:  # again where two of them overlap
        text = text.replace(key, f"{key[:3]} {key[3:]}")
    return text


def _without_marks(text: str) -> str:
    """Return a text with a space in every mark by which a chat template would end the message or begin another."""
    return _MARKS.sub(lambda mark: f"{mark.group()} ", text)


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
def visible_part(text: str, most: int, tail: float) -> str:
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


@cache
def section(family: str, name: str) -> str:
    """Return a text of a family of prompts by its heading, with `{fields}`."""
    _, text = re.split(rf"^## {re.escape(name)}\n", _prompt_file(family), flags=re.MULTILINE)
    return text.partition("\n## ")[0].rstrip()


def prompt_version(family: str) -> str:
    """Return the beginning of the SHA-256 of a family's texts; replies to other texts do not count for these."""
    return sha256_text(_prompt_file(family))[:16]


@cache
def _prompt_file(family: str) -> str:
    return files("pcgeval.judge").joinpath("prompts", f"{family}.md").read_text(encoding="utf-8")
