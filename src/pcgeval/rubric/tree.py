"""A rubric: a tree of weighted criteria in PaperBench's node format, and the ways to cut it.

Node ids are not unique in published rubrics (`bbox` repeats three), so everything is keyed by a node's path.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pcgeval.checks.checks import Check
from pcgeval.core.errors import PcgevalError, listed

CODE_DEVELOPMENT = "Code Development"
CODE_EXECUTION = "Code Execution"
RESULT_ANALYSIS = "Result Analysis"
CATEGORIES = (CODE_DEVELOPMENT, CODE_EXECUTION, RESULT_ANALYSIS)
ACQUISITION = "Dataset and Model Acquisition"
FINEGRAINED_CATEGORIES = (
    "Environment & Infrastructure Setup",
    ACQUISITION,
    "Data Processing & Preparation",
    "Method Implementation",
    "Experimental Setup",
    "Evaluation, Metrics & Benchmarking",
    "Logging, Analysis & Presentation",
)
MAX_DEPTH = 64  # levels; published rubrics have 5 to 10, and a walk over more would need a deeper Python stack


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a rubric: the path of the node, and what to do about it."""

    path: str
    message: str


class RubricError(PcgevalError):
    """A rubric that cannot be used; `faults` has all that is wrong with it, in the order of the file."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        """Compose the message from the first two hundred faults."""
        super().__init__(listed(source, [f"{fault.path}: {fault.message}" for fault in faults]))
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Task:
    """One criterion; only leaves have a category and perhaps a check, only inner nodes have sub-tasks.

    `path` names the node in its rubric: the ids from the root down, joined by `/`. `merged` holds the sub-tasks that
    `prune` folded into this node, which is then graded as a whole like a leaf.
    """

    path: str
    id: str
    requirements: str
    weight: float
    sub_tasks: tuple["Task", ...] = ()
    task_category: str | None = None
    finegrained_task_category: str | None = None
    check: Check | None = None
    merged: tuple["Task", ...] = ()

    @property
    def is_leaf(self) -> bool:
        """Whether the node is graded itself instead of through its sub-tasks."""
        return not self.sub_tasks


def child_paths(parent: str, ids: Sequence[str]) -> list[str]:
    """Return the unique paths of sibling nodes: `parent/id`, and `parent/id#2` for an id's second appearance.

    `%`, `/` and `#` in an id are written `%25`, `%2F` and `%23`. An empty `parent` means the root's level.
    """
    seen: Counter[str] = Counter()
    paths = []
    for each in ids:
        seen[each] += 1
        name = each.replace("%", "%25").replace("/", "%2F").replace("#", "%23")
        paths.append((f"{parent}/" if parent else "") + name + (f"#{seen[each]}" if seen[each] > 1 else ""))
    return paths


def walk(task: Task) -> Iterator[Task]:
    """Yield a node and all below it in the order of the file: parents before their sub-tasks."""
    yield task
    for sub_task in task.sub_tasks:
        yield from walk(sub_task)


def leaves(task: Task) -> Iterator[Task]:
    """Yield the nodes that are graded, in the order of the file."""
    return (node for node in walk(task) if node.is_leaf)


def published_leaves(task: Task) -> Iterator[Task]:
    """Yield the leaves as they were before `prune` folded any of them into a node above."""
    below = task.sub_tasks or task.merged
    if not below:
        yield task
    for node in below:
        yield from published_leaves(node)


def depth(task: Task) -> int:
    """Return the number of levels below a node: 0 for a leaf."""
    return max((1 + depth(sub_task) for sub_task in task.sub_tasks), default=0)


def only_category(task: Task, category: str) -> Task | None:
    """Keep the leaves of one category and the nodes above them; None where there is no such leaf."""
    if task.is_leaf:
        return task if task.task_category == category else None
    kept = tuple(cut for sub_task in task.sub_tasks if (cut := only_category(sub_task, category)))
    return replace(task, sub_tasks=kept) if kept else None


def code_only(task: Task) -> Task:
    """Keep the Code Development leaves and the nodes above them (PaperBench Code-Dev); apply before other cuts.

    Raises:
        RubricError: There is no such leaf, so that nothing would be graded.
    """
    kept = only_category(task, CODE_DEVELOPMENT)
    if kept is None:
        message = f"no leaf of category {CODE_DEVELOPMENT!r} is below. Grade it without code_only."
        raise RubricError("code_only", [Fault(task.path, message)])
    return kept


def resources_provided(task: Task, *, propagate_zero_weights: bool = False) -> Task:
    """Give weight 0 to the leaves that ask to acquire data sets and models, because these were handed out.

    As PaperBench does it, a node whose sub-tasks all weigh 0 then scores 0 with its full weight, so that a perfect
    submission stays below 1. With `propagate_zero_weights` such a node weighs 0 itself.
    """
    if task.is_leaf:
        return replace(task, weight=0) if task.finegrained_task_category == ACQUISITION else task
    cut = tuple(
        resources_provided(sub_task, propagate_zero_weights=propagate_zero_weights) for sub_task in task.sub_tasks
    )
    empty = propagate_zero_weights and not any(sub_task.weight for sub_task in cut)
    return replace(task, sub_tasks=cut, weight=0 if empty else task.weight)


def prune(task: Task, max_depth: int) -> Task:
    """Cut the tree below its `max_depth` top levels (1 keeps the root alone); cut nodes are graded as a whole.

    Raises:
        ValueError: `max_depth` is below 1.
    """
    if max_depth < 1:
        raise ValueError(f"max_depth is {max_depth}; the root alone is 1 level")
    if task.is_leaf:
        return task
    if max_depth == 1:
        return replace(task, sub_tasks=(), merged=task.sub_tasks)
    return replace(task, sub_tasks=tuple(prune(sub_task, max_depth - 1) for sub_task in task.sub_tasks))


def prior_nodes(root: Task, path: str, limit: int | None = None) -> tuple[Task, ...]:
    """Return what a reader of the rubric has passed before a node: its ancestors, and their and its earlier siblings.

    In the order of the file; with `limit` only the last so many. The sub-tasks of earlier siblings are left out.

    Raises:
        KeyError: No node has this path.
    """
    prior: list[Task] = []
    node = root
    while node.path != path:
        prior.append(node)
        for sub_task in node.sub_tasks:
            if path == sub_task.path or path.startswith(f"{sub_task.path}/"):
                node = sub_task
                break
            prior.append(sub_task)
        else:
            raise KeyError(path)
    return tuple(prior if limit is None else prior[max(0, len(prior) - limit) :])
