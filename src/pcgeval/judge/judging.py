"""Judging all leaves of a rubric, several at a time; the tree comes out the same whatever ends first."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pcgeval.judge.judges import Judge
from pcgeval.llm.protocol import LlmError
from pcgeval.rubric.grades import GradedTask, Verdict, grade_tree
from pcgeval.rubric.tree import TaskNode, leaves


@dataclass(frozen=True)
class JudgedLeaf:
    """A leaf with its verdict; `number` counts the leaves judged so far of `total`."""

    leaf: TaskNode
    verdict: Verdict
    number: int
    total: int


def judge_leaves(
    rubric: TaskNode,
    judge: Judge,
    concurrency: int = 1,
    progress: Callable[[JudgedLeaf], None] = lambda _: None,
    *,
    invalid_as_zero: bool = False,
) -> GradedTask:
    """Ask for a verdict on each leaf and work out the scores of all nodes above.

    Args:
        rubric: The tree; leaves are begun in its order.
        judge: Asked in several threads at once if `concurrency` is above 1. Leaves for which it raises LlmError have no
            grade, for the reason that it gives.
        concurrency: How many leaves are judged at once.
        progress: Called in this thread after each leaf.
        invalid_as_zero: Count leaves without a grade as 0, as PaperBench does.

    Raises:
        GradeError: A verdict's score is not from 0 to 1.
    """
    tasks = list(leaves(rubric))
    verdicts: dict[str, Verdict] = {}
    for judged in _judged(tasks, judge, concurrency):
        verdicts[judged.leaf.path] = judged.verdict
        progress(JudgedLeaf(judged.leaf, judged.verdict, len(verdicts), len(tasks)))
    return grade_tree(rubric, lambda leaf: verdicts[leaf.path], invalid_as_zero=invalid_as_zero)


@dataclass(frozen=True)
class _Judged:
    leaf: TaskNode
    verdict: Verdict


def _judged(tasks: Sequence[TaskNode], judge: Judge, concurrency: int) -> Iterator[_Judged]:
    """Yield each leaf's verdict as it comes; an interruption leaves the threads where they are."""
    if concurrency == 1:
        yield from (_judge(leaf, judge) for leaf in tasks)
        return
    waiting: queue.SimpleQueue[TaskNode] = queue.SimpleQueue()
    ends: queue.SimpleQueue[_Judged | None] = queue.SimpleQueue()  # None: a thread has ended
    for leaf in tasks:
        waiting.put(leaf)
    running = min(concurrency, len(tasks))
    for _ in range(running):
        threading.Thread(target=_work_off, args=(waiting, ends, judge), daemon=True).start()
    finished = 0
    while running:
        end = ends.get()
        if end is None:
            running -= 1
        else:
            finished += 1
            yield end
    if finished < len(tasks):
        raise RuntimeError("a thread ended by an unexpected fault, which stands above")


def _work_off(waiting: "queue.SimpleQueue[TaskNode]", ends: "queue.SimpleQueue[_Judged | None]", judge: Judge) -> None:
    try:
        while True:
            try:
                leaf = waiting.get_nowait()
            except queue.Empty:
                return
            ends.put(_judge(leaf, judge))
    finally:
        ends.put(None)


def _judge(leaf: TaskNode, judge: Judge) -> _Judged:
    try:
        return _Judged(leaf, judge.verdict(leaf))
    except LlmError as error:
        return _Judged(leaf, Verdict(None, f"not judged: {error}"))
