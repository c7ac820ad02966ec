"""One grading from its beginning to its end: the judge is made, asked about every leaf, and the result put together."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pcgeval.core.errors import PcgevalError
from pcgeval.core.params import Model
from pcgeval.judge.asking import JudgeAsker, OpenBackend, usual_backend
from pcgeval.judge.exchanges import Exchanges
from pcgeval.judge.heuristic import heuristic_output
from pcgeval.judge.human import read_human_grades
from pcgeval.judge.judge import SimpleJudge
from pcgeval.judge.judges import AnyEvidence, ChecksJudge, DummyJudge, Judge, JudgeType, MixedJudge, RandomJudge
from pcgeval.judge.judging import JudgedLeaf, judge_leaves
from pcgeval.judge.subject import Subject
from pcgeval.judge.templates import prompt_version
from pcgeval.rubric.grades import GradedTask, JudgeOutput, extract_leaf_grades
from pcgeval.rubric.record import record_of
from pcgeval.rubric.tree import TaskNode, leaves

Report = Callable[[JudgedLeaf, bool], None]  # a leaf, and whether the model was asked about it just now
MAX_VOTES = 99


class GradingError(PcgevalError):
    """A grading that cannot be meant: no such judge, no model, no submission."""


@dataclass(frozen=True)
class JudgeSettings:
    """Who judges, and how; the fields from `model` to `ignore_checks` are for the judge `simple`.

    Attributes:
        judge: The judge's type.
        seed: Of the judges `random` and `simple`.
        invalid_as_zero: Count leaves without a grade as 0, as PaperBench does.
        human_grades: The file of the judge `human`.
        model: The model that is asked.
        votes: How often each leaf is graded.
        context: Tokens of one call, its answer included.
        call_seconds: For one call.
        deadline: Seconds after which nothing is asked any more.
        ignore_checks: Ask the model about leaves with a check too.
    """

    judge: JudgeType
    seed: int = 0
    invalid_as_zero: bool = False
    human_grades: Path | None = None
    model: Model | None = None
    votes: int = 1
    context: int = 8192
    call_seconds: float = 600.0
    deadline: float | None = None
    ignore_checks: bool = False


@dataclass(frozen=True)
class Matter:
    """What is judged, by which criteria; what a judge does not look at is never gathered.

    Attributes:
        rubric: The criteria, cut to those that are to be graded.
        whole_rubric: The criteria before anything was cut away.
        subject: Gathers what a model is told of the submission.
        evidence: Gathers what the checks look at.
        has_reproduced: Whether a reproduce.sh is there and succeeded.
    """

    rubric: TaskNode
    whole_rubric: TaskNode
    subject: Callable[[], Subject]
    evidence: Callable[[], AnyEvidence]
    has_reproduced: bool = False


def no_report(*_: object) -> None:
    """Say nothing."""


def grade(
    matter: Matter,
    settings: JudgeSettings,
    exchanges: Exchanges,
    report: Report = no_report,
    *,
    stopping: threading.Event | None = None,
    opened: OpenBackend = usual_backend,
) -> JudgeOutput:
    """Grade a submission.

    Args:
        matter: What is judged.
        settings: By whom.
        exchanges: What the model said before, and where its replies are kept.
        report: Called after each leaf.
        stopping: Set from outside to ask the model nothing more; leaves not judged by then have no grade.
        opened: Opens the model's backend.

    Raises:
        GradingError: The judge lacks what it needs.
        HumanGradesError: The file of a person's grades is faulty.
    """
    if settings.judge == "simple":
        return _grade_by_model(matter, settings, exchanges, report, stopping, opened)
    judge = _judge(matter, settings)
    tree = judge_leaves(
        matter.rubric,
        judge,
        progress=lambda judged: report(judged, False),
        invalid_as_zero=settings.invalid_as_zero,
    )
    return JudgeOutput(judge.judge_type, tree)


def _judge(matter: Matter, settings: JudgeSettings) -> Judge:
    match settings.judge:
        case "checks":
            return ChecksJudge(matter.evidence())
        case "random":
            return RandomJudge(settings.seed)
        case "dummy":
            return DummyJudge()
        case "human":
            if settings.human_grades is None:
                raise GradingError("the judge human needs a file of grades. Name it.")
            gradable = [leaf.path for tree in (matter.whole_rubric, matter.rubric) for leaf in leaves(tree)]
            return read_human_grades(settings.human_grades, gradable)
    raise GradingError(f"no judge is called {settings.judge!r}. There are simple, checks, random, dummy and human.")


def _grade_by_model(
    matter: Matter,
    settings: JudgeSettings,
    exchanges: Exchanges,
    report: Report,
    stopping: threading.Event | None,
    opened: OpenBackend,
) -> JudgeOutput:
    model = settings.model
    if model is None:
        raise GradingError("the judge simple needs a model. Name one, or choose another judge.")
    if not 1 <= settings.votes <= MAX_VOTES:
        raise GradingError(f"votes is {settings.votes}. Give a number from 1 to {MAX_VOTES}.")
    if settings.votes > 1 and not model.options.get("temperature"):
        raise GradingError(
            f"votes is {settings.votes}, but at temperature 0 all votes are the same. Give the model a temperature (in "
            "its options, or with --temperature), or ask for 1 vote."
        )
    stopping = stopping or threading.Event()
    asker = JudgeAsker(
        model,
        exchanges,
        seed=settings.seed,
        context=settings.context,
        call_seconds=settings.call_seconds,
        deadline=settings.deadline,
        stopping=stopping,
        opened=opened,
    )
    simple = SimpleJudge(matter.subject(), matter.rubric, asker, settings.votes)
    try:
        tree = judge_leaves(
            matter.rubric,
            simple if settings.ignore_checks else _with_checks(matter, simple),
            1 if model.backend == "recorded" else model.concurrency,
            lambda judged: report(judged, asker.was_asked(judged.leaf.path)),
            invalid_as_zero=settings.invalid_as_zero,
        )
    except BaseException:  # Ctrl-C among them: the other threads must not pay for replies that nobody keeps
        stopping.set()
        raise
    output = JudgeOutput(simple.judge_type, tree)
    if _is_ungraded(tree):
        output = heuristic_output(tree, has_reproduced=matter.has_reproduced)
    if asker.stopped is not None:
        output = replace(output, warnings=(*output.warnings, f"The grading ended early: {asker.stopped}"))
    return replace(
        output,
        model=model.name,
        model_digest=asker.digest,
        prompt_version=prompt_version(),
        votes=settings.votes,
    )


def _with_checks(matter: Matter, judge: Judge) -> Judge:
    if all(leaf.check is None for leaf in leaves(matter.rubric)):
        return judge
    return MixedJudge(ChecksJudge(matter.evidence()), judge)


def _is_ungraded(tree: GradedTask) -> bool:
    """Tell whether leaves lack a grade and none has one from the model or from a check.

    Leaves that are 0 without a call (no results, no files) say too little to stand for a whole rubric.
    """
    graded = extract_leaf_grades(tree)
    return any(not leaf.valid_score for leaf in graded) and not any(
        leaf.valid_score and (record.usage.grade.calls or record.check is not None)
        for leaf in graded
        for record in [record_of(leaf.judge_metadata)]
    )
