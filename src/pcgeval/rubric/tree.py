"""A rubric: a tree of weighted criteria in PaperBench's node format; how it is read, and the ways to cut it.

Node ids are not unique in published rubrics (`bbox` repeats three), so everything is keyed by a node's path. All
functions also take trees with grades, which are of a subclass of `TaskNode`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from uuid import uuid4

from pydantic import (
    BeforeValidator,
    Field,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.dataclasses import dataclass

from pcgeval.checks import Check, LeafCheck
from pcgeval.core.errors import FaultsError
from pcgeval.core.files import sha256_bytes
from pcgeval.core.text import printable_line, truncate
from pcgeval.core.untrusted import parse_yaml, read_json, read_text

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
CHECKS_FILE = "checks.yaml"
MAX_DEPTH = 64  # levels; published rubrics have 5 to 10, and Python's stack bounds recursion
MAX_NODES = 20_000  # the largest published rubric has 2 551
MAX_WEIGHT = 1e9
MAX_ID = 200  # characters
MAX_TEXT = 1_000_000  # characters of a criterion
MAX_BYTES = 32_000_000  # of a rubric.json
_MAX_CHECKS_BYTES = 500_000  # a check for each leaf of the largest published rubric
_LONGEST_MESSAGE = 1000  # characters; one lists all checks
_NOT_EMPTY = BeforeValidator(lambda text: text or None)  # PaperBench also takes an empty text for no category
# a whole number stays one, so that a file that is read and written has the same bytes
Weight = Annotated[StrictInt | StrictFloat, Field(ge=0, le=MAX_WEIGHT)]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$")]  # printable
Requirements = Annotated[str, Field(max_length=MAX_TEXT)]  # with a limit, lone surrogates are refused too
Category = Annotated[str, Field(pattern=f"^({'|'.join(CATEGORIES)}|{SUBTREE})$")]
FinegrainedCategory = Annotated[str, Field(pattern=f"^({'|'.join(FINEGRAINED_CATEGORIES)})$")]
Node = TypeVar("Node", bound="TaskNode")


class RubricError(FaultsError, ValueError):
    """An invalid rubric or file of checks; each fault begins with the path of the node, or the name of the entry."""


class Truth(int):
    """A truth value that may be called too: `is_leaf` is a property here, and a method in code for PaperBench."""

    def __call__(self) -> bool:
        """Return the value."""
        return bool(self)


@dataclass(frozen=True, kw_only=True)
class TaskNode:
    """One criterion; only leaves have a category and perhaps a check, only inner nodes have sub-tasks.

    `path` has the ids from the root down, joined by `/`; a node that is put below another one gets a new path. `merged`
    has the sub-tasks that `prune_to_depth` folded into this node. Faulty values raise ValueError. The methods are
    PaperBench's: where one takes the id of a node, it takes its path too; changes return a copy.
    """

    id: Id
    requirements: Requirements
    weight: Weight
    sub_tasks: tuple[Self, ...] = ()
    task_category: Annotated[Category | None, _NOT_EMPTY, Field(validate_default=True)] = None
    finegrained_task_category: Annotated[FinegrainedCategory | None, _NOT_EMPTY] = None
    check: Annotated[Check | None, _NOT_EMPTY] = None
    merged: tuple[Self, ...] = ()
    path: str = field(default="", compare=False)

    @field_validator("task_category", "check")
    @classmethod
    def _belongs_to_a_leaf(cls, value: Any, info: ValidationInfo) -> Any:
        below = info.data.get("sub_tasks", True)  # missing if a sub-task is faulty
        if value is not None and below:
            raise ValueError("the node has sub-tasks. Leave this to the leaves")
        if value is None and not below and info.field_name == "task_category":
            raise ValueError(f"a leaf needs a category. Give one of: {'; '.join(CATEGORIES)}")
        return value

    def __post_init__(self) -> None:
        """Give the node and those below it their paths, if they have none or those of another place."""
        path = self.path or child_paths("", [self.id])[0]
        object.__setattr__(self, "path", path)
        below = {task.path for task in self.sub_tasks}
        if len(below) < len(self.sub_tasks) or any(at.rpartition("/")[0] != path for at in below):
            paths = child_paths(path, [task.id for task in self.sub_tasks])
            moved = tuple(replace(task, path=at) for task, at in zip(self.sub_tasks, paths, strict=True))
            object.__setattr__(self, "sub_tasks", moved)

    @property
    def is_leaf(self) -> Truth:
        """Whether the node is graded itself instead of through its sub-tasks."""
        return Truth(not self.sub_tasks)

    def walk(self) -> Iterator[Self]:
        """Yield the node and all below it in the order of the file."""
        yield self
        for task in self.sub_tasks:
            yield from task.walk()

    @property
    def leaves(self) -> tuple[Self, ...]:
        """The nodes that are graded, in the order of the file."""
        return tuple(node for node in self.walk() if node.is_leaf)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TaskNode":
        """Return a rubric as read from JSON; raises RubricError."""
        return parse_rubric(data, "rubric")

    def to_dict(self) -> dict[str, Any]:
        """Return the node and all below it as JSON values."""
        return {
            **{name: getattr(self, name) for name in ("id", "requirements", "weight")},
            "sub_tasks": [task.to_dict() for task in self.sub_tasks],
            "task_category": self.task_category,
            "finegrained_task_category": self.finegrained_task_category,
            **({"check": {"name": self.check.name, "arguments": dict(self.check.arguments)}} if self.check else {}),
        }

    def find_path_to_descendant(self, descendant_id: str) -> list[Self] | None:
        """Return the nodes from this one to the first with this path or, if none has it, this id; None without one."""
        nodes = list(self.walk())
        matches = (node.path for key in ("path", "id") for node in nodes if getattr(node, key) == descendant_id)
        target = next(matches, None)
        return None if target is None else [node for node in nodes if f"{target}/".startswith(f"{node.path}/")]

    def contains(self, node_id: str) -> bool:
        """Return whether a node has this path or id."""
        return self.find_path_to_descendant(node_id) is not None

    def find(self, node_id: str) -> Self:
        """Return the node at the end of `find_path_to_descendant`; raise ValueError without one."""
        if way := self.find_path_to_descendant(node_id):
            return way[-1]
        raise ValueError(f"no node has the path or id {node_id!r:.200}")

    def get_parent(self, node_id: str) -> Self:
        """Return the node above; raise ValueError for the root and without such a node."""
        if (node := self.find(node_id)) is self:
            raise ValueError("the root has no parent")
        return self.find(node.path.rpartition("/")[0])

    def get_prior_nodes(self, root: "TaskNode", max_prior_nodes: int | None = None) -> list["TaskNode"]:
        """Return the ancestors, and their and the node's earlier siblings: what a reader knows before the node.

        They are in the order of the file; with `max_prior_nodes` the last ones. Raises ValueError if the node is not
        below `root`.
        """
        target = self.path if root.contains(self.path) else root.find(self.id).path
        prior: list[TaskNode] = []
        for parent, node in pairwise(root.find_path_to_descendant(target) or []):
            paths = [task.path for task in parent.sub_tasks]
            prior += [parent, *parent.sub_tasks[: paths.index(node.path)]]
        return prior if max_prior_nodes is None else prior[max(0, len(prior) - max_prior_nodes) :]

    def get_leaf_nodes(self) -> list[Self]:
        """Return the nodes that are graded."""
        return list(self.leaves)

    def get_descendants_depth_first(self) -> list[Self]:
        """Return all nodes below in the order of the file."""
        return list(self.walk())[1:]

    def get_descendants_with_duplicate_ids(self) -> list[Self]:
        """Return the nodes below whose id another node below has too."""
        below = self.get_descendants_depth_first()
        times = Counter(task.id for task in below)
        return [task for task in below if times[task.id] > 1]

    def replace(self, node_id: str, new_node: "TaskNode") -> Self:
        """Put a node in the place of another; raise ValueError without that one."""
        self.find(node_id)
        return self._with(node_id, new_node)[0]

    def delete(self, node_id: str) -> Self | None:
        """Leave out a node with all below it; None is left of the root itself."""
        return next(iter(self._with(node_id)), None)

    def _with(self, node_id: str, *instead: Any) -> tuple[Self, ...]:
        if node_id in (self.path, self.id):
            return instead
        below = tuple(chain.from_iterable(task._with(node_id, *instead) for task in self.sub_tasks))  # noqa: SLF001
        return (replace(self, sub_tasks=below) if self.sub_tasks else self,)

    def set_sub_tasks(self, new_sub_tasks: Sequence[Any]) -> Self:
        """Set the sub-tasks; a node that gets some loses its category."""
        category = None if new_sub_tasks else self.task_category
        return replace(self, sub_tasks=tuple(new_sub_tasks), task_category=category)

    def add_sub_task(self, new_sub_task: Any) -> Self:
        """Add a last sub-task."""
        return self.set_sub_tasks((*self.sub_tasks, new_sub_task))

    def set_id(self, new_id: str) -> Self:
        """Set the id and, with it, the path."""
        return replace(self, id=new_id, path="")

    def set_requirements(self, new_requirements: str) -> Self:
        """Set the criterion."""
        return replace(self, requirements=new_requirements)

    def set_weight(self, new_weight: float) -> Self:
        """Set the weight."""
        return replace(self, weight=new_weight)

    def set_task_category(self, new_task_category: str) -> Self:
        """Set the category of a leaf."""
        return replace(self, task_category=new_task_category)

    def set_finegrained_task_category(self, new_category: str) -> Self:
        """Set the finer category."""
        return replace(self, finegrained_task_category=new_category)

    def duplicate_with_new_ids(self) -> Self:
        """Return a copy in which all nodes have new ids."""
        below = tuple(task.duplicate_with_new_ids() for task in self.sub_tasks)
        return replace(self, id=str(uuid4()), sub_tasks=below, path="")

    def map_leaves(self, change: Callable[[Self], Self]) -> Self:
        """Return the tree with each leaf changed."""
        if self.is_leaf:
            return change(self)
        return replace(self, sub_tasks=tuple(task.map_leaves(change) for task in self.sub_tasks))

    def reduce_to_category(self, category: str) -> Self | None:
        """Keep the leaves of one category and the nodes above them; None without such a leaf."""
        if self.is_leaf:
            return self if self.task_category == category else None
        sub_tasks = tuple(rest for task in self.sub_tasks if (rest := task.reduce_to_category(category)))
        return replace(self, sub_tasks=sub_tasks) if sub_tasks else None

    def code_only(self) -> Self | None:
        """Keep the Code Development leaves and the nodes above them; None without such a leaf."""
        return self.reduce_to_category(CODE_DEVELOPMENT)

    def resources_provided(self, *, propagate_zero_weights: bool = False) -> Self:
        """Give weight 0 to the leaves that ask to acquire data sets and models, because these were handed out.

        As in PaperBench, a node above such leaves alone then scores 0, unless `propagate_zero_weights` gives it weight
        0.
        """
        if self.is_leaf:
            return replace(self, weight=0) if self.finegrained_task_category == ACQUISITION else self
        below = tuple(task.resources_provided(propagate_zero_weights=propagate_zero_weights) for task in self.sub_tasks)
        empty = propagate_zero_weights and not any(task.weight for task in below)
        return replace(self, sub_tasks=below, weight=0 if empty else self.weight)

    def prune_to_depth(self, max_depth: int) -> Self:
        """Cut the tree below so many levels under this node (0 keeps it alone); cut nodes are graded as a whole."""
        if self.is_leaf:
            return self
        if max_depth <= 0:
            return replace(self, sub_tasks=(), merged=self.sub_tasks, task_category=SUBTREE)
        return replace(self, sub_tasks=tuple(task.prune_to_depth(max_depth - 1) for task in self.sub_tasks))


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


def code_only(task: Node) -> Node:
    """Keep the Code Development leaves and the nodes above them; without such a leaf, the root alone (PaperBench)."""
    return task.code_only() or replace(task, sub_tasks=(), task_category=CODE_DEVELOPMENT, check=None)


def load_rubric(path: Path | str) -> TaskNode:
    """Read and check a rubric in PaperBench's node format; a leaf may have a `check` besides; other keys are ignored.

    Raises RubricError with all faults, or FileError if the file cannot be read as JSON.
    """
    return parse_rubric(read_json(Path(path), MAX_BYTES), str(path))


def load_rubric_with_checks(path: Path, checks_file: Path | None = None) -> tuple[TaskNode, str | None]:
    """Read a rubric, and give its leaves the checks of a file, by default of the `checks.yaml` beside it.

    The file gives a leaf a check as a rubric names it, by the leaf's path, or by its id where no other leaf has it:
    `79cdbf21: {name: result_value, arguments: {path: results.json, key: accuracy, at_least: 0.9}}`. Return the rubric
    and the SHA-256 of the file of checks, None without one. Raises as `load_rubric` does.
    """
    rubric = load_rubric(path)
    beside = path.with_name(CHECKS_FILE)
    if checks_file is None and not (beside.exists() or beside.is_symlink()):
        return rubric, None
    checks_file = checks_file or beside
    text = read_text(checks_file, _MAX_CHECKS_BYTES, follow_link=True)
    try:
        checks = TypeAdapter(dict[str, Check]).validate_python(parse_yaml(text) or {})
    except ValidationError as error:
        faults = [f"{_quoted('.'.join(map(str, fault['loc'])))}: {_message(fault)}." for fault in error.errors()]
        raise RubricError(checks_file, faults) from error
    except ValueError as error:
        raise RubricError(checks_file, [f"not valid YAML: {printable_line(str(error))}. Correct it."]) from error
    return _with_checks(rubric, checks, checks_file), sha256_bytes(text.encode())


def _with_checks(rubric: TaskNode, checks: Mapping[str, LeafCheck], source: Path) -> TaskNode:
    graded, chosen = rubric.leaves, {leaf.path: leaf.check for leaf in rubric.leaves}
    faults: list[str] = []
    for name, check in checks.items():
        if len(paths := [leaf.path for leaf in graded if name in (leaf.path, leaf.id)]) != 1:
            of = f"of {len(paths)} leaves; give a path: {', '.join(paths[:5])}" if paths else "of no leaf"
            faults.append(f"{_quoted(name)}: is the id {of}.")
        elif chosen[paths[0]] is not None:
            faults.append(f"{paths[0]}: has two checks. Keep one.")
        else:
            chosen[paths[0]] = check
    if faults:
        raise RubricError(source, faults)
    return rubric.map_leaves(lambda leaf: replace(leaf, check=chosen[leaf.path]))


def parse_rubric(value: Any, source: str) -> TaskNode:
    """Check a rubric as read from JSON; `source` is its name in messages."""
    return parse_tree(TaskNode, value, source, lambda node: {**node, "merged": (), "path": None})


def parse_tree(
    kind: type[Node], value: Any, source: str, fields_of: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> Node:
    """Return a tree as read from JSON; `fields_of` changes what a node of the file has to the fields of its type.

    Raises RubricError with the path, key and value of each fault.
    """
    paths: set[str] = set()
    faults: list[str] = []

    def fields(node: Any, path: str, depth: int) -> dict[str, Any]:
        if len(paths) == MAX_NODES or depth > MAX_DEPTH:
            large = f"the tree has more than {MAX_NODES} nodes, or is deeper than {MAX_DEPTH} levels. Shorten it."
            raise RubricError(source, [large])
        values = fields_of(node if isinstance(node, Mapping) else {})
        given = values.get("path")  # PaperBench's nodes have none, or one with another meaning
        if isinstance(given, str) and given.rpartition("/")[0] == path.rpartition("/")[0]:
            path = given
        if path in paths:  # one would hide the other, as nodes are found by their paths
            faults.append(f"{path:.200}: two nodes have this path. Leave it out of both.")
        paths.add(path)
        values["path"], below = path, values.setdefault("sub_tasks", None)
        if isinstance(below, list):
            ids = [task.get("id") if isinstance(task, Mapping) else None for task in below]
            places = zip(below, child_paths(path, ids), strict=True)
            values["sub_tasks"] = [fields(task, at, depth + 1) for task, at in places]
        return values

    root_id = value.get("id") if isinstance(value, Mapping) else None
    values = fields(value, child_paths("", [root_id])[0], 1)
    try:
        tree: Node = TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        faults += dict(_faults(values, error)).values()
    if faults:
        raise RubricError(source, faults)
    return tree


def _faults(values: dict[str, Any], error: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield the path and key of each fault with its message; a key may have one fault for each type it could be of."""
    for fault in error.errors(include_url=False):
        node, place = values, fault["loc"]
        while len(place) > 1 and place[0] == "sub_tasks" and isinstance(place[1], int):
            node, place = node["sub_tasks"][place[1]], place[2:]
        at, key = f"{node['path']}: {str(place[0])!r}", str(place[0])
        yield at, f"{at}: {_message(fault)}{f', found {_quoted(node[key])}' if key in node else ''}."


def _message(fault: Mapping[str, Any]) -> str:
    return str(fault["msg"]).removeprefix("Value error, ")[:_LONGEST_MESSAGE]


def _quoted(value: Any) -> str:
    if isinstance(value, list | Mapping):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    return truncate(ascii(value), 62)
