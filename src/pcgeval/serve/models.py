"""The models that `serve-local` offers, of which one at a time is in memory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from starlette.exceptions import HTTPException

from pcgeval.core.files import sha256_file
from pcgeval.llm.gguf_header import Value, read_header
from pcgeval.llm.llamacpp import CONTEXT, LlamaCpp
from pcgeval.llm.local_models import full_name


@dataclass(frozen=True)
class ModelFile:
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
    def modified(self) -> datetime:
        """When the file was written."""
        return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)


@dataclass(frozen=True)
class LoadedModel:
    """The model in memory."""

    file: ModelFile
    context: int  # tokens
    engine: LlamaCpp


class ModelManager:
    """Load models and lend them to one request at a time."""

    def __init__(self, models: Mapping[str, Path], threads: int | None = None) -> None:
        """Offer model files by name; `threads` is llama.cpp's number of threads. Raises LlmError for a damaged file."""
        self.files = tuple(ModelFile(name, path) for name, path in models.items())
        for file in self.files:
            file.header  # noqa: B018 - a damaged file shows now, not in the middle of a run
        self._threads = threads
        self._turn = asyncio.Lock()
        self._loading = threading.RLock()
        self.loaded: LoadedModel | None = None

    def find(self, name: str) -> ModelFile:
        """Return the model of this name; without a tag it is `latest`, as in Ollama.

        Raises:
            HTTPException: There is none.
        """
        for file in self.files:
            if full_name(file.name) == full_name(name):
                return file
        raise HTTPException(404, f"model '{name}' not found")

    @asynccontextmanager
    async def borrow(self, file: ModelFile, context: int, *, keep: bool = True) -> AsyncIterator[LlamaCpp]:
        """Wait for a turn, load the model unless it is loaded with this context, and lend it.

        Raises:
            LlmError: The model cannot be loaded.
        """
        async with self._turn:
            engine = await asyncio.to_thread(self._load, file, min(context, file.context))
            try:
                yield engine
            finally:
                if not keep:
                    self.close()

    async def unload(self, file: ModelFile) -> None:
        """Free a model's memory, after the request that uses it."""
        async with self._turn:
            if self.loaded is not None and self.loaded.file == file:
                self.close()

    def close(self) -> None:
        """Free all memory."""
        with self._loading:
            if self.loaded is not None:
                self.loaded.engine.close()
            self.loaded = None

    def _load(self, file: ModelFile, context: int) -> LlamaCpp:
        with self._loading:  # a request that was given up while it loaded a model is still here
            if self.loaded is None or (self.loaded.file, self.loaded.context) != (file, context):
                self.close()
                self.loaded = LoadedModel(file, context, LlamaCpp(file.path, context=context, threads=self._threads))
            return self.loaded.engine
