"""How far two gradings agree, in words for the terminal."""

from collections.abc import Iterator

from pcgeval.rubric.agreement import Agreement
from pcgeval.rubric.agreement_figures import LEVEL, Figures, Measure
from pcgeval.rubric.explanation_text import plain

_SHOWN = 20  # paths of one kind


def agreement_lines(found: Agreement) -> Iterator[str]:
    """Yield a table of the measures, what they leave out, and the leaves on which the two disagree."""
    yield (
        f"a leaf passes from a score of {found.pass_at:g} up; "
        f"intervals hold {LEVEL:.0%} of {found.resamples} resamples of the leaves, seed {found.seed}"
    )
    yield ""
    yield f"{'':28} {'leaves':>6}  {'accuracy':22} {'macro F1':22} {'kappa':22} {'pass: both, A, B, none':>22}  |A - B|"
    for name, figures in {"all": found.overall, **found.by_category}.items():
        yield _figures_line(name, figures)
    yield ""
    yield f"the roots' scores differ by {_value(found.root_difference)} (mean of absolute differences)"
    yield from dict.fromkeys(_notes(found))
    yield from _left_out(found)
    yield from _disagreements(found)


def _figures_line(name: str, figures: Figures) -> str:
    cells = ", ".join(str(each) for each in vars(figures.confusion).values())
    measures = " ".join(f"{_with_interval(each):22}" for each in (figures.accuracy, figures.macro_f1, figures.kappa))
    return f"{name:28} {figures.leaves:6}  {measures} {cells:>22}  {_value(figures.score_difference):>7}"


def _value(measure: Measure) -> str:
    return "-" if measure.value is None else f"{measure.value:.3f}"


def _with_interval(measure: Measure) -> str:
    interval = measure.interval
    return _value(measure) + (f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else "")


def _notes(found: Agreement) -> Iterator[str]:
    for name, figures in {"all": found.overall, **found.by_category}.items():
        for what, measure in (("accuracy", figures.accuracy), ("kappa", figures.kappa)):
            if measure.note:
                yield f"{name}, {what}: {measure.note}"
            if measure.interval and measure.interval.undefined:
                yield f"{name}, {what}: the interval leaves out {measure.interval.undefined} resamples without a value"
    if found.overall.between_a or found.overall.between_b:
        between = f"{found.overall.between_a} in A, {found.overall.between_b} in B"
        yield f"scores between 0 and 1, which were cut at {found.pass_at:g}: {between}"
    if found.root_difference.note:
        yield found.root_difference.note


def _left_out(found: Agreement) -> Iterator[str]:
    left_out = found.uncompared
    whole_number = found.overall.leaves + len(left_out.paths)
    yield f"compared {found.overall.leaves} of {whole_number} leaves"
    for why, paths in vars(left_out).items():
        if paths:
            yield f"  {why.replace('_', ' ')}: {len(paths)}"
            yield from (f"    {plain(path)}" for path in paths[:_SHOWN])
            if len(paths) > _SHOWN:
                yield f"    and {len(paths) - _SHOWN} more; --json names all"


def _disagreements(found: Agreement) -> Iterator[str]:
    if found.disagreements:
        yield f"disagreements: {len(found.disagreements)}"
    for each in found.disagreements[:_SHOWN]:
        yield f"  A {each.a:.2f}  B {each.b:.2f}  {plain(each.path)}"
    if len(found.disagreements) > _SHOWN:
        yield f"  and {len(found.disagreements) - _SHOWN} more; --json names all"
