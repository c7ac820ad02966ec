"""Grading an attempt to reproduce a paper, from Python: `run_judge`, and beneath it `grade_submission`.

The classes at the end have PaperBench's names, so that code written for PaperBench runs with its imports changed.
"""

import asyncio
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from pcgeval.checks.evidence import PaperEvidence
from pcgeval.core.archives import ZIP_START, unpack
from pcgeval.core.files import sha256_json, write_json
from pcgeval.core.locks import lock_folder
from pcgeval.core.untrusted import UntrustedFileError, read_bytes, read_text, walk
from pcgeval.formats.layout import STATE, state_name
from pcgeval.judge.calls import CallFiles, JudgeClient, OpenBackend
from pcgeval.judge.files import read_file
from pcgeval.judge.grading import grade
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.llm.backends import open_backend
from pcgeval.rubric.grades import GradedTaskNode, ReproductionRecord, record_of
from pcgeval.rubric.output import HEURISTIC, JudgeOutput
from pcgeval.rubric.papers import check_fetched, load_paper
from pcgeval.rubric.tree import TaskNode
from pcgeval.submissions.load import (
    CREATION_TIME,
    REPRODUCE_LOG,
    REPRODUCE_SCRIPT,
    Computer,
    ReproductionRun,
    computer_identity,
)

REPRODUCED, NOT_REPRODUCED = 0.5, 0.2  # PaperBench's figures for a guess
SUBMISSION = "submission"  # the folder in PaperBench's tar files; beside it lie logs
_MAX_FILES, _MAX_UNPACKED = 200_000, 20 * 2**30  # of a tar file; bytes
_MAX_DEPTH = 100  # folders in one another; the sandbox copies fewer
_RUN: TypeAdapter[ReproductionRun] = TypeAdapter(ReproductionRun)


async def run_judge(
    submission_path: Path | str,
    paper_id: str,
    judge_type: Any = None,
    code_only: bool | None = None,
    completer_config: Any = None,
    computer: Computer | None = None,
    *,
    settings: JudgeSettings | None = None,
    calls: CallFiles | None = None,
) -> JudgeOutput:
    """Grade an attempt to reproduce a paper without blocking the event loop.

    When the caller is cancelled, no further call is made to the model. Replies that came are kept. If the judge
    `simple` could grade not one leaf, the output is a guess with `judge_type` `heuristic` and a warning.

    Args:
        submission_path: The submission's folder, or a tar file of it.
        paper_id: The paper's folder below `settings.papers_dir`.
        judge_type: simple, checks, random, dummy or human, or a class such as SimpleJudge, instead of `settings.judge`;
            simple without settings.
        code_only: Instead of `settings.code_only`.
        completer_config: The model of the judge `simple` instead of `settings.model`, see `model_of`; where neither
            names one, GPT-4o.
        computer: Where reproduce.sh is run first, on a copy; None: the submission is judged as it lies.
        settings: All other settings.
        calls: The files where the model's replies come from and are kept.

    Raises:
        GradingError: A setting is invalid, there is no such submission, or the judge lacks what it needs.
        PaperError: There is no such paper, or it is faulty.
        RubricError: Nothing of the rubric would be graded.
        FolderBusyError: Another grading runs the submission's reproduce.sh, or has unpacked the same tar file.
        FileError: There is no such recording, it is a file of another kind, or the tar file is damaged or
            was not fetched.
    """
    settings = JudgeSettings.of(settings, judge=judge_type, code_only=code_only, model=completer_config)
    output = await graded_in_thread(grade_submission, submission_path, paper_id, settings, computer, calls)
    leaves = output.graded_task_tree.leaves
    records = [record_of(leaf.judge_metadata) for leaf in leaves if leaf.valid_score]
    # a leaf that is 0 without a call (no results, no files) says too little to stand for a whole rubric
    is_graded = len(records) == len(leaves) or any(record.usage.grade.calls or record.check for record in records)
    return output if is_graded or settings.judge != "simple" else guessed(output)


async def graded_in_thread(grading: Callable[..., JudgeOutput], *arguments: Any) -> JudgeOutput:
    """Run a grading without blocking the event loop; when the caller is cancelled, it makes no further call."""
    stopping = threading.Event()
    try:
        return await asyncio.to_thread(grading, *arguments, stopping=stopping)
    finally:
        stopping.set()


def guessed(output: JudgeOutput) -> JudgeOutput:
    """Return a guess in place of a grading that could not run: 0.5 if reproduce.sh succeeded, else 0.2."""
    ungraded = [leaf for leaf in output.graded_task_tree.leaves if not leaf.valid_score]
    asked = [leaf for leaf in ungraded if record_of(leaf.judge_metadata).reason] or ungraded  # not those of checks
    cause = (output.partial or Counter(leaf.explanation for leaf in asked).most_common(1)[0][0]).rstrip(".")
    has_reproduced = output.reproduction is not None and output.reproduction.exit_code == 0
    ran = "reproduce.sh succeeded" if has_reproduced else "no reproduce.sh succeeded"
    guess = REPRODUCED if has_reproduced else NOT_REPRODUCED
    warning = f"The grading could not run: {cause}. The score {guess} is only a guess, made because {ran}."
    return replace(output, judge_type=HEURISTIC, guess=guess, warnings=(warning, *output.warnings))


