"""Summarise trials for later stages, count blocks that a submission named before the model did, export recordings."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.text import well_formed
from pcgeval.core.untrusted import read_text
from pcgeval.formats.blocks import ANY_BLOCK
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import SUBMISSIONS, Trial, recording_file, stage_dir
from pcgeval.formats.params import Model, Params
from pcgeval.formats.trials import SuppliedBlocks, TrialRecord, TrialSummary, read_record, record_path, write_summaries
from pcgeval.levels.conversion import extract_code, read_calls
from pcgeval.llm.blame import CUT_OFF, FILTERED, REFUSAL
from pcgeval.llm.call_log import (
    NEUTRAL,
    LoggedCall,
    RecordedTrial,
    known_calls,
    proofs,
    read_recording,
    trial_calls,
    unproved_calls,
    write_recording,
)
from pcgeval.submissions.load import Program, Prompt, Submission, load_submissions

# a block and its column as in `drop_block('b31', 7)`, with any name of the function: `@("b31", 7)`, `b31 7`
_BLOCK = re.compile(rf"(?<![A-Za-z0-9_])({ANY_BLOCK})[\s'\",;|]{{1,8}}([0-9]{{1,3}})(?!\.?[A-Za-z0-9_])", re.IGNORECASE)


def summarise_trials(path: Path, folder: Path, submission: Submission, trials: Iterable[Trial], model: Model) -> None:
    """Write the summaries of the trials in a raw folder; raises FileError without a trial's record or response."""
    records = {trial: read_record(record_path(folder, submission.team, trial)) for trial in trials}
    write_summaries(
        path, [trial_summary(folder, submission, trial, record, model) for trial, record in records.items()]
    )


def trial_summary(
    folder: Path, submission: Submission, trial: Trial, record: TrialRecord, model: Model
) -> TrialSummary:
    """Summarise a trial whose record and response lie in a raw folder; raises FileError without the response."""
    response = read_text(record_path(folder, submission.team, trial).with_suffix(".txt"), follow_link=True)
    usage = record.usage(supplied_blocks(submission.work, response, record))
    failed = record.failure and replace(record.failure, detail="")
    ending = response_ending(response, record, model)
    return TrialSummary(trial.letter, trial.number, record.sha256, failed, usage, ending)


def response_ending(response: str, record: TrialRecord, model: Model) -> Failure | None:
    """Return why the reply that is a trial's response may hold no level; None for one that ended by itself.

    The limits of a reply are the options `num_predict` and `num_ctx` of the model in params.yaml.
    """
    replies = [exchange.reply for exchange in record.exchanges if well_formed(exchange.reply.text) == response]
    if not replies:
        return None
    reply, room, context = replies[-1], model.options.get("num_predict"), model.options.get("num_ctx")
    if reply.thoughts:
        return failure("thoughts-only", tokens=reply.output_tokens)
    if isinstance(context, int) and reply.prompt_tokens >= context - 1:
        return failure("context-filled", context=context)
    if reply.done_reason in CUT_OFF:
        is_room = isinstance(room, int) and 0 < room <= reply.output_tokens
        limit = "num_predict" if is_room else "num_ctx" if context else "the limit of the server"
        return failure("cut-off", tokens=reply.output_tokens, limit=limit)
    return failure("model-refused") if reply.done_reason in {FILTERED, REFUSAL} else None


def supplied_blocks(work: Prompt | Program, response: str, record: TrialRecord) -> SuppliedBlocks:
    """Count the blocks of a response that the submission supplied, and say whether it supplied the whole level.

    A block, its type with its column, is supplied if it stands in the messages of the submission before it stands in
    the replies of the model; so is a level if all its blocks stand there one behind the other. Examples of a prompt
    supply blocks and levels too, and a level of one block is easily supplied: these are figures, and no verdicts. The
    blocks of a response are those of the calls that are extracted from it.
    """
    blocks = [f"{call.kind} {call.column};" for call in read_calls(extract_code(response) or "")]
    level = "".join(blocks)
    supplied: set[str] = set()
    sent = replied = ""
    for exchange in record.exchanges:
        if isinstance(work, Prompt):
            sent += _blocks(work.text)
        else:
            sent += _blocks("\n".join(message.content for message in exchange.messages or ()))
        supplied |= {calls for calls in {*blocks, level} if calls in sent and calls not in replied}
        replied += _blocks(exchange.reply.text)
    return SuppliedBlocks(len(blocks), sum(block in supplied for block in blocks), level in supplied)


def _blocks(text: str) -> str:
    return "".join(f"{kind.lower()} {int(column)};" for kind, column in _BLOCK.findall(text))


def record_competition(params: Params, submissions: Path = SUBMISSIONS) -> list[Path]:
    """Write the recordings of each model and team from the records in data/raw; return the files.

    Raises FileError if a trial has no record or is to be repeated, or if nothing proves its failed call.
    """
    recordings = []
    for team, submission in load_submissions(params.teams, submissions).items():
        for model, settings in params.models.items():
            recording, folder = recording_file(model, team), stage_dir("raw", model, team)
            records = {trial: read_record(record_path(folder, team, trial)) for trial in sorted(params.trials())}
            known: list[LoggedCall] = []
            if any(record.failed_calls for record in records.values()):
                earlier = read_recording(recording) if recording.is_file() else ()
                known = [*known_calls(settings, Path()), *earlier]
            lines: list[LoggedCall | RecordedTrial] = []
            for trial, record in records.items():
                path = record_path(folder, team, trial)
                if record.is_open:
                    raise FileError(f"{path}: failed through no fault of {team}. Run `dvc repro` first.")
                if settings.backend != "recorded" and unproved_calls(record, known):
                    raise FileError(f"{path}: no call log holds its failed call. Export where the competition ran.")
                if isinstance(submission.work, Program):
                    lines.append(
                        RecordedTrial(
                            letter=trial.letter,
                            trial=trial.number,
                            response=read_text(path.with_suffix(".txt"), follow_link=True),
                            record=record,
                            sha256=record.sha256,
                        )
                    )
                else:
                    lines += trial_calls(trial, record)
            lines += [call for call in proofs(records.values(), known) if call.kind == NEUTRAL]
            write_recording(recording, lines)
            recordings.append(recording)
    return recordings
