"""Spread work over processes: the same results in the same order as in this one, whatever their number."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import TypeVar

from pcgeval.core.errors import PcgevalError

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Sequence[Item]], Sequence[Result]]
AHEAD = 2  # batches of each process that are under way, or done before their turn


class WorkerError(PcgevalError):
    """This machine cannot run worker processes."""


def spread(
    work: Work[Item, Result], batches: Iterable[Sequence[Item]], processes: int
) -> Iterator[Sequence[Result | None]]:
    """Yield the results of each batch in order, one for each item; None for one that ends every process that does it.

    Batches are drawn as they are needed, a few ahead of the one whose results are yielded.

    Args:
        work: Takes a batch and returns a result for each item; with several processes it is pickled, as are these.
        batches: The items, as many at once as are worth the way to another process.
        processes: How many share the work; with 1 it is done in this process.

    Raises:
        WorkerError: No process can be started.
        PcgevalError: `work` raised it.
    """
    if processes == 1:
        for batch in batches:
            yield work(batch) if batch else []
        return
    waiting = iter(batches)
    under_way: deque[tuple[Sequence[Item], Future[Sequence[Result]]]] = deque()
    pool = _pool(processes)
    try:
        while True:
            for batch in waiting:
                under_way.append((batch, _submit(pool, work, batch)))
                if len(under_way) >= AHEAD * processes:
                    break
            if not under_way:
                return
            batch, future = under_way.popleft()
            try:
                yield future.result()
            except BrokenProcessPool:  # any of the batches under way may have ended its process
                yield from _one_by_one(work, [batch, *(each for each, _ in under_way)])
                under_way.clear()
                pool = _pool(processes)
    finally:
        pool.shutdown(cancel_futures=True)


def _one_by_one(work: Work[Item, Result], batches: Iterable[Sequence[Item]]) -> Iterator[Sequence[Result | None]]:
    """Yield the results of batches of which one ends its process, and of that one the results item by item."""
    pool = _pool(1)
    try:
        for batch in batches:
            try:
                yield _submit(pool, work, batch).result()
            except BrokenProcessPool:
                pool = _pool(1)
                if len(batch) > 1:
                    yield [result for results in _one_by_one(work, [[item] for item in batch]) for result in results]
                else:
                    _require_working_processes(pool)
                    yield [None]
    finally:
        pool.shutdown()


def _submit(pool: ProcessPoolExecutor, work: Work[Item, Result], batch: Sequence[Item]) -> Future[Sequence[Result]]:
    """Return the future results of a batch; a pool that is broken already is told by these too."""
    done: Future[Sequence[Result]] = Future()
    if not batch:
        done.set_result([])
        return done
    try:
        return pool.submit(work, batch)
    except BrokenProcessPool as error:
        done.set_exception(error)
        return done


def _require_working_processes(pool: ProcessPoolExecutor) -> None:
    """Tell an item that ends its process from a machine that cannot run processes, which gives no result."""
    try:
        pool.submit(os.getpid).result()
    except BrokenProcessPool as error:
        raise WorkerError(
            "worker processes end as soon as they start. Check the machine's memory and process limits; "
            'a script that calls this needs `if __name__ == "__main__":`.'
        ) from error


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start_worker)


def _start_worker() -> None:
    """Use one core, leave Ctrl-C to the process that started this one, and end with it, also when it is killed."""
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None  # noqa: S101 - this is a worker
    connection.wait([parent.sentinel])
    os._exit(1)
