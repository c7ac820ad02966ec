"""Work on a Dask cluster that is running already, with the same results as on one machine.

The files of the folders that the work reads are sent once to each worker. A worker with another pcgeval or other
versions of packages refuses the work. Dask runs the batches of a lost worker elsewhere.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from distributed import CancelledError, Client, Future, KilledWorker, Worker, WorkerPlugin
from distributed.comm.core import CommClosedError

from pcgeval.core.files import write_bytes
from pcgeval.core.packages import MEASURING, installed_versions, source_sha256
from pcgeval.parallel import AHEAD, RECEIVED, ClusterError, Item, Result, Work

ROOM_SECONDS = 1.0  # between two looks at the number of workers
CONNECT_SECONDS = 30  # for the scheduler to answer, and for its first worker
LOST_SECONDS = 300.0  # without any worker: the service that started them may start others


@cache
def environment() -> dict[str, str]:
    """Return the versions of Python and packages, and a hash of pcgeval's modules."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"Python": python, "pcgeval": source_sha256("")[:12], **installed_versions(*MEASURING)}


@contextmanager
def open_cluster(address: str, folders: Mapping[str, Path]) -> Iterator["Cluster"]:
    """Connect to a cluster and send folders to its workers; raise ClusterError if it does not answer, or is lost."""
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        reason = "no scheduler of a Dask cluster answers there. Start `dask scheduler`, or correct the address."
        raise ClusterError(f"{address}: {reason}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            for sha256, folder in folders.items():
                client.register_plugin(_SentFolder(sha256, folder))
            yield Cluster(client)
        except (CancelledError, CommClosedError) as error:
            reason = "the scheduler of the Dask cluster was lost. Start it, then run again."
            raise ClusterError(f"{address}: {reason}") from error
        except TimeoutError as error:
            reason = f"the cluster has no workers. Start some: `dask worker {address}`."
            raise ClusterError(f"{address}: {reason}") from error


class Cluster:
    """The workers of a cluster."""

    crash = KilledWorker

    def __init__(self, client: Client) -> None:
        """Take the client of the cluster's scheduler."""
        self.client = client

    def room(self) -> int:
        """Return how many batches may run at once."""
        return AHEAD * max(1, self._threads())

    def submit(self, work: Work[Item, Result], batch: Sequence[Item]) -> "Future[Sequence[Result]]":
        """Let a worker with the versions of this machine do a batch."""
        return self.client.submit(_call, environment(), work, batch, pure=False)

    def result(self, future: "Future[Sequence[Result]]") -> Sequence[Result]:
        """Wait for the result of a batch; raise TimeoutError if the cluster has no worker for long."""
        since = time.monotonic()  # the last time that there was a worker
        while not future.done():  # type: ignore[no-untyped-call]
            try:
                return future.result(timeout=ROOM_SECONDS)
            except TimeoutError:
                if self._threads():
                    since = time.monotonic()
                elif time.monotonic() > since + LOST_SECONDS:
                    raise
        return future.result()

    def restart(self) -> None:
        """Do nothing: Dask starts other workers."""

    def _threads(self) -> int:
        return sum(self.client.nthreads().values())  # type: ignore[no-untyped-call]


def _call(expected: Mapping[str, str], work: Work[Item, Result], batch: Sequence[Item]) -> Sequence[Result]:
    present = environment()
    differing = [
        f"{name} is {present.get(name, 'missing')} and not {expected.get(name, 'missing')}"
        for name in sorted({*expected, *present})
        if present.get(name) != expected.get(name)
    ]
    if differing:
        raise ClusterError(f"a worker would compute something else: {', '.join(differing)}. Install the same there.")
    return work(batch)


class _SentFolder(WorkerPlugin):
    """Writes the files of a folder on each worker, also on later ones."""

    idempotent = True

    def __init__(self, sha256: str, folder: Path) -> None:
        self.name, self.sha256 = f"pcgeval-{sha256}", sha256
        self.files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def setup(self, worker: Worker) -> None:
        """Write the files."""
        folder = Path(worker.local_directory) / self.name
        for name, content in self.files.items():
            write_bytes(folder / name, content)
        RECEIVED[self.sha256] = folder
