"""Agreement between two gradings, against its definitions written out slowly and against published figures."""

import json
import os
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import CODE, RESULT, RUN, leaf, node, rubric, rubrics

from pcgeval.core.files import to_json
from pcgeval.rubric.agreement import Pair, agreement
from pcgeval.rubric.grades import GradedTaskNode, GradeError, Verdict, grade_tree, graded_task_from_json
from pcgeval.rubric.tree import SUBTREE, prune

REFERENCE = Path(os.environ.get("PCGEVAL_REFERENCE", Path(__file__).parents[3] / "shared" / "reference")) / "paperbench"

scores = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))


def graded(*given, category=CODE):
    """Return a tree with one leaf a score, named 0, 1, 2 and so on."""
    task = rubric(node("root", 1, *(leaf(str(index), category=category) for index in range(len(given)))))
    return grade_tree(task, lambda each: Verdict(given[int(each.id)], ""))


def both(a, b, **more):
    return agreement([Pair("", graded(*a), graded(*b))], **more)


# the definitions, literally


def slow_accuracy(a, b):
    return Fraction(sum(x == y for x, y in zip(a, b, strict=True)), len(a))


def slow_precision(a, b, label):
    """The share of those that A predicts to have the label that have it in the truth B; 0 for 0 / 0."""
    hits = sum(x == y == label for x, y in zip(a, b, strict=True))
    return Fraction(hits, a.count(label)) if label in a else Fraction(0)


def slow_recall(a, b, label):
    return slow_precision(b, a, label)


def slow_f1(a, b, label):
    precision, recall = slow_precision(a, b, label), slow_recall(a, b, label)
    return 2 * precision * recall / (precision + recall) if precision + recall else Fraction(0)


def slow_macro(measure, a, b):
    """scikit-learn's `average="macro", zero_division=0`, with which PaperBench evaluates judges."""
    labels = sorted({*a, *b})
    return float(sum(measure(a, b, label) for label in labels) / len(labels))


def slow_kappa(a, b):
    chance = sum(Fraction(a.count(label), len(a)) * Fraction(b.count(label), len(b)) for label in (True, False))
    return None if chance == 1 else (slow_accuracy(a, b) - chance) / (1 - chance)


@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=30), st.sampled_from([0.25, 0.5, 1.0]))
def test_every_measure_is_its_definition(given, pass_at):
    a, b = [one for one, _ in given], [other for _, other in given]
    found = both(a, b, pass_at=pass_at, bootstrap=10).overall
    passed_a, passed_b = [each > pass_at for each in a], [each > pass_at for each in b]
    assert found.accuracy.value == pytest.approx(float(slow_accuracy(passed_a, passed_b)))
    assert found.precision.value == pytest.approx(slow_macro(slow_precision, passed_a, passed_b))
    assert found.recall.value == pytest.approx(slow_macro(slow_recall, passed_a, passed_b))
    assert found.macro_f1.value == pytest.approx(slow_macro(slow_f1, passed_a, passed_b))
    for name, label in (("pass", True), ("fail", False)):
        each = found.confusion.classes[name]
        assert (each.in_a, each.in_b) == (passed_a.count(label), passed_b.count(label))
        assert (each.precision or 0) == pytest.approx(float(slow_precision(passed_a, passed_b, label)))
        assert (each.recall or 0) == pytest.approx(float(slow_recall(passed_a, passed_b, label)))
        assert (each.f1 or 0) == pytest.approx(float(slow_f1(passed_a, passed_b, label)))
    kappa = slow_kappa(passed_a, passed_b)
    assert found.kappa.value == (None if kappa is None else pytest.approx(float(kappa)))
    assert found.score_difference.value == pytest.approx(sum(abs(x - y) for x, y in given) / len(given))
    assert found.between_a == sum(0 < each < 1 for each in a)
    assert vars(found.confusion) == {
        "both_pass": sum(x and y for x, y in zip(passed_a, passed_b, strict=True)),
        "only_a": sum(x and not y for x, y in zip(passed_a, passed_b, strict=True)),
        "only_b": sum(y and not x for x, y in zip(passed_a, passed_b, strict=True)),
        "both_fail": sum(not x and not y for x, y in zip(passed_a, passed_b, strict=True)),
    }


@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=12))
def test_it_does_not_matter_which_is_which(given):
    a, b = [one for one, _ in given], [other for _, other in given]
    one, other = both(a, b, bootstrap=20).overall, both(b, a, bootstrap=20).overall
    assert one.accuracy == other.accuracy
    assert one.kappa.value == other.kappa.value
    assert one.macro_f1.value == other.macro_f1.value
    assert one.precision.value == other.recall.value


