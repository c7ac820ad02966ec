"""A tiny HTTP server that answers as a script says, one act per request, to see how a client bears failures."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

Act = Callable[[BaseHTTPRequestHandler], None]


class FaultyServer(ThreadingHTTPServer):
    """Plays one act per request, the last one again and again; `requests` are the paths and bodies it was sent."""

    daemon_threads = True

    def __init__(self, acts: Sequence[Act]) -> None:
        super().__init__(("127.0.0.1", 0), _Player)
        self.acts = list(acts)
        self.requests: list[tuple[str, object]] = []
        self.stopping = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """The client hangs up in many of these plays."""


class _Player(BaseHTTPRequestHandler):
    server: FaultyServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests.append((self.path, json.loads(body) if body else None))
        act = self.server.acts.pop(0) if len(self.server.acts) > 1 else self.server.acts[0]
        act(self)

    do_GET = do_POST  # noqa: N815 - names that http.server calls

    def log_message(self, *_: object) -> None:
        """Quiet."""


def status(code: int, text: str = '{"error": "overloaded"}', **headers: str) -> Act:
    """Answer with a status and a body."""
    return lambda player: _send(player, code, text.encode(), headers)


def lines(*values: object) -> Act:
    """Answer with a whole stream of JSON lines; a str stands for itself."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return lambda player: _send(player, 200, "".join(f"{text}\n" for text in texts).encode(), {})


def broken_off(*values: object) -> Act:
    """Promise more bytes than come, then hang up."""

    def act(player: BaseHTTPRequestHandler) -> None:
        _begin(player, *values)
        player.close_connection = True

    return act


def stalled(*values: object) -> Act:
    """Send some lines, then nothing, with the connection open."""

    def act(player: BaseHTTPRequestHandler) -> None:
        _begin(player, *values)
        player.server.stopping.wait(60)  # type: ignore[attr-defined]

    return act


def silent() -> Act:
    """Take the request and never answer."""
    return lambda player: player.server.stopping.wait(60) and None  # type: ignore[attr-defined]


def endless(piece: bytes, pause: float = 0.0) -> Act:
    """Send the same bytes for ever."""

    def act(player: BaseHTTPRequestHandler) -> None:
        _begin(player)
        while not player.server.stopping.is_set():  # type: ignore[attr-defined]
            player.wfile.write(piece)
            time.sleep(pause)

    return act


def _begin(player: BaseHTTPRequestHandler, *values: object) -> None:
    player.send_response(200)
    player.send_header("Content-Length", str(2**40))
    player.end_headers()
    for value in values:
        player.wfile.write(json.dumps(value).encode() + b"\n")


def _send(player: BaseHTTPRequestHandler, code: int, content: bytes, headers: dict[str, str]) -> None:
    player.send_response(code)
    for name, value in headers.items():
        player.send_header(name.replace("_", "-"), value)
    player.send_header("Content-Length", str(len(content)))
    player.end_headers()
    player.wfile.write(content)
