"""The models that `serve-local` offers, of which one at a time is in memory."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from pcgeval.core.files import sha256_file
from pcgeval.llm.gguf_header import Value, read_header
from pcgeval.llm.llamacpp import CONTEXT, LlamaCpp
from pcgeval.llm.local_models import full_name
from pcgeval.llm.protocol import LlmError

_QUEUE = 128  # requests that may wait for the model
_POLL = 0.5  # seconds between two looks whether a waiting client is still there


class BusyError(LlmError):
    """Too many requests wait already."""


class ClientGoneError(LlmError):
    """The client went away while its request waited."""


@dataclass(frozen=True)
class ShelfModel:
    """One model file under the name that it is served by."""

    name: str
    path: Path

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file; read once."""
        return sha256_file(self.path)

    @cached_property
    def header(self) -> dict[str, Value]:
        """The file's GGUF metadata; read once."""
        return read_header(self.path)

    @property
    def family(self) -> str:
        """The architecture, such as qwen2."""
        return str(self.header.get("general.architecture", "unknown"))

    @property
    def context(self) -> int:
        """The tokens it was trained for."""
        return int(self.header.get(f"{self.family}.context_length", CONTEXT))

    @property
    def quantization(self) -> str:
        """The file type, such as Q4_K_M."""
        from gguf.constants import LlamaFileType  # noqa: PLC0415 - an optional extra

        try:
            return str(LlamaFileType(int(self.header["general.file_type"])).name).removeprefix("MOSTLY_")
        except (KeyError, ValueError):
            return "unknown"

    @property
    def modified(self) -> datetime:
        """When the file was written."""
        return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)


@dataclass(frozen=True)
class Loaded:
    """The model in memory."""

    model: ShelfModel
    context: int  # tokens
    engine: LlamaCpp


class Shelf:
    """Hands the models out, one request at a time."""

    def __init__(self, models: Mapping[str, Path], threads: int | None = None) -> None:
        """Offer model files by name; `threads` is llama.cpp's number of threads."""
        self.models = tuple(ShelfModel(name, path) for name, path in models.items())
        self._threads = threads
        self._turn = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_QUEUE)
        self.loaded: Loaded | None = None
        self.closing = False

    def find(self, name: str) -> ShelfModel | None:
        """Return the model of this name; without a tag it is `latest`, as in Ollama."""
        return next((model for model in self.models if full_name(model.name) == full_name(name)), None)

    @contextmanager
    def borrow(self, model: ShelfModel, context: int, gone: Callable[[], bool], *, keep: bool) -> Iterator[LlamaCpp]:
        """Wait for a turn, load the model unless it is there with this context, and hand it out.

        Raises:
            BusyError: Too many wait already.
            ClientGoneError: `gone` came true in the queue, or the shelf was closed.
            LlmError: The model cannot be loaded.
        """
        with self._a_turn(gone):
            context = min(context, model.context)  # more than the training saw is memory without use
            loaded = self.loaded
            if loaded is None or (loaded.model, loaded.context) != (model, context):
                self._clear()
                loaded = self.loaded = Loaded(
                    model, context, LlamaCpp(model.path, context=context, threads=self._threads)
                )
            try:
                yield loaded.engine
            finally:
                if not keep:
                    self._clear()

    def unload(self, model: ShelfModel, gone: Callable[[], bool]) -> None:
        """Free a model's memory, after the request that uses it."""
        with self._a_turn(gone):
            if self.loaded is not None and self.loaded.model == model:
                self._clear()

    def close(self) -> None:
        """Free all memory once the request in progress has ended, and refuse further ones."""
        self.closing = True
        with self._turn:
            self._clear()

    def _clear(self) -> None:
        if self.loaded is not None:
            self.loaded.engine.close()
        self.loaded = None

    @contextmanager
    def _a_turn(self, gone: Callable[[], bool]) -> Iterator[None]:
        if not self._waiting.acquire(blocking=False):
            raise BusyError("server busy, please try again: maximum pending requests exceeded")
        try:
            while not self._turn.acquire(timeout=_POLL):
                if gone():
                    raise ClientGoneError("the client went away")
        finally:
            self._waiting.release()
        try:
            if self.closing:
                raise ClientGoneError("the server stops")
            yield
        finally:
            self._turn.release()
