"""A tiny HTTP server that answers as a script says, one act per request, and the two backends that ask it."""

import json
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from model_servers import JsonHandler, ThreadedServer

from pcgeval.formats.params import Model
from pcgeval.llm.backends import open_backend
from pcgeval.llm.protocol import Backend

Act = Callable[[JsonHandler], None]


class FaultyServer(ThreadedServer):
    """Plays one act per POST, the last one again and again, and one of the listings per GET.

    `posted` are the paths, bodies and headers that were posted, `got` the paths that were got.
    """

    def __init__(self, acts: Sequence[Act], listings: Sequence[Act] = ()) -> None:
        super().__init__()
        self.acts = list(acts)
        self.listings = list(listings)
        self.posted: list[tuple[str, Any, dict[str, str]]] = []
        self.got: list[str] = []

    def post(self, request: JsonHandler, body: Any) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.posted.append((request.path, body, headers))
        _next(self.acts)(request)

    def get(self, request: JsonHandler) -> None:
        self.got.append(request.path)
        _next(self.listings)(request)


def _next(script: list[Act]) -> Act:
    return script.pop(0) if len(script) > 1 else script[0]


def status(code: int, text: str = '{"error": "overloaded"}', **headers: str) -> Act:
    return lambda player: player.send(code, text.encode(), **headers)


def lines(*values: object) -> Act:
    """Answer with a whole stream of JSON lines; a str stands for itself."""
    return status(200, "".join(map(text_line, values)))


def text_line(value: object) -> str:
    return f"{value if isinstance(value, str) else json.dumps(value)}\n"


def value(content: object) -> Act:
    return status(200, json.dumps(content))


def events(*values: object) -> Act:
    """Answer with a whole stream of server-sent events; a str stands for itself."""
    return status(200, "".join(map(text_event, values)), Content_Type="text/event-stream")


def text_event(value: object) -> str:
    return f"data: {text_line(value)}\n"


def unfinished(begun: str, *, hangs_up: bool) -> Act:
    """Send a part of an answer, then hang up, or send nothing more with the connection open."""

    def act(player: JsonHandler) -> None:
        _begin(player, begun)
        if hangs_up:
            player.close_connection = True
        else:
            player.server.stopping.wait(60)

    return act


def silent() -> Act:
    return lambda player: player.server.stopping.wait(60) and None


def endless(piece: bytes, pause: float = 0.0) -> Act:

    def act(player: JsonHandler) -> None:
        _begin(player)
        while not player.server.stopping.is_set():
            player.wfile.write(piece)
            time.sleep(pause)

    return act


def _begin(player: JsonHandler, begun: str = "") -> None:
    player.send_response(200)
    player.send_header("Content-Length", str(2**40))
    player.end_headers()
    player.wfile.write(begun.encode())


# What Ollama's and OpenAI's interfaces send for the reply "Hello", in two pieces and whole.

USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}


def line(text: str, **more: object) -> dict[str, Any]:
    """Return one line of a stream of Ollama's."""
    return {"model": "toy", "message": {"role": "assistant", "content": text}, "done": False, **more}


LAST_LINE = line("", done=True, done_reason="stop", prompt_eval_count=12, eval_count=3)
WHOLE_LINE = {**LAST_LINE, "message": {"role": "assistant", "content": "Hello"}}
LINES = lines(line("Hel"), line("lo"), LAST_LINE)


def chunk(text: str | None = None, reason: str | None = None, **more: object) -> dict[str, Any]:
    """Return one chunk of a stream of OpenAI's."""
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]
    return {"id": "1", "object": "chat.completion.chunk", "model": "toy-v1", "choices": choices, **more}


LAST_CHUNKS = (chunk(reason="stop"), {**chunk(), "choices": [], "usage": USAGE}, "[DONE]")
CHUNKS = events(chunk("Hel"), chunk("lo"), *LAST_CHUNKS)


def completion(**more: object) -> Act:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    whole = {"id": "1", "object": "chat.completion", "model": "toy-v1", "choices": [choice], "usage": USAGE}
    return value({**whole, **more})


DIGEST = "ab" * 32


def ollama(address: str, name: str = "toy", **how: Any) -> Backend:
    return open_backend(Model(backend="ollama", name=name, host=address, **how))


def openai(address: str, name: str = "toy", **how: Any) -> Backend:
    pytest.importorskip("openai", reason="the extra openai is not installed")
    return open_backend(Model(backend="openai", name=name, base_url=f"{address}/v1", **how))


# how each interface is asked and how it answers
OLLAMA = SimpleNamespace(
    open=ollama,
    good=LINES,  # "Hello", streamed
    whole=lines(WHOLE_LINE),  # the same, not streamed
    stream=lines,
    begun=line("Hel"),  # the first part of a stream
    begun_text=text_line(line("Hel")),
    another_shape=lines({"message": "Hello", "done": True}),
    listing=lines({"models": [{"model": "toy:latest", "digest": DIGEST}]}),
)
OPENAI = SimpleNamespace(
    open=openai,
    good=CHUNKS,
    whole=completion(),
    stream=events,
    begun=chunk("Hel"),
    begun_text=text_event(chunk("Hel")),
    another_shape=events(chunk(7), *LAST_CHUNKS),
    listing=value({"object": "list", "data": [{"id": "toy"}, {"id": "other"}]}),
)
# ways to fail, each of which another request may not meet
FAULTS = {
    "500": lambda _: status(500),
    "an odd character set": lambda _: status(200, "{}\n", Content_Type="application/json; charset=hex"),
    "429 with an odd wait": lambda _: status(429, Retry_After="Fri, 99 Foo 20000 99:99:99 GMT"),
    "broken off": lambda api: unfinished(api.begun_text, hangs_up=True),
    "stalled": lambda api: unfinished(api.begun_text, hangs_up=False),
    "error in the stream": lambda api: api.stream(api.begun, {"error": "the runner died"}),
    "ended without its end": lambda api: api.stream(api.begun),
    "a page": lambda _: lines("<html>"),
    "deeply nested": lambda api: api.stream("[" * 200_000),
    "another shape": lambda api: api.another_shape,
    "compressed": lambda _: status(200, "", Content_Encoding="gzip"),
}
