"""One call to the judge's model: its messages, how they are made to fit the model's context, and how answers are read.

What is the same in all calls of a grading stands first (instructions, paper, addenda, reproduce.sh and its log), so
that an endpoint has it in its cache for all other calls; the criterion stands last. The messages follow from the
submission, the rubric and the settings alone, never from the endpoint: replies are found by their SHA-256. So tokens
are estimated, a little too high for common texts.

A submission's text stands between tags that carry a key, `<file 3fa9c1>` to `</file 3fa9c1>`. There is one key for a
grading, and a text that holds it is shown with a space in it, so that none can hold a tag that ends it. What the
paper's and the rubric's authors wrote stands between tags without the key.

Of answers, the score of a grading, the verdict of a parse call and names of files are read. The rule for a score is
short on purpose: whatever it does not read without doubt, a parse call reads.
"""

import json
import re
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, get_args

from pcgeval.core.files import sha256_text
from pcgeval.core.text import well_formed
from pcgeval.judge.files import SubmissionFile, clean
from pcgeval.llm.protocol import CallError, Message
from pcgeval.rubric.grades import QuoteRecord, Verdict

CallKind = Literal["rank", "grade", "parse"]
CALL_KINDS: tuple[CallKind, ...] = get_args(CallKind)
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
_TEMPLATE_MARKS = re.compile(
    r"(?:<(?=[|｜]|</?s>|/?s>|(?:start|end)_of_turn>|[be]os>|<SYS>>|</SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]))"
)

MAX_PICKED = 10  # files, as in PaperBench
MAX_EXPLANATION = 1000  # characters
_MAX_ANSWER = 20_000  # characters that are read of an answer
# only at the beginning does the tag open thoughts; further below, or in back quotes, the answer quotes it
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_END_OF_THINKING = re.compile(r"(?<![`\"'])</think(?:ing)?>(?![`\"'])|<\|channel\|>final<\|message\|>")
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_SCORE_MARKS = " \t#*_`\\"  # of Markdown around a score
_HEADING = re.compile(
    r"^(?P<marks>[ \t#*_]*)(?P<name>expectations|reality|evidence|(?:final )?score)(?P<rest>[*_ \t]*(?:[:=].*)?)$",
    re.IGNORECASE | re.MULTILINE,
)
_DOUBT = re.compile(r"\bscore\b|(?<![\w.])[01](?![\w.])", re.IGNORECASE)  # below a score
_SCORE_NUMBER = re.compile(r"(?P<number>[01]?(?:\.[0-9]{1,20})?)(?:/1)?\.?")
_WHOLE_NAME = r"(?<![\w./-])(?:\.?/)?{}(?![\w/-]|\.\w)"  # of a file, perhaps behind ./
MAX_QUOTE = 2_000  # characters that are recorded
_LEAST_QUOTED = 12  # characters of the longest piece; shorter ones are everywhere and have to be whole lines
_QUOTED_KEPT = 64  # texts in memory, each of at most half a megabyte
_EVIDENCE = re.compile(r"^[ \t]*(?:#{1,6}[ \t*]*|\*\*)evidence\b.*$", re.IGNORECASE | re.MULTILINE)
_END_OF_QUOTE = re.compile(r"^[ \t#*_]*(?:final )?score\b", re.IGNORECASE | re.MULTILINE)
_FILE_LINE = re.compile(r"^[ \t>*`#-]*file[ \t*`]*:(?P<name>.*)$", re.IGNORECASE | re.MULTILINE)
_QUOTE_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})(?P<language>.*)$", re.MULTILINE)
_ELLIPSIS = re.compile(r"\[?(?:\.{3}|…)\]?")
# > quoted, - listed, 12: numbered, L12 | numbered, +added
_PREFIX = re.compile(r"\A(?:\s*(?:[>•*+-]\s|L?[0-9]{1,6}\s*[:|)]|[0-9]{1,6}\.?\s{1,8}|[+-](?=[^\W\d])|[>•|]))*\s*")
_PLAIN_QUOTES = str.maketrans("“”„‘’–—", '"""\'\'--')
_QUOTE_MARKS = "`*\"'"


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
    return _TEMPLATE_MARKS.sub(lambda mark: f"{mark.group()} ", text)


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


