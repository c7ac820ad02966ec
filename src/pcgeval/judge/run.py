"""Grading an attempt to reproduce a paper, from Python: `run_judge`, and beneath it `grade_submission`."""

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from pcgeval.checks.evidence import PaperEvidence
from pcgeval.core.files import FileError, read_json, sha256_json, write_json
from pcgeval.core.layout import STATE
from pcgeval.core.params import Model
from pcgeval.core.untrusted import files_below
from pcgeval.judge.asking import OpenBackend, usual_backend
from pcgeval.judge.exchanges import Exchanges, locked, named_recordings
from pcgeval.judge.grading import GradingError, JudgeSettings, Matter, Report, grade, no_report
from pcgeval.judge.judges import JudgeType
from pcgeval.judge.reading import read_file
from pcgeval.judge.subject import Subject
from pcgeval.rubric.grades import JudgeOutput
from pcgeval.rubric.papers import Paper, load_paper
from pcgeval.rubric.tree import TaskNode, prune
from pcgeval.rubric.tree import code_only as only_code
from pcgeval.rubric.tree import resources_provided as without_resources
from pcgeval.submissions.reproduction import REPRODUCE_LOG, REPRODUCE_SCRIPT, STARTED, Computer, ReproductionRun

PAPERS = Path("data/papers")
_SAME_TIME = 1.5  # seconds; the log's line has whole ones


@dataclass(frozen=True)
class Cut:
    """Which part of a rubric is graded.

    Attributes:
        code_only: Only the leaves about code, and reproduce.sh is not run.
        resources_provided: Acquiring data sets and models counts for nothing, because they were handed out.
        propagate_zero_weights: So do nodes below which nothing else is left.
        max_depth: Levels of the tree; nodes below them are graded as a whole. None: all.
    """

    code_only: bool = False
    resources_provided: bool = False
    propagate_zero_weights: bool = False
    max_depth: int | None = None

    def applied(self, rubric: TaskNode) -> TaskNode:
        """Return the part of a rubric that is graded.

        Raises:
            RubricError: Nothing would be graded.
            GradingError: There is no such depth.
        """
        if self.max_depth is not None and self.max_depth < 1:
            raise GradingError(f"max_depth is {self.max_depth}. Give 1 for the root alone, or more.")
        if self.code_only:
            rubric = only_code(rubric)
        if self.resources_provided:
            rubric = without_resources(rubric, propagate_zero_weights=self.propagate_zero_weights)
        return rubric if self.max_depth is None else prune(rubric, self.max_depth)


async def run_judge(
    submission_path: Path | str,
    paper_id: str,
    judge_type: str = "simple",
    code_only: bool = False,
    completer_config: Model | Mapping[str, Any] | None = None,
    computer: Computer | None = None,
    **more: Any,
) -> JudgeOutput:
    """Grade an attempt to reproduce a paper without blocking the event loop; see `grade_submission`.

    When the caller is cancelled, no further question is put to the model. What was answered is kept.
    """
    stopping = threading.Event()
    try:
        return await asyncio.to_thread(
            grade_submission,
            submission_path,
            paper_id,
            judge_type,
            code_only,
            completer_config,
            computer,
            stopping=stopping,
            **more,
        )
    finally:
        stopping.set()


