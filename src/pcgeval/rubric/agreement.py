"""How far two gradings by the same rubric agree, leaf by leaf: may a model judge where people did before?

Each leaf counts once, whatever its weight. A score from `pass_at` up counts as passed and any other as failed, so that
scores between 0 and 1 (checks, votes, pruned nodes) can be counted too; how many there are, and how far the uncut
scores lie apart, is told beside. Only leaves that both gradings have, by the same criterion and with a grade, can be
compared; all others are named. Nothing here depends on which of the two is A.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pcgeval.rubric.agreement_figures import LEVEL, Figures, Measure, agreement_figures
from pcgeval.rubric.grades import GradedTask, GradeError, extract_leaf_grades
from pcgeval.rubric.tree import CATEGORIES

PASS_AT = 0.5
NO_CATEGORY = "no category"  # nodes that stand for a pruned part of the tree


@dataclass(frozen=True)
class Uncompared:
    """The paths of the leaves left out, by why: a leaf without a grade in A and in B stands twice."""

    missing_in_a: tuple[str, ...] = ()
    missing_in_b: tuple[str, ...] = ()
    invalid_in_a: tuple[str, ...] = ()
    invalid_in_b: tuple[str, ...] = ()
    other_criterion: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys(path for paths in vars(self).values() for path in paths))


@dataclass(frozen=True)
class Disagreement:
    """A leaf that passes with one grading only, and both scores."""

    path: str
    a: float
    b: float


@dataclass(frozen=True)
class Agreement:
    """The agreement of two gradings, or of several pairs taken together."""

    pass_at: float
    resamples: int
    seed: int
    overall: Figures
    by_category: Mapping[str, Figures]
    root_difference: Measure
    uncompared: Uncompared
    disagreements: tuple[Disagreement, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values; nothing is NaN."""
        return {"level": LEVEL, **asdict(self)}


@dataclass(frozen=True)
class Pair:
    """Two gradings of one submission; `name` stands before the paths where there are several pairs."""

    name: str
    a: GradedTask
    b: GradedTask


def agreement(
    a: GradedTask, b: GradedTask, *, bootstrap: int = 1000, seed: int = 0, pass_at: float = PASS_AT
) -> Agreement:
    """Compare two gradings of one submission, their leaves matched by path.

    Args:
        a: One graded tree; also one as PaperBench publishes it, whose paths come from the ids.
        b: The other.
        bootstrap: How often leaves are drawn anew for the intervals; 0 leaves them out.
        seed: The same seed gives the same intervals.
        pass_at: The least score that counts as passed.

    Raises:
        GradeError: Two leaves of one tree have the same path.
    """
    return pooled_agreement([Pair("", a, b)], bootstrap=bootstrap, seed=seed, pass_at=pass_at)


def pooled_agreement(
    pairs: Sequence[Pair], *, bootstrap: int = 1000, seed: int = 0, pass_at: float = PASS_AT
) -> Agreement:
    """Compare several pairs of gradings as if all their leaves were of one tree; see `agreement`."""
    matched = [_match(pair) for pair in pairs]
    compared = [leaf for each in matched for leaf in each.compared]

    def figures(leaves: Sequence[_Compared]) -> Figures:
        a, b = [leaf.a for leaf in leaves], [leaf.b for leaf in leaves]
        return agreement_figures(a, b, pass_at=pass_at, bootstrap=bootstrap, seed=seed)

    others = sorted({leaf.category for leaf in compared} - {*CATEGORIES})
    groups = {name: [leaf for leaf in compared if leaf.category == name] for name in (*CATEGORIES, *others)}
    return Agreement(
        pass_at=pass_at,
        resamples=bootstrap,
        seed=seed,
        overall=figures(compared),
        by_category={name: figures(leaves) for name, leaves in groups.items() if leaves},
        root_difference=_root_difference(pairs),
        uncompared=Uncompared(
            **{why: tuple(path for each in matched for path in each.left_out[why]) for why in _REASONS}
        ),
        disagreements=tuple(
            Disagreement(leaf.path, leaf.a, leaf.b) for leaf in compared if (leaf.a >= pass_at) != (leaf.b >= pass_at)
        ),
    )


@dataclass(frozen=True)
class _Compared:
    path: str
    category: str
    a: float
    b: float


_REASONS = tuple(vars(Uncompared()))


@dataclass
class _Matched:
    compared: list[_Compared] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=lambda: {why: [] for why in _REASONS})


def _match(pair: Pair) -> _Matched:
    """Go through the leaves of A in the order of the rubric, then through those that only B has."""
    matched, in_a, in_b = _Matched(), _by_path(pair.a), _by_path(pair.b)
    for path in [*in_a, *(path for path in in_b if path not in in_a)]:
        name = f"{pair.name}: {path}" if pair.name else path
        if reasons := list(_why_not(in_a.get(path), in_b.get(path))):
            for why in reasons:
                matched.left_out[why].append(name)
        else:
            category = str(in_a[path].task_category or in_b[path].task_category or NO_CATEGORY)
            matched.compared.append(_Compared(name, category, _score(in_a[path]), _score(in_b[path])))
    return matched


def _by_path(tree: GradedTask) -> dict[str, GradedTask]:
    leaves = extract_leaf_grades(tree)
    if len(by_path := {leaf.path: leaf for leaf in leaves}) < len(leaves):
        twice = next(path for path, times in Counter(leaf.path for leaf in leaves).items() if times > 1)
        raise GradeError(f"two leaves have the path {twice[:200]!r}, so they cannot be matched. Grade again.")
    return by_path


def _why_not(a: GradedTask | None, b: GradedTask | None) -> Iterator[str]:
    if a is None:
        yield "missing_in_a"
    if b is None:
        yield "missing_in_b"
    if a is None or b is None:
        return
    if a.requirements != b.requirements:
        yield "other_criterion"
        return
    if not a.valid_score or a.score is None:
        yield "invalid_in_a"
    if not b.valid_score or b.score is None:
        yield "invalid_in_b"


def _score(leaf: GradedTask) -> float:
    if leaf.score is None:
        raise ValueError(f"{leaf.path} has no score")  # `_why_not` has sorted such leaves out
    return leaf.score


def _root_difference(pairs: Sequence[Pair]) -> Measure:
    differences = [
        abs(pair.a.score - pair.b.score) for pair in pairs if pair.a.score is not None and pair.b.score is not None
    ]
    if len(differences) < len(pairs) or not pairs:
        return Measure(None, note=f"{len(pairs) - len(differences)} of {len(pairs)} pairs have a root without a score")
    total = 0.0
    for each in differences:
        total += each
    return Measure(total / len(differences))
