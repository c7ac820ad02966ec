"""Work over processes: the order, the errors, and items that end their process."""

import os

import pytest

from pcgeval.core.errors import PcgevalError
from pcgeval.parallel import AHEAD
from pcgeval.parallel.processes import map_batches


def squares(numbers):
    """Return the squares; 13 ends the process, a negative number is refused."""
    if 13 in numbers:
        os._exit(1)
    if min(numbers) < 0:
        raise PcgevalError("a negative number. Give others.")
    return [number**2 for number in numbers]


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("processes", [1, 2])
def test_processes_return_results_in_order_and_a_crash_costs_its_item_alone(processes):
    drawn = []

    def batches():
        for batch in ([1, 2], [3], [4, 5], *([6] for _ in range(20))):
            drawn.append(batch)
            yield batch

    results = map_batches(squares, batches(), processes)
    assert [list(next(results)) for _ in range(3)] == [[1, 4], [9], [16, 25]]
    assert len(drawn) <= 3 + AHEAD * processes  # batches are drawn as they are needed
    results.close()
    results = map_batches(squares, [[1], [2, 13, 3], [4], [5]], processes)
    assert [list(batch) for batch in results] == [[1], [4, None, 9], [16], [25]]
    with pytest.raises(PcgevalError, match="negative"):
        list(map_batches(squares, [[1], [-1]], processes))