def grade_submission(
    submission_path: Path | str,
    paper_id: str,
    judge_type: str = "simple",
    code_only: bool = False,
    completer_config: Model | Mapping[str, Any] | None = None,
    computer: Computer | None = None,
    *,
    papers_dir: Path | str = PAPERS,
    resources_provided: bool = False,
    propagate_zero_weights: bool = False,
    max_depth: int | None = None,
    seed: int = 0,
    votes: int = 1,
    context: int = 8192,
    call_seconds: float = 600.0,
    deadline: float | None = None,
    ignore_checks: bool = False,
    invalid_as_zero: bool = False,
    human_grades: Path | str | None = None,
    exchanges: Path | str | None = None,
    keep_exchanges: bool = True,
    recording: Path | str | None = None,
    report: Report = no_report,
    stopping: threading.Event | None = None,
    opened: OpenBackend = usual_backend,
) -> JudgeOutput:
    """Grade an attempt to reproduce a paper.

    Args:
        submission_path: The submission's folder.
        paper_id: The paper's folder below `papers_dir`.
        judge_type: simple, checks, random, dummy or human.
        code_only: Grade only the leaves about code.
        completer_config: The model of the judge `simple`, with the fields of a model in params.yaml: backend, name,
            digest, host, base_url, options, concurrency.
        computer: Where reproduce.sh is run first, on a copy; None: the submission is judged as it lies.
        papers_dir: Where the papers lie.
        resources_provided: Acquiring data sets and models counts for nothing.
        propagate_zero_weights: So do nodes below which nothing else is left.
        max_depth: Levels of the rubric; what lies deeper is graded as a whole.
        seed: Of the judges `random` and `simple`.
        votes: How often the model grades each leaf.
        context: Tokens of one call to the model, its answer included.
        call_seconds: For one call.
        deadline: Seconds after which nothing is asked any more; leaves not judged by then have no grade.
        ignore_checks: Ask the model about leaves with a check too.
        invalid_as_zero: Count leaves without a grade as 0, as PaperBench does.
        human_grades: The file of the judge `human`.
        exchanges: Where the model's replies are kept, so that a grading that was killed goes on; by default below
            `.pcgeval` in the present folder.
        keep_exchanges: Keep them on disk at all.
        recording: Replies that were kept before, which are only read.
        report: Called after each leaf with it, its verdict, and whether the model was asked just now.
        stopping: Set from another thread to end the grading early.
        opened: Opens the model's backend.

    Raises:
        GradingError: There is no such submission or judge, or the judge lacks what it needs.
        PaperError: There is no such paper, or it is faulty.
        RubricError: Nothing of the rubric would be graded.
        ExchangesError: The submission is being graded at this moment.
        FileError: There is no such recording, or it or `exchanges` is a file of another kind.
    """
    submission = Path(submission_path)
    if not submission.is_dir():
        raise GradingError(f"{submission}: no folder. Name the folder of a submission.")
    settings = JudgeSettings(
        judge=_judge_type(judge_type),
        seed=seed,
        invalid_as_zero=invalid_as_zero,
        human_grades=None if human_grades is None else Path(human_grades),
        model=_model(completer_config),
        votes=votes,
        context=context,
        call_seconds=call_seconds,
        deadline=deadline,
        ignore_checks=ignore_checks,
    )
    cut = Cut(code_only, resources_provided, propagate_zero_weights, max_depth)
    paper = load_paper(Path(papers_dir), paper_id)
    state = kept_state(submission)
    with ExitStack() as stack:
        journal = Path(exchanges) if exchanges else state / "exchanges.jsonl"
        is_kept = keep_exchanges and settings.judge == "simple"
        store = stack.enter_context(Exchanges(journal if is_kept else None, named_recordings(recording)))
        run = place = None
        if computer is not None and not code_only and settings.judge in {"simple", "checks"}:
            place = _run_folder(state if keep_exchanges else None, submission, stack)
            run = _reproduced(computer, submission, place)
        output = grade(_matter(paper, cut, submission, run), settings, store, report, stopping=stopping, opened=opened)
        if is_kept and exchanges:
            store.finish(is_complete=False)  # a file that somebody named is left in order
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
    return output


def kept_state(submission: Path) -> Path:
    """Return where that is kept which lets the killed grading of a submission go on."""
    folder = submission.resolve()
    return STATE / "judgements" / f"{folder.name[:80]}-{sha256_json(str(folder))[:12]}"


def _judge_type(name: str) -> JudgeType:
    for known in get_args(JudgeType):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise GradingError(f"no judge is called {name!r:.60}. There are {', '.join(get_args(JudgeType))}.")


