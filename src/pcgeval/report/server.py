"""Serve a report to the browsers of this machine."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pcgeval.core.errors import FileError

HOST = "127.0.0.1"


class _Handler(SimpleHTTPRequestHandler):
    """Answers with the files of one folder, and lists none."""

    def send_head(self) -> Any:
        """Refuse a page of another site whose name was made to lead to this machine."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in {HOST, "localhost"}:
            return self.send_error(403, "Use the address that pcgeval printed")
        return super().send_head()

    def list_directory(self, path: Any) -> None:  # noqa: ARG002 - the signature of its base
        """Answer that there is no such page."""
        self.send_error(404, "No page at this address")

    def end_headers(self) -> None:
        """Have browsers look for a newer page each time."""
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing: the terminal belongs to the command."""


def report_server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of a folder on the loopback address; call its `serve_forever`.

    Args:
        folder: The folder of a report.
        port: 0 takes a free one.

    Raises:
        FileError: The port is not free.
    """
    try:
        return ThreadingHTTPServer((HOST, port), partial(_Handler, directory=str(folder)))
    except OSError as error:
        raise FileError(f"port {port}: cannot be used ({error.strerror}). Name another with --port.") from error
