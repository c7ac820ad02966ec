"""Many gradings as one table: submissions by papers, with the mean of the attempts at each and its standard error.

As in PaperBench (`metrics.py`), the standard error is that of the mean: the standard deviation of the scores, with one
degree of freedom less, over the root of their number. The figures over all papers are of seeds: the k-th attempts of a
group at each paper, in the order of their names, are its k-th seed, whose score is the mean over all papers of the
table; a seed that lacks one does not count.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from pcgeval.core.errors import FaultsError, PcgevalError
from pcgeval.core.untrusted import printable_line, printable_name
from pcgeval.rubric.explanation import reasons_without_grade
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.grades import HEURISTIC, JudgeOutput
from pcgeval.rubric.runs import PaperRun

ALL_PAPERS = "all papers"
COLUMNS = ("submission", "paper", "n", "mean", "std. error", "leaves without a grade", "US dollars", "problems")
_MAX_PROBLEM = 500  # characters


@dataclass(frozen=True)
class RunGrade:
    """The figures of a grading; one with a `problem`, which says why, has none that count.

    Attributes:
        run: The run that was graded.
        score: The score, if it counts.
        leaves: The number of leaves.
        invalid: The number of them without a grade.
        cost: The price of the model's calls in US dollars, where it is known.
        problem: Why there is no score that counts.
    """

    run: PaperRun
    score: float | None = None
    leaves: int = 0
    invalid: int = 0
    cost: float | None = None
    problem: str | None = None

    @classmethod
    def of(cls, run: PaperRun, output: JudgeOutput, *, max_invalid: int = 0) -> Self:
        """Return the figures of a grading; a guess never counts, nor does one with too many leaves without a grade."""
        problem = None
        if output.judge_type == HEURISTIC:
            problem = output.partial or next(iter(output.warnings), "only a guess")
        elif output.num_invalid_leaf_nodes > max_invalid:
            reason = output.partial or reasons_without_grade(output.graded_task_tree)[0][0]
            problem = f"{output.num_invalid_leaf_nodes} of {output.num_leaf_nodes} leaves have no grade: {reason}"
        score = output.score if problem is None else None
        return cls(run, score, output.num_leaf_nodes, output.num_invalid_leaf_nodes, output.cost, _shown(problem))

    @classmethod
    def read(cls, run: PaperRun, *, max_invalid: int = 0) -> Self:
        """Read the grade that lies in a run's folder."""
        try:
            path = run.grade_file()
            if path is None:
                return cls(run, problem="not graded")
            return cls.of(run, read_grade(path), max_invalid=max_invalid)
        except (PcgevalError, OSError) as error:
            return cls.failed(run, error)

    @classmethod
    def failed(cls, run: PaperRun, error: Exception) -> Self:
        """Return what stands for a grading that failed."""
        if isinstance(error, FaultsError):
            return cls(run, problem=_shown("; ".join(map(str, error.faults))))
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        return cls(run, problem=_shown(text))

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**vars(self), "run": self.run.id}


@dataclass(frozen=True)
class TableRow:
    """A submission's attempts at one paper, or its seeds over all papers.

    Attributes:
        submission: Whose attempts these are.
        paper: The paper's id, or `all papers`.
        scores: The scores that count, of attempts or of seeds.
        number: How many attempts or seeds there are.
        grades: The gradings.
    """

    submission: str
    paper: str
    scores: tuple[float, ...]
    number: int
    grades: tuple[RunGrade, ...]

    @property
    def mean(self) -> float | None:
        """The mean of the scores; None where there are none."""
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def std_error(self) -> float | None:
        """The standard error of the mean; None for fewer than two scores."""
        number = len(self.scores)
        return statistics.stdev(self.scores) / math.sqrt(number) if number > 1 else None

    @property
    def invalid(self) -> int:
        """How many leaves have no grade, of the gradings that there are."""
        return sum(grade.invalid for grade in self.grades)

    @property
    def cost(self) -> float | None:
        """The price of the calls in US dollars; None where it is not known."""
        costs = [grade.cost for grade in self.grades if grade.cost is not None]
        return math.fsum(costs) if costs else None

    @property
    def problems(self) -> str:
        """Why attempts do not count; over all papers, why there is no mean."""
        if self.paper == ALL_PAPERS:
            return "" if self.scores else "no seed has a score for each paper of the table"
        return "; ".join(f"{printable_name(grade.run.name)}: {grade.problem}" for grade in self.grades if grade.problem)

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {
            "submission": self.submission,
            "paper": self.paper,
            "mean": self.mean,
            "std_error": self.std_error,
            "n": len(self.scores),
            "scores": list(self.scores),
            "invalid": self.invalid,
            "cost": self.cost,
        }


def grade_table(grades: Sequence[RunGrade]) -> list[TableRow]:
    """Return the rows of a table: each submission's papers, and below them a row for all of these."""
    grades = sorted(grades, key=lambda grade: grade.run)
    papers = {grade.run.paper_id for grade in grades}
    rows: list[TableRow] = []
    for agent, of_agent in groupby(grades, key=lambda grade: grade.run.agent):
        own = tuple(of_agent)
        for paper, of_paper in groupby(own, key=lambda each: each.run.paper_id):
            attempts = tuple(of_paper)
            scores = tuple(attempt.score for attempt in attempts if attempt.score is not None)
            rows.append(TableRow(agent, paper, scores, len(attempts), attempts))
        if len(papers) > 1:
            seeds = list(_seeds(own))
            complete = [[each.score for each in seed if each.score is not None] for seed in seeds]
            means = tuple(statistics.fmean(scores) for scores in complete if len(scores) == len(papers))
            rows.append(TableRow(agent, ALL_PAPERS, means, len(seeds), own))
    return rows


def _seeds(grades: Sequence[RunGrade]) -> Iterator[list[RunGrade]]:
    """Yield the k-th attempts of each group at each paper, for each k."""
    for group in sorted({grade.run.group for grade in grades}):
        attempts: dict[str, list[RunGrade]] = {}
        for grade in grades:
            if grade.run.group == group:
                attempts.setdefault(grade.run.paper_id, []).append(grade)
        for number in range(max(map(len, attempts.values()))):
            yield [attempt[number] for attempt in attempts.values() if number < len(attempt)]


def table_cells(rows: Sequence[TableRow], *, exact: bool = False) -> list[list[str]]:
    """Return the cells of a table with the columns `COLUMNS`; `exact` figures have all their digits."""

    def number(value: float | None, digits: int) -> str:
        if value is None:
            return "" if exact else "-"
        return repr(value) if exact else f"{value:.{digits}f}"

    return [
        [
            printable_name(row.submission),
            printable_name(row.paper),
            str(len(row.scores)) if exact else f"{len(row.scores)} of {row.number}",
            number(row.mean, 3),
            number(row.std_error, 3),
            str(row.invalid),
            number(row.cost, 4),
            row.problems,
        ]
        for row in rows
    ]


def _shown(problem: str | None) -> str | None:
    return None if problem is None else printable_line(problem, _MAX_PROBLEM)
