"""Grade all runs of a folder, one after the other: one file for each, one budget for all.

A finished grading is skipped unless its submission, its paper or the settings have changed. A note in the state folder
says what decided it; the grade's file has the same bytes wherever the submission lies.
"""

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_file, sha256_json, write_json
from pcgeval.core.layout import GRADE_FILE, own_or_packaged
from pcgeval.judge.calls import CallFiles, JudgeClient, OpenBackend
from pcgeval.judge.plan import GradingPlan, plan_gradings
from pcgeval.judge.prompts import prompt_version
from pcgeval.judge.run import grade_submission, state_folder, state_of, submission_folder, submission_task
from pcgeval.judge.settings import GradingError, JudgeSettings
from pcgeval.llm.backends import open_backend
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.papers import list_papers
from pcgeval.rubric.runs import PaperRun, RunGrade, find_runs, submission_in
from pcgeval.submissions.reproduction import Computer, computer_identity

_NOT_DECIDING = ("deadline", "max_cost", "token_budget", "call_seconds")  # settings that change no grade


@dataclass(frozen=True)
class ManyGradings:
    """The gradings of a folder of runs by one judge."""

    folder: Path  # the runs, as `find_runs` describes them
    out: Path  # where their grades go, as GROUP/RUN/grade.json
    settings: JudgeSettings  # the settings of all gradings; the budget is for all of them together
    computer: Computer | None = None  # where reproduce.sh is run first, of one submission at a time
    recordings: tuple[Path, ...] = ()  # recorded replies, which are only read
    open_backend: OpenBackend = open_backend  # opens the model

    @property
    def runs(self) -> list[PaperRun]:
        """The runs, sorted; raises FileError if there are none."""
        return find_runs(self.folder, list_papers(Path(self.settings.papers_dir)))

    def plan(self) -> tuple[list[GradingPlan], list[RunGrade]]:
        """Return what the gradings would cost, without a run of reproduce.sh, and those that would fail."""
        client = CallFiles(recordings=self.recordings).client(self.settings, read_only=True)
        plans: list[GradingPlan] = []
        failed: list[RunGrade] = []
        for run in self.runs:
            try:
                with submission_folder(submission_in(run.folder)) as folder:
                    task = submission_task(folder, run.paper_id, self.settings)
                    plans += plan_gradings([(run.id, task)], client)
            except (PcgevalError, OSError) as error:
                failed.append(RunGrade.failed(run, error))
        return plans, failed

    def grade(self, *, max_invalid: int = 0) -> list[RunGrade]:
        """Grade all runs and return their figures, sorted; a grading that fails does not stop the others."""
        runs = self.runs
        if self.out.resolve().is_relative_to(self.folder.resolve()):
            raise GradingError(f"{self.out}: lies among the runs. Name another folder for the grades.")
        client = CallFiles(recordings=self.recordings).client(self.settings, self.open_backend)
        return [self._graded(run, client, max_invalid) for run in runs]

    def _graded(self, run: PaperRun, client: JudgeClient, max_invalid: int) -> RunGrade:
        """Grade one run, unless that is done, and write its file; a fault of the run is its result."""
        file = self.out / run.group / run.name / GRADE_FILE
        note = state_folder(file.parent) / "finished.json"  # the SHA-256 of what decided the grade, and of its file
        try:
            submission = submission_in(run.folder)
            inputs = self._inputs(run, submission)
            if file.is_file() and note.is_file() and json.loads(note.read_bytes()) == [inputs, sha256_file(file)]:
                output = read_grade(file)
                client.count(run.id, output.token_usage.total)
                return RunGrade.of(run, output, max_invalid=max_invalid)
            # the earlier grade is out of date; without its file, `pcgeval rubric table` names the run
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            if self.computer is not None and (reason := client.reason_to_end()) is not None:
                return RunGrade(run, problem=f"reproduce.sh was not run: {reason}")
            title = f"grade {run.id}"
            output = grade_submission(
                submission, run.paper_id, self.settings, self.computer, title=title, client=client
            )
            write_json(file, output.to_json())
            if output.partial is None:
                write_json(note, [inputs, sha256_file(file)])
        except (PcgevalError, OSError) as error:
            return RunGrade.failed(run, error)
        return RunGrade.of(run, output, max_invalid=max_invalid)

    def _inputs(self, run: PaperRun, submission: Path) -> str:
        """Return a hash of all that decides a grading, as far as names, sizes and times of files tell."""
        prompts = prompt_version(self.settings.prompts)
        computer = None if self.computer is None else computer_identity(self.computer)
        paper = own_or_packaged(Path(self.settings.papers_dir)) / run.paper_id
        others = (self.settings.checks_file, *(self.recordings if self.settings.is_replay else ()))
        places = [place.resolve() for place in (submission, paper, *others) if place is not None]
        files = [(str(place), state_of(place)) for place in places]
        settings = self.settings.model_dump(
            mode="json", exclude={"model": {"concurrency": True}, **dict.fromkeys(_NOT_DECIDING, True)}
        )
        return sha256_json([version("pcgeval"), prompts, settings, computer, files])
