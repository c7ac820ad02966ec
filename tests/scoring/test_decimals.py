"""Decimal arithmetic against fractions and against what bignumber.js is known to print."""

import math
from decimal import Decimal, Inexact
from fractions import Fraction

import pytest
import scoring_examples
from hypothesis import example, given, strategies as st

from pcgeval.core.text import plain, rounded
from pcgeval.scoring.formulas import divide, exact_arithmetic
from pcgeval.scoring.inputs import from_float

decimals = st.decimals(-(10**6), 10**6, places=30)


@given(decimals, decimals.filter(bool))
@example(Decimal("1e-20"), Decimal(2))  # half a unit goes up
@example(Decimal("-1e-20"), Decimal(2))  # away from zero
@example(Decimal("9e-21"), Decimal(2))
def test_division_rounds_half_up_to_20_places(dividend, divisor):
    exact = Fraction(dividend) / Fraction(divisor)
    with exact_arithmetic():
        quotient = Fraction(divide(dividend, divisor))
    assert abs(quotient) == scoring_examples.rounded(abs(exact))
    assert quotient * exact >= 0


@given(st.lists(st.floats(5e-324, 1), min_size=3, max_size=3))
def test_products_of_the_smallest_floats_are_exact_and_nothing_is_rounded_silently(values):
    factors = [Decimal("0.00000000000000000001") ** 3, *map(from_float, values)]
    assert all(Decimal(plain(factor)) == factor for factor in factors)
    with exact_arithmetic():
        product = math.prod(factors)
        with pytest.raises(Inexact):
            Decimal(1) / Decimal(3)
    assert Fraction(product) == math.prod(map(Fraction, factors))


def test_numbers_are_written_plainly_and_rounded_for_people():
    assert [plain(from_float(number)) for number in (1.0, -0.0, 1e21, 1e-7)] == ["1", "0", "1" + "0" * 21, "0.0000001"]
    assert plain(Decimal("0e-999999999")) == "0"  # without a text of so many zeros
    shown = [rounded(text) for text in ("0.00339783327489470138", "0.0000005", "0")]
    assert shown == ["0.003398", "5.0e-7", "0.000000"]
