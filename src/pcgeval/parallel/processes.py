"""Map a function over batches in processes of this machine or of a Dask cluster, and over items in threads.

The results and their order do not depend on the number of processes. An item that crashes its process costs only its
own result.
"""

import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing
from itertools import islice
from multiprocessing import connection, current_process, get_context, parent_process
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Union, cast

from pcgeval.core.packages import packages_for
from pcgeval.parallel import AHEAD, ClusterError, Item, Result, Work, WorkerError

if TYPE_CHECKING:
    from pcgeval.parallel.cluster import Cluster

Workers = Union["_Processes", "Cluster"]


def chosen_scheduler(named: str | None = None, *, default: str | None = None) -> str | None:
    """Return the address of a Dask scheduler: this one, else that in PCGEVAL_SCHEDULER, else the default.

    None stands for this machine. Raises ClusterError if it is no address.
    """
    chosen = named or os.environ.get("PCGEVAL_SCHEDULER") or default
    if chosen and not re.search(r"://|:[0-9]+$", chosen):
        raise ClusterError(f"{chosen}: is no address of a Dask scheduler. Write it like tcp://10.0.0.1:8786.")
    return chosen


def end_unguarded_worker() -> None:
    """End a worker that runs the script which started it.

    A new process first imports the script of its parent. Without `if __name__ == "__main__":` that script would start
    more workers. Here the new process ends, and the script gets a WorkerError.
    """
    if getattr(current_process(), "_inheriting", False):
        os._exit(1)


def map_batches(
    work: Work[Item, Result],
    batches: Iterable[Sequence[Item]],
    processes: int,
    scheduler: str | None = None,
    folders: Mapping[str, Path] = MappingProxyType({}),
) -> Iterator[Sequence[Result | None]]:
    """Yield the results of each batch in order, one for each item; None for an item that crashes its process.

    Only a few batches are drawn ahead of the one that is yielded. Function, items and results are pickled. With the
    address of a Dask `scheduler`, its cluster does the work; its workers receive copies of the `folders` that the work
    reads, by a hash of their files, and `received_folder` returns their place.

    Raises:
        WorkerError: No process can be started.
        ClusterError: The cluster cannot be used.
    """
    with _cluster(scheduler, folders) if scheduler else closing(_Processes(processes)) as workers:
        waiting = iter(batches)
        running: deque[tuple[Sequence[Item], Any]] = deque()
        while True:
            try:
                for batch in islice(waiting, max(0, workers.room() - len(running))):
                    running.append((batch, None))  # not lost if the next line finds the processes ended
                    running[-1] = (batch, workers.submit(work, batch))
                if not running:
                    return
                results = workers.result(running[0][1])
            except workers.crash:  # any of the running batches may have crashed its process
                workers.restart()
                for batch, _ in running:
                    yield [_alone(workers, work, item) for item in batch]
                running.clear()
            else:
                running.popleft()
                yield results


def _alone(workers: Workers, work: Work[Item, Result], item: Item) -> Result | None:
    """Return the result of an item while nothing else runs; None if it crashes its process."""
    try:
        future: Any = workers.submit(work, [item])
        return cast("Result", workers.result(future)[0])
    except workers.crash:
        workers.restart()
        return None


def _cluster(scheduler: str, folders: Mapping[str, Path]) -> "AbstractContextManager[Cluster]":
    with packages_for("a Dask cluster"):
        from pcgeval.parallel.cluster import open_cluster  # noqa: PLC0415 - an extra, and slow to import
    return open_cluster(scheduler, folders)


class _Processes:
    """Worker processes of this machine."""

    crash = BrokenProcessPool

    def __init__(self, number: int) -> None:
        self.number, self.pool = number, _pool(number)

    def room(self) -> int:
        """Return how many batches may run at once."""
        return AHEAD * self.number

    def submit(self, work: Work[Item, Result], batch: Sequence[Item]) -> Future[Sequence[Result]]:
        """Let a process do a batch."""
        return self.pool.submit(work, batch)

    def result(self, future: Future[Sequence[Result]]) -> Sequence[Result]:
        """Wait for the result of a batch."""
        return future.result()

    def close(self) -> None:
        """End the processes."""
        self.pool.shutdown(cancel_futures=True)

    def restart(self) -> None:
        """Start new processes after a crash; raise WorkerError if they do not start."""
        self.pool.shutdown()
        self.pool = _pool(self.number)
        try:
            self.pool.submit(os.getpid).result()
        except BrokenProcessPool:
            raise WorkerError(
                "worker processes end as soon as they start. A script that calls this needs "
                '`if __name__ == "__main__":`, and to be a file; else check the machine\'s memory and process limits.'
            ) from None


def _pool(processes: int) -> ProcessPoolExecutor:
    end_unguarded_worker()
    if current_process().daemon:
        raise WorkerError("a process of multiprocessing.Pool may start no other. Call this from the main process.")
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start_worker)


def _start_worker() -> None:
    """Use one core, leave Ctrl-C to the parent process, and end with it, also when it is killed."""
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    connection.wait([parent_process().sentinel])  # type: ignore[union-attr]  # this is a worker
    os._exit(1)


def map_in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, stopping: threading.Event | None = None
) -> Iterator[Result]:
    """Yield the result of `work` for each item, in the order in which the calls end.

    After an error, running calls end and are yielded, no other begins, and the error is raised. An interruption does
    not wait for running calls. `stopping` is set as soon as no other call begins.
    """
    stopping = stopping or threading.Event()
    errors: list[BaseException] = []

    def call(item: Item) -> Result:
        if stopping.is_set():
            raise CancelledError
        try:
            return work(item)
        except BaseException as error:
            errors.append(error)
            stopping.set()
            raise

    pool = ThreadPoolExecutor(max(1, threads))
    try:
        for future in as_completed([pool.submit(call, item) for item in items]):
            if not future.exception():
                yield future.result()
    finally:
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)
    if errors:
        raise errors[0]
