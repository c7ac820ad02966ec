"""A rubric: a tree of weighted criteria in PaperBench's node format, and the ways to cut it.

Node ids are not unique in published rubrics (`bbox` repeats three), so everything is keyed by a node's path.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Annotated, Any

from pydantic import Field, StrictFloat, StrictInt

from pcgeval.checks.checks import Check
from pcgeval.core.errors import FaultsError

CODE_DEVELOPMENT = "Code Development"
CODE_EXECUTION = "Code Execution"
RESULT_ANALYSIS = "Result Analysis"
CATEGORIES = (CODE_DEVELOPMENT, CODE_EXECUTION, RESULT_ANALYSIS)
SUBTREE = "Subtree"  # PaperBench's category of an inner node that is graded as a whole, from 0 to 1
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
MAX_DEPTH = 64  # levels; published rubrics have 5 to 10, and Python's stack bounds recursion
MAX_NODES = 20_000  # the largest published rubric has 2 551
MAX_WEIGHT = 1e9
MAX_ID = 200  # characters
MAX_TEXT = 1_000_000  # characters of a criterion
# a whole number stays one, so that a file that is read and written has the same bytes
Weight = Annotated[StrictInt | StrictFloat, Field(ge=0, le=MAX_WEIGHT)]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$")]  # printable
Requirements = Annotated[str, Field(max_length=MAX_TEXT)]  # with a limit, lone surrogates are refused too
Category = Annotated[str, Field(pattern=f"^({'|'.join(CATEGORIES)}|{SUBTREE})$")]
FinegrainedCategory = Annotated[str, Field(pattern=f"^({'|'.join(FINEGRAINED_CATEGORIES)})$")]


class RubricError(FaultsError):
    """An invalid rubric or file of checks; each fault begins with the path of the node, or the name of the entry."""


@dataclass(frozen=True)
class TaskNode:
    """One criterion; only leaves have a category and perhaps a check, only inner nodes have sub-tasks.

    `path` has the ids from the root down, joined by `/`. `merged` has the sub-tasks that `prune` folded into this node.
    """

    path: str
    id: Id
    requirements: Requirements
    weight: Weight
    sub_tasks: tuple["TaskNode", ...] = ()
    task_category: Category | None = None
    finegrained_task_category: FinegrainedCategory | None = None
    check: Check | None = None
    merged: tuple["TaskNode", ...] = ()

    @property
    def is_leaf(self) -> bool:
        """Whether the node is graded itself instead of through its sub-tasks."""
        return not self.sub_tasks


def child_paths(parent: str, ids: Sequence[Any]) -> list[str]:
    """Return the unique paths of sibling nodes: `parent/id`, and `parent/id#2` for an id's second appearance.

    `%`, `/` and `#` in an id are escaped as in addresses; `[3]` stands for a third id that is no printable text.
    """
    times: Counter[str] = Counter()
    paths = []
    for number, id_ in enumerate(ids, start=1):
        is_name = isinstance(id_, str) and id_.isprintable() and 0 < len(id_) <= MAX_ID
        name = id_.replace("%", "%25").replace("/", "%2F").replace("#", "%23") if is_name else f"[{number}]"
        times[name] += 1
        paths.append((f"{parent}/" if parent else "") + name + (f"#{times[name]}" if times[name] > 1 else ""))
    return paths


def walk(task: TaskNode) -> Iterator[TaskNode]:
    """Yield a node and all below it in the order of the file."""
    yield task
    for sub_task in task.sub_tasks:
        yield from walk(sub_task)


def leaves(task: TaskNode) -> Iterator[TaskNode]:
    """Yield the nodes that are graded, in the order of the file."""
    return (node for node in walk(task) if node.is_leaf)


def code_only(task: TaskNode) -> TaskNode:
    """Keep the Code Development leaves and the nodes above them; without such a leaf, the root alone (PaperBench)."""
    return _only_code(task) or replace(task, sub_tasks=(), task_category=CODE_DEVELOPMENT, check=None)


def _only_code(task: TaskNode) -> TaskNode | None:
    if task.is_leaf:
        return task if task.task_category == CODE_DEVELOPMENT else None
    sub_tasks = tuple(cut for sub_task in task.sub_tasks if (cut := _only_code(sub_task)))
    return replace(task, sub_tasks=sub_tasks) if sub_tasks else None


def resources_provided(task: TaskNode, *, propagate_zero_weights: bool = False) -> TaskNode:
    """Give weight 0 to the leaves that ask to acquire data sets and models, because these were handed out.

    As in PaperBench, a node above such leaves alone then scores 0, unless `propagate_zero_weights` gives it weight 0.
    """
    if task.is_leaf:
        return replace(task, weight=0) if task.finegrained_task_category == ACQUISITION else task
    cut = tuple(
        resources_provided(sub_task, propagate_zero_weights=propagate_zero_weights) for sub_task in task.sub_tasks
    )
    empty = propagate_zero_weights and not any(sub_task.weight for sub_task in cut)
    return replace(task, sub_tasks=cut, weight=0 if empty else task.weight)


def prune(task: TaskNode, max_depth: int) -> TaskNode:
    """Cut the tree below its `max_depth` top levels (1 keeps the root alone); cut nodes are graded as a whole."""
    if task.is_leaf:
        return task
    if max_depth == 1:
        return replace(task, sub_tasks=(), merged=task.sub_tasks, task_category=SUBTREE)
    return replace(task, sub_tasks=tuple(prune(sub_task, max_depth - 1) for sub_task in task.sub_tasks))


def prior_nodes(root: TaskNode, path: str) -> tuple[TaskNode, ...]:
    """Return the ancestors of a node, and their and its earlier siblings: what a reader of the rubric knows before it.

    They are in the order of the file. Raises KeyError if no node has this path.
    """
    prior: list[TaskNode] = []
    node = root
    while node.path != path:
        earlier = list(takewhile(lambda task: not f"{path}/".startswith(f"{task.path}/"), node.sub_tasks))
        if len(earlier) == len(node.sub_tasks):
            raise KeyError(path)
        prior += [node, *earlier]
        node = node.sub_tasks[len(earlier)]
    return tuple(prior)
