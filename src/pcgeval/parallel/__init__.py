"""Work on many items: in processes of this machine or of a Dask cluster, and in threads. It imports core alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pcgeval.core.errors import PcgevalError

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Sequence[Item]], Sequence[Result]]
RECEIVED: dict[str, Path] = {}  # on a worker of a cluster: the folders that were sent to it, by their hash
AHEAD = 2  # batches of each process that run, or wait for their turn to be yielded


class WorkerError(PcgevalError):
    """This machine cannot run worker processes."""


class ClusterError(PcgevalError):
    """A Dask cluster cannot be reached, has no workers, or has workers with other versions."""


def received_folder(folder: Path, sha256: str) -> Path:
    """Return the place in this process of a folder that was sent along with the work."""
    return RECEIVED.get(sha256, folder)
