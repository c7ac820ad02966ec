"""One grading from its beginning to its end: every leaf is judged, several at a time, and the tree is computed."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pcgeval.checks import run_check
from pcgeval.checks.evidence import Evidence, PaperEvidence, Undecided
from pcgeval.checks.paper_checks import without_blacklisted
from pcgeval.core.console import Progress
from pcgeval.core.errors import FaultsError
from pcgeval.core.text import listed, printable_line
from pcgeval.core.untrusted import parse_yaml, read_text
from pcgeval.judge.calls import JudgeClient
from pcgeval.judge.prompts import prompt_version
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.judge.simple import LeafJudge
from pcgeval.parallel.processes import map_in_threads
from pcgeval.rubric.grades import JudgeRecord, Verdict, grade_tree, record_of
from pcgeval.rubric.output import JudgeOutput
from pcgeval.rubric.tree import TaskNode
from pcgeval.submissions.load import REPRODUCE_LOG, REPRODUCE_SCRIPT

MAX_BYTES = 16 * 2**20
HumanGrades = Mapping[str, Verdict]  # by the leaf's path
_Text = Annotated[str, Field(min_length=1)]
_Score = Annotated[float, Field(ge=0, le=1)] | None
_LITTLE = 0.5  # of a text
_MOST_NAMED = 10  # texts of which little was shown


def grade(
    task: GradingTask, client: JudgeClient, title: str | None = None, *, stopping: threading.Event | None = None
) -> JudgeOutput:
    """Grade a submission by the part of its rubric that the client's settings leave.

    With a title, the progress of a model is shown below it on stderr. When `stopping` is set from outside no further
    call is made; leaves not judged by then have no grade. Raises GradingError if the judge lacks what it needs,
    HumanGradesError for a faulty file of a person's grades, RubricError if nothing of the rubric is left to be graded.
    """
    settings, whole = client.settings, task.rubric
    task = replace(task, rubric=settings.graded_part(whole))
    match settings.judge:
        case "simple":
            stopping = stopping or threading.Event()
            client.begin(stopping)
            try:
                return _with_notes(_grade_by_model(task, client, title), task, settings)
            except BaseException:  # Ctrl-C among them: the other threads must not pay for replies that nobody keeps
                stopping.set()
                raise
        case "checks":
            verdict_of: Callable[[TaskNode], Verdict] = partial(check_verdict, task.evidence)
        case "random":
            verdict_of = partial(random_verdict, settings.seed)
        case "dummy":
            verdict_of = dummy_verdict
        case "human":
            if (file := settings.human_grades or task.human_grades) is None:
                raise GradingError("the judge human needs a file of grades. Name it (--grades, or `human_grades`).")
            paths = [leaf.path for tree in (whole, task.rubric) for leaf in tree.leaves]
            verdict_of = partial(human_verdict, read_human_grades(file, paths))
    tree = grade_tree(task.rubric, partial(_verdict, verdict_of))
    return _with_notes(JudgeOutput(settings.judge, tree), task, settings)


def _verdict(verdict_of: Callable[[TaskNode], Verdict], leaf: TaskNode) -> Verdict:
    """Return the verdict on a leaf; whatever goes wrong about one leaf leaves that leaf without a grade."""
    try:
        return verdict_of(leaf)
    except Exception as error:  # noqa: BLE001 - a fault of one leaf must not cost the grades of all others
        return Verdict(None, f"not judged: {type(error).__name__}: {error}")


def _with_notes(output: JudgeOutput, task: GradingTask, settings: JudgeSettings) -> JudgeOutput:
    """Add where the log and the checks came from, and whether an address of the paper's blacklist was used."""
    output = replace(output, checks_sha256=task.checks_sha256)
    if (run := task.run) is None:
        return output
    warnings = list(output.warnings)
    if run.log is not None and not run.is_ours and settings.reads_submission:
        warnings.append(f"{REPRODUCE_LOG} came with the submission: {REPRODUCE_SCRIPT} was not run for this grading.")
        warnings += run.warnings
    if run.blacklist:
        try:
            result = without_blacklisted(run)
            blacklist, score = result.explanation, result.score
        except Undecided as reason:
            blacklist, score = f"not all of the submission was looked through: {reason}", 0.5
        if score < 1:
            warnings.append(f"blacklist.txt: {blacklist}. Nobody may have used what is listed there: see for yourself.")
        output = replace(output, blacklist=blacklist, is_blacklisted=score == 0)
    return replace(output, warnings=tuple(warnings))