def grade_submission(
    submission_path: Path | str,
    paper_id: str,
    settings: JudgeSettings,
    computer: Computer | None = None,
    calls: CallFiles | None = None,
    *,
    stopping: threading.Event | None = None,
    open_backend: OpenBackend = open_backend,
) -> JudgeOutput:
    """Grade an attempt at a paper, as `run_judge` does; when another thread sets `stopping`, it ends early."""
    calls = calls or CallFiles()
    with attempt(Path(submission_path), paper_id, settings) as task:
        client = calls.client(settings, open_backend)
        return grade_attempt(task, client, computer, is_kept=calls.log is not None, stopping=stopping)


def grade_attempt(
    task: GradingTask,
    client: JudgeClient,
    computer: Computer | None = None,
    title: str | None = None,
    *,
    is_kept: bool = True,
    stopping: threading.Event | None = None,
) -> JudgeOutput:
    """Grade an attempt after its reproduce.sh was run on a computer; `is_kept` keeps the run of a killed grading.

    With a title, progress is shown on stderr.
    """
    settings = client.settings
    if computer is None or settings.code_only or not settings.reads_submission:
        return grade(task, client, title, stopping=stopping)
    with _run_folder(task.folder, is_kept=is_kept) as place:
        run = _reproduced(computer, task.folder, place)
        blacklist = task.run.blacklist if task.run else ()
        evidence = PaperEvidence(run.folder, run.log, run.started_at, run.exit_code, run.reason, blacklist)
        output = grade(replace(task, folder=run.folder, evidence=evidence), client, title, stopping=stopping)
        if output.partial is None:  # else grading again goes on with the same results
            shutil.rmtree(place, ignore_errors=True)
    record = ReproductionRecord(exit_code=run.exit_code, reason=run.reason, seconds=round(run.seconds, 1))
    return replace(output, reproduction=record)


@contextmanager
def attempt(submission: Path, paper_id: str, settings: JudgeSettings) -> Iterator[GradingTask]:
    """Give an attempt to reproduce a paper, with the log of an earlier run; a tar file is unpacked for the block."""
    with _unpacked(submission) if submission.is_file() else nullcontext(submission) as folder:
        if not folder.is_dir():
            raise GradingError(f"{folder}: no folder. Name the folder or the tar file of a submission.")
        needs_text = settings.judge == "simple"
        paper = load_paper(Path(settings.papers_dir), paper_id, needs_text=needs_text, checks_file=settings.checks_file)
        evidence = evidence_as_it_lies(folder, settings, paper.blacklist)
        texts = (paper.paper, paper.addendum, paper.judge_addendum)
        yield GradingTask(paper.rubric, folder, evidence, *texts, paper.checks_sha256)


@contextmanager
def _unpacked(submission: Path) -> Iterator[Path]:
    """Unpack a tar file, always at the same place, so that a run of its reproduce.sh that was killed is found again."""
    check_fetched(submission)
    if read_bytes(submission, len(ZIP_START), follow_link=True, cut=True) == ZIP_START:
        raise GradingError(f"{submission} is a ZIP file, which tells no times of results. Name a tar file or a folder.")
    place = state_folder(submission) / "unpacked"
    folder = place / sha256_json(state_of(submission))[:16]
    with lock_folder(submission, place.with_suffix(".lock")):
        if not folder.is_dir():  # else it was left by a process that was killed
            shutil.rmtree(place, ignore_errors=True)
            unpack(submission, folder, max_files=_MAX_FILES, max_bytes=_MAX_UNPACKED)
        try:
            # its top if that has a reproduce.sh, else its folder `submission`, or its only folder
            top = list(folder.iterdir())
            inner = top[0] if len(top) == 1 else folder / SUBMISSION
            yield folder if (folder / REPRODUCE_SCRIPT).exists() or not inner.is_dir() else inner
        finally:
            shutil.rmtree(place, ignore_errors=True)


def evidence_as_it_lies(submission: Path, settings: JudgeSettings, blacklist: tuple[str, ...] = ()) -> PaperEvidence:
    """Return a submission with the log of an earlier run, and the time at which its reproduce.sh was started.

    That time stands beside the log, else it is the log's own, as in PaperBench.
    """
    evidence = PaperEvidence(submission, blacklist=blacklist)
    if settings.code_only:
        return evidence
    path, time = submission / REPRODUCE_LOG, submission / CREATION_TIME
    log = read_file(path).text if not path.is_symlink() and path.is_file() else None
    with suppress(UntrustedFileError):
        if re.fullmatch("[0-9]{1,11}", text := read_text(time, 100).strip()):
            return replace(evidence, log=log or "", started_at=float(text))  # it was run, even if its log is gone
    if log is None:
        return evidence
    warning = f"No {CREATION_TIME} has seconds since 1970: files older than {path.name} count as no results."
    return replace(evidence, log=log, started_at=path.stat().st_mtime, warnings=(warning,))


