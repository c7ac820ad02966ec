"""Papers to be reproduced and folders of attempts, as PaperBench lays them out, and the table of the attempts' grades.

A paper's folder has `rubric.json` and `paper.md`. `config.yaml` has the title, `addendum.md` what the paper leaves
open, `judge.addendum.md` what the judge alone is told, `blacklist.txt` addresses that nobody may have used,
`checks.yaml` checks for leaves of the rubric. `submissions/reproduces` may have a submission that reproduces the whole
paper.

`RUNS/GROUP/PAPER_ID/...`: a group has one agent's runs, one or several for a paper. The agent of a group named
`TIME_run-group_AGENT` is AGENT, as in PaperBench, and an agent may have several groups; any other group's name is the
agent's. RUNS may also be a single group. The folder of a run may have snapshots (`submissions/TIME/submission.tar.gz`
or `TIME.tar.gz`; the names of those after reproduce.sh end in `_executed` or `_repro`) and a grade.

The table has the mean of the attempts at each paper and, as in PaperBench (`metrics.py`), its standard error: the
standard deviation of the scores, with one degree of freedom less, over the root of their number. The figures over all
papers are of seeds: the k-th attempts of a group at each paper, in the order of their names, are its k-th seed; its
score is the mean over all papers of the table. A seed that lacks one does not count. A disqualified run counts as 0.
"""

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Self

from pcgeval.core.errors import FaultsError, FileError, PcgevalError
from pcgeval.core.files import shown_folders
from pcgeval.core.text import printable_line, printable_name
from pcgeval.core.untrusted import UntrustedFileError, parse_yaml, read_bytes, read_text
from pcgeval.formats.layout import GRADE_FILE, own_or_packaged
from pcgeval.rubric.explanation import reasons_without_grade
from pcgeval.rubric.output import HEURISTIC, JudgeOutput, read_grade
from pcgeval.rubric.tree import RubricError, TaskNode, load_rubric_with_checks
from pcgeval.submissions.load import REPRODUCE_SCRIPT

RUBRIC_FILE, PAPER_FILE = "rubric.json", "paper.md"
GOLD = Path("submissions/reproduces")  # in a paper's folder: a submission that reproduces all of it
MAX_TEXT_BYTES = 10_000_000
MAX_CONFIG_BYTES = 4_000  # hostile YAML can take PyYAML very long
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# a checkout of PaperBench excludes its data by default, so that `git lfs pull` fetches nothing
_IS_POINTER = (
    "is only a pointer to Git LFS. Fetch the files: "
    '`git lfs fetch --include "project/paperbench/data/**" --exclude ""`, then `git lfs checkout`.'
)
_LFS_POINTER = "version https://git-lfs.github.com/spec/"


class PaperError(FaultsError):
    """A paper that cannot be used; `faults` has all faults of its folder."""


@dataclass(frozen=True)
class Paper:
    """One paper: the texts for those who reproduce it, and those for their judges."""

    id: str  # the folder's name
    folder: Path
    rubric: TaskNode
    paper: str  # Markdown
    addendum: str  # clarifications for those who reproduce it; empty where there are none
    judge_addendum: str  # clarifications for the judge alone
    title: str  # the id without a title in config.yaml
    blacklist: tuple[str, ...]  # addresses that a reproduction must not use, such as that of the authors' code
    checks_sha256: str | None = None  # of the file that gives leaves of the rubric their checks, if there is one


def list_papers(papers_dir: Path) -> tuple[str, ...]:
    """Return the ids of all papers in a folder, in byte order; without data/papers, those of the package."""
    names = (path.parent.name for path in own_or_packaged(papers_dir).glob(f"*/{RUBRIC_FILE}"))
    return tuple(sorted(name for name in names if _ID.fullmatch(name)))


def check_fetched(path: Path) -> None:
    """Raise FileError if a file is only a pointer to Git LFS, whose content was not fetched."""
    if read_bytes(path, len(_LFS_POINTER), follow_link=True, cut=True) == _LFS_POINTER.encode():
        raise FileError(f"{path} {_IS_POINTER}")


