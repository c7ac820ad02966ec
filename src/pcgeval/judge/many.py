"""Grade several submissions by one judge, one after the other, with one budget: teams, runs, examples, attacked copies.

A finished grade with a file is skipped unless what decided it has changed: the files, the settings or pcgeval. A note
in the state folder says what decided it; the grade's file has the same bytes wherever the submission lies.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_file, sha256_json, write_json
from pcgeval.core.layout import GRADE_FILE
from pcgeval.judge.calls import JudgeClient
from pcgeval.judge.plan import GradingPlan, plan_grading
from pcgeval.judge.prompts import prompt_version
from pcgeval.judge.run import attempt, grade_attempt, state_folder, state_of
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.grades import JudgeOutput
from pcgeval.rubric.runs import PaperRun, submission_in
from pcgeval.submissions.reproduction import Computer, computer_identity

_NOT_DECIDING = ("deadline", "max_cost", "token_budget", "call_seconds", "max_width")  # settings that change no grade

T = TypeVar("T")
Fault = PcgevalError | OSError  # why a grading failed


@dataclass(frozen=True)
class Grading:
    """One of several gradings by a judge."""

    name: str
    open: Callable[[], AbstractContextManager[GradingTask]]  # gives the submission and its rubric
    file: Path | None = None  # where the grade goes; without one it is never skipped
    inputs: Callable[[], Sequence[Path]] = (
        tuple  # the files and folders that decide it; the package's change with its version
    )


def grade_all(
    gradings: Iterable[Grading], client: JudgeClient, computer: Computer | None = None, *, title: str = "grade "
) -> Iterator[tuple[str, JudgeOutput | Fault]]:
    """Yield the name of each grading, and its grade, or why it failed; one that fails does not stop the others.

    A computer runs each submission's reproduce.sh first. The title stands before the name above the progress.
    """
    return for_each(gradings, partial(_grade, client=client, computer=computer, title=title))


def plan_all(gradings: Iterable[Grading], client: JudgeClient) -> Iterator[tuple[str, GradingPlan | Fault]]:
    """Yield the name of each grading, and what it would cost, without a run of reproduce.sh, or why it would fail."""

    def plan(grading: Grading) -> GradingPlan:
        with grading.open() as task:
            return plan_grading(grading.name, task, client)

    return for_each(gradings, plan)


def for_each(gradings: Iterable[Grading], act: Callable[[Grading], T]) -> Iterator[tuple[str, T | Fault]]:
    """Yield the name of each grading, and what `act` returned for it, or the error that it raised."""
    for grading in gradings:
        result: T | Fault
        try:
            result = act(grading)
        except (PcgevalError, OSError) as error:
            result = error
        yield grading.name, result


def _grade(grading: Grading, client: JudgeClient, computer: Computer | None, title: str) -> JudgeOutput:
    """Grade, unless that is done, and write the file of the grade."""
    if (file := grading.file) is not None:
        inputs = _inputs(grading, client.settings, computer)
        note = state_folder(file) / "finished.json"  # the SHA-256 of what decided the grade, and of its file
        if file.is_file() and note.is_file() and json.loads(note.read_bytes()) == [inputs, sha256_file(file)]:
            output = read_grade(file)
            client.count(grading.name, output.token_usage.total)
            return output
        file.unlink(missing_ok=True)  # it is out of date; without it, `pcgeval rubric table` names the run
    if computer is not None and (reason := client.reason_to_end()) is not None:
        raise GradingError(f"reproduce.sh was not run: {reason}")
    with grading.open() as task:
        output = grade_attempt(task, client, computer, f"{title}{grading.name}")
    if file is not None:
        write_json(file, output.to_json())
        if output.partial is None and not client.settings.is_replay:  # a replay reads recordings, which may change
            write_json(note, [inputs, sha256_file(file)])
    return output


def _inputs(grading: Grading, settings: JudgeSettings, computer: Computer | None) -> str:
    """Return a hash of all that decides a grading, as far as names, sizes and times of files tell."""
    places = [*grading.inputs(), *([settings.checks_file] if settings.checks_file else [])]
    values = settings.model_dump(
        mode="json", exclude={"model": {"concurrency": True}, **dict.fromkeys(_NOT_DECIDING, True)}
    )
    run_by = None if computer is None else computer_identity(computer)
    files = [(str(place.resolve()), state_of(place)) for place in places]
    return sha256_json([version("pcgeval"), prompt_version(settings.prompts), values, run_by, files])


def run_gradings(runs: Iterable[PaperRun], out: Path, settings: JudgeSettings) -> list[Grading]:
    """Return the gradings of runs, whose grades go to `out` as GROUP/RUN/grade.json."""

    def grading(run: PaperRun) -> Grading:
        return Grading(
            run.id,
            open=lambda: attempt(submission_in(run.folder), run.paper_id, settings),
            file=out / run.group / run.name / GRADE_FILE,
            inputs=lambda: (submission_in(run.folder), Path(settings.papers_dir, run.paper_id)),
        )

    return [grading(run) for run in runs]
