"""How far two gradings by the same rubric agree, leaf by leaf: may a model judge where people did before?

Each leaf counts once, whatever its weight. A score above `pass_at` counts as passed and any other as failed, so that
scores between 0 and 1 (checks, votes, pruned nodes) can be counted too; how many there are, and how far the uncut
scores lie apart, is told beside. Only leaves that both gradings have, by the same criterion and with a grade, can be
compared; all others are named. Precision and recall take B for the truth; nothing else depends on which is A.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pcgeval.core.console import count
from pcgeval.core.untrusted import one_line, printable_line
from pcgeval.rubric.agreement_figures import LEVEL, Figures, Measure, agreement_figures
from pcgeval.rubric.grades import GradedTaskNode, GradeError, weighted_mean
from pcgeval.rubric.text import form_lines
from pcgeval.rubric.tree import CATEGORIES

PASS_AT = 0.5
_SHOWN = 20  # paths of one kind in the text
_MAX_REASON = 500  # characters of a judge's words in a form
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


UNCOMPARED_WORDS = {
    "missing_in_a": "only in B",
    "missing_in_b": "only in A",
    "invalid_in_a": "not graded in A",
    "invalid_in_b": "not graded in B",
    "other_criterion": "with another criterion",
}


@dataclass(frozen=True)
class ComparedLeaf:
    """A leaf that both gradings scored, and both scores."""

    path: str
    category: str
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
    disagreements: tuple[ComparedLeaf, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values; nothing is NaN."""
        return {"level": LEVEL, **asdict(self)}


@dataclass(frozen=True)
class Pair:
    """Two gradings of one submission; `name` stands before the paths where there are several pairs."""

    name: str
    a: GradedTaskNode
    b: GradedTaskNode


def agreement(pairs: Sequence[Pair], *, bootstrap: int = 1000, seed: int = 0, pass_at: float = PASS_AT) -> Agreement:
    """Compare pairs of gradings, their leaves matched by path, as if all leaves were of one tree.

    Args:
        pairs: The gradings; also such as PaperBench publishes, whose paths come from the ids.
        bootstrap: How often leaves are drawn anew for the intervals; 0 leaves them out.
        seed: The same seed gives the same intervals.
        pass_at: A leaf passes above this score.

    Raises:
        GradeError: Two leaves of one tree have the same path.
    """
    compared: list[ComparedLeaf] = []
    left_out: dict[str, list[str]] = {reason: [] for reason in vars(Uncompared())}
    for pair in pairs:
        in_a, in_b = _by_path(pair.a), _by_path(pair.b)
        for path in {**in_a, **in_b}:  # in the order of the rubric of A, then the leaves that only B has
            name, a, b = f"{pair.name}: {path}" if pair.name else path, in_a.get(path), in_b.get(path)
            if a is None or b is None:
                left_out["missing_in_a" if a is None else "missing_in_b"].append(name)
            elif a.requirements != b.requirements:
                left_out["other_criterion"].append(name)
            elif a.graded_score is None or b.graded_score is None:
                left_out["invalid_in_a"] += [name] * (a.graded_score is None)
                left_out["invalid_in_b"] += [name] * (b.graded_score is None)
            else:
                category = a.task_category or b.task_category or NO_CATEGORY
                compared.append(ComparedLeaf(name, category, a.graded_score, b.graded_score))

    def figures(leaves: Sequence[ComparedLeaf]) -> Figures:
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
        uncompared=Uncompared(**{reason: tuple(paths) for reason, paths in left_out.items()}),
        disagreements=tuple(leaf for leaf in compared if (leaf.a > pass_at) != (leaf.b > pass_at)),
    )


def _by_path(tree: GradedTaskNode) -> dict[str, GradedTaskNode]:
    by_path: dict[str, GradedTaskNode] = {}
    for leaf in tree.leaves:
        if by_path.setdefault(leaf.path, leaf) is not leaf:
            raise GradeError(f"two leaves have the path {leaf.path[:200]!r}, so they cannot be matched. Grade again.")
    return by_path


def _root_difference(pairs: Sequence[Pair]) -> Measure:
    graded = [pair for pair in pairs if pair.a.valid_score and pair.b.valid_score]
    if len(graded) < len(pairs) or not pairs:
        return Measure(None, note=f"{len(pairs) - len(graded)} of {len(pairs)} pairs have a root without a grade")
    return Measure(weighted_mean([1.0] * len(graded), [abs(pair.a.score - pair.b.score) for pair in graded]))


