"""HTTP exchanges that end: after a deadline, after a silence, or after too many bytes, whatever the server does."""

import socket
import threading
import time
from collections.abc import Iterator

import httpx

from pcgeval.llm.protocol import CallError

REPLY_LIMIT = 32 * 2**20  # bytes on the wire; a streamed reply of 25 000 tokens has about 5 MB
_CONNECT = 10.0  # seconds


def timeouts(deadline: float) -> httpx.Timeout:
    """Return a client's timeouts: a little for connecting, all that is left for an answer to begin."""
    left = max(deadline - time.monotonic(), 0.001)
    return httpx.Timeout(left, connect=min(_CONNECT, left))


class BoundedTransport(httpx.BaseTransport):
    """Sends requests through a shared transport (which keeps its connections) and bounds their answers."""

    def __init__(self, shared: httpx.BaseTransport, deadline: float, silence: float) -> None:
        """Set the bounds: a deadline on the monotonic clock, and the longest silence within an answer in seconds."""
        self._shared, self._deadline, self._silence = shared, deadline, silence

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; reading its answer raises httpx.TransportError or CallError where a bound is passed."""
        request.headers["accept-encoding"] = "identity"  # a few compressed bytes could unfold to gigabytes
        response = self._shared.handle_request(request)
        if "content-encoding" in response.headers:
            response.close()
            raise httpx.RemoteProtocolError("the answer is compressed although that was not asked for")
        response.stream = _BoundedBody(response, self._deadline, self._silence)
        return response


class _BoundedBody(httpx.SyncByteStream):
    """A response's body; a watchdog shuts the connection when time is up, so that a blocked read returns."""

    def __init__(self, response: httpx.Response, deadline: float, silence: float) -> None:
        assert isinstance(response.stream, httpx.SyncByteStream)  # noqa: S101 - what a synchronous transport returns
        self._body = response.stream
        network = response.extensions.get("network_stream")
        self._socket: socket.socket | None = network.get_extra_info("socket") if network else None
        self._deadline, self._silence = deadline, silence
        self._due = min(deadline, time.monotonic() + silence)
        self._finished = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        threading.Thread(target=self._watch, daemon=True).start()
        received = 0
        for chunk in self._body:
            received += len(chunk)
            if received > REPLY_LIMIT:
                raise CallError(f"the reply is longer than {REPLY_LIMIT // 2**20} MB")
            if (now := time.monotonic()) >= self._deadline:
                raise httpx.ReadTimeout("the deadline has passed")
            self._due = min(self._deadline, now + self._silence)
            yield chunk

    def close(self) -> None:
        self._finished.set()
        self._body.close()

    def _watch(self) -> None:
        while not self._finished.wait(max(self._due - time.monotonic(), 0)):
            if time.monotonic() >= self._due and self._socket is not None:
                self._shut(self._socket)
                return

    @staticmethod
    def _shut(connection: socket.socket) -> None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side was quicker
