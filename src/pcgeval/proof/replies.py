"""Repeat the trials of a competition on the replies that the models gave, without asking a model.

A recorded model's reply comes from the recording; a live model's from the call log, or from the trial's record if the
log lacks it. Programs run again in the sandbox, in the order and at the times that their records have for the calls.

A program may depend on what no run can repeat, such as the randomness of the system. A trial that comes to something
else is repeated until two repetitions differ: then its record proves nothing and is taken as it is. A record on which
all repetitions agree that it is wrong stays a difference.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pcgeval.core.console import count
from pcgeval.core.failures import Failure, failure
from pcgeval.core.files import read_text
from pcgeval.core.layout import CALLS, STATE, Trial, recording_file, stage_dir, trial_file, trials
from pcgeval.core.params import Limits, Model, Params
from pcgeval.core.trials import ChatReply, TrialRecord, finished_trial, read_record, record_path
from pcgeval.generation.broker import is_reply
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.llm.call_log import LoggedCall, answered_calls, read_recording, trial_calls
from pcgeval.llm.protocol import ChatRequest
from pcgeval.llm.recorded import RecordedModel
from pcgeval.proof.release import Finding
from pcgeval.submissions.load import Program, Submission

BYTES_PER_TOKEN = 16  # of a reply, at most: the recorded replies of all models have less than 6
MIN_BYTES = 32  # of a reply; shorter ones pass
REPETITIONS = 8  # of a trial, at most
THINKING_SECONDS, THINKING_FACTOR = 10.0, 10.0  # by which a program may have been slower than its repetition

Records = Mapping[Trial, TrialRecord]


class KnownReplies(RecordedModel):
    """Answers from known calls; an unknown call fails, and so does its trial."""

    def call(self, request: ChatRequest) -> LoggedCall:
        """Return the known call of exactly this request; a failed one if none is known."""
        unknown = LoggedCall(key=request.key, failure=failure("reply-unknown"))
        return self._calls.get(request.key, unknown)


def logged_calls(model: Model, root: Path) -> list[LoggedCall]:
    """Return the answered calls of a model in the call log; of a recorded model its recordings alone count."""
    if model.backend == "recorded":
        return []
    paths = (path for path in sorted((root / CALLS).glob("*.jsonl")) if path.is_file())
    calls = (call for path in paths for call in answered_calls(path.read_bytes().split(b"\n")))
    return [call for call in calls if call.model == model.name]


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
    in_records = [call for trial, record in records.items() for call in trial_calls(trial, record)]
    digest = settings.digest or next((record.digest for record in records.values()), "")
    is_live = settings.backend != "recorded"
    replies = KnownReplies([*known, *(in_records if is_live else ())], digest, f"the replies of {model}")
    on_all_cores = settings.model_copy(update={"concurrency": os.cpu_count() or 1})
    raw, shown = work / stage_dir("raw", model, team), root / stage_dir("raw", model, team)
    repeated = TeamTrials(submission, replies, raw, records)

    def repeat(doubtful: Iterable[Trial] = ()) -> Records:
        for trial in doubtful:
            record_path(raw, team, trial).unlink()
        do_trials(
            params.model_copy(update={"models": {**params.models, model: on_all_cores}}),
            model,
            [repeated],
            lambda *_: None,
            state=work / STATE,
            calls=work / CALLS,
        )
        return {trial: read_record(record_path(raw, team, trial)) for trial in records}

    again = repeat()
    if isinstance(submission.work, Program):
        yield from _unrepeatable(place, (shown, raw), records, again, repeat)
        yield from _altered(place, records, raw, params.limits)
        yield from _slower(place, records, repeated.thought)
    keys = {exchange.key for record in records.values() for exchange in record.exchanges}
    outcomes: dict[str, ChatReply | Failure | str] = {}
    for call in known:
        if call.key in keys and outcomes.setdefault(call.key, call.outcome) != call.outcome:
            yield "faults", f"{place}: the call {call.key} has two different answers in call log and recording."
    for trial, record in records.items():
        for number, exchange in enumerate(record.exchanges, start=1):
            size, tokens = len(exchange.reply.text.encode("utf-8", "replace")), exchange.reply.output_tokens
            if size >= MIN_BYTES and size > BYTES_PER_TOKEN * tokens:
                where = f"{place}, {trial.letter}{trial.number}, reply {number}"
                yield "faults", f"{where}: its {size} bytes are more than the {tokens} tokens that are recorded."
    if unproved := len(keys - {call.key for call in known}):
        text = f"{count(unproved, 'reply', 'replies')} of the model stand in the trials' records alone"
        yield "notes", f"{place}: {text}: no call log or recording has them."


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
            yield (
                "notes",
                f"{place}, {name}: flagged as unrepeatable, but {REPETITIONS} repetitions are like the record.",
            )
        else:
            yield "faults", f"{place}, {name}: flagged as unrepeatable, but {REPETITIONS} repetitions are all alike."
            continue
        _take(trial, record, *folders)


def _altered(place: str, records: Records, folder: Path, limits: Limits) -> Iterator[Finding]:
    """Name answers that no reply is and no flag names, which a repetition would have flagged."""
    for trial in records:
        path = record_path(folder, folder.name, trial)
        record, answer = read_record(path), read_text(path.with_suffix(".txt"))
        has_met_a_limit = record.late is not None or record.tokens > limits.tokens  # then it may join replies
        is_flagged = any(flag.kind == "altered-answer" for flag in record.flags)
        if answer.strip() and not (has_met_a_limit or is_flagged or is_reply(answer, record.exchanges)):
            name = f"{place}, {trial.letter}{trial.number}"
            yield "faults", f"{name}: the answer is none of the model's replies, and no flag says so."


def _take(trial: Trial, record: TrialRecord, source: Path, target: Path) -> None:
    """Copy a record with its response, if they belong together."""
    team = source.name
    if finished_trial(source, team, trial, record.fingerprint):
        for path in (trial_file(source, "raw", team, trial), record_path(source, team, trial)):
            shutil.copyfile(path, target / path.relative_to(source))


def _slower(place: str, records: Records, thought: Mapping[Trial, float]) -> Iterator[Finding]:
    """Note programs that are said to have taken much longer between the model's replies than they take now."""
    for trial, record in records.items():
        ended = record.late or max((exchange.at or 0.0 for exchange in record.exchanges), default=0.0)
        seconds = ended - sum(exchange.reply.seconds for exchange in record.exchanges)
        if trial in thought and seconds > THINKING_SECONDS + THINKING_FACTOR * thought[trial]:
            text = f"the program is said to have taken {seconds:.1f} s of its own, and took {thought[trial]:.1f} s now"
            yield "notes", f"{place}, {trial.letter}{trial.number}: {text}."
