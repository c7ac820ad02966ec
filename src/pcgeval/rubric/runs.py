"""Attempts to reproduce papers in a folder of runs as PaperBench lays it out.

`RUNS/GROUP/PAPER_ID/...`: a group has one agent's runs, one or several for a paper. The agent of a group named
`TIME_run-group_AGENT` is AGENT, as in PaperBench, and an agent may have several groups; any other group's name is the
agent's. RUNS may also be a single group. The folder of a run may have snapshots (`submissions/TIME/submission.tar.gz`
or `TIME.tar.gz`; the names of those after reproduce.sh end in `_executed` or `_repro`) and a grade.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.files import shown_folders
from pcgeval.core.layout import GRADE_FILE
from pcgeval.submissions.reproduction import REPRODUCE_SCRIPT

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

    def submission(self) -> Path:
        """Return the last snapshot, a tar file or folder, after reproduce.sh if that was run; raise FileError without.

        A folder with a reproduce.sh, or with files and none of PaperBench's, is itself the submission. An
        `other_submission` counts only if there is no other.
        """
        script = self.folder / REPRODUCE_SCRIPT
        if not script.is_symlink() and script.is_file():
            return self.folder
        if snapshots := list(_snapshots(self.folder)):
            return max(snapshots)[-1]
        if any(self.folder.iterdir()) and not _holds_a_run(self.folder):
            return self.folder
        if _is_folder(other := self.folder / _OTHER):
            return other
        raise FileError(f"{self.folder}: has no submission. Put it into submission/ or submissions/TIME/*.tar.gz.")

    def left_out(self) -> tuple[str, ...]:
        """Return the names of other submissions in the folder, which are not graded."""
        others = sorted(self.folder.glob(f"{_OTHER}*"))
        try:
            submission = self.submission() if others else self.folder
        except (FileError, OSError):  # whoever reads the run reports it
            return ()
        return tuple(path.name for path in others if submission not in (path, self.folder))

    def grade_file(self) -> Path | None:
        """Return the file of its grade: grade.json, or else the last grader_output of PaperBench."""
        if (ours := self.folder / GRADE_FILE).is_file():
            return ours
        patterns = ("*grader_output*.json", "submissions/*/*grader_output*.json")
        outputs = [path for pattern in patterns for path in self.folder.glob(pattern)]
        return max(outputs, key=Path.as_posix, default=None)


def holds_runs(folder: Path, paper_ids: Sequence[str]) -> bool:
    """Return whether a folder holds runs; one with other files and no run below is itself a submission."""
    if not folder.is_dir():
        return False
    below = shown_folders(folder)
    if any(_is_run(path, paper_ids) for group in (folder, *below) for path in shown_folders(group)):
        return True
    return bool(below) and not any(path.is_file() and not path.name.startswith(".") for path in folder.iterdir())


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
    return bool(is_named) or _holds_a_run(folder)


def _is_folder(path: Path) -> bool:
    """Return whether this is a folder and no link, which may lead to another submission."""
    return not path.is_symlink() and path.is_dir()


def _holds_a_run(folder: Path) -> bool:
    """Return whether a folder has files of PaperBench's or a grade beside a submission."""
    return not _OF_RUN.isdisjoint(path.name for path in folder.iterdir())  # links may lead anywhere


def _paper_id(name: str, known: Sequence[str]) -> str:
    """Return the longest known id with which a name begins, else what stands before its last `_`."""
    begun = [paper_id for paper_id in known if name == paper_id or name.startswith(f"{paper_id}_")]
    return max(begun, key=len, default=name.rpartition("_")[0] or name)


def _snapshots(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the time, the name and the place of each snapshot; the name sorts last if reproduce.sh was run."""
    places = [folder, *(shown_folders(folder / "submissions") if _is_folder(folder / "submissions") else ())]
    for place in places:
        for path in place.iterdir():
            if (packed := _SNAPSHOT.fullmatch(path.name)) and path.is_file():
                taken = place.name if packed["stem"] == "submission" else packed["stem"]
                yield taken, path.name, path
        if _is_folder(place / "submission"):
            yield place.name, "submission", place / "submission"
