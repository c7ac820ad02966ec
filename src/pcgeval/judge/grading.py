"""One grading from its beginning to its end: every leaf is judged, several at a time, and the tree is computed."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Container
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from pcgeval.checks.checks import run_check
from pcgeval.checks.evidence import Evidence, PaperEvidence, Undecided
from pcgeval.checks.paper_checks import without_blacklisted
from pcgeval.core.console import Progress
from pcgeval.core.parallel import map_in_threads
from pcgeval.core.untrusted import listed
from pcgeval.judge import JUDGES
from pcgeval.judge.calls import WAYS, JudgeClient
from pcgeval.judge.human import human_verdict, read_human_grades
from pcgeval.judge.prompts import prompt_version
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.judge.simple import LeafJudge
from pcgeval.rubric.grades import GradedTaskNode, JudgeOutput, Verdict, grade_tree
from pcgeval.rubric.record import JudgeRecord, record_of
from pcgeval.rubric.tree import TaskNode, leaves
from pcgeval.submissions.reproduction import REPRODUCE_LOG, REPRODUCE_SCRIPT

_LITTLE = 0.5  # of a text
_MOST_NAMED = 10  # texts of which little was shown
VerdictOf = Callable[[TaskNode], Verdict]
Report = Callable[[TaskNode, Verdict, int, bool], None]
"""Is given each judged leaf, its verdict, the number of all leaves, and whether the model was asked just now."""


def no_report(*_: object) -> None:
    """Report nothing."""


class GradingProgress(Progress):
    """Shows the leaves as they are judged: score and cost of each, and of all together."""

    def __init__(self, title: str, total: int | None = None) -> None:
        """Start the clock; `total` is the number of leaves where there are several gradings."""
        super().__init__(title, total, failed_as="without a grade")

    def __call__(self, leaf: TaskNode, verdict: Verdict, total: int, is_new: bool) -> None:
        """Count one leaf."""
        tokens, score = record_of(verdict.judge_metadata).usage.tokens, verdict.score
        shown = "no grade" if score is None else f"{score:.2f}"
        self.total = self.total or total
        note = f"{leaf.id}: {shown}{f', {tokens} tokens' if tokens else ''}"
        self.step(note, tokens=tokens, failed=score is None, repeated=not is_new)


def grade(
    task: GradingTask, client: JudgeClient, report: Report = no_report, *, stopping: threading.Event | None = None
) -> JudgeOutput:
    """Grade a submission by the part of its rubric that the client's settings leave.

    When `stopping` is set from outside no further call is made; leaves not judged by then have no grade.

    Raises:
        GradingError: The judge lacks what it needs.
        HumanGradesError: The file of a person's grades is faulty.
        RubricError: Nothing of the rubric is left to be graded.
    """
    settings, whole = client.settings, task.rubric
    task = replace(task, rubric=settings.cut(whole))
    match settings.judge:
        case "simple":
            if settings.model is None:
                raise GradingError(f"the judge simple needs a model. {WAYS}")
            stopping = stopping or threading.Event()
            client.begin(stopping)
            try:
                return _with_notes(_grade_by_model(task, client, report), task, settings)
            except BaseException:  # Ctrl-C among them: the other threads must not pay for replies that nobody keeps
                stopping.set()
                raise
        case "checks":
            verdict_of: VerdictOf = partial(check_verdict, task.evidence)
        case "random":
            verdict_of = partial(random_verdict, settings.seed)
        case "dummy":
            verdict_of = dummy_verdict
        case "human":
            if settings.human_grades is None:
                raise GradingError("the judge human needs a file of grades. Name it.")
            paths = [leaf.path for tree in (whole, task.rubric) for leaf in leaves(tree)]
            verdict_of = partial(human_verdict, read_human_grades(settings.human_grades, paths))
    output = JudgeOutput(settings.judge, judge_leaves(task.rubric, verdict_of, report=report))
    return _with_notes(output, task, settings)


def _with_notes(output: JudgeOutput, task: GradingTask, settings: JudgeSettings) -> JudgeOutput:
    """Add where the log and the checks came from, and whether an address of the paper's blacklist was used."""
    output = replace(output, checks_sha256=task.checks_sha256)
    if (run := task.run) is None:
        return output
    warnings = [*output.warnings]
    if run.log is not None and not run.is_ours and JUDGES[settings.judge].reads_submission:
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


def _grade_by_model(task: GradingTask, client: JudgeClient, report: Report) -> JudgeOutput:
    judge, settings = LeafJudge(task, client), client.settings
    asked = {leaf.path: leaf for leaf in leaves(task.rubric) if leaf.check is None or settings.ignore_checks}

    def verdict_of(leaf: TaskNode) -> Verdict:
        """Let a check decide its leaf, so that it never costs a call, and the model all others."""
        return judge.verdict(leaf) if leaf.path in asked else check_verdict(task.evidence, leaf)

    judge.rank_all(asked.values(), settings.concurrency)
    tree = judge_leaves(task.rubric, verdict_of, settings.concurrency, report, client.called)
    failed = [client.failed[leaf.path] for leaf in tree.leaves if not leaf.valid_score and leaf.path in client.failed]
    partial, warnings = None, []
    if failed:
        why = client.stopped or max(sorted(set(failed)), key=failed.count)
        partial = f"{len(failed)} of {len(tree.leaves)} leaves were not judged: {why}"
        warnings.append(f"{'The grading ended early' if client.stopped else 'Calls failed'}: {partial}")
    little = Counter(name for (_, name), share in sorted(judge.shown.items()) if share < _LITTLE)
    if little:  # what the most leaves lack comes first
        names = listed([name for name, _ in little.most_common()], _MOST_NAMED)
        warnings.append(f"Less than half was shown of {names}. Judge with a larger context (`rubric.context`).")
    return JudgeOutput(
        settings.judge,
        tree,
        partial=partial,
        warnings=tuple(warnings),
        prompts=f"{settings.prompts}, with evidence" if settings.needs_evidence else settings.prompts,
        model=settings.judge_model.name,
        model_digest=client.digest,
        prompt_version=prompt_version(settings.prompts, evidence=settings.needs_evidence),
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


def judge_leaves(
    rubric: TaskNode,
    verdict_of: VerdictOf,
    concurrency: int = 1,
    report: Report = no_report,
    called: Container[str] = (),
) -> GradedTaskNode:
    """Judge every leaf and compute the scores of all nodes above; the tree does not depend on which leaf ends first.

    With several threads (`concurrency`) `verdict_of` is called in them, and `report` in this one. `called` has the
    paths of leaves about which the model was asked just now.
    """
    tasks = list(leaves(rubric))
    verdicts: dict[str, Verdict] = {}

    def judged(leaf: TaskNode) -> tuple[TaskNode, Verdict]:
        return leaf, verdict_of(leaf)

    with report if isinstance(report, Progress) else nullcontext():
        # one at a time in this thread, so that Ctrl-C interrupts the call
        for leaf, verdict in map(judged, tasks) if concurrency == 1 else map_in_threads(judged, tasks, concurrency):
            verdicts[leaf.path] = verdict
            report(leaf, verdict, len(tasks), leaf.path in called)
    return grade_tree(rubric, lambda leaf: verdicts[leaf.path])