def _grade_by_model(task: GradingTask, client: JudgeClient, title: str | None) -> JudgeOutput:
    judge, settings, tasks = LeafJudge(task, client), client.settings, task.rubric.leaves
    verdicts: dict[str, Verdict] = {}

    def judged(leaf: TaskNode) -> tuple[TaskNode, Verdict]:
        """Let a check decide its leaf, so that it never costs a call, and the model all others."""
        return leaf, _verdict(judge.verdict if judge.asks_about(leaf) else partial(check_verdict, task.evidence), leaf)

    at_once = settings.concurrency
    judge.rank_all(tasks, at_once)
    with Progress(title, len(tasks), failed_as="without a grade") if title else nullcontext() as progress:
        # one at a time in this thread, so that Ctrl-C interrupts the call
        for leaf, verdict in map(judged, tasks) if at_once == 1 else map_in_threads(judged, tasks, at_once):
            verdicts[leaf.path] = verdict
            if progress is not None:
                score, tokens = verdict.score, record_of(verdict.judge_metadata).usage.tokens
                note = f"{leaf.id}: {'no grade' if score is None else f'{score:.2f}'}, {tokens} tokens"
                progress.step(note, tokens=tokens, failed=score is None, repeated=leaf.path not in client.called)
    tree = grade_tree(task.rubric, lambda leaf: verdicts[leaf.path])
    failed = [client.failed[leaf.path] for leaf in tree.leaves if not leaf.valid_score and leaf.path in client.failed]
    ended_early, warnings = None, []
    if failed:
        why = client.ended or max(sorted(set(failed)), key=failed.count)
        ended_early = f"{len(failed)} of {len(tree.leaves)} leaves were not judged: {why}"
        warnings.append(f"{'The grading ended early' if client.ended else 'Calls failed'}: {ended_early}")
    little = Counter(name for (_, name), share in sorted(judge.visible_shares.items()) if share < _LITTLE)
    if little:  # what the most leaves lack comes first
        names = listed([name for name, _ in little.most_common()], _MOST_NAMED)
        warnings.append(f"Less than half was shown of {names}. Judge with a larger context (`rubric.context`).")
    return JudgeOutput(
        settings.judge,
        tree,
        partial=ended_early,
        ended_by=client.ended.by if client.ended and failed else None,
        warnings=tuple(warnings),
        prompts=settings.prompts,
        model=settings.judge_model.name,
        model_digest=client.digest,
        answered_by=tuple(sorted(client.answered_by)) or None,
        prompt_version=prompt_version(settings.prompts),
        votes=settings.votes,
        price=settings.price,
    )


def dummy_verdict(_: TaskNode) -> Verdict:
    """Pass every leaf: the grade of a perfect submission."""
    return Verdict(1.0, "the dummy judge passes everything")


def random_verdict(seed: int, leaf: TaskNode) -> Verdict:
    """Pass half of the leaves, by a hash of the seed and the leaf's path and thus in any order."""
    digest = hashlib.sha256(f"{seed}/{leaf.path}".encode()).digest()
    return Verdict(float(digest[0] % 2), f"the random judge with seed {seed} says so")


def check_verdict(evidence: Evidence | PaperEvidence, leaf: TaskNode) -> Verdict:
    """Return the result of the leaf's check; a leaf without one has no grade."""
    if leaf.check is None:
        return Verdict(None, "no check; needs a judge")
    try:
        result = run_check(leaf.check, evidence)
    except Undecided as reason:
        return Verdict(None, str(reason))
    record = JudgeRecord(check=leaf.check.name, arguments=dict(leaf.check.arguments))
    return Verdict(result.score, result.explanation, record)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, str_strip_whitespace=True)

    path: _Text
    score: Annotated[_Score, BeforeValidator(lambda score: None if score == "none" else score)]
    author: _Text
    reason: _Text
    date: Annotated[str, BeforeValidator(str)] | None = None  # YAML reads 2026-03-01 as a date


class HumanGradesError(FaultsError):
    """An invalid file of grades; each fault names its line."""


def human_verdict(grades: HumanGrades, leaf: TaskNode) -> Verdict:
    """Return the entry about a leaf; a leaf that nobody graded has no grade."""
    return grades.get(leaf.path, Verdict(None, "nobody graded this leaf"))


def read_human_grades(path: Path, leaves: Sequence[str]) -> HumanGrades:
    """Read a file of grades of these leaves, of which the last about a leaf counts.

    Raises HumanGradesError with all its faults, FileError if it cannot be read.
    """
    text = read_text(path, MAX_BYTES, follow_link=True).removeprefix("\ufeff")
    try:
        values = parse_yaml(text)
    except ValueError as error:
        raise HumanGradesError(path, [f"not valid YAML: {printable_line(str(error))}. Fix that line."]) from error
    if not isinstance(values, list):
        raise HumanGradesError(path, [f"must be a list of entries with {', '.join(_Entry.model_fields)}."])
    nodes: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = [node.start_mark.line + 1 for node in nodes.value]
    faults: list[str] = []
    grades: dict[str, Verdict] = {}
    for line, value in zip(lines, values, strict=True):
        try:
            entry = _Entry.model_validate(value)
        except ValidationError as error:
            wrong = [(".".join(map(str, fault["loc"])), fault) for fault in error.errors(include_url=False)]
            faults += [f"line {line}: {key}: {fault['msg']}, not {fault['input']!r:.60}" for key, fault in wrong]
            continue
        if entry.path not in leaves:
            faults.append(f"line {line}: {entry.path!r:.200} is no leaf. Copy a path from `pcgeval rubric leaves`.")
        record = JudgeRecord(author=entry.author, date=entry.date)
        grades[entry.path] = Verdict(entry.score, entry.reason, record)
    if faults:
        raise HumanGradesError(path, faults)
    return grades
