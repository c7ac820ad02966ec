"""Summarise trials for later stages, with the blocks that a submission told the model before the model named them."""

import re
from collections.abc import Iterable
from pathlib import Path

from pcgeval.core.files import read_text, sha256_file
from pcgeval.core.layout import Trial
from pcgeval.core.trials import SuppliedBlocks, TrialRecord, TrialSummary, read_record, record_path, write_summaries
from pcgeval.levels.calls import read_calls
from pcgeval.levels.extraction import extract_code
from pcgeval.submissions.load import Program, Prompt, Submission

# a block and its column as in `drop_block('b31', 7)`, whatever the function is called: `@("b31", 7)`, `b31 7`
_BLOCK = re.compile(r"(?<![A-Za-z0-9_])(b11|b13|b31)[\s'\",;|]{1,8}([0-9]{1,3})(?![A-Za-z0-9_.])", re.IGNORECASE)


def summarise_trials(path: Path, folder: Path, submission: Submission, trials: Iterable[Trial]) -> None:
    """Summarise the trials of a model and a team in one file, which changes with every response.

    Args:
        path: The file.
        folder: The raw folder of the model and team.
        submission: The team's.
        trials: The trials, all of which have a record.

    Raises:
        FileError: A record or response is missing, or the former is not a record.
    """
    summaries = []
    for trial in trials:
        record = read_record(record_path(folder, submission.team, trial))
        summaries.append(trial_summary(folder, submission, trial, record))
    write_summaries(path, summaries)


def trial_summary(folder: Path, submission: Submission, trial: Trial, record: TrialRecord) -> TrialSummary:
    """Summarise a trial, of which record and response lie in a raw folder.

    Raises:
        FileError: The response is missing.
    """
    path = record_path(folder, submission.team, trial)
    response = read_text(path.with_suffix(".txt"))
    usage = record.usage(supplied_blocks(submission.work, trial.letter, response, record))
    return TrialSummary(trial.letter, trial.number, sha256_file(path), record.reason, usage)


def supplied_blocks(work: Prompt | Program, letter: str, response: str, record: TrialRecord) -> SuppliedBlocks:
    """Count the blocks of a response, and those of them that the submission supplied.

    A block, its type with its column, is supplied if it stands in a message of the submission before it stands in a
    reply of the model. The examples of a prompt supply blocks, too: the share is a figure, and no verdict.

    Args:
        work: The prompt or program.
        letter: The trial's letter.
        response: What was handed in; its blocks are those of the calls that are extracted from it.
        record: The calls of the trial.
    """
    said: set[tuple[str, int]] = set()
    supplied: set[tuple[str, int]] = set()
    for exchange in record.exchanges:
        if isinstance(work, Prompt):
            sent = work.for_letter(letter)
        else:
            sent = "\n".join(message.content for message in exchange.messages or ())
        supplied |= _blocks(sent) - said
        said |= _blocks(exchange.reply.text)
    calls = [(call.kind, call.column) for call in read_calls(extract_code(response) or "")]
    return SuppliedBlocks(len(calls), sum(call in supplied for call in calls))


def _blocks(text: str) -> set[tuple[str, int]]:
    return {(kind.lower(), int(column)) for kind, column in _BLOCK.findall(text)}
