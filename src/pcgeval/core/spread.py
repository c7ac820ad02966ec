"""Spread work over processes or a cluster: the same results in the same order as in this process alone."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from types import MappingProxyType
from typing import Self, TypeVar

from pcgeval.core.console import SCHEDULER
from pcgeval.core.errors import PcgevalError
from pcgeval.core.packages import packages_for
from pcgeval.core.params import Params

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Sequence[Item]], Sequence[Result]]
RECEIVED: dict[str, Path] = {}  # on a worker of a cluster: the folders that were sent to it, by their hash
AHEAD = 2  # batches of each process that are under way, or done before their turn


class WorkerError(PcgevalError):
    """This machine cannot run worker processes."""


def chosen_scheduler(params: Params) -> str | None:
    """Return the address of the scheduler whose cluster does the work; None for this machine."""
    return os.environ.get(SCHEDULER) or params.execution.scheduler


def folder_here(folder: Path, sha256: str) -> Path:
    """Return where a folder that was sent along with the work lies in this process."""
    return RECEIVED.get(sha256, folder)


def spread(
    work: Work[Item, Result],
    batches: Iterable[Sequence[Item]],
    processes: int,
    scheduler: str | None = None,
    folders: Mapping[str, Path] = MappingProxyType({}),
) -> Iterator[Sequence[Result | None]]:
    """Yield the results of each batch in order, one for each item; None for one that ends every process that does it.

    Batches are drawn as they are needed, a few ahead of the one whose results are yielded.

    Args:
        work: Takes a batch and returns a result for each item; it is pickled, as are these.
        batches: The items, as many at once as are worth the way to another process.
        processes: How many share the work, beside this one.
        scheduler: The address of a Dask cluster that does the work instead.
        folders: The folders that the work reads, by a hash of their files, which are sent to the cluster's workers;
            `folder_here` tells the work where they lie.

    Raises:
        WorkerError: No process can be started.
        ClusterError: The cluster cannot be used.
        PcgevalError: `work` raised it.
    """
    if scheduler:
        with packages_for("a Dask cluster"):
            from pcgeval.core.cluster import spread_over_cluster  # noqa: PLC0415 - an extra, and slow to import
        yield from spread_over_cluster(work, batches, scheduler, folders)
    else:
        yield from _spread_over_processes(work, batches, processes)


def _spread_over_processes(
    work: Work[Item, Result], batches: Iterable[Sequence[Item]], processes: int
) -> Iterator[Sequence[Result | None]]:
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
                with _OneProcess() as alone:
                    yield from one_by_one(partial(alone.do, work), [batch, *(each for each, _ in under_way)])
                under_way.clear()
                pool = _pool(processes)
    finally:
        pool.shutdown(cancel_futures=True)


def one_by_one(
    alone: Callable[[Sequence[Item]], Sequence[Result] | None], batches: Iterable[Sequence[Item]]
) -> Iterator[Sequence[Result | None]]:
    """Yield the results of batches of which one ends its process, and of that one the results item by item.

    Args:
        alone: Does a batch while nothing else is under way, and returns None if that ends the process.
        batches: The batches.
    """
    for batch in batches:
        found: Sequence[Result | None] | None = alone(batch) if batch else []
        if found is None:
            items = [[item] for item in batch]
            found = [None] if len(batch) == 1 else [result for (result,) in one_by_one(alone, items)]
        yield found


class _OneProcess:
    """One worker process, and another one when it has ended."""

    def __enter__(self) -> Self:
        self.pool = _pool(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def do(self, work: Work[Item, Result], batch: Sequence[Item]) -> Sequence[Result] | None:
        """Return the results of a batch; None if it ended the process.

        Raises:
            WorkerError: No process can run here.
        """
        try:
            return _submit(self.pool, work, batch).result()
        except BrokenProcessPool:
            self.pool = _pool(1)
            self._require_working_processes()
            return None

    def _require_working_processes(self) -> None:
        """Tell an item that ends its process from a machine that cannot run processes, which gives no result."""
        try:
            self.pool.submit(os.getpid).result()
        except BrokenProcessPool as error:
            raise WorkerError(
                "worker processes end as soon as they start. Check the machine's memory and process limits; "
                'a script that calls this needs `if __name__ == "__main__":`.'
            ) from error


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