def test_published_examples():
    """Cohen's kappa as textbooks work it; the F1 scores averaged over classes, as scikit-learn's `macro` does."""
    a = [1.0] * 25 + [0.0] * 25
    b = [1.0] * 20 + [0.0] * 5 + [1.0] * 10 + [0.0] * 15
    found = both(a, b).overall
    assert found.accuracy.value == pytest.approx(0.7)
    assert found.kappa.value == pytest.approx(0.4)
    # by hand: pass 2 * 20 / (25 + 30), fail 2 * 15 / (25 + 20)
    assert found.macro_f1.value == pytest.approx((40 / 55 + 30 / 45) / 2)


@given(st.lists(st.tuples(st.none() | scores, st.none() | scores), min_size=1, max_size=6), st.integers(0, 3))
def test_nothing_is_ever_nan(given, seed):
    """`to_json` refuses NaN."""
    found = both([one for one, _ in given], [other for _, other in given], seed=seed, bootstrap=25)
    assert "NaN" not in to_json(found.to_json())


@pytest.mark.parametrize(
    ("a", "b", "kappa", "words"),
    [
        ([1, 1, 1], [1, 1, 1], None, "not defined: both pass every leaf"),
        ([0, 0], [0, 0], None, "not defined: both fail every leaf"),
        ([1, 1, 1], [1, 0, 1], 0.0, "A passes every leaf"),
        ([1, 0, 1], [0, 0, 0], 0.0, "B fails every leaf"),
        ([1, 0], [1, 0], 1.0, ""),
        ([1, 0], [0, 1], -1.0, ""),
    ],
)
def test_kappa_without_two_classes_is_put_into_words(a, b, kappa, words):
    measure = both([float(each) for each in a], [float(each) for each in b]).overall.kappa
    assert measure.value == kappa
    assert measure.note.startswith(words)
    assert bool(measure.note) == bool(words)


def test_nothing_to_compare_has_no_figures():
    found = both([None, None], [1.0, None])
    for measure in (found.overall.accuracy, found.overall.macro_f1, found.overall.kappa):
        assert measure.value is None
        assert measure.interval is None
        assert "no leaf could be compared" in measure.note
    assert found.by_category == {}
    assert found.uncompared.invalid_in_a == ("root/0", "root/1")
    assert found.uncompared.invalid_in_b == ("root/1",)
    assert found.uncompared.paths == ("root/0", "root/1")
    assert found.root_difference.value is None
    assert "without a grade" in found.root_difference.note


def test_full_agreement_says_how_little_few_leaves_prove():
    assert "more than 100% would" in both([1.0, 0.0], [1.0, 0.0]).overall.accuracy.note
    assert "more than 10% would" in both([1.0, 0.0] * 15, [1.0, 0.0] * 15).overall.accuracy.note


def test_leaves_that_only_one_has_are_named():
    a, b = graded(1.0, 0.0, 1.0), graded(1.0, 1.0)
    found = agreement([Pair("", a, b)])
    assert found.overall.leaves == 2
    assert found.uncompared.missing_in_b == ("root/2",)
    assert agreement([Pair("", b, a)]).uncompared.missing_in_a == ("root/2",)
    assert [(disagreement.path, disagreement.a, disagreement.b) for disagreement in found.disagreements] == [
        ("root/1", 0.0, 1.0)
    ]


def test_a_leaf_with_another_criterion_is_not_compared():
    a = graded(1.0, 0.0)
    changed = replace(a, sub_tasks=(a.sub_tasks[0], replace(a.sub_tasks[1], requirements="Something else.")))
    found = agreement([Pair("", a, changed)])
    assert found.overall.leaves == 1
    assert found.uncompared.other_criterion == ("root/1",)


def test_an_invalid_leaf_counted_as_zero_is_still_no_grade():
    task = rubric(node("root", 1, leaf("0"), leaf("1")))
    official = grade_tree(task, lambda each: Verdict(1.0 if each.id == "0" else None, "not told"))
    found = agreement([Pair("", official, graded(1.0, 0.0))])
    assert found.overall.leaves == 1
    assert found.uncompared.invalid_in_a == ("root/1",)


def test_two_leaves_of_one_path_are_refused():
    tree = graded(1.0, 0.0)
    twins = replace(tree, sub_tasks=(tree.sub_tasks[0], replace(tree.sub_tasks[1], path="root/0")))
    with pytest.raises(GradeError, match="root/0"):
        agreement([Pair("", twins, tree)])


