"""Doing several things at once in threads, ended at once by an interruption and in good order by a fault."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pcgeval.core.errors import PcgevalError

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, stopping: threading.Event
) -> Iterator[Result]:
    """Yield what `work` returns for each item, in the order in which they end.

    A pool of the standard library would not do: an interrupted process waits for its threads.

    Args:
        work: Called in several threads at once.
        items: The arguments of these calls.
        threads: How many calls are under way at once.
        stopping: Set as soon as nothing new is to be begun: after a fault, or when the caller is interrupted.

    Raises:
        PcgevalError, OSError: The first fault of `work`, after what was under way beside it has ended and was yielded.
            An interruption instead leaves the threads where they are; they do not keep the process alive.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    ends: queue.SimpleQueue[tuple[Result] | Exception | None] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)

    running = min(threads, len(items))
    for _ in range(running):
        threading.Thread(target=_work_off, args=(work, waiting, ends, stopping), daemon=True).start()
    faults: list[Exception] = []
    finished = 0
    try:
        while running:
            match ends.get():
                case None:
                    running -= 1
                case Exception() as fault:
                    faults.append(fault)
                case (result,):
                    finished += 1
                    yield result
    finally:
        stopping.set()
    if faults:
        raise faults[0]
    if finished < len(items):
        raise RuntimeError("a thread ended by an unexpected fault, which stands above")


def _work_off(
    work: Callable[[Item], Result],
    waiting: "queue.SimpleQueue[Item]",
    ends: "queue.SimpleQueue[tuple[Result] | Exception | None]",
    stopping: threading.Event,
) -> None:
    try:
        while not stopping.is_set():
            ends.put((work(waiting.get_nowait()),))
    except queue.Empty:
        pass
    except (PcgevalError, OSError) as fault:
        stopping.set()
        ends.put(fault)
    finally:
        ends.put(None)