def without_thinking(text: str) -> str:
    """Return the last 20 000 characters of an answer without the thoughts that some models write before it.

    Some chat templates begin the thoughts, so that the answer holds only the end of them.
    """
    *_, answer = _END_OF_THINKING.split(_THINKING.sub("", clean(text)))
    return answer[-_MAX_ANSWER:].strip()


def read_score(answer: str, *, continuous: bool) -> float | None:
    """Return the score of a grading; None where it is in doubt, so that a parse call has to read it.

    The score is the number in the last line `Score: 1`, or else the first line below the last heading `# Score` or
    `**Score**`. What stands between fences is quoted and does not count. Neither an earlier heading nor the text below
    the number may give another score.
    """
    text, scores, below = _FENCED.sub("", answer).rstrip(), [], ""
    for heading in _HEADING.finditer(text):
        is_last_line = heading.end() == len(text)
        if "score" in heading["name"].casefold() and (heading["marks"].strip() or is_last_line):
            line, below = heading["rest"].strip(f"{_SCORE_MARKS}:="), text[heading.end() :]
            if not line:
                line, _, below = below.lstrip().partition("\n")
            scores.append(_allowed_score(line, continuous=continuous))
    is_certain = len({*scores} - {None}) == 1 and not _DOUBT.search(below)
    return scores[-1] if is_certain else None


def _allowed_score(value: object, *, continuous: bool) -> float | None:
    """Return a number that stands alone in a text or comes from JSON, if the criterion may have it as its score."""
    number = _SCORE_NUMBER.fullmatch(str(value).strip(_SCORE_MARKS))
    score = float(number["number"]) if number and number["number"] else -1.0
    return score if score in (0, 1) or (continuous and 0 <= score <= 1) else None


def reality_of(answer: str) -> str:
    """Return the text below the heading Reality up to the next heading, or else the whole answer."""
    headings = [*_HEADING.finditer(answer)]
    ends = [*(heading.start() for heading in headings[1:]), len(answer)]
    for heading, end in zip(headings, ends, strict=False):
        if heading["name"].casefold() == "reality":
            return answer[heading.start("rest") : end].strip(" \t\n:*_")[:MAX_EXPLANATION]
    return answer[:MAX_EXPLANATION]


def read_verdict(text: str, *, continuous: bool) -> Verdict | None:
    """Return the verdict of JSON `{"valid_score": true, "score": 1, "explanation": "..."}`; None for anything else."""
    answer = without_thinking(text)
    try:
        verdict, _ = json.JSONDecoder().raw_decode(answer, max(answer.find("{"), 0))
    except (ValueError, RecursionError):
        return None
    score = _allowed_score(verdict.get("score"), continuous=continuous) if isinstance(verdict, dict) else None
    if score is None or verdict.get("valid_score") not in (True, "true"):
        return None
    # JSON's escapes may stand for control characters and half characters
    reason = clean(well_formed(str(verdict.get("explanation", "")))).strip()
    return Verdict(score, reason[:MAX_EXPLANATION])


def read_ranking(text: str, offered: Sequence[SubmissionFile]) -> tuple[SubmissionFile, ...]:
    """Return the files that an answer names, at most ten, best first; names that were not offered are ignored.

    A file's bare name is enough if no other that was offered has it.
    """
    answer, places = without_thinking(text), {}
    bases = Counter(file.name.rpartition("/")[2] for file in offered)
    for file in offered:
        base = file.name.rpartition("/")[2]
        path = json.loads(file.name) if file.name.startswith('"') else file.name
        names = {name for text in (file.name, path) for name in (text, json.dumps(text)[1:-1])}
        names |= {base} if bases[base] == 1 else set()
        matches = [re.search(_WHOLE_NAME.format(re.escape(name)), answer) for name in names if name in answer]
        if starts := [match.end() for match in matches if match]:
            places[file] = min(starts)
    return tuple(sorted(places, key=places.__getitem__))[:MAX_PICKED]