@given(rubrics, st.randoms(use_true_random=False))
def test_categories_and_the_uncompared_make_up_the_whole(task, luck):
    def verdict(_):
        return Verdict(luck.choice([None, 0.0, 0.5, 1.0]), "")

    a, b = grade_tree(task, verdict), grade_tree(task, verdict)
    found = agreement([Pair("", a, b)], bootstrap=0)
    counted = sum(each.leaves for each in found.by_category.values())
    assert counted == found.overall.leaves == sum(vars(found.overall.confusion).values())
    assert counted + len(found.uncompared.paths) == len(a.leaves)
    assert set(found.by_category) <= {CODE, RUN, RESULT}
    assert found.overall.accuracy.interval is None
    same = agreement([Pair("", a, a)], bootstrap=0)
    assert not same.disagreements
    assert same.overall.accuracy.value in (1.0, None)


def test_a_pruned_node_has_the_category_of_paperbench():
    task = prune(rubric(node("root", 1, node("in", 1, leaf("a")), leaf("b"))), 2)
    tree = grade_tree(task, lambda _: Verdict(0.25, ""))
    assert set(agreement([Pair("", tree, tree)]).by_category) == {SUBTREE, CODE}


def test_the_seed_makes_the_intervals():
    a, b = [1.0, 0.0, 0.3] * 7, [1.0, 1.0, 0.6] * 7
    once, again, other = both(a, b, seed=1), both(a, b, seed=1), both(a, b, seed=2)
    assert once == again
    assert once.overall.accuracy.value == other.overall.accuracy.value
    assert once.overall.score_difference.interval != other.overall.score_difference.interval


def test_intervals_are_percentiles_over_drawn_leaves():
    """A slow bootstrap with other random numbers comes to nearly the same ends."""
    luck = random.Random(5)
    a, b = [1.0] * 30 + [0.0] * 30, [1.0] * 20 + [0.0] * 30 + [1.0] * 10
    found = both(a, b, bootstrap=4000).overall
    drawn = []
    for _ in range(1500):
        chosen = [luck.randrange(60) for _ in range(60)]
        one, other = [a[index] >= 0.5 for index in chosen], [b[index] >= 0.5 for index in chosen]
        drawn.append((slow_accuracy(one, other), slow_macro(slow_f1, one, other), slow_kappa(one, other)))
    for position, measure in enumerate((found.accuracy, found.macro_f1, found.kappa)):
        values = sorted(float(each[position]) for each in drawn)
        assert measure.interval.low == pytest.approx(values[75], abs=0.03)
        assert measure.interval.high == pytest.approx(values[-76], abs=0.03)
        assert measure.interval.undefined == 0


def test_resamples_without_a_kappa_are_counted():
    interval = both([1.0, 1.0, 0.0], [1.0, 1.0, 0.0], bootstrap=500).overall.kappa.interval
    assert (interval.low, interval.high) == (1.0, 1.0)
    assert interval.undefined == pytest.approx(500 * (8 + 1) / 27, abs=60)  # drawn all passed, or all failed


def test_one_leaf_has_no_interval():
    assert both([1.0], [1.0]).overall.accuracy.interval is None


def test_several_pairs_are_taken_together_and_their_leaves_named():
    pairs = [Pair("x", graded(1.0, 0.0), graded(1.0, 1.0)), Pair("y", graded(1.0), graded(None))]
    found = agreement(pairs)
    assert found.overall.leaves == 2
    assert [disagreement.path for disagreement in found.disagreements] == ["x: root/1"]
    assert found.uncompared.invalid_in_b == ("y: root/0",)
    assert found.root_difference.value is None
    assert agreement(pairs[:1]).root_difference.value == 0.5


@pytest.mark.skipif(not REFERENCE.exists(), reason="PaperBench's published data is not here")
@pytest.mark.parametrize(("name", "leaves", "passed"), [("rice", 361, None), ("semantic-self-consistency", 79, None)])
def test_published_gradings_without_paths(name, leaves, passed):
    """A grading agrees with itself; with a judge that passes everything, the accuracy is the share of passed leaves."""
    value = json.loads((REFERENCE / "judge_eval" / name / "expected_result.json").read_text())
    human = graded_task_from_json(value)
    same = agreement([Pair("", human, human)])
    assert same.overall.leaves == leaves
    assert same.overall.kappa.value == 1.0
    assert not same.uncompared.paths
    assert same.root_difference.value == 0.0
    generous = agreement([Pair("", human, all_passed(human))]).overall
    passed = sum(each.score == 1 for each in human.leaves)
    assert generous.accuracy.value == passed / leaves
    assert generous.kappa.value == 0.0


def all_passed(tree: GradedTaskNode) -> GradedTaskNode:
    return replace(tree, score=1.0, sub_tasks=tuple(all_passed(task) for task in tree.sub_tasks))
