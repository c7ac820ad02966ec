"""A sandbox whose programs are all ended when the run is interrupted."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from weakref import WeakSet

from pcgeval.sandbox.sandbox import Confined, Sandbox, SandboxError

_SECONDS = 5.0  # for what was stopped to be cleared away


@dataclass(frozen=True)
class StoppableSandbox(Sandbox):
    """Remembers what it started, as long as anybody else does."""

    _started: "WeakSet[Confined]" = field(default_factory=WeakSet)
    _stopped: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def start(
        self,
        command: list[str],
        *,
        folder: Path,
        readable: tuple[Path, ...] = (),
        writable: tuple[Path, ...] = (),
        descriptors: tuple[int, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Confined:
        """Start a command as a sandbox does.

        Raises:
            SandboxError: As with a sandbox, and when all is being stopped.
        """
        if self._stopped.is_set():
            raise SandboxError(f"{folder}: nothing is started any more. Run again to go on.")
        confined = super().start(
            command,
            folder=folder,
            readable=readable,
            writable=writable,
            descriptors=descriptors,
            environment=environment,
        )
        with self._lock:
            self._started.add(confined)
        if self._stopped.is_set():  # it began too late to be seen
            confined.kill()
        return confined

    def stop(self) -> None:
        """End all that runs, and start nothing more."""
        self._stopped.set()
        with self._lock:
            running = list(self._started)
        for confined in running:
            confined.kill()
        for confined in running:
            with suppress(SandboxError):  # it ended from outside at the same time, perhaps by the same signal
                confined.wait(_SECONDS)


@contextmanager
def stoppable(sandbox: Sandbox) -> Iterator[StoppableSandbox]:
    """Give a sandbox as one that is stopped at the end, however that comes."""
    own = StoppableSandbox(sandbox.allowance, sandbox.contained)
    try:
        yield own
    finally:
        own.stop()
