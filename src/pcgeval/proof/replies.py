"""Repeat the trials of a competition on the replies that the models gave, without asking a model.

A recorded model's reply comes from the recording; a live model's from the call log, or from the trial's record if the
log lacks it. A failed call of a live model is another matter: it is nobody's word but the record's unless a log or a
recording holds it, with its attempts and the neutral calls between them. Programs run again in the sandbox.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pcgeval.core.console import count
from pcgeval.core.failures import failure
from pcgeval.core.files import write_text
from pcgeval.core.layout import CALLS, STATE, Trial, recording_file, stage_dir, trials
from pcgeval.core.params import Params
from pcgeval.core.trials import ChatReply, TrialRecord, read_record, record_path, record_text
from pcgeval.generation.generate import TeamTrials, TrialFaultError, do_trials
from pcgeval.llm.call_log import LoggedCall, read_recording, trial_calls, unproved_calls
from pcgeval.llm.protocol import ChatRequest
from pcgeval.llm.recorded import RecordedModel
from pcgeval.proof.release import Finding
from pcgeval.sandbox.process import SandboxError
from pcgeval.submissions.load import Submission

Records = Mapping[Trial, TrialRecord]


class KnownReplies(RecordedModel):
    """Answers from known calls; an unknown call fails, and so does its trial."""

    def call(self, request: ChatRequest) -> LoggedCall:
        """Return the known call of exactly this request; a failed one if none is known."""
        unknown = LoggedCall(key=request.key, failure=failure("reply-unknown"))
        return self._calls.get(request.key, unknown)


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
    paths = {trial: record_path(root / stage_dir("raw", model, team), team, trial) for trial in trials(params)}
    records = {trial: read_record(path) for trial, path in paths.items() if path.exists()}
    known = [*logged, *(read_recording(recording) if recording.is_file() else ())]
    digest = settings.digest or next((record.digest for record in records.values()), "")
    is_live = settings.backend != "recorded"
    calls = _in_order(records, known) if is_live else known
    replies = KnownReplies(calls, digest, f"the replies of {model}")
    on_all_cores = settings.model_copy(update={"concurrency": os.cpu_count() or 1})
    try:
        do_trials(
            params.model_copy(update={"models": {**params.models, model: on_all_cores}}),
            model,
            [TeamTrials(submission, replies, work / stage_dir("raw", model, team))],
            lambda *_: None,
            state=work / STATE,
            calls=work / CALLS,
        )
    except TrialFaultError:  # every trial lies on the disk
        _check_machine(work / stage_dir("raw", model, team), team, records)
    _take_details(work / stage_dir("raw", model, team), team, records)
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


def _check_machine(raw: Path, team: str, records: Records) -> None:
    """Raise SandboxError if this machine could not run a trial again."""
    for trial in records:
        again = read_record(record_path(raw, team, trial))
        if again.failure and again.failure.kind == "no-sandbox":
            raise SandboxError(str(again.failure))


def _take_details(raw: Path, team: str, records: Records) -> None:
    """Give failures of the repeated trials the words of the program or the package manager that are published.

    They differ from machine to machine, and are the only part of a record that an audit does not compare.
    """
    for trial, record in records.items():
        path = record_path(raw, team, trial)
        again = read_record(path)
        if again.failure and record.failure and again.failure.detail != record.failure.detail:
            failed = replace(again.failure, detail=record.failure.detail)
            write_text(path, record_text(replace(again, failure=failed)))


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