def find_quote(answer: str, texts: Mapping[str, str], counting: Collection[str]) -> QuoteRecord:
    """Return what a grader's answer quotes below its heading Evidence, and where that was found.

    `texts` has the text of each file that the grader was shown, by its name there; `counting` are the names of those
    that can show what the criterion asks for.
    """
    heading = _EVIDENCE.search(answer)
    evidence = answer[heading.end() :] if heading else ""
    file_line = _FILE_LINE.search(evidence)
    written = file_line["name"].strip(f"{_QUOTE_MARKS} ") if file_line else ""
    titles = {_plain_line(name) for name in texts}  # a grader may copy the line with the file's name
    pieces = [piece for piece in _quoted(evidence[file_line.end() if file_line else 0 :]) if piece not in titles]
    names = sorted(texts, key=lambda name: _is_named(written, name), reverse=True)
    for name in names if pieces else ():
        if lines := _lines_of(pieces, texts[name]):
            return QuoteRecord(
                status="found" if _is_named(written, name) else "elsewhere",
                counts=name in counting,
                file=name,
                first_line=lines[0] + 1,
                last_line=lines[-1] + 1,
                text=_excerpt(texts[name].split("\n"), lines)[:MAX_QUOTE],
            )
    return QuoteRecord(status="missing", file=written[:MAX_QUOTE])


def _is_named(written: str, name: str) -> bool:
    """Return whether a grader means a file, by its path or its last part; lines or a note may follow."""
    written, name = written.removeprefix("./"), name.strip(_QUOTE_MARKS)
    return any(re.match(rf"{re.escape(known)}(?![\w/-]|\.\w)", written) for known in (name, name.rpartition("/")[2]))


def _quoted(evidence: str) -> list[str]:
    """Return the pieces that evidence quotes, between its first two fences or else up to the score."""
    fence = _QUOTE_FENCE.search(evidence)
    start = fence.end() if fence else 0
    end = _QUOTE_FENCE.search(evidence, start) if fence else _END_OF_QUOTE.search(evidence)
    lines = evidence[start : end.start() if end else len(evidence)].split("\n")
    if fence and fence["language"].strip() == "diff":
        lines = [line for line in lines if not line.startswith(("-", "@@"))]
    return [piece for line in lines for part in _ELLIPSIS.split(line) if (piece := _plain_line(part))]


def _plain_line(line: str) -> str:
    """Return a line without what quoting adds or changes."""
    line = unicodedata.normalize("NFKC", line).translate(_PLAIN_QUOTES)
    line = _PREFIX.sub("", line, count=1)
    return "".join(line.split()).strip(_QUOTE_MARKS)


def _lines_of(pieces: Sequence[str], text: str) -> Sequence[int]:
    """Return the numbers of the lines of a text in which pieces stand: as lines, in order, or else anywhere."""
    numbers, lines, ends = _plain_lines(text)
    before, found, _ = f"\n{lines}\n".partition("\n".join(["", *pieces, ""]))
    if found:
        first = before.count("\n")
        return numbers[first : first + len(pieces)]
    if max(map(len, pieces)) < _LEAST_QUOTED:
        return ()
    whole, places, start = lines.replace("\n", ""), set[int](), 0
    for piece in pieces:
        at = whole.find(piece, start)
        if at < 0 and (at := whole.find(piece)) < 0:
            return ()
        start = at + len(piece)
        places.update(range(bisect(ends, at), bisect(ends, start - 1) + 1))
    return [numbers[place] for place in sorted(places)]


@lru_cache(_QUOTED_KEPT)
def _plain_lines(text: str) -> tuple[Sequence[int], str, Sequence[int]]:
    """Return the numbers of the lines that are not empty, these lines, and the end of each when they are joined."""
    lines = {number: plain for number, line in enumerate(text.split("\n")) if (plain := _plain_line(line))}
    return list(lines), "\n".join(lines.values()), list(accumulate(map(len, lines.values())))


def _excerpt(lines: Sequence[str], numbers: Sequence[int]) -> str:
    """Return these lines of a text, with an ellipsis where lines between them are left out."""
    excerpt = [lines[numbers[0]]]
    for before, number in pairwise(numbers):
        between = lines[before + 1 : number]
        excerpt += [*(["..."] if any(map(str.strip, between)) else between), lines[number]]
    return "\n".join(excerpt)
