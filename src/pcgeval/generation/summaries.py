"""Summarise trials for later stages, and count the blocks that a submission named before the model did."""

import re
from collections.abc import Iterable
from pathlib import Path

from pcgeval.core.files import read_text, sha256_file
from pcgeval.core.layout import Trial
from pcgeval.core.trials import SuppliedBlocks, TrialRecord, TrialSummary, read_record, record_path, write_summaries
from pcgeval.levels.calls import read_calls
from pcgeval.levels.extraction import extract_code
from pcgeval.submissions.load import Program, Prompt, Submission

# a block and its column as in `drop_block('b31', 7)`, with any name of the function: `@("b31", 7)`, `b31 7`
_BLOCK = re.compile(r"(?<![A-Za-z0-9_])(b11|b13|b31)[\s'\",;|]{1,8}([0-9]{1,3})(?![A-Za-z0-9_.])", re.IGNORECASE)


def summarise_trials(path: Path, folder: Path, submission: Submission, trials: Iterable[Trial]) -> None:
    """Write the summaries of the trials in a raw folder; raises FileError without a trial's record or response."""
    records = {trial: read_record(record_path(folder, submission.team, trial)) for trial in trials}
    write_summaries(path, [trial_summary(folder, submission, trial, record) for trial, record in records.items()])


def trial_summary(folder: Path, submission: Submission, trial: Trial, record: TrialRecord) -> TrialSummary:
    """Summarise a trial whose record and response lie in a raw folder; raises FileError without the response."""
    path = record_path(folder, submission.team, trial)
    response = read_text(path.with_suffix(".txt"))
    usage = record.usage(supplied_blocks(submission.work, trial.letter, response, record))
    return TrialSummary(trial.letter, trial.number, sha256_file(path), record.reason, usage)


def supplied_blocks(work: Prompt | Program, letter: str, response: str, record: TrialRecord) -> SuppliedBlocks:
    """Count the blocks of a response, and those of them that the submission supplied.

    A block, its type with its column, is supplied if it stands in a message of the submission before it stands in a
    reply of the model. The examples of a prompt supply blocks too: the share is a figure, and no verdict. The blocks
    of a response are those of the calls that are extracted from it.
    """
    replied: set[tuple[str, int]] = set()
    supplied: set[tuple[str, int]] = set()
    for exchange in record.exchanges:
        if isinstance(work, Prompt):
            sent = work.for_letter(letter)
        else:
            sent = "\n".join(message.content for message in exchange.messages or ())
        supplied |= _blocks(sent) - replied
        replied |= _blocks(exchange.reply.text)
    calls = [(call.kind, call.column) for call in read_calls(extract_code(response) or "")]
    return SuppliedBlocks(len(calls), sum(call in supplied for call in calls))


def _blocks(text: str) -> set[tuple[str, int]]:
    return {(kind.lower(), int(column)) for kind, column in _BLOCK.findall(text)}
