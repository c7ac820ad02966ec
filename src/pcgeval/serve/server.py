"""`pcgeval serve-local`: Ollama's and OpenAI's HTTP interface over llama.cpp, for machines without Ollama.

The same model file, seed and options give the same text as `LlamaCpp` does. Differences to Ollama, all deliberate:

- A prompt that is too long loses its oldest messages, never the system's or the last one, as with Ollama; but if that
  does not help, the answer is status 400, where Ollama cuts the last message silently.
- A reply that fills the context ends there (done_reason length), where Ollama shifts the context and goes on.
- A digest is the GGUF file's SHA-256, not a manifest's; `template` is the file's own Jinja template.
- A model stays in memory until another one or another num_ctx is asked for, or keep_alive is 0.
- Thinking, images, templates and logprobs are refused with status 400, and so are tools on /api/chat.
- A JSON schema that is recursive, deep or huge is refused with status 400.
"""

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Self

from pcgeval.core.errors import PcgevalError
from pcgeval.core.packages import packages_for
from pcgeval.llm.local_models import LOCAL_MODELS, cached_path
from pcgeval.llm.protocol import LlmError, RefusedError

with packages_for("serve-local"):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response

    from pcgeval.serve.models import ModelManager
    from pcgeval.serve.ollama import OllamaRoutes
    from pcgeval.serve.openai import OpenAiRoutes
    from pcgeval.serve.requests import RequestError, error_value

PORT = 11434  # Ollama's
_CONNECTIONS = 128  # a further one is answered with 503
_IDLE = 60  # seconds that an idle connection is kept open


class LocalServer:
    """A server bound to its address; as a context manager it answers in a thread of its own."""

    def __init__(self, host: str, port: int, models: Mapping[str, Path], threads: int | None = None) -> None:
        """Bind an address (port 0: any free one) and offer model files by name.

        Raises:
            LlmError: The address cannot be used, or a file is no GGUF.
        """
        self.manager = ModelManager(models, threads)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=_CONNECTIONS)
        except (OSError, OverflowError) as error:
            raise LlmError(
                f"{host}:{port} cannot be used ({error}). Is a server running there already? Choose another --port."
            ) from error
        self.host, self.port = self._socket.getsockname()[:2]
        app = Starlette(
            routes=[*OllamaRoutes(self.manager).routes, *OpenAiRoutes(self.manager).routes],
            exception_handlers={HTTPException: _failed, PcgevalError: _failed, ClientDisconnect: _failed},
        )
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_level="error",
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_IDLE,
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = Thread(target=self.run, daemon=True)

    @property
    def address(self) -> str:
        """The URL that clients take as their host."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def run(self) -> None:
        """Answer until stopped, then end the replies in progress and free the model."""
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self.manager.close()

    def __enter__(self) -> Self:
        """Answer in another thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop for good."""
        self._uvicorn.should_exit = True
        self._thread.join()


def serve(host: str = "127.0.0.1", port: int = PORT, models: Mapping[str, Path] | None = None) -> None:
    """Serve model files by name, or the fetched local models, until interrupted.

    Raises:
        LlmError: Nothing is fetched, or the address cannot be used.
    """
    if models is None:
        models = {model.name: cached_path(model) for model in LOCAL_MODELS if cached_path(model).is_file()}
    if not models:
        raise LlmError("no local model is fetched. Run `pcgeval models fetch` first.")
    server = LocalServer(host, port, models)
    print(f"serving {', '.join(models)} at {server.address} (Ctrl-C stops)", file=sys.stderr, flush=True)
    server.run()


async def _failed(request: Request, error: Exception) -> Response:
    """Answer with an error in the words of the interface that was asked."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # nobody reads it
    status = 400 if isinstance(error, RequestError | RefusedError) else 500
    if isinstance(error, HTTPException):
        status = error.status_code
    return JSONResponse(error_value(request, error), status)
