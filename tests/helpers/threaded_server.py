"""The base of the scripted HTTP servers: a port of this machine, a thread for each connection, quiet about hang-ups."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


class JsonHandler(BaseHTTPRequestHandler):
    """Leaves each answer to its server, reads and sends whole bodies, and logs nothing."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self.server.get(self)

    def do_POST(self) -> None:
        self.server.post(self, self.body())

    def body(self) -> Any:
        """Return the JSON value that was posted."""
        return json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))

    def send(self, status: int, content: bytes, kind: str = "application/json", **headers: str) -> None:
        """Send a whole answer; `_` in the name of a header stands for `-`."""
        self.send_response(status)
        for name, text in {"Content_Type": kind, "Content_Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(content)

    def send_json(self, status: int, value: Any) -> None:
        self.send(status, json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        """Quiet."""


class ThreadedServer(ThreadingHTTPServer):
    """Serves from the beginning of a `with` to its end; its `get` and `post` answer, or a handler of its own."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler] = JsonHandler) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.stopping = threading.Event()  # connections that are open already would be served for ever
        self.lock = threading.Lock()

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
        """Clients hang up or are killed in many of these tests."""
