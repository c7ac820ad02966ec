"""Work in threads: everything is done once, a fault ends the rest in order, an interruption at once."""

import threading
import time

import pytest

from pcgeval.core.errors import PcgevalError
from pcgeval.core.threads import map_in_threads


@pytest.mark.parametrize("threads", [1, 3, 99])
def test_everything_is_done_once(threads: int):
    assert sorted(map_in_threads(lambda item: item * 2, range(20), threads, threading.Event())) == list(range(0, 40, 2))


def test_nothing_to_do():
    assert list(map_in_threads(str, [], 3, threading.Event())) == []


def test_as_many_at_once_as_told():
    all_in = threading.Barrier(3, timeout=30)
    assert sorted(map_in_threads(lambda item: (all_in.wait(), item)[1], range(6), 3, threading.Event())) == list(
        range(6)
    )


@pytest.mark.parametrize("fault", [PcgevalError("no server"), OSError(28, "No space left on device")])
def test_a_fault_lets_what_is_under_way_end_and_begins_nothing_new(fault: Exception):
    begun: list[int] = []
    both_in = threading.Barrier(2, timeout=30)

    def work(item: int) -> int:
        begun.append(item)
        both_in.wait()
        if item == 0:
            raise fault
        stopping.wait(30)
        return item

    stopping = threading.Event()
    ended = []
    with pytest.raises(type(fault)) as raised:
        ended.extend(map_in_threads(work, range(10), 2, stopping))
    assert raised.value is fault
    assert sorted(begun) == [0, 1]


def test_the_error_that_stopped_all_is_raised_and_not_one_that_follows_from_it():
    class Stopping(threading.Event):
        def set(self) -> None:
            is_first = not self.is_set()
            super().set()
            if is_first:
                time.sleep(0.2)  # the others go on before this thread

    all_in = threading.Barrier(8, timeout=30)

    def work(item: int) -> None:
        all_in.wait()
        if item == 0:
            raise PcgevalError("three faults of the server")
        stopping.wait(30)
        raise PcgevalError("was stopped")

    stopping = Stopping()
    with pytest.raises(PcgevalError, match="three faults"):
        list(map_in_threads(work, range(8), 8, stopping))


def test_the_work_beside_a_fault_is_yielded():
    both_in = threading.Barrier(2, timeout=30)

    def work(item: int) -> int:
        both_in.wait()
        if item == 0:
            raise PcgevalError("x")
        stopping.wait(30)
        return item

    stopping = threading.Event()
    results = map_in_threads(work, range(10), 2, stopping)
    assert next(results) == 1
    with pytest.raises(PcgevalError):
        next(results)


def test_an_interruption_does_not_wait():
    def work(item: int) -> int:
        if item:
            forever.wait(60)
        return item

    forever, stopping = threading.Event(), threading.Event()
    results = map_in_threads(work, range(3), 3, stopping)
    assert next(results) == 0
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert stopping.is_set()
    assert time.monotonic() - started < 30
    forever.set()


def test_a_mistake_of_ours_is_not_taken_for_the_end():
    def work(item: int) -> int:
        return 1 // item

    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(work, [1, 0, 1], 1, threading.Event()))
