"""Repeat the trials of a competition on the replies that the models gave, and ask models again on demand.

A recorded model's reply comes from the recording; a live model's from the call log, or from the trial's record if the
log lacks it. A failed call of a live model is another matter: it is nobody's word but the record's unless a log or a
recording holds it, with its attempts and the neutral calls after them. Programs run again in the sandbox, in the
order and at the times that their records have for the calls.

A program may depend on what no run can repeat, such as the randomness of the system. A trial that comes to something
else is repeated until two repetitions differ: then its record proves nothing and is taken as it is. A record on which
all repetitions agree that it is wrong stays a difference.

Tokens and seconds decide the limits of a trial, and only the server knows them. Values that hardly any reply has are
notes for a reader and never faults: tokenizers and servers differ. The limits are far from all replies in
data/recordings, where a token holds 0.5 to 5.7 characters and a reply takes 0.6 to 18 times its usual time.

An audit shows that the results follow from the replies, and asks no model. Only asking again, as `ask_again` does with
the same model, messages, options and seed, can show that a model really gave them.
"""

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from pcgeval.core.console import Progress
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.core.text import count, listed, number, printable_line
from pcgeval.core.untrusted import read_text
from pcgeval.formats.failures import failure
from pcgeval.formats.layout import CALLS, STATE, SUBMISSIONS, Trial, recording_file, stage_dir, trial_file
from pcgeval.formats.params import Limits, Params
from pcgeval.formats.trials import (
    ChatReply,
    Exchange,
    TrialRecord,
    finished_trial,
    read_record,
    record_path,
    record_text,
)
from pcgeval.generation.broker import is_reply
from pcgeval.generation.generate import TeamTrials, TrialFaultError, do_trials
from pcgeval.generation.tasks import GenerationTask, TrialJob
from pcgeval.llm.backends import find_model, open_backend, pinned_digest
from pcgeval.llm.call_log import LoggedCall, RecordedModel, read_recording, trial_calls, unproved_calls
from pcgeval.llm.protocol import Backend, CallError, ChatRequest, LlmError, Message
from pcgeval.proof.parts import Finding
from pcgeval.sandbox.process import SandboxError
from pcgeval.submissions.load import Program, Prompt, Submission, load_submissions

REPETITIONS = 8  # of a trial, at most
THINKING_SECONDS, THINKING_FACTOR = 10.0, 10.0  # by which a program may have been slower than its repetition

CHARACTERS_PER_TOKEN = 8
SPARE_CHARACTERS = 16  # a single token may be a long word
SPARE_TOKENS = 16  # that end a reply and stand for no text
TEMPLATE_TOKENS = 500  # with which a chat template surrounds messages
TOKENS_PER_SECOND = 10_000
UNUSUAL = 50  # times as long as, or as short as, the model's replies usually take for as many tokens
LONG_SECONDS = 60.0  # a shorter reply may wait for many reasons
READ_AT_ONCE = 10  # tokens of a prompt that take about the time of one token of a reply
_RUN = re.compile(r"(.)\1+", re.DOTALL)  # a tokenizer may have one token for a row of blanks or of any character
_MOST_NAMED = 5  # replies of a team
LONGEST = 80  # characters of a value in a message
_BEFORE = 20  # characters before the first difference of two long texts

Records = Mapping[Trial, TrialRecord]


class _KnownReplies(RecordedModel):
    """Answers from known calls; an unknown call fails, and so does its trial."""

    def call(self, request: ChatRequest) -> LoggedCall:
        """Return the known call of exactly this request; a failed one if none is known."""
        return self._calls.get(request.key) or LoggedCall(key=request.key, failure=failure("reply-unknown"))