def differing_leaves(
    a: GradedTaskNode, b: GradedTaskNode, pass_at: float = PASS_AT
) -> list[tuple[GradedTaskNode, GradedTaskNode]]:
    """Return the leaves on which two gradings of one submission differ, as both have them.

    These are the leaves that one passes and the other fails, and those that one alone has graded.

    Raises:
        GradeError: Two leaves of one tree have the same path.
    """
    in_b = _by_path(b)
    both = [(leaf, in_b[path]) for path, leaf in _by_path(a).items() if path in in_b]

    def outcome(leaf: GradedTaskNode) -> bool | None:
        return None if leaf.graded_score is None else leaf.graded_score > pass_at

    return [(x, y) for x, y in both if x.requirements == y.requirements and outcome(x) != outcome(y)]


def disagreement_form(
    a: GradedTaskNode, b: GradedTaskNode, names: tuple[str, str] = ("A", "B"), pass_at: float = PASS_AT
) -> list[str]:
    """Return a form for the judge `human` of the leaves on which two gradings of one submission differ.

    What each says of a leaf stands above its entry.

    Raises:
        GradeError: Two leaves of one tree have the same path.
    """
    lines: list[str] = []
    for both in differing_leaves(a, b, pass_at):
        notes = [
            f"{name}: {'no grade' if each.graded_score is None else f'{each.graded_score:g}'}, "
            f"{printable_line(each.explanation, _MAX_REASON)}"
            for name, each in zip(names, both, strict=True)
        ]
        lines += form_lines(both[0].path, both[0].requirements, notes)
    return lines


def agreement_lines(found: Agreement) -> Iterator[str]:
    """Yield a table of the measures, the leaves left out, and the leaves on which the two gradings disagree."""
    yield (
        f"a leaf passes with a score above {found.pass_at:g}; "
        f"intervals hold {LEVEL:.0%} of {found.resamples} resamples of the leaves, seed {found.seed}"
    )
    yield ""
    yield f"{'':28} {'leaves':>6}  {'accuracy':22} {'macro F1':22} {'kappa':22} {'pass: both, A, B, none':>22}  |A - B|"
    for name, figures in {"all": found.overall, **found.by_category}.items():
        cells = ", ".join(str(var) for var in vars(figures.confusion).values())
        measures = " ".join(f"{_interval(each):22}" for each in (figures.accuracy, figures.macro_f1, figures.kappa))
        difference = _value(figures.score_difference)
        yield f"{name:28} {figures.leaves:6}  {measures} {cells:>22}  {difference:>7}"
    yield ""
    yield f"the roots' scores differ by {_value(found.root_difference)} (mean of absolute differences)"
    yield from agreement_notes(found)
    yield from uncompared_lines(found)
    if found.disagreements:
        yield f"disagreements: {len(found.disagreements)}"
        yield from first_lines(
            [
                f"  A {disagreement.a:.2f}  B {disagreement.b:.2f}  {one_line(disagreement.path)}"
                for disagreement in found.disagreements
            ]
        )


def uncompared_lines(found: Agreement) -> Iterator[str]:
    """Yield how many leaves were compared, and the first of those that were not, by why."""
    left_out = found.uncompared
    yield f"compared {found.overall.leaves} of {found.overall.leaves + len(left_out.paths)} leaves"
    for why, paths in vars(left_out).items():
        if paths:
            yield f"  {UNCOMPARED_WORDS[why]}: {len(paths)}"
            yield from first_lines([f"    {one_line(path)}" for path in paths])


def agreement_notes(found: Agreement) -> list[str]:
    """Return what a reader must know of the figures: why some are not defined, and which scores were cut."""
    notes = [
        line
        for name, figures in {"all": found.overall, **found.by_category}.items()
        for kind, measure in (("accuracy", figures.accuracy), ("kappa", figures.kappa))
        for line in _notes(f"{name}, {kind}", measure)
    ]
    if found.overall.between_a or found.overall.between_b:
        between = f"{found.overall.between_a} in A, {found.overall.between_b} in B"
        notes.append(f"scores between 0 and 1, which were cut at {found.pass_at:g}: {between}")
    return list(dict.fromkeys([*notes, *_notes("", found.root_difference)]))


def _notes(name: str, measure: Measure) -> Iterator[str]:
    if measure.note:
        yield f"{name}: {measure.note}" if name else measure.note
    if measure.interval and measure.interval.undefined:
        yield f"{name}: the interval leaves out {count(measure.interval.undefined, 'resample')} without a value"


def first_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines of one kind, and how many more there are."""
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"    and {len(lines) - _SHOWN} more; --json names all"


def _value(measure: Measure) -> str:
    return "-" if measure.value is None else f"{measure.value:.3f}"


def _interval(measure: Measure) -> str:
    interval = measure.interval
    return _value(measure) + (f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else "")
