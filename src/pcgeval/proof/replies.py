"""Repeat the trials of a competition on the replies that the models gave, without asking a model.

A recorded model's reply comes from the recording; a live model's from the call log, or from the trial's record if the
log lacks it. Programs run again in the sandbox.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from pcgeval.core.console import count
from pcgeval.core.failures import Failure, failure
from pcgeval.core.layout import CALLS, STATE, recording_file, stage_dir, trials
from pcgeval.core.params import Model, Params
from pcgeval.core.trials import ChatReply, read_record, record_path
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.llm.call_log import LoggedCall, answered_calls, read_recording, trial_calls
from pcgeval.llm.local_models import full_name
from pcgeval.llm.protocol import ChatRequest
from pcgeval.llm.recorded import RecordedModel
from pcgeval.proof.release import Finding
from pcgeval.submissions.load import Submission

BYTES_PER_TOKEN = 16  # of a reply, at most: the recorded replies of all models have less than 6
MIN_BYTES = 32  # of a reply; shorter ones pass


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
    return [call for call in calls if full_name(call.model or "") == full_name(model.name)]


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
    with ExitStack() as opened:
        do_trials(
            params.model_copy(update={"models": {**params.models, model: on_all_cores}}),
            model,
            [TeamTrials(submission, replies, work / stage_dir("raw", model, team))],
            lambda *_: None,
            opened,
            state=work / STATE,
            calls=work / CALLS,
        )
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
