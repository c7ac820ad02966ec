"""Call a function for many items in threads, stopped at once by an interruption and in good order by an error."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, stopping: threading.Event | None = None
) -> Iterator[Result]:
    """Yield the result of `work` for each item, in the order in which they end.

    An executor of the standard library would not do: an interrupted process waits for its threads.

    Args:
        work: Called in several threads at once.
        items: The arguments of these calls.
        threads: How many calls are under way at once.
        stopping: Set as soon as nothing new is to be begun: after an error, or when the caller is interrupted.

    Raises:
        Exception: The first error of `work`, after the calls under way beside it have ended and were yielded.
            An interruption instead leaves the threads where they are; they do not keep the process alive.
    """
    stopping = stopping or threading.Event()
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    ends: queue.SimpleQueue[Future[Result] | None] = queue.SimpleQueue()  # None: a thread has ended
    for item in items:
        waiting.put(item)
    running = min(threads, len(items))
    for _ in range(running):
        threading.Thread(target=_work_off, args=(work, waiting, ends, stopping), daemon=True).start()
    first_error: BaseException | None = None
    try:
        while running:
            end = ends.get()
            if end is None:
                running -= 1
            elif error := end.exception():
                first_error = first_error or error
            else:
                yield end.result()
    finally:
        stopping.set()
    if first_error:
        raise first_error


def _work_off(
    work: Callable[[Item], Result],
    waiting: "queue.SimpleQueue[Item]",
    ends: "queue.SimpleQueue[Future[Result] | None]",
    stopping: threading.Event,
) -> None:
    while not stopping.is_set():
        try:
            item = waiting.get_nowait()
        except queue.Empty:
            break
        end: Future[Result] = Future()
        try:
            end.set_result(work(item))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            end.set_exception(error)
        ends.put(end)
        if end.exception():  # only now: an error of the others because they are stopped comes after this one
            stopping.set()
    ends.put(None)
