"""The progress of a grading on the terminal."""

from pcgeval.core.console import Progress
from pcgeval.judge.judging import JudgedLeaf
from pcgeval.rubric.record import record_of


class GradingProgress:
    """Shows the leaves as they are judged: score and cost of each, and of all together."""

    def __init__(self, title: str) -> None:
        """Start the clock."""
        self._progress = Progress(title, 0)

    def __call__(self, judged: JudgedLeaf, is_new: bool) -> None:
        """Count one leaf; `is_new` says that the model was asked about it just now."""
        usage, score = record_of(judged.verdict.judge_metadata).usage, judged.verdict.score
        found = "no grade" if score is None else f"{score:.2f}"
        cost = f", {usage.tokens} tokens in {usage.total.seconds:.1f} s" if usage.tokens else ""
        self._progress.total = judged.total
        self._progress.step(
            f"{judged.leaf.id}: {found}{cost}", tokens=usage.tokens, failed=score is None, kept=not is_new
        )