def repeat_trials(
    params: Params, model: str, submission: Submission, root: Path, work: Path, logged: Sequence[LoggedCall]
) -> Iterator[Finding]:
    """Do the trials of a team with a model again, into `data/raw` below the folder `work`.

    `logged` are the model's calls in the call log. The findings are faults of the replies, and a note where a record
    alone holds them.

    Raises:
        SandboxError: There is no sandbox for its program.
        PcgevalError: A record cannot be read, or the program cannot be run here.
    """
    team, settings = submission.team, params.models[model]
    place, recording = f"{team} with {model}", root / recording_file(model, team)
    raw, published = (folder / stage_dir("raw", model, team) for folder in (work, root))
    paths = {trial: record_path(published, team, trial) for trial in params.trials()}
    records = {trial: read_record(path) for trial, path in paths.items() if path.exists()}
    known = [*logged, *(read_recording(recording) if recording.is_file() else ())]
    digest = settings.digest or next((record.digest for record in records.values()), "")
    is_live = settings.backend != "recorded"
    replies = _KnownReplies(_in_order(records, known) if is_live else known, digest, f"the replies of {model}")
    on_all_cores = settings.model_copy(update={"concurrency": os.cpu_count() or 1})
    replay = params.model_copy(update={"models": {**params.models, model: on_all_cores}})
    repeated = TeamTrials(submission, replies, raw, records)

    def repeat(doubtful: Iterable[Trial] = ()) -> Records:
        for trial in doubtful:
            record_path(raw, team, trial).unlink()
        with ExitStack() as opened, suppress(TrialFaultError):  # every trial lies on the disk
            do_trials(replay, model, [repeated], lambda *_: None, opened, state=work / STATE, calls=work / CALLS)
        return _repeated(raw, team, records)

    again = repeat()
    if isinstance(submission.work, Program):
        yield from _unrepeatable(place, (published, raw), records, again, repeat)
        yield from _altered(place, records, raw, params.limits)
        yield from _slower(place, records, repeated.thought)
    for trial, record in records.items():
        if record.is_open:
            where = f"{place}, {trial.letter}{trial.number}"
            yield "faults", f"{where}: failed through no fault of the team ({record.failure}), so it is no result."
    yield from _contradictions(place, records, known)
    if is_live:
        yield from _unproved(place, records, known)


def _in_order(records: Records, known: Sequence[LoggedCall]) -> Iterator[LoggedCall]:
    """Yield a live model's calls, of which the first of each key is replayed.

    Several outcomes of a call may be known, as another team or another model was asked the same: that of the record
    comes first if it is one of them. What only a record holds comes last.
    """
    outcomes = {(call.key, call.outcome, call.attempts if call.reply is None else ()) for call in known}
    recorded = [call for trial, record in records.items() for call in trial_calls(trial, record)]
    yield from (call for call in recorded if (call.key, call.outcome, call.attempts) in outcomes)
    yield from (call for call in known if call.reply)
    yield from recorded


def _repeated(raw: Path, team: str, records: Records) -> Records:
    """Return the records of the repeated trials, whose failures get the words that are published with these.

    The words of a program or the package manager differ from machine to machine, and are the only part of a record
    that an audit does not compare. Raises SandboxError if this machine could not run a trial again.
    """
    repeated = {}
    for trial, record in records.items():
        path = record_path(raw, team, trial)
        again = read_record(path)
        if again.failure and again.failure.kind == "no-sandbox":
            raise SandboxError(str(again.failure))
        if again.failure and record.failure and again.failure.detail != record.failure.detail:
            again = replace(again, failure=replace(again.failure, detail=record.failure.detail))
            write_text(path, record_text(again))
        repeated[trial] = again
    return repeated


def _unrepeatable(
    place: str,
    folders: tuple[Path, Path],
    records: Records,
    again: Records,
    repeat: Callable[[Iterable[Trial]], Records],
) -> Iterator[Finding]:
    """Tell which trials of a program cannot be repeated, and take these as they are.

    `folders` hold the records and their first repetition, `again`.
    """
    doubtful = {trial for trial, record in records.items() if record.sha256 != again[trial].sha256}
    varying: set[Trial] = set()
    for _ in range(REPETITIONS - 1):
        if left := doubtful - varying:
            latest = repeat(left)
            varying |= {trial for trial in left if latest[trial].sha256 != again[trial].sha256}
    for trial in sorted(doubtful):
        record, name = records[trial], f"{trial.letter}{trial.number}"
        unflagged = replace(record, flags=tuple(flag for flag in record.flags if flag.kind != "unrepeatable"))
        if trial in varying:
            yield "notes", f"{place}, {name}: its repetitions differ from one another; the record was taken as it is."
        elif record == unflagged:
            continue  # a difference of the files
        elif again[trial] == unflagged:
            agreement = f"{REPETITIONS} repetitions are like the record"
            yield "notes", f"{place}, {name}: flagged as unrepeatable, but {agreement}."
        else:
            yield "faults", f"{place}, {name}: flagged as unrepeatable, but {REPETITIONS} repetitions are all alike."
            continue
        _take(trial, record, *folders)


def _take(trial: Trial, record: TrialRecord, source: Path, target: Path) -> None:
    """Copy a record with its response, if they belong together."""
    team = source.name
    if finished_trial(source, team, trial, record.fingerprint):
        for path in (trial_file(source, "raw", team, trial), record_path(source, team, trial)):
            shutil.copyfile(path, target / path.relative_to(source))