def state_folder(submission: Path) -> Path:
    """Return where the state of a submission's gradings is kept."""
    return STATE / "judgements" / state_name(submission)


@contextmanager
def _run_folder(submission: Path, *, is_kept: bool) -> Iterator[Path]:
    """Give the place where reproduce.sh is run: in the kept state and for this grading alone, or a temporary one."""
    state = state_folder(submission)
    # a submission that is the present folder has the state within it, where no copy of it may lie
    if not is_kept or state.resolve().is_relative_to(submission.resolve()):
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary, "reproduction")
    else:
        with lock_folder(submission, state / "reproduction.lock"):
            yield state / "reproduction"


def _reproduced(computer: Computer, submission: Path, place: Path) -> ReproductionRun:
    """Run reproduce.sh, or return the run that a killed grading of the same submission and computer has finished."""
    identity = sha256_json([str(submission.resolve()), state_of(submission), computer_identity(computer)])
    note = place / f"{identity}.json"
    if note.is_file() and (run := _RUN.validate_json(note.read_bytes())).folder.is_dir():
        return run
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    run = computer.reproduce(submission, place / "copy")
    run = replace(run, folder=run.folder.resolve())
    write_json(note, _RUN.dump_python(run, mode="json"))
    return run


def state_of(place: Path) -> list[tuple[str, str | tuple[int, int]]]:
    """Return name, size and time of a file, or of all files below a folder except for pcgeval's state.

    An entry that cannot be read has the reason instead: what a submission contains never prevents its grading.
    """
    if place.is_file():
        return [("", (place.stat().st_size, place.stat().st_mtime_ns))]
    entries = walk(place, depth=_MAX_DEPTH, enter=lambda name: name.rpartition("/")[2] != STATE.name)
    return [
        (entry.name, (entry.status.st_size, entry.status.st_mtime_ns) if entry.status else entry.fault)
        for entry in entries
        if not entry.is_folder
    ]


class OpenAICompletionsTurnCompleter:
    """A model of OpenAI's interface; pcgeval takes its `Config` wherever a model of the judge is named."""

    @dataclass(frozen=True)
    class Config:
        """A model and its settings; what is None is not sent. The endpoint is OPENAI_BASE_URL's without a base_url."""

        model: str
        reasoning_effort: str | None = None
        temperature: float | None = None
        max_tokens: int | None = None
        top_p: float | None = None
        seed: int | None = None
        base_url: str | None = None


class Judge:
    """A judge of one submission: `await SimpleJudge(...).judge()` returns the graded tree.

    `run_judge` takes the class itself as its `judge_type`.
    """

    judge_type: ClassVar[str]

    def __init__(
        self,
        paper_path: Path | None,
        rubric: TaskNode,
        addendum: str | None,
        judge_addendum: str | None,
        submission_dir: Path | str,
        paper_md: Path | str | None = None,
        completer_config: Any = None,
        *,
        max_depth: int | None = None,
        code_only: bool = False,
        max_prior_nodes: int | None = None,
    ) -> None:
        """Prepare a grading; the paper's text is that of `paper_md`, and its PDF (`paper_path`) is not read.

        The submission is graded as it lies. Raises GradingError for an invalid setting, and FileError without the text.
        """
        del paper_path
        self.rubric, self.submission_dir = rubric, Path(submission_dir)
        limits = {"max_depth": max_depth, "max_prior_nodes": max_prior_nodes}
        changes = {"judge": self.judge_type, "model": completer_config, "code_only": code_only, **limits}
        self._settings = JudgeSettings.of(None, **changes)
        paper = "" if paper_md is None else read_text(Path(paper_md), follow_link=True)
        self._texts = paper, addendum or "", judge_addendum or ""

    async def judge(self) -> GradedTaskNode:
        """Grade the submission without blocking the event loop; raises what `run_judge` does."""
        evidence = evidence_as_it_lies(self.submission_dir, self._settings)
        task = GradingTask(self.rubric, self.submission_dir, evidence, *self._texts)
        output = await graded_in_thread(grade, task, CallFiles().client(self._settings))
        return output.graded_task_tree


class SimpleJudge(Judge):
    """The judge `simple`: a language model, GPT-4o without a `completer_config`."""

    judge_type = "simple"


class RandomJudge(Judge):
    """The judge `random`: a seeded coin."""

    judge_type = "random"


class DummyJudge(Judge):
    """The judge `dummy`: always 1."""

    judge_type = "dummy"