def load_paper(papers_dir: Path, paper_id: str, *, needs_text: bool = True, checks_file: Path | None = None) -> Paper:
    """Read and check a paper; raise PaperError with every fault of its folder.

    `needs_text` tells whether the paper and the addenda, which only a model reads, must be there; `checks_file` is used
    instead of the folder's checks.yaml.
    """
    papers_dir = own_or_packaged(papers_dir)
    folder = papers_dir / paper_id
    if not _ID.fullmatch(paper_id) or not folder.is_dir():
        known = ", ".join(list_papers(papers_dir)) or "none"
        fault = f"no paper {paper_id!r:.200}. Known: {known}. Set rubric.papers_dir for other papers."
        raise PaperError(papers_dir, [fault])
    faults: list[str] = []

    def text(name: str, most: int = MAX_TEXT_BYTES, *, is_needed: bool = True) -> str:
        """Return a file's text, or an empty text without the file, and note its faults."""
        try:
            content = read_text(folder / name, most, follow_link=True).removeprefix("\ufeff")
        except UntrustedFileError as error:
            faults.extend([str(error)] if error.kind != "missing" else [])
            return ""
        if not content.startswith(_LFS_POINTER):
            return content
        faults.extend([f"{name} {_IS_POINTER}"] if is_needed else [])
        return ""

    try:
        rubric, checks_sha256 = load_rubric_with_checks(folder / RUBRIC_FILE, checks_file)
    except (RubricError, FileError) as error:
        faults.append(str(error))
    paper = text(PAPER_FILE, is_needed=needs_text)
    if needs_text and not paper.strip() and not any(PAPER_FILE in fault for fault in faults):
        faults.append(f"{folder / PAPER_FILE}: is missing or empty. Put the paper's text into it.")
    addendum, judge_addendum = (text(name, is_needed=needs_text) for name in ("addendum.md", "judge.addendum.md"))
    try:
        config = parse_yaml(text("config.yaml", MAX_CONFIG_BYTES)) or {}
        title = printable_line(str(config.get("title") or paper_id))
    except (ValueError, AttributeError) as error:
        faults.append(f"config.yaml: {printable_line(str(error))}. Give a mapping with a title, as YAML.")
    lines = [line.strip() for line in text("blacklist.txt").splitlines()]
    # the word `none` alone and comments stand for no address
    blacklist = tuple(line for line in lines if line and not line.startswith("#") and line.casefold() != "none")
    if faults:
        raise PaperError(folder, faults)
    return Paper(paper_id, folder, rubric, paper, addendum, judge_addendum, title, blacklist, checks_sha256)


ALL_PAPERS = "all papers"
COLUMNS = (
    *("submission", "paper", "n", "mean", "at most", "std. error"),
    *("leaves without a grade", "evidence", "US dollars"),
)
_MAX_PROBLEM = 500  # characters
_MAX_LIST_BYTES = 100_000_000  # of a list of disqualified runs; PaperBench's monitor writes parts of logs beside them
_OTHER = "other_submission"
_UUID = re.compile(r".+_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SNAPSHOT = re.compile(  # a tar file
    r"(?P<stem>submission|[0-9]{4}-[0-9]{2}-[0-9]{2}T.+?)(?:_executed|_repro)?(?:\.tar\.gz|\.tgz|\.tar)"
)
_OF_RUN = {"run.log", "agent.log", "status.json", "metadata.json", "pb_result.json", "submissions", GRADE_FILE}


@dataclass(frozen=True, order=True)
class PaperRun:
    """One attempt to reproduce a paper; the order is that of the table."""

    agent: str
    paper_id: str  # the beginning of `name`
    group: str  # the name of the group's folder
    name: str  # of the run's folder
    folder: Path

    @property
    def id(self) -> str:
        """The run's place in the folder of runs."""
        return f"{self.group}/{self.name}"

    def left_out(self) -> tuple[str, ...]:
        """Return the names of other submissions in the folder, which are not graded."""
        others = sorted(self.folder.glob(f"{_OTHER}*"))
        with suppress(FileError, OSError):  # whoever reads the run reports it
            if others and (submission := submission_in(self.folder)) != self.folder:
                return tuple(path.name for path in others if path != submission)
        return ()

    def grade_file(self) -> Path | None:
        """Return the file of its grade: grade.json, or else the last grader_output of PaperBench."""
        if (ours := self.folder / GRADE_FILE).is_file():
            return ours
        patterns = ("*grader_output*.json", "submissions/*/*grader_output*.json")
        outputs = [path for pattern in patterns for path in self.folder.glob(pattern)]
        return max(outputs, key=Path.as_posix, default=None)


def submission_in(folder: Path) -> Path:
    """Return the submission in the folder of a run: the last snapshot, a tar file or folder, after reproduce.sh if any.

    A folder with a reproduce.sh, or with files and none of PaperBench's, is itself the submission. An
    `other_submission` counts only if there is no other. Raises FileError if there is none.
    """
    script = folder / REPRODUCE_SCRIPT
    if not script.is_symlink() and script.is_file():
        return folder
    if snapshots := list(_snapshots(folder)):
        return max(snapshots)[-1]
    if any(folder.iterdir()) and not holds_a_run(folder):
        return folder
    if _is_folder(other := folder / _OTHER):
        return other
    raise FileError(f"{folder}: has no submission. Put it into submission/ or submissions/TIME/*.tar.gz.")


