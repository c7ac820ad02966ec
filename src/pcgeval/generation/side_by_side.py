"""Doing several things at once in threads, ended at once by an interruption and in good order by a fault."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pcgeval.core.errors import PcgevalError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _End(Generic[Result]):
    """How one piece of work, or (with neither) a whole thread, ended."""

    result: Result | None = None
    fault: Exception | None = None


def side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, stopping: threading.Event
) -> Iterator[Result]:
    """Yield what `work` returns for each item, in the order in which they end.

    Args:
        work: Called in several threads at once.
        items: What it is called with.
        threads: How many are worked on at once.
        stopping: Set as soon as nothing new is to be begun: after a fault, or when the caller is interrupted.

    Raises:
        PcgevalError, OSError: The first fault of `work`, after what was under way beside it has ended and was yielded.
            An interruption instead leaves the threads where they are; they do not keep the process alive.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    ends: queue.SimpleQueue[_End[Result]] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    running = min(threads, len(items))
    for _ in range(running):
        threading.Thread(target=_work_off, args=(work, waiting, ends, stopping), daemon=True).start()
    faults: list[Exception] = []
    finished = 0
    try:
        while running:
            end = ends.get()
            if end.result is not None:
                finished += 1
                yield end.result
            elif end.fault is not None:
                faults.append(end.fault)
            else:
                running -= 1
    finally:
        stopping.set()
    if faults:
        raise faults[0]
    if finished < len(items):
        raise RuntimeError("a thread ended by an unexpected fault, which stands above")


def _work_off(
    work: Callable[[Item], Result],
    waiting: "queue.SimpleQueue[Item]",
    ends: "queue.SimpleQueue[_End[Result]]",
    stopping: threading.Event,
) -> None:
    try:
        while not stopping.is_set() and not waiting.empty():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return  # another thread was quicker
            ends.put(_End(result=work(item)))
    except (PcgevalError, OSError) as fault:
        stopping.set()
        ends.put(_End(fault=fault))
    finally:
        ends.put(_End())
