"""Many gradings as one table: submissions by papers, with the mean of the attempts at each and its standard error.

As in PaperBench (`metrics.py`), the standard error is that of the mean: the standard deviation of the scores, with one
degree of freedom less, over the root of their number. The figures over all papers are of seeds: the k-th attempts of a
group at each paper, in the order of their names, are its k-th seed; its score is the mean over all papers of the
table. A seed that lacks one does not count.
"""

import json
import math
import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Self

from pcgeval.core.errors import FaultsError, FileError, PcgevalError
from pcgeval.core.untrusted import printable_line, printable_name, read_bounded_text
from pcgeval.rubric.explanation import reasons_without_grade
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.grades import HEURISTIC, JudgeOutput
from pcgeval.rubric.runs import PaperRun

ALL_PAPERS = "all papers"
COLUMNS = ("submission", "paper", "n", "mean", "std. error", "leaves without a grade", "US dollars", "problems")
_MAX_PROBLEM = 500  # characters
_MAX_LIST_BYTES = 100_000_000  # of a list of disqualified runs; PaperBench's monitor writes parts of logs beside them


def read_disqualified(path: Path) -> frozenset[str]:
    """Return the names of runs that are disqualified.

    Args:
        path: PaperBench's list, the name of a run on each line, or the results of its monitor of the blacklist.

    Raises:
        FileError: It is missing, unreadable, too large or not UTF-8, or is JSON and not of the monitor.
    """
    text = read_bounded_text(path, _MAX_LIST_BYTES, follow_link=True)
    if not text.lstrip().startswith("{"):
        return frozenset(line.strip() for line in text.splitlines() if line.strip())
    try:
        return frozenset(map(str, json.loads(text)["flagged_run_ids"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{path}: has no 'flagged_run_ids'. Give results of PaperBench's monitor.") from error


@dataclass(frozen=True)
class RunGrade:
    """The figures of a grading; where it does not count, `problem` says why and `score` is None.

    `cost` is the price of the model's calls in US dollars, where it is known.
    """

    run: PaperRun
    score: float | None = None
    leaves: int = 0
    invalid: int = 0
    cost: float | None = None
    problem: str | None = None

    @classmethod
    def of(cls, run: PaperRun, output: JudgeOutput, *, max_invalid: int = 0) -> Self:
        """Return the figures of a grading.

        A guess never counts, nor does a submission that used an address of the paper's blacklist, or a grading with
        more than `max_invalid` leaves without a grade.
        """
        problem = None
        if output.judge_type == HEURISTIC:
            problem = output.partial or next(iter(output.warnings), "only a guess")
        elif output.is_blacklisted:
            problem = f"blacklist.txt: {output.blacklist}"
        elif output.num_invalid_leaf_nodes > max_invalid:
            reason = output.partial or reasons_without_grade(output.graded_task_tree)[0][0]
            problem = f"{output.num_invalid_leaf_nodes} of {output.num_leaf_nodes} leaves have no grade: {reason}"
        score, problem = (output.score, None) if problem is None else (None, printable_line(problem, _MAX_PROBLEM))
        return cls(run, score, output.num_leaf_nodes, output.num_invalid_leaf_nodes, output.cost, problem)

    @classmethod
    def read(cls, run: PaperRun, *, max_invalid: int = 0, disqualified: Collection[str] = ()) -> Self:
        """Read the grade that lies in a run's folder; one of a run in `disqualified` does not count."""
        if not {run.name, run.id}.isdisjoint(disqualified):
            return cls(run, problem="disqualified")
        try:
            path = run.grade_file()
            return (
                cls(run, problem="not graded")
                if path is None
                else cls.of(run, read_grade(path), max_invalid=max_invalid)
            )
        except (PcgevalError, OSError) as error:
            return cls.failed(run, error)

    @classmethod
    def failed(cls, run: PaperRun, error: Exception) -> Self:
        """Return the figures of a grading that failed."""
        text = str(error)
        if isinstance(error, FaultsError):
            text = "; ".join(map(str, error.faults))
        elif isinstance(error, OSError):
            text = f"{error.filename}: {error.strerror}"
        return cls(run, problem=printable_line(text, _MAX_PROBLEM))

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**vars(self), "run": self.run.id}


@dataclass(frozen=True)
class TableRow:
    """A submission's attempts at one paper, or its seeds over all papers."""

    submission: str  # the agent
    paper: str  # the id, or `all papers`
    scores: tuple[float, ...]  # that count
    number: int  # of attempts or seeds
    grades: tuple[RunGrade, ...]

    @property
    def problems(self) -> str:
        """Why attempts do not count; over all papers, why there is no mean."""
        if self.paper == ALL_PAPERS:
            return "" if self.scores else "no seed has a score for each paper of the table"
        return "; ".join(f"{printable_name(grade.run.name)}: {grade.problem}" for grade in self.grades if grade.problem)

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values; the standard error of fewer than two scores is None."""
        number, costs = len(self.scores), [grade.cost for grade in self.grades if grade.cost is not None]
        return {
            "submission": self.submission,
            "paper": self.paper,
            "mean": statistics.fmean(self.scores) if self.scores else None,
            "std_error": statistics.stdev(self.scores) / math.sqrt(number) if number > 1 else None,
            "n": number,
            "scores": list(self.scores),
            "invalid": sum(grade.invalid for grade in self.grades),
            "cost": math.fsum(costs) if costs else None,
        }

    def cells(self, *, exact: bool = False) -> tuple[str, ...]:
        """Return the cells of `COLUMNS`; `exact` figures have all their digits."""

        def shown(value: float | None, digits: int = 3) -> str:
            if value is None:
                return "" if exact else "-"
            return repr(value) if exact else f"{value:.{digits}f}"

        row = self.to_json()
        number = f"{row['n']}" if exact else f"{row['n']} of {self.number}"
        figures = (shown(row["mean"]), shown(row["std_error"]), str(row["invalid"]), shown(row["cost"], 4))
        return printable_name(self.submission), printable_name(self.paper), number, *figures, self.problems


def grade_table(grades: Sequence[RunGrade]) -> list[TableRow]:
    """Return the rows of a table: each submission's papers, and below them a row for all of these."""
    grades = sorted(grades, key=lambda grade: grade.run)
    papers = {grade.run.paper_id for grade in grades}
    rows: list[TableRow] = []
    for agent, of_agent in groupby(grades, key=lambda grade: grade.run.agent):
        attempts = tuple(of_agent)
        for paper, of_paper in groupby(attempts, key=lambda grade: grade.run.paper_id):
            at_paper = tuple(of_paper)
            scores = tuple(grade.score for grade in at_paper if grade.score is not None)
            rows.append(TableRow(agent, paper, scores, len(at_paper), at_paper))
        if len(papers) > 1:
            seeds = [[grade.score for grade in seed if grade and grade.score is not None] for seed in _seeds(attempts)]
            means = tuple(statistics.fmean(scores) for scores in seeds if len(scores) == len(papers))
            rows.append(TableRow(agent, ALL_PAPERS, means, len(seeds), attempts))
    return rows


def _seeds(grades: Sequence[RunGrade]) -> Iterator[tuple[RunGrade | None, ...]]:
    """Yield the k-th attempts of each group at each paper, for each k."""
    for _, of_group in groupby(sorted(grades, key=lambda grade: grade.run.group), key=lambda grade: grade.run.group):
        by_paper = groupby(of_group, key=lambda grade: grade.run.paper_id)
        yield from zip_longest(*[list(attempts) for _, attempts in by_paper])
