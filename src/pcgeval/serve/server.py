"""`pcgeval serve-local`: Ollama's HTTP interface over llama.cpp in this process, for machines without Ollama.

Served are `/`, `/api/version`, `tags`, `show`, `ps`, `chat` and `generate`, and of OpenAI's interface `/v1/models` and
`/v1/chat/completions`, streamed or not. The same model file, seed and options give the same text as `LlamaCpp` does.
Differences to Ollama, all of them deliberate:

- A prompt that is too long loses its oldest messages, never the system's or the last one, as with Ollama; but if that
  does not help, the answer is status 400, where Ollama cuts the last message silently.
- A reply that fills the context ends there (done_reason length), where Ollama shifts the context and goes on.
- A digest is the GGUF file's SHA-256, not a manifest's; `template` is the file's own Jinja template.
- A model stays in memory until another one or another num_ctx is asked for, or keep_alive is 0.
- Thinking, images, templates and logprobs are refused with status 400, and so are tools on /api/chat.
- A JSON schema that is recursive, deep or huge is refused with status 400.
"""

import http
import json
import re
import select
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pcgeval.llm.llamacpp import CONTEXT
from pcgeval.llm.local_models import LOCAL_MODELS, cached_path
from pcgeval.llm.protocol import CallError, LlmError, RefusedError
from pcgeval.serve.answers import Answers, Finished, Json, OllamaAnswers, description, server_version, tag
from pcgeval.serve.ask import Ask, chat_ask, complete, generate_ask
from pcgeval.serve.openai_api import CompletionBody, completion_ask, error_value, model_value
from pcgeval.serve.requests import ChatBody, GenerateBody, RequestError, ShowBody, parse_body
from pcgeval.serve.shelf import BusyError, ClientGoneError, Shelf, ShelfModel

PORT = 11434  # Ollama's
_BODY_LIMIT = 16 * 2**20  # bytes
_IDLE = 60.0  # seconds without a byte until a connection is dropped
_ROUTES = {"/", *(f"/api/{name}" for name in ("version", "tags", "ps", "show", "chat", "generate"))}
_ROUTES |= {"/v1/models", "/v1/chat/completions"}
_FOR_EVER = "9999-12-31T23:59:59Z"