def holds_runs(folder: Path, paper_ids: Sequence[str]) -> bool:
    """Return whether a folder holds runs; one with other files and no run below is itself a submission."""
    if not folder.is_dir():
        return False
    below = shown_folders(folder)
    has_runs = any(_is_run(path, paper_ids) for group in (folder, *below) for path in shown_folders(group))
    has_files = any(path.is_file() and not path.name.startswith(".") for path in folder.iterdir())
    return has_runs or (bool(below) and not has_files)


def find_runs(folder: Path, paper_ids: Sequence[str]) -> list[PaperRun]:
    """Return the runs of a folder of runs or of a single group, sorted; raise FileError if there are none.

    `paper_ids` are the papers that are known; of another one the id is what stands before the last `_`.
    """
    below = shown_folders(folder) if folder.is_dir() else []
    runs = []
    for group in [folder] if any(_is_run(path, paper_ids) for path in below) else below:
        name = group.resolve().name
        agent = name.rpartition("_run-group_")[2]
        runs += [PaperRun(agent, _paper_id(run.name, paper_ids), name, run.name, run) for run in shown_folders(group)]
    if not runs:
        raise FileError(f"{folder}: has no runs. Lay them out as GROUP/PAPER_RUN, such as gpt-4o/rice_1.")
    return sorted(runs)


def _is_run(folder: Path, paper_ids: Sequence[str]) -> bool:
    is_named = _UUID.fullmatch(folder.name) or _paper_id(folder.name, paper_ids) in paper_ids
    return bool(is_named) or holds_a_run(folder)


def _is_folder(path: Path) -> bool:
    return not path.is_symlink() and path.is_dir()  # a link may lead to another submission


def holds_a_run(folder: Path) -> bool:
    """Return whether a folder has files of PaperBench's or a grade beside a submission."""
    return not _OF_RUN.isdisjoint(path.name for path in folder.iterdir())  # links may lead anywhere


def _paper_id(name: str, known: Sequence[str]) -> str:
    """Return the longest known id with which a name begins, else what stands before its last `_`."""
    begun = [paper_id for paper_id in known if f"{name}_".startswith(f"{paper_id}_")]
    return max(begun, key=len, default=name.rpartition("_")[0] or name)


def _snapshots(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the time, the name and the place of each snapshot; the name sorts last if reproduce.sh was run."""
    below = shown_folders(folder / "submissions") if _is_folder(folder / "submissions") else []
    for place in (folder, *filter(_is_folder, below)):
        for path in place.iterdir():
            if (packed := _SNAPSHOT.fullmatch(path.name)) and path.is_file() and not path.is_symlink():
                taken = place.name if packed["stem"] == "submission" else packed["stem"]
                yield taken, path.name, path
        if _is_folder(place / "submission"):
            yield place.name, "submission", place / "submission"


def read_disqualified(path: Path) -> frozenset[str]:
    """Return the names of disqualified runs: PaperBench's list, a name a line, or the results of its monitor.

    Raises FileError if it cannot be read, or is JSON and not of the monitor.
    """
    text = read_text(path, _MAX_LIST_BYTES, follow_link=True).removeprefix("\ufeff")
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
    highest: float | None = None  # the score if all leaves without a grade had passed
    invalid: int | None = None  # leaves without a grade
    evidence: float | None = None  # the share of passes that the model quoted evidence for
    cost: float | None = None  # of the model's calls in US dollars
    problem: str | None = None
    disqualified: bool = False  # so that the score is 0
    judge: str | None = None  # who graded: kind, model and the version of the prompts

    @classmethod
    def of(cls, run: PaperRun, output: JudgeOutput | Exception, max_width: float) -> Self:
        """Return the figures of a grading, or those of one that failed.

        A guess never counts, nor does a submission that used an address of the paper's blacklist, or a grading whose
        score is known less exactly than `max_width`.
        """
        if isinstance(output, Exception):
            faults = output.faults if isinstance(output, FaultsError) else [output]
            return cls(run, problem=printable_line("; ".join(map(str, faults)), _MAX_PROBLEM))
        problem = width_problem(output, max_width)
        if output.judge_type == HEURISTIC:
            problem = f"only a guess: {output.partial or '; '.join(output.warnings)}"
        elif output.is_blacklisted:
            problem = f"left out, because of blacklist.txt: {output.blacklist}. Look at the run; "
            problem += "it counts as 0 in a list for --disqualified"
        low, high = (None, None) if problem else (output.score, output.score_bounds.high)
        problem = problem and printable_line(problem, _MAX_PROBLEM)
        invalid, judge = output.num_invalid_leaf_nodes, output.judge_words
        return cls(run, low, high, invalid, output.evidence_share, output.cost, problem, judge=judge)

    @classmethod
    def read(cls, run: PaperRun, max_width: float, disqualified: Collection[str] = ()) -> Self:
        """Read the grade that lies in a run's folder; a run in `disqualified` has the score 0, graded or not."""
        if run.name in disqualified or run.id in disqualified:
            return cls(run, 0.0, 0.0, disqualified=True)
        try:
            path = run.grade_file()
            return cls(run, problem="not graded") if path is None else cls.of(run, read_grade(path), max_width)
        except (PcgevalError, OSError) as error:
            return cls.of(run, error, max_width)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**vars(self), "run": self.run.id}


