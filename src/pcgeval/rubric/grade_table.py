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
        """Return the figures of a grading.

        A guess never counts, nor does one of a submission that used what the paper's blacklist forbids, or one with too
        many leaves without a grade.
        """
        problem = None
        if output.judge_type == HEURISTIC:
            problem = output.partial or next(iter(output.warnings), "only a guess")
        elif output.is_blacklisted:
            problem = f"blacklist.txt: {output.blacklist}"
        elif output.num_invalid_leaf_nodes > max_invalid:
            reason = output.partial or reasons_without_grade(output.graded_task_tree)[0][0]
            problem = f"{output.num_invalid_leaf_nodes} of {output.num_leaf_nodes} leaves have no grade: {reason}"
        score = output.score if problem is None else None
        return cls(run, score, output.num_leaf_nodes, output.num_invalid_leaf_nodes, output.cost, _shown(problem))

    @classmethod
    def read(cls, run: PaperRun, *, max_invalid: int = 0, disqualified: Collection[str] = ()) -> Self:
        """Read the grade that lies in a run's folder; one of a run in `disqualified` does not count."""
        if not {run.name, run.id}.isdisjoint(disqualified):
            return cls(run, problem="disqualified")
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


def table_cells(rows: Sequence[TableRow], *, exact: bool = False) -> list[list[str]]:
    """Return the cells of a table with the columns `COLUMNS`; `exact` figures have all their digits."""

    def number(value: float | None, digits: int) -> str:
        if value is None:
            return "" if exact else "-"
        return repr(value) if exact else f"{value:.{digits}f}"

    cells = []
    for row in rows:
        figures = row.to_json()
        cells.append(
            [
                printable_name(row.submission),
                printable_name(row.paper),
                str(len(row.scores)) if exact else f"{len(row.scores)} of {row.number}",
                number(figures["mean"], 3),
                number(figures["std_error"], 3),
                str(figures["invalid"]),
                number(figures["cost"], 4),
                row.problems,
            ]
        )
    return cells


def _seeds(grades: Sequence[RunGrade]) -> Iterator[tuple[RunGrade | None, ...]]:
    """Yield the k-th attempts of each group at each paper, for each k."""
    for _, of_group in groupby(sorted(grades, key=lambda grade: grade.run.group), key=lambda grade: grade.run.group):
        by_paper = groupby(of_group, key=lambda grade: grade.run.paper_id)
        yield from zip_longest(*[list(attempts) for _, attempts in by_paper])


def _shown(problem: str | None) -> str | None:
    return None if problem is None else printable_line(problem, _MAX_PROBLEM)