class LocalServer(ThreadingHTTPServer):
    """A server bound to its address; `serve_forever` answers until `shutdown`. Usable as a context manager."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, models: Mapping[str, Path], threads: int | None = None) -> None:
        """Bind an address (port 0: any free one) and offer model files by name.

        Raises:
            LlmError: The address cannot be had, or a file is no GGUF.
        """
        self.shelf = Shelf(models, threads)
        for model in self.shelf.models:
            model.header  # noqa: B018 - a damaged file shows now, not in the middle of a run
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise LlmError(
                f"{host}:{port} cannot be used ({error}). Is a server running there already? Choose another --port."
            ) from error

    @property
    def address(self) -> str:
        """The URL that clients take as their host."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def server_close(self) -> None:
        """Stop for good: end the reply in progress and free the model."""
        super().server_close()
        self.shelf.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that go away in the middle."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(host: str = "127.0.0.1", port: int = PORT, models: Mapping[str, Path] | None = None) -> None:
    """Serve model files by name, or the fetched local models, until interrupted.

    Raises:
        LlmError: Nothing is fetched, or the address cannot be had.
    """
    if models is None:
        models = {model.name: cached_path(model) for model in LOCAL_MODELS if cached_path(model).is_file()}
    if not models:
        raise LlmError("no local model is fetched. Run `pcgeval models fetch` first.")
    with LocalServer(host, port, models) as server:
        print(f"serving {', '.join(models)} at {server.address} (Ctrl-C stops)", file=sys.stderr, flush=True)
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    """One connection; http.server calls do_GET and the like for each request on it."""

    server: LocalServer
    protocol_version = "HTTP/1.1"
    server_version = "pcgeval-serve-local"
    timeout = _IDLE
    disable_nagle_algorithm = True
    _streaming: Answers | None = None  # of the stream in progress

    def do_GET(self) -> None:
        answers: dict[str, Callable[[], Json]] = {
            "/api/version": lambda: {"version": server_version()},
            "/api/tags": lambda: {"models": [tag(model) for model in self.server.shelf.models]},
            "/api/ps": self._running,
            "/v1/models": lambda: {
                "object": "list",
                "data": [model_value(model) for model in self.server.shelf.models],
            },
        }
        if self._route() == "/":
            self._send(http.HTTPStatus.OK, b"Ollama is running", "text/plain; charset=utf-8")
        elif self._route().startswith("/v1/models/"):
            model = self._model(urllib.parse.unquote(self._route().removeprefix("/v1/models/")))
            if model is not None:
                self._send_json(http.HTTPStatus.OK, model_value(model))
        elif self._route() in answers:
            self._send_json(http.HTTPStatus.OK, answers[self._route()]())
        else:
            self._no_route()

    do_HEAD = do_GET  # noqa: N815 - names that http.server calls

    def do_POST(self) -> None:
        answers = {
            "/api/show": self._show,
            "/api/chat": self._chat,
            "/api/generate": self._generate,
            "/v1/chat/completions": self._complete,
        }
        if self._route() not in answers:
            self._no_route()
            return
        try:
            content = self._content()
            if content is not None:
                answers[self._route()](content)
        except (RequestError, RefusedError) as error:
            self._fail(http.HTTPStatus.BAD_REQUEST, str(error), error)
        except BusyError as error:
            self._fail(http.HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except ClientGoneError:
            self.close_connection = True
        except (CallError, LlmError) as error:
            self._fail(http.HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def do_other(self) -> None:
        self._no_route()

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_other  # noqa: N815

    def _route(self) -> str:
        return self.path.split("?", 1)[0]

    def _no_route(self) -> None:
        self.close_connection = True  # a body may follow that nobody reads
        status = http.HTTPStatus.METHOD_NOT_ALLOWED if self._route() in _ROUTES else http.HTTPStatus.NOT_FOUND
        self._fail(status, f"{self.command} {self._route()}: {status.phrase.lower()}")

    def _content(self) -> bytes | None:
        """Read the body; None where it is refused."""
        length = self.headers.get("content-length", "")
        if not re.fullmatch("[0-9]{1,12}", length) or self.headers.get("transfer-encoding"):
            self.close_connection = True
            self._fail(http.HTTPStatus.LENGTH_REQUIRED, "the body needs a Content-Length")
            return None
        if int(length) > _BODY_LIMIT:
            self.close_connection = True
            self._fail(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is over {_BODY_LIMIT // 2**20} MB")
            return None
        return self.rfile.read(int(length))

    def _show(self, content: bytes) -> None:
        model = self._model(parse_body(ShowBody, content).wanted)
        if model is not None:
            self._send_json(http.HTTPStatus.OK, description(model))

    def _chat(self, content: bytes) -> None:
        body = parse_body(ChatBody, content)
        model = self._model(body.wanted)
        if model is not None:
            self._answer(chat_ask(body), model)

    def _generate(self, content: bytes) -> None:
        body = parse_body(GenerateBody, content)
        model = self._model(body.wanted)
        if model is not None:
            self._answer(generate_ask(body), model)

    def _complete(self, content: bytes) -> None:
        body = parse_body(CompletionBody, content)
        model = self._model(body.model)
        if model is not None:
            self._answer(completion_ask(body, model), model)

    def _answer(self, ask: Ask, model: ShelfModel) -> None:
        """Answer a request to chat or generate, streamed or whole."""
        shelf = self.server.shelf
        if ask.empty and ask.body.keep_alive == 0:
            shelf.unload(model, self._gone)
            self._say_empty(ask, "unload")
            return
        started = time.monotonic_ns()
        keep = ask.body.keep_alive != 0
        with shelf.borrow(model, ask.body.options.num_ctx or CONTEXT, self._gone, keep=keep) as engine:
            loading = time.monotonic_ns() - started
            found = None if ask.empty else complete(engine, ask, lambda text: self._pass_on(ask, text))
        if found is None:
            self._say_empty(ask, "load")
        elif found.done_reason == "cancelled":
            self.close_connection = True  # the client went away
        else:
            self._finish(ask, Finished(found, time.monotonic_ns() - started, loading))

    def _say_empty(self, ask: Ask, what: str) -> None:
        """Answer a request that only loads or unloads a model; only Ollama's interface has such."""
        assert isinstance(ask.answers, OllamaAnswers)  # noqa: S101
        self._send_json(http.HTTPStatus.OK, ask.answers.part("", done=True, done_reason=what))

    def _model(self, name: str) -> ShelfModel | None:
        model = self.server.shelf.find(name)
        if model is None:
            self._fail(http.HTTPStatus.NOT_FOUND, f"model '{name}' not found")
        return model

    def _running(self) -> Json:
        loaded = self.server.shelf.loaded
        if loaded is None:
            return {"models": []}
        entry = {**tag(loaded.model), "expires_at": _FOR_EVER, "size_vram": 0, "context_length": loaded.context}
        del entry["modified_at"]
        return {"models": [entry]}

    def _pass_on(self, ask: Ask, text: str) -> bool:
        """Send a piece of a reply, if it is streamed; False when the client went away."""
        if self._gone():
            return False
        try:
            if ask.body.stream:
                self._stream(ask.answers, ask.answers.piece(text))
        except OSError:
            return False
        return True

    def _finish(self, ask: Ask, finished: Finished) -> None:
        if ask.body.stream:
            self._stream(ask.answers, ask.answers.end(finished))
            self._end_stream()
        else:
            self._send_json(http.HTTPStatus.OK, ask.answers.whole(finished))

    def _stream(self, answers: Answers, content: bytes) -> None:
        if self._streaming is None:
            self._streaming = answers
            self.send_response(http.HTTPStatus.OK)
            self.send_header("Content-Type", answers.stream_type)
            if self._chunked():
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.close_connection = True  # HTTP/1.0 has no chunks: the reply ends with the connection
            self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content) if self._chunked() else content)

    def _end_stream(self) -> None:
        self._streaming = None
        if self._chunked():
            self.wfile.write(b"0\r\n\r\n")

    def _chunked(self) -> bool:
        return self.request_version != "HTTP/1.0"

    def _fail(self, status: http.HTTPStatus, text: str, error: Exception | None = None) -> None:
        """Answer with an error; within a stream it is the last of it."""
        if self._streaming is not None:
            self._stream(self._streaming, self._streaming.fault(text))
            self._end_stream()
        elif self._route().startswith("/v1/"):
            self._send_json(status, error_value(text, error))
        else:
            self._send_json(status, {"error": text})

    def _send_json(self, status: http.HTTPStatus, value: Json) -> None:
        self._send(status, json.dumps(value).encode(), "application/json; charset=utf-8")

    def _send(self, status: http.HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _gone(self) -> bool:
        """Whether nobody waits for the answer any more: the client hung up, or the server stops."""
        if self.server.shelf.closing:
            return True
        watch = select.poll()
        watch.register(self.connection, select.POLLIN)
        try:
            return bool(watch.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True
