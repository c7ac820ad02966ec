"""Many gradings as one table: submissions by papers, with the mean of the attempts at each and its standard error.

As in PaperBench (`metrics.py`), the standard error is that of the mean: the standard deviation of the scores, with one
degree of freedom less, over the root of their number. The figures over all papers are of seeds: the k-th attempts of a
group at each paper, in the order of their names, are its k-th seed; its score is the mean over all papers of the
table. A seed that lacks one does not count.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

from pcgeval.core.errors import FaultsError, FileError, PcgevalError
from pcgeval.core.untrusted import printable_line, printable_name, read_bounded_text
from pcgeval.rubric.explanation import reasons_without_grade
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.grades import HEURISTIC, JudgeOutput
from pcgeval.rubric.runs import PaperRun

ALL_PAPERS = "all papers"
COLUMNS = ("submission", "paper", "n", "mean", "std. error", "leaves without a grade", "US dollars")
_MAX_PROBLEM = 500  # characters
_MAX_LIST_BYTES = 100_000_000  # of a list of disqualified runs; PaperBench's monitor writes parts of logs beside them


def read_disqualified(path: Path) -> frozenset[str]:
    """Return the names of disqualified runs: PaperBench's list, a name a line, or the results of its monitor.

    Raises:
        FileError: It is missing, unreadable, too large or not UTF-8, or is JSON and not of the monitor.
    """
    text = read_bounded_text(path, _MAX_LIST_BYTES, follow_link=True).removeprefix("\ufeff")
    if not text.lstrip().startswith("{"):
        return frozenset(line.strip() for line in text.splitlines() if line.strip())
    try:
        return frozenset(map(str, json.loads(text)["flagged_run_ids"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{path}: has no 'flagged_run_ids'. Give results of PaperBench's monitor.") from error


@dataclass(frozen=True)
class RunGrade:
    """The figures of a grading, None if they are unknown; `problem` says why a grading does not count."""

    run: PaperRun
    score: float | None = None  # None if the grading does not count
    leaves: int | None = None
    invalid: int | None = None  # leaves without a grade
    cost: float | None = None  # of the model's calls in US dollars
    problem: str | None = None

    @classmethod
    def of(cls, run: PaperRun, output: JudgeOutput, *, max_invalid: int = 0) -> Self:
        """Return the figures of a grading.

        A guess never counts, nor does a submission that used an address of the paper's blacklist, or a grading with
        more than `max_invalid` leaves without a grade.
        """
        leaves, invalid, problem = output.num_leaf_nodes, output.num_invalid_leaf_nodes, None
        if output.judge_type == HEURISTIC:
            problem = f"only a guess: {output.partial or '; '.join(output.warnings)}"
        elif output.is_blacklisted:
            problem = f"blacklist.txt: {output.blacklist}"
        elif invalid > max_invalid:
            reason = output.partial or reasons_without_grade(output.graded_task_tree)[0][0]
            problem = f"{invalid} of {leaves} leaves have no grade: {reason}"
        if problem is None:
            return cls(run, output.score, leaves, invalid, output.cost)
        return cls(run, None, leaves, invalid, output.cost, printable_line(problem, _MAX_PROBLEM))

    @classmethod
    def read(cls, run: PaperRun, *, max_invalid: int = 0, disqualified: Collection[str] = ()) -> Self:
        """Read the grade that lies in a run's folder; one of a run in `disqualified` does not count."""
        if run.name in disqualified or run.id in disqualified:
            return cls(run, problem="disqualified")
        try:
            if (path := run.grade_file()) is None:
                return cls(run, problem="not graded")
            return cls.of(run, read_grade(path), max_invalid=max_invalid)
        except (PcgevalError, OSError) as error:
            return cls.failed(run, error)

    @classmethod
    def failed(cls, run: PaperRun, error: Exception) -> Self:
        """Return the figures of a grading that failed."""
        text = "; ".join(map(str, error.faults)) if isinstance(error, FaultsError) else str(error)
        return cls(run, problem=printable_line(text, _MAX_PROBLEM))

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**vars(self), "run": self.run.id}


@dataclass(frozen=True)
class TableRow:
    """A submission's attempts at one paper, or its seeds over all papers."""

    submission: str  # the agent
    paper: str  # the id, or `all papers`
    attempts: int  # or seeds
    n: int  # of the attempts, those that count
    scores: Sequence[float]  # of these
    mean: float | None
    std_error: float | None  # None for fewer than two scores
    invalid: int  # leaves without a grade, in the gradings that could be read
    cost: float | None  # in US dollars, of the attempts with a known price

    def cells(self) -> tuple[str, ...]:
        """Return the cells of `COLUMNS`."""
        names = map(printable_name, (self.submission, self.paper))
        mean, error, cost = ("-" if x is None else f"{x:.3f}" for x in (self.mean, self.std_error, self.cost))
        return *names, f"{self.n} of {self.attempts}", mean, error, str(self.invalid), cost


def grade_table(grades: Sequence[RunGrade]) -> list[TableRow]:
    """Return the rows of a table: each submission's papers, and below them a row for all of these."""
    papers = {grade.run.paper_id for grade in grades}
    by_agent: dict[str, dict[str, list[RunGrade]]] = defaultdict(lambda: defaultdict(list))
    for grade in sorted(grades, key=lambda grade: grade.run):
        by_agent[grade.run.agent][grade.run.paper_id].append(grade)
    rows: list[TableRow] = []
    for agent, by_paper in by_agent.items():
        seeds: dict[tuple[str, int], list[float]] = defaultdict(list)
        for paper, attempts in by_paper.items():
            rows.append(_row(agent, paper, [grade.score for grade in attempts], attempts))
            for grade in attempts:
                in_group = [other.run for other in attempts if other.run.group == grade.run.group]
                seed = seeds[grade.run.group, in_group.index(grade.run)]
                seed += [] if grade.score is None else [grade.score]
        if len(papers) > 1:
            means = [statistics.fmean(seed) if len(seed) == len(papers) else None for _, seed in sorted(seeds.items())]
            rows.append(_row(agent, ALL_PAPERS, means, list(chain.from_iterable(by_paper.values()))))
    return rows


def _row(agent: str, paper: str, scores: Sequence[float | None], grades: Sequence[RunGrade]) -> TableRow:
    counting = [score for score in scores if score is not None]
    costs = [grade.cost for grade in grades if grade.cost is not None]
    return TableRow(
        submission=agent,
        paper=paper,
        attempts=len(scores),
        n=len(counting),
        scores=counting,
        mean=statistics.fmean(counting) if counting else None,
        std_error=statistics.stdev(counting) / math.sqrt(len(counting)) if len(counting) > 1 else None,
        invalid=sum(grade.invalid or 0 for grade in grades),
        cost=math.fsum(costs) if costs else None,
    )
