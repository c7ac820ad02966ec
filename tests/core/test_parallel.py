"""Work over processes and threads: the order, the errors, items that end their process, and interruptions."""

import os
import threading
import time

import pytest

from pcgeval.core.errors import PcgevalError
from pcgeval.core.parallel import AHEAD, map_batches, map_in_threads


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
    assert list(map_batches(squares, [[13]], processes)) == [[None]]
    with pytest.raises(PcgevalError, match="negative"):
        list(map_batches(squares, [[1], [-1]], processes))


@pytest.mark.parametrize("threads", [1, 3, 99])
def test_threads_do_every_item_once_and_as_many_at_once_as_told(threads: int):
    assert sorted(map_in_threads(lambda item: item * 2, range(20), threads)) == list(range(0, 40, 2))
    together = threading.Barrier(min(threads, 3), timeout=30)
    assert sorted(map_in_threads(lambda item: (together.wait(), item)[1], range(6), threads)) == list(range(6))


@pytest.mark.parametrize("fault", [PcgevalError("no server"), OSError(28, "No space left on device")])
def test_a_fault_lets_what_is_under_way_end_and_begins_nothing_new(fault: Exception):
    begun: list[int] = []
    both_in = threading.Barrier(2, timeout=30)
    stopping = threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        both_in.wait()
        if item == 0:
            raise fault
        stopping.wait(30)
        return item

    with pytest.raises(type(fault)) as raised:
        list(map_in_threads(work, range(10), 2, stopping))
    assert raised.value is fault
    assert sorted(begun) == [0, 1]


def test_an_interruption_does_not_wait():
    forever, stopping = threading.Event(), threading.Event()
    results = map_in_threads(lambda item: (forever.wait(60) if item else None, item)[1], range(3), 3, stopping)
    assert next(results) == 0
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert stopping.is_set()
    assert time.monotonic() - started < 30
    forever.set()