def width_problem(output: JudgeOutput, max_width: float) -> str | None:
    """Return in words that leaves without a grade leave a score open by more than `max_width`; else None."""
    if output.score_bounds.width <= max_width:
        return None
    low, high = output.score_bounds
    reason = output.partial or reasons_without_grade(output.graded_task_tree)[0][0]
    number = f"{output.num_invalid_leaf_nodes} of {output.num_leaf_nodes} leaves have no grade"
    return f"the score is from {low:.3f} to {high:.3f}, wider than rubric.max_width {max_width:g}: {number}: {reason}"


@dataclass(frozen=True)
class TableRow:
    """A submission's attempts at one paper, or its seeds over all papers."""

    submission: str  # the agent
    paper: str  # the id, or `all papers`
    attempts: int  # or seeds
    n: int  # of the attempts, those that count
    scores: Sequence[float]  # of these
    mean: float | None
    highest: float | None  # the mean if all leaves without a grade had passed
    std_error: float | None  # None for fewer than two scores
    invalid: int  # leaves without a grade, in the gradings that could be read
    evidence: float | None  # the mean share of passes with evidence
    cost: float | None  # in US dollars, of the attempts with a known price

    def cells(self) -> tuple[str, ...]:
        """Return the cells of `COLUMNS`."""
        names = map(printable_name, (self.submission, self.paper))
        numbers = (self.mean, self.highest, self.std_error, self.evidence, self.cost)
        mean, highest, error, evidence, cost = ("-" if number is None else f"{number:.3f}" for number in numbers)
        return *names, f"{self.n} of {self.attempts}", mean, highest, error, str(self.invalid), evidence, cost


def grade_table(grades: Sequence[RunGrade]) -> list[TableRow]:
    """Return the rows of a table: each submission's papers, and below them a row for all of these."""
    papers = {grade.run.paper_id for grade in grades}
    rows: list[TableRow] = []
    ordered = sorted(grades, key=lambda grade: grade.run)
    for agent, agent_grades in groupby(ordered, lambda grade: grade.run.agent):
        seeds: dict[tuple[str, int], list[RunGrade]] = defaultdict(list)
        for paper, paper_grades in groupby(agent_grades, lambda grade: grade.run.paper_id):
            attempts = list(paper_grades)
            rows.append(_row(agent, paper, [[grade] for grade in attempts], 1))
            for group, group_grades in groupby(attempts, lambda grade: grade.run.group):
                for number, grade in enumerate(group_grades):
                    seeds[group, number].append(grade)
        if len(papers) > 1:
            rows.append(_row(agent, ALL_PAPERS, [seed for _, seed in sorted(seeds.items())], len(papers)))
    return rows


def _row(agent: str, paper: str, seeds: Sequence[Sequence[RunGrade]], papers: int) -> TableRow:
    """Return the row of seeds, each with its gradings of the papers; one that lacks a paper does not count."""
    grades = list(chain.from_iterable(seeds))
    counting = [seed for seed in seeds if len(_known(grade.score for grade in seed)) == papers]
    scores = [statistics.fmean(_known(grade.score for grade in seed)) for seed in counting]
    costs = _known(grade.cost for grade in grades)
    return TableRow(
        submission=agent,
        paper=paper,
        attempts=len(seeds),
        n=len(scores),
        scores=scores,
        mean=_mean(scores),
        highest=_mean(grade.highest for seed in counting for grade in seed),
        std_error=statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None,
        invalid=sum(grade.invalid or 0 for grade in grades),
        evidence=_mean(grade.evidence for grade in grades),
        cost=math.fsum(costs) if costs else None,
    )


def _known(numbers: Iterable[float | None]) -> list[float]:
    return [number for number in numbers if number is not None]


def _mean(numbers: Iterable[float | None]) -> float | None:
    return statistics.fmean(known) if (known := _known(numbers)) else None