def _model(config: Model | Mapping[str, Any] | None) -> Model | None:
    if config is None or isinstance(config, Model):
        return config
    try:
        return Model.model_validate(dict(config))
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, each['loc'])) or 'model'}: {each['msg']}" for each in error.errors())
        raise GradingError(f"completer_config: {'; '.join(faults)}. Give it as a model in params.yaml.") from error


def _matter(paper: Paper, cut: Cut, submission: Path, run: ReproductionRun | None) -> Matter:
    if run is None:
        log = None if cut.code_only else _own_log(submission)
        run = ReproductionRun(submission, log or "", None, None, 0.0, 0.0)
        log_written = _trusted_time(submission, log)
    else:
        log, log_written = run.log, run.started_at
    evidence = PaperEvidence(run.folder, log, log_written, run.exit_code, run.reason, paper.blacklist)
    subject = Subject(
        folder=run.folder,
        kind="paper",
        paper=paper.paper,
        addendum=paper.addendum,
        judge_addendum=paper.judge_addendum,
        reproduce_log=log,
        log_written=log_written,
        code_only=cut.code_only,
    )
    return Matter(
        rubric=cut.applied(paper.rubric),
        whole_rubric=paper.rubric,
        subject=lambda: subject,
        evidence=lambda: evidence,
        has_reproduced=run.exit_code == 0 and (run.folder / REPRODUCE_SCRIPT).is_file(),
    )


def _own_log(submission: Path) -> str | None:
    """Return the log that lies in a submission; None if there is none that can be read."""
    path = submission / REPRODUCE_LOG
    return read_file(path).text if path.is_file() and not path.is_symlink() else None


def _trusted_time(submission: Path, log: str | None) -> float | None:
    """Return when the run began to which a log that lies there belongs, if its file still has that time.

    A checkout or a copy gives all files new times, which tell nothing about which of them the run has made.
    """
    first = (log or "").partition("\n")[0]
    if not first.startswith(STARTED):
        return None
    try:
        started = datetime.fromisoformat(first.removeprefix(STARTED).strip()).timestamp()
    except (ValueError, OverflowError):
        return None
    written = (submission / REPRODUCE_LOG).lstat().st_mtime
    return written if abs(written - started) <= _SAME_TIME else None


def _run_folder(state: Path | None, submission: Path, stack: ExitStack) -> Path:
    """Return where reproduce.sh is run: in the kept state and for this grading alone, or else in a folder that goes.

    A submission that is the present folder has its state within it, where no copy of it may lie.
    """
    if state is None or state.resolve().is_relative_to(submission.resolve()):
        return Path(stack.enter_context(tempfile.TemporaryDirectory())) / "reproduction"
    stack.callback(os.close, locked(state / "reproduction.lock"))
    return state / "reproduction"


def _reproduced(computer: Computer, submission: Path, place: Path) -> ReproductionRun:
    """Run reproduce.sh, or take the run that a killed grading of the same submission has finished."""
    note = place / "run.json"
    identity = sha256_json([str(submission.resolve()), _state_of(submission)])
    if note.is_file():
        try:
            values = read_json(note)
            known, earlier = values.pop("submission"), Path(values["folder"])
            if known == identity and earlier.is_dir():
                return ReproductionRun(**{**values, "folder": earlier})
        except (FileError, TypeError, KeyError, AttributeError):
            pass  # what is left of a run that cannot be used is made again
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    run = computer.reproduce(submission, place / "copy")
    write_json(note, {**vars(run), "folder": str(run.folder.resolve()), "submission": identity})
    return run


def _state_of(submission: Path) -> list[tuple[str, int, int]]:
    """Return the names, sizes and times of a submission's files, without what gradings keep in it."""
    stats = ((path.relative_to(submission), path.lstat()) for path in files_below(submission))
    return [(name.as_posix(), stat.st_size, stat.st_mtime_ns) for name, stat in stats if STATE.name not in name.parts]
