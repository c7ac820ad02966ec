"""Work over processes: the order, the errors, and items that end their process."""

import os

import pytest

from pcgeval.core.errors import PcgevalError
from pcgeval.core.spread import AHEAD, spread

pytestmark = pytest.mark.slow  # starts processes


def squares(numbers):
    """Return the squares; 13 ends the process, a negative number is refused."""
    if 13 in numbers:
        os._exit(1)
    if min(numbers) < 0:
        raise PcgevalError("a negative number. Give others.")
    return [number**2 for number in numbers]


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_order_and_batches_are_drawn_as_needed(processes):
    drawn = []

    def batches():
        for batch in ([1, 2], [], [3], [4, 5], *([6] for _ in range(20))):
            drawn.append(batch)
            yield batch

    results = spread(squares, batches(), processes)
    assert [list(next(results)) for _ in range(4)] == [[1, 4], [], [9], [16, 25]]
    assert len(drawn) <= 4 + AHEAD * processes
    results.close()


@pytest.mark.parametrize("processes", [1, 2])
def test_an_item_that_ends_its_process_costs_that_item_only(processes):
    found = list(spread(squares, [[1], [2, 13, 3], [4], [], [5]], processes))
    assert [list(each) for each in found] == [[1], [4, None, 9], [16], [], [25]]
    assert list(spread(squares, [[13]], processes)) == [[None]]


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_the_work_is_raised(processes):
    with pytest.raises(PcgevalError, match="negative"):
        list(spread(squares, [[1], [-1]], processes))
