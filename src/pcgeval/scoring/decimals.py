"""The decimal arithmetic of the official scoring script (bignumber.js with its default settings).

Sums, differences and products are exact; a quotient is rounded half up to 20 decimal places. Compute inside
`with exact_arithmetic():`, as Python's default rounds to 28 digits.
"""

from contextlib import AbstractContextManager
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow, localcontext

PLACES = 20  # bignumber.js: DECIMAL_PLACES
ZERO = Decimal(0)
ONE = Decimal(1)

# A product of three floats and three weights has under 1 200 digits; anything that would round raises instead.
_EXACT = Context(prec=5000, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])


def exact_arithmetic() -> AbstractContextManager[Context]:
    """Return the context in which + - x of decimals are exact."""
    return localcontext(_EXACT)


def from_float(value: float) -> Decimal:
    """Return the decimal that a float is written as, such as 0.1 for 0.1, as JavaScript and JSON do."""
    return Decimal(repr(float(value)))


def divide(dividend: Decimal, divisor: Decimal | int) -> Decimal:
    """Return the quotient rounded half up (away from zero) to 20 decimal places; call inside `exact_arithmetic`."""
    divisor = Decimal(divisor)
    quotient, remainder = divmod(dividend.scaleb(PLACES), divisor)
    if 2 * abs(remainder) >= abs(divisor):
        quotient += 1 if (dividend < 0) == (divisor < 0) else -1
    return quotient.scaleb(-PLACES)


def rounded(value: Decimal | str, digits: int = 6) -> str:
    """Return a score for people, rounded half to even; one that the digits do not show is written as `3.1e-8`."""
    number = Decimal(value)
    return f"{number:.1e}" if 0 < number < Decimal(10) ** -digits else f"{number:.{digits}f}"
