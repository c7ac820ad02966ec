"""Agreement between two gradings, against its definitions written out slowly."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st
from rubric_trees import leaf, node, rubric

from pcgeval.core.files import to_json
from pcgeval.rubric.agreement import Measure, agreement
from pcgeval.rubric.grades import Verdict, grade_tree

scores = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1)


def graded(*given):
    """Return a tree with one leaf a score, named 0, 1, 2 and so on."""
    task = rubric(node("root", 1, *(leaf(str(index)) for index in range(len(given)))))
    return grade_tree(task, lambda leaf_: Verdict(given[int(leaf_.id)], ""))


def both(a, b):
    return agreement({"": (graded(*a), graded(*b))})


def slow_accuracy(a, b):
    return Fraction(sum(x == y for x, y in zip(a, b, strict=True)), len(a))


def slow_precision(a, b, label):
    """The share of the leaves with the label in A that have it in B; 0 for 0 / 0. Recall swaps A and B."""
    hits = sum(x == y == label for x, y in zip(a, b, strict=True))
    return Fraction(hits, a.count(label)) if label in a else Fraction(0)


def slow_f1(a, b, label):
    return Fraction(2 * sum(x == y == label for x, y in zip(a, b, strict=True)), a.count(label) + b.count(label))


def slow_macro(measure, a, b):
    """scikit-learn's `average="macro", zero_division=0`, with which PaperBench evaluates judges."""
    labels = sorted({*a, *b})
    return float(sum(measure(a, b, label) for label in labels) / len(labels))


def slow_kappa(a, b):
    chance = sum(Fraction(a.count(label), len(a)) * Fraction(b.count(label), len(b)) for label in (True, False))
    return None if chance == 1 else float((slow_accuracy(a, b) - chance) / (1 - chance))


@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=30))
def test_every_measure_is_its_definition(given):
    a, b = [one for one, _ in given], [other for _, other in given]
    agreed = both(a, b)
    result = agreed.overall
    passed_a, passed_b = [score > 0.5 for score in a], [score > 0.5 for score in b]
    assert result.accuracy.value == pytest.approx(float(slow_accuracy(passed_a, passed_b)))
    assert result.precision.value == pytest.approx(slow_macro(slow_precision, passed_a, passed_b))
    assert result.recall.value == pytest.approx(slow_macro(slow_precision, passed_b, passed_a))
    assert result.macro_f1.value == pytest.approx(slow_macro(slow_f1, passed_a, passed_b))
    assert result.kappa.value == pytest.approx(slow_kappa(passed_a, passed_b))
    pairs = list(zip(passed_a, passed_b, strict=True))
    cells = [pairs.count(cell) for cell in ((True, True), (True, False), (False, True), (False, False))]
    assert list(result.confusion.values()) == cells
    assert "NaN" not in to_json(agreed.to_json())


def test_a_textbooks_example_has_intervals_over_drawn_leaves():
    result = both([1.0] * 25 + [0.0] * 25, [1.0] * 20 + [0.0] * 5 + [1.0] * 10 + [0.0] * 15).overall
    # a slow bootstrap with other random numbers: 0.60 to 0.80, and 0.18 to 0.60
    assert result.accuracy == Measure(0.7, {"low": 0.58, "high": 0.8})
    assert result.kappa == Measure(0.4, {"low": 0.172966, "high": 0.594912})
    assert both([1.0, 1.0, 0.0], [1.0, 1.0, 0.0]).overall.kappa.interval["low"] == 1  # of the resamples that have one
    assert both([1.0], [1.0]).overall.accuracy.interval is None
    assert both([None], [1.0]).overall.kappa.value is None


def test_leaves_that_cannot_be_compared_are_named():
    a, b = graded(1.0, 0.0, 1.0), graded(1.0, 1.0)
    changed = replace(b, sub_tasks=(b.sub_tasks[0], replace(b.sub_tasks[1], requirements="Something else.")))
    neither, first = graded(None, None), graded(1.0, None)
    for one, other, uncompared in (
        (a, b, {"missing_in_b": ["root/2"]}),
        (b, a, {"missing_in_a": ["root/2"]}),
        (b, changed, {"other_criterion": ["root/1"]}),
        (neither, first, {"invalid_in_a": ["root/0", "root/1"], "invalid_in_b": ["root/1"]}),
    ):
        result = agreement({"": (one, other)})
        assert {reason: paths for reason, paths in result.uncompared.items() if paths} == uncompared
