"""A tiny HTTP server that answers as a script says, one act per request, to see how a client bears failures."""

import json
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from threaded_server import JsonHandler, ThreadedServer

Act = Callable[[BaseHTTPRequestHandler], None]


class FaultyServer(ThreadedServer):
    """Plays one act per POST, the last one again and again, and one of the listings per GET.

    `posted` are the paths, bodies and headers that were posted, `got` the paths that were got.
    """

    def __init__(self, acts: Sequence[Act], listings: Sequence[Act] = ()) -> None:
        super().__init__(_Player)
        self.acts = list(acts)
        self.listings = list(listings)
        self.posted: list[tuple[str, Any, dict[str, str]]] = []
        self.got: list[str] = []


class _Player(JsonHandler):
    server: FaultyServer

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.posted.append((self.path, self.body(), headers))
        _next(self.server.acts)(self)

    def do_GET(self) -> None:
        self.server.got.append(self.path)
        _next(self.server.listings)(self)


def _next(script: list[Act]) -> Act:
    return script.pop(0) if len(script) > 1 else script[0]


def status(code: int, text: str = '{"error": "overloaded"}', **headers: str) -> Act:
    """Answer with a status and a body."""

    def act(player: BaseHTTPRequestHandler) -> None:
        player.send_response(code)
        for name, value in {"Content_Length": str(len(text.encode())), **headers}.items():
            player.send_header(name.replace("_", "-"), value)
        player.end_headers()
        player.wfile.write(text.encode())

    return act


def lines(*values: object) -> Act:
    """Answer with a whole stream of JSON lines; a str stands for itself."""
    return status(200, "".join(f"{_text(value)}\n" for value in values))


def value(content: object) -> Act:
    """Answer with one JSON value."""
    return status(200, json.dumps(content), Content_Type="application/json")


def events(*values: object) -> Act:
    """Answer with a whole stream of server-sent events; a str stands for itself."""
    return status(200, "".join(f"data: {_text(value)}\n\n" for value in values), Content_Type="text/event-stream")


def broken_off(begun: str) -> Act:
    """Promise more bytes than come, then hang up."""

    def act(player: BaseHTTPRequestHandler) -> None:
        _begin(player, begun)
        player.close_connection = True

    return act


def stalled(begun: str) -> Act:
    """Send a part of an answer, then nothing, with the connection open."""

    def act(player: BaseHTTPRequestHandler) -> None:
        _begin(player, begun)
        player.server.stopping.wait(60)  # type: ignore[attr-defined]

    return act


def silent() -> Act:
    """Take the request and never answer."""
    return lambda player: player.server.stopping.wait(60) and None  # type: ignore[attr-defined]


def endless(piece: bytes, pause: float = 0.0) -> Act:
    """Send the same bytes for ever."""

    def act(player: BaseHTTPRequestHandler) -> None:
        _begin(player)
        _repeat(player, piece, pause)

    return act


def headless() -> Act:
    """Send a header line that never ends."""

    def act(player: BaseHTTPRequestHandler) -> None:
        player.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        _repeat(player, b"x", 0.02)

    return act


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _begin(player: BaseHTTPRequestHandler, begun: str = "") -> None:
    player.send_response(200)
    player.send_header("Content-Length", str(2**40))
    player.end_headers()
    player.wfile.write(begun.encode())


def _repeat(player: BaseHTTPRequestHandler, piece: bytes, pause: float) -> None:
    while not player.server.stopping.is_set():  # type: ignore[attr-defined]
        player.wfile.write(piece)
        time.sleep(pause)


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
    """Answer with one whole completion of OpenAI's."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    whole = {"id": "1", "object": "chat.completion", "model": "toy-v1", "choices": [choice], "usage": USAGE}
    return value({**whole, **more})