def _altered(place: str, records: Records, folder: Path, limits: Limits) -> Iterator[Finding]:
    """Name answers that no reply is and no flag names, which a repetition would have flagged."""
    for trial in records:
        path = record_path(folder, folder.name, trial)
        record, answer = read_record(path), read_text(path.with_suffix(".txt"), follow_link=True)
        has_met_a_limit = record.late is not None or record.tokens > limits.tokens  # then it may join replies
        is_flagged = any(flag.kind == "altered-answer" for flag in record.flags)
        if answer.strip() and not (has_met_a_limit or is_flagged or is_reply(answer, record.exchanges)):
            name = f"{place}, {trial.letter}{trial.number}"
            yield "faults", f"{name}: the answer is none of the model's replies, and no flag says so."


def _slower(place: str, records: Records, thought: Mapping[Trial, float]) -> Iterator[Finding]:
    """Note programs that are said to have taken much longer between the model's replies than they take now."""
    for trial, record in records.items():
        ended = record.late or max((exchange.at or 0.0 for exchange in record.exchanges), default=0.0)
        seconds = ended - sum(exchange.reply.seconds for exchange in record.exchanges)
        if trial in thought and seconds > THINKING_SECONDS + THINKING_FACTOR * thought[trial]:
            text = f"the program is said to have taken {seconds:.1f} s of its own, and took {thought[trial]:.1f} s now"
            yield "notes", f"{place}, {trial.letter}{trial.number}: {text}."


def _contradictions(place: str, records: Records, known: Sequence[LoggedCall]) -> Iterator[Finding]:
    """Name calls of the records to which one model gave two different replies."""
    keys = {exchange.key for record in records.values() for exchange in record.exchanges}
    replies: dict[tuple[str, str | None], ChatReply] = {}
    for call in known:
        if not call.reply or call.key not in keys:
            continue
        if replies.setdefault((call.key, call.reply.model), call.reply) != call.reply:
            yield "faults", f"{place}: the call {call.key} has two different answers in call log and recording."


def _unproved(place: str, records: Records, known: Sequence[LoggedCall]) -> Iterator[Finding]:
    """Name failures that nothing but the records says, and count such replies."""
    for trial, record in records.items():
        for call in unproved_calls(record, known):
            where = f"{place}, {trial.letter}{trial.number}, call {call.turn}"
            reason = f"no call log or recording holds the failed call ({call.failure.sentence})"
            remedy = "Audit where the competition ran, or run `pcgeval export recordings` there."
            yield "faults", f"{where}: {reason}. {remedy}"
    answered = {call.key for call in known if call.reply}
    if lacking := len({exchange.key for record in records.values() for exchange in record.exchanges} - answered):
        text = f"{count(lacking, 'reply', 'replies')} of the model stand in the trials' records alone"
        yield "notes", f"{place}: {text}: no call log or recording has them."


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
        yield "faults", f"{model}: its replies come from several models: {listed(names)}."
    if not replies:
        return
    usual = median(one.seconds_per_token for one in replies)
    has_thoughts = 2 * sum(one.is_longer_than_its_text for one in replies) > len(replies)
    if has_thoughts:
        yield "notes", f"{model}: most of its replies have more tokens than their texts, as a model's that thinks."
    for team in submissions:
        team_replies = [one for one in replies if one.team == team]
        doubts = [(one, doubt) for one in team_replies for doubt in _doubts(one, usual, has_thoughts)]
        for one, doubt in doubts[:_MOST_NAMED]:
            yield "notes", f"{team} with {model}, {one.where}: {doubt}."
        if len(doubts) > _MOST_NAMED:
            yield "notes", f"{team} with {model}: {count(len(doubts) - _MOST_NAMED, 'more value')} like these."


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


def cut_to_difference(one: Any, other: Any) -> tuple[str, str]:
    """Return two values as text, long ones cut to 80 characters around the place in which they differ."""
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in (one, other)]
    same = len(os.path.commonprefix(texts))  # noqa: RUF071 - texts, no paths
    start = max(0, same - _BEFORE) if max(map(len, texts)) > LONGEST else 0
    before = "..." if start else ""
    return before + printable_line(texts[0][start:], LONGEST), before + printable_line(texts[1][start:], LONGEST)


