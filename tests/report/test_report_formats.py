"""Numbers, texts and reasons as the page writes them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.layout import Trial
from pcgeval.core.stage_files import LabelProbability, LetterRow, OfficialWeight, SimulatedTrial, failed
from pcgeval.report.collect import failure
from pcgeval.report.formats import figure, shade, shortened
from pcgeval.report.results import Failure, LetterResult, TrialResult

LEVEL = SimulatedTrial(
    letter="A", trial=1, types=("SquareTiny",), positions=((0.0, 0.0, 0.0),), moved=(True,), dead=(False,)
)
EMPTY = SimulatedTrial(letter="A", trial=1, types=(), positions=(), moved=(), dead=())
ONE = Decimal(1)


def trial(stability=0.5, similarity=0.5, level=LEVEL, points="0.1", failure=None):
    read_as = (LabelProbability(label="A", probability=0.5),)
    place = Trial("A", 1)
    return TrialResult(place, failure, level, (), stability, similarity, read_as, Decimal(points), "", "", None)


def letter(diversity, *trials):
    row = LetterRow(team="team", letter="A", score=ONE, stability=ONE, similarity=ONE, diversity=Decimal(diversity))
    weight = OfficialWeight(letter="A", weight=ONE, stability=ONE, similarity=ONE, diversity=ONE)
    return LetterResult("A", weight, row, trials)


@given(st.floats(0, 1000, exclude_min=True), st.integers(1, 6))
def test_only_zero_looks_like_zero(value, digits):
    shown = figure(value, digits)
    assert shown.startswith("<") or float(shown) > 0
    assert abs(float(shown.lstrip("<")) - value) <= 10.0**-digits
    assert figure(0, digits) == "0"


def test_long_texts_say_how_long_they_were():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "abc… (4 characters in all)"


@pytest.mark.parametrize(
    ("value", "most", "class_"),
    [
        (0, 1, "h0"),
        (1e-9, 1, "h1"),
        (0.01, 1, "h1"),
        (0.05, 1, "h3"),
        (0.25, 1, "h5"),
        (1, 1, "h9"),
        (1.01, 1, "h9"),
        (0, 0, "h0"),
    ],
)
def test_shades_are_equal_steps_of_the_square_root_and_zero_has_its_own(value, most, class_):
    assert shade(value, most) == class_
    assert shade(Decimal(str(value)), Decimal(most)) == class_


def test_a_reason_does_not_repeat_its_stage_and_has_an_end():
    described = failure(failed(Trial("A", 1), "extract", "no code: the response is empty"))
    assert (described.words, described.reason) == ("no code", "the response is empty")
    assert len(failure(failed(Trial("A", 1), "convert", "x" * 10_000)).reason) < 300
    assert failure(failed(Trial("A", 1), "convert", None)).reason == "no reason was recorded"


def test_why_a_trial_or_a_letter_is_zero():
    assert trial().why_zero is None
    assert "no block stayed" in trial(stability=0.0).why_zero
    assert "empty" in trial(stability=0.0, level=EMPTY).why_zero
    assert "an A" in trial(similarity=0.0).why_zero
    lost = trial(failure=Failure("generate", "timeout"), points="0")
    assert letter("0.5", trial(), trial()).why_zero is None
    assert "one level alone" in letter("0", trial(), lost).why_zero
    assert "alike" in letter("0", trial(), trial()).why_zero
    assert letter("0", lost).why_zero is None  # nothing scored: each trial says why
