"""Look at what servers report with their replies: tokens, seconds, and the name of the answering model.

Tokens and seconds decide the limits of a trial, and only the server knows them. Values that hardly any reply has are
notes for a reader and never faults: tokenizers and servers differ. The limits are far from all replies in
data/recordings, where a token holds 0.5 to 5.7 characters and a reply takes 0.6 to 18 times its usual time.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pcgeval.core.errors import FileError
from pcgeval.core.text import count, listed, number
from pcgeval.formats.layout import Trial, stage_dir
from pcgeval.formats.params import Params
from pcgeval.formats.trials import ChatReply, TrialRecord, read_record, record_path
from pcgeval.proof.parts import Finding
from pcgeval.submissions.load import Program, Prompt, Submission

CHARACTERS_PER_TOKEN = 8
SPARE_CHARACTERS = 16  # a single token may be a long word
SPARE_TOKENS = 16  # that end a reply and stand for no text
TEMPLATE_TOKENS = 500  # with which a chat template surrounds messages
TOKENS_PER_SECOND = 10_000
UNUSUAL = 50  # times as long as, or as short as, the model's replies usually take for as many tokens
LONG_SECONDS = 60.0  # a shorter reply may wait for many reasons
READ_AT_ONCE = 10  # tokens of a prompt that take about the time of one token of a reply
_MOST = 5  # replies of a team that are named
_RUN = re.compile(r"(.)\1+", re.DOTALL)  # a tokenizer may have one token for a row of blanks or of any character


@dataclass(frozen=True)
class _Text:
    """The size of a text: its bytes, and its characters with rows of one character counted as one."""

    bytes: int = 0
    characters: int = 0

    @classmethod
    def of(cls, text: str) -> "_Text":
        return cls(len(text.encode("utf-8", "replace")), len(_RUN.sub(r"\1", text)))

    def __add__(self, other: "_Text") -> "_Text":
        return _Text(self.bytes + other.bytes, self.characters + other.characters)

    def is_more_than(self, tokens: int) -> bool:
        return self.characters > CHARACTERS_PER_TOKEN * tokens + SPARE_CHARACTERS


@dataclass(frozen=True)
class _Reply:
    """A reply of a trial, with the sizes of what was sent and of its text."""

    team: str
    where: str
    reply: ChatReply
    sent: _Text
    text: _Text

    @property
    def seconds_per_token(self) -> float:
        return self.reply.seconds / (self.reply.prompt_tokens / READ_AT_ONCE + self.reply.output_tokens + 1)

    @property
    def is_longer_than_its_text(self) -> bool:
        return self.reply.output_tokens > self.text.bytes + SPARE_TOKENS and not self.reply.thoughts


def unlikely_figures(
    params: Params, model: str, submissions: Mapping[str, Submission], root: Path
) -> Iterator[Finding]:
    """Note tokens and seconds of a model's replies that hardly any text has, and name models that were mixed."""
    replies: list[_Reply] = []
    for team, submission in submissions.items():
        for trial in params.trials():
            with suppress(FileError):  # which is a fault already
                record = read_record(record_path(root / stage_dir("raw", model, team), team, trial))
                replies += _replies(team, trial, submission.work, record)
    names = sorted({name for one in replies if (name := one.reply.model)})
    if len(names) > 1:
        yield "faults", f"{model}: its replies come from several models: {listed(names, _MOST)}."
    if not replies:
        return
    usual = median(one.seconds_per_token for one in replies)
    has_thoughts = 2 * sum(one.is_longer_than_its_text for one in replies) > len(replies)
    if has_thoughts:
        yield "notes", f"{model}: most of its replies have more tokens than their texts, as a model's that thinks."
    for team in submissions:
        team_replies = [one for one in replies if one.team == team]
        doubts = [(one, doubt) for one in team_replies for doubt in _doubts(one, usual, has_thoughts)]
        for one, doubt in doubts[:_MOST]:
            yield "notes", f"{team} with {model}, {one.where}: {doubt}."
        if len(doubts) > _MOST:
            yield "notes", f"{team} with {model}: {count(len(doubts) - _MOST, 'more value')} like these."


def _replies(team: str, trial: Trial, work: Prompt | Program, record: TrialRecord) -> Iterator[_Reply]:
    conversation: list[_Text] = []
    for turn, exchange in enumerate(record.exchanges, start=1):
        if isinstance(work, Prompt):
            conversation = [_Text.of(work.for_letter(trial.letter))]
        else:
            new = [_Text.of(message.content) for message in exchange.messages or ()]
            conversation = conversation[: exchange.repeats or 0] + new
        text = _Text.of(exchange.reply.text)
        where = f"{trial.letter}{trial.number}, reply {turn}"
        yield _Reply(team, where, exchange.reply, sum(conversation, _Text()), text)
        conversation.append(text)


def _doubts(one: _Reply, usual: float, has_thoughts: bool) -> Iterator[str]:
    reply, seconds = one.reply, one.reply.seconds
    written, read = count(reply.output_tokens, "token"), count(reply.prompt_tokens, "token")
    if one.text.is_more_than(reply.output_tokens):
        yield f"{written} are few for its {number(one.text.bytes)} bytes"
    elif one.is_longer_than_its_text and not has_thoughts:
        yield f"{written} are many for its {number(one.text.bytes)} bytes"
    if one.sent.is_more_than(reply.prompt_tokens):
        yield f"{read} are few for a prompt of {number(one.sent.bytes)} bytes"
    elif reply.prompt_tokens > one.sent.bytes + TEMPLATE_TOKENS:
        yield f"{read} are many for a prompt of {number(one.sent.bytes)} bytes"
    share = one.seconds_per_token / usual if usual else 1.0
    if reply.output_tokens > TOKENS_PER_SECOND * seconds or share < 1 / UNUSUAL:
        yield f"{number(seconds)} s are few for {written}"
    elif seconds > LONG_SECONDS and share > UNUSUAL:
        yield f"{number(seconds)} s are many for {written}"