@dataclass(frozen=True)
class AskedCall:
    """One call that was asked again."""

    model: str  # the model's key in params.yaml
    team: str
    letter: str
    trial: int
    turn: int  # among the answered calls of the trial, from 1
    same: bool | None  # text and tokens of the answer; None: there was no answer
    detail: str  # where the answers differ, or why there is none

    def __str__(self) -> str:
        """Return the call and its outcome in a line."""
        outcome = {True: "the same answer", False: "another answer", None: "no answer"}[self.same]
        place = f"{self.team} with {self.model}, {self.letter}{self.trial}, call {self.turn}"
        return f"{place}: {outcome}{f': {self.detail}' if self.detail else ''}"


def ask_again(
    root: Path, params: Params, most: int, *, report: Callable[[str], None] = lambda _: None
) -> list[AskedCall]:
    """Ask a sample of the calls in data/raw again, or all if they are fewer; everybody draws the same sample.

    The same bytes of a model on the same kind of machine give the same answer to a seed; another version of the server,
    another processor or GPU may give another one, as may a server that answers several at once. Recorded models that
    pcgeval can run itself are asked in this process, others where params.yaml says, or of this machine's Ollama server.
    `report` receives messages for a person.
    """
    submissions = load_submissions(params.teams, root / SUBMISSIONS)
    calls: list[tuple[str, str, Trial, int, TrialRecord]] = []
    for model, team, trial in product(params.models, params.teams, params.trials()):
        path = record_path(root / stage_dir("raw", model, team), team, trial)
        record = read_record(path) if path.exists() else None
        calls += [(model, team, trial, turn, record) for turn in range(len(record.exchanges))] if record else []
    chosen = sorted(random.Random(0).sample(range(len(calls)), min(most, len(calls))))  # noqa: S311 - no secret
    asked = []
    opened, digest, fault = "", "", ""
    backend: Backend | None = None  # one at a time: a model may fill the memory
    progress = Progress("calls asked again", len(chosen))
    for model, team, trial, turn, record in (calls[place] for place in chosen):
        settings = params.models[model]
        if settings.backend == "recorded":
            name = "llamacpp" if find_model(settings.name) else "ollama"
            settings = settings.model_copy(update={"backend": name})
        if model != opened:
            report(f"asking {model} again")
            opened, backend = model, None
            try:
                backend = open_backend(settings, report=report)
                digest = pinned_digest(settings, backend)
            except LlmError as error:
                backend, fault = None, printable_line(str(error))
        same: bool | None = None
        if backend is None:
            detail = fault
        elif digest != record.digest:
            detail = f"the server has another model of this name, with digest {digest}"
        else:
            task = GenerationTask(submissions[team], settings, digest, params.limits, params.competition.seed)
            request = list(_requests(task.job(trial), submissions[team].work, record))[turn]
            same, detail = _ask(request, record.exchanges[turn], backend, params.limits.call_seconds)
        asked.append(AskedCall(model, team, trial.letter, trial.number, turn + 1, same, detail))
        progress.step()
    return asked


def _ask(request: ChatRequest, exchange: Exchange, backend: Backend, seconds: float) -> tuple[bool | None, str]:
    """Ask a call again and return whether the answer is the same, and how it differs."""
    if request.key != exchange.key:
        return None, "the submission, model, seed or options have changed since it was recorded"
    try:
        reply = backend.chat(request, seconds)
    except (CallError, LlmError) as error:
        return None, printable_line(str(error))
    if reply.text != exchange.reply.text:
        before, now = cut_to_difference(exchange.reply.text, reply.text)
        return False, f"{before!r} is recorded, and {now!r} is answered"
    is_same = (reply.prompt_tokens, reply.output_tokens) == (exchange.reply.prompt_tokens, exchange.reply.output_tokens)
    return is_same, "" if is_same else "the same text with other numbers of tokens"


def _requests(job: TrialJob, work: Prompt | Program, record: TrialRecord) -> Iterator[ChatRequest]:
    """Yield the request of each answered call of a trial by what was sent, as the broker makes it."""
    conversation: tuple[Message, ...] = ()
    repetitions: Counter[str] = Counter()
    for exchange in record.exchanges:
        if isinstance(work, Prompt):
            sent: tuple[Message, ...] = (Message("user", work.for_letter(job.trial.letter)),)
        else:
            sent = conversation[: exchange.repeats or 0] + (exchange.messages or ())
        first = job.request(*sent).key
        yield job.request(*sent, repetition=repetitions[first])
        repetitions[first] += 1
        conversation = (*sent, Message("assistant", exchange.reply.text))
