"""HTTP exchanges that end: after a deadline, after a silence, or after too many bytes, whatever the server does."""

import functools
import re
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpcore
import httpx

from pcgeval.llm.protocol import CallError

REPLY_LIMIT = 32 * 2**20  # bytes on the wire; a streamed reply of 25 000 tokens has about 5 MB
_CONNECT = 10.0  # seconds
_KEPT = 5.0  # seconds that an idle connection is kept open


def timeouts(deadline: float) -> httpx.Timeout:
    """Return a client's timeouts: a little for connecting, all that is left for an answer to begin."""
    left = max(deadline - time.monotonic(), 0.001)
    return httpx.Timeout(left, connect=min(_CONNECT, left))


@dataclass
class _Bounds:
    """What the reads and writes of one exchange are bound to."""

    deadline: float  # on the monotonic clock
    silence: float  # seconds
    has_begun: bool = False  # the answer, from when on a silence counts


_here = threading.local()  # .bounds of the exchange that this thread is in


class Connections(httpx.BaseTransport):
    """Connections to one server, kept open and shared by all calls to it."""

    def __init__(self) -> None:
        """Keep as many connections as there are calls at once."""
        self._pool = httpcore.ConnectionPool(
            ssl_context=_certificates(),
            max_connections=None,
            keepalive_expiry=_KEPT,
            network_backend=_BoundedNetwork(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request within the bounds of this thread's exchange."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path
        )
        sent = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        with _httpx_errors():
            response = self._pool.handle_request(sent)
        assert isinstance(response.stream, Iterable)  # noqa: S101 - what a synchronous pool returns
        return httpx.Response(
            response.status, headers=response.headers, stream=_Body(response), extensions=response.extensions
        )


class BoundedTransport(httpx.BaseTransport):
    """Sends the requests of one exchange through shared connections and bounds their answers."""

    def __init__(self, shared: Connections, deadline: float, silence: float) -> None:
        """Set the bounds: a deadline on the monotonic clock, and the longest silence within an answer in seconds."""
        self._shared, self._deadline, self._silence = shared, deadline, silence
        self.retry_after: float | None = None  # seconds to wait that the last answer asked for

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; this and reading its answer raise httpx.TransportError or CallError at a bound."""
        request.headers["accept-encoding"] = "identity"  # a few compressed bytes could unfold to gigabytes
        bounds = _here.bounds = _Bounds(self._deadline, self._silence)
        response = self._shared.handle_request(request)
        if "content-encoding" in response.headers:
            response.close()
            raise httpx.RemoteProtocolError("the answer is compressed although that was not asked for")
        self.retry_after = _seconds(response.headers.get("retry-after", ""))
        bounds.has_begun = True
        return response


class _Body(httpx.SyncByteStream):
    """An answer's body: not too long, and within the bounds of its exchange."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response
        self._bounds: _Bounds = _here.bounds

    def __iter__(self) -> Iterator[bytes]:
        received = 0
        with _httpx_errors():
            for chunk in self._response.iter_stream():
                received += len(chunk)
                if received > REPLY_LIMIT:
                    raise CallError(f"the reply is longer than {REPLY_LIMIT // 2**20} MB")
                yield chunk
                _here.bounds = self._bounds  # another exchange may have been in between

    def close(self) -> None:
        with _httpx_errors():
            self._response.close()


class _BoundedNetwork(httpcore.SyncBackend):
    """Opens connections whose reads and writes keep to the bounds of the exchange in progress."""

    def connect_tcp(self, *given: Any, **named: Any) -> httpcore.NetworkStream:
        return _BoundedStream(super().connect_tcp(*given, **named))


class _BoundedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - the bounds say it better
        return self._stream.read(max_bytes, _time_left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._stream.write(buffer, _time_left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _BoundedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _time_left(when_none: type[httpcore.TimeoutException]) -> float:
    bounds: _Bounds = _here.bounds
    left = bounds.deadline - time.monotonic()
    if left <= 0:
        raise when_none("the deadline has passed")
    return min(left, bounds.silence) if bounds.has_begun else left


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Raise the errors of httpcore as those of httpx, which has the same ones under the same names."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
    ) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Return the authorities that are trusted; to read them takes a tenth of a second, so once for all servers."""
    return httpx.create_ssl_context()


def _seconds(retry_after: str) -> float | None:
    """Read a Retry-After header (RFC 9110, 10.2.3): a number of seconds, or a date; None where it is neither."""
    if re.fullmatch(r"[0-9]{1,9}", retry_after):
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
        return max((date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, OverflowError):
        return None
