"""HTTP exchanges with a model's server that end: at a deadline, after a silence, or after too many bytes.

httpx bounds single reads and writes only, and a server may drip: so each exchange runs under one `asyncio.timeout`. All
clients share one event loop in a thread in the background, so that every thread uses the same open connections.
"""

import asyncio
import functools
import re
import ssl
import threading
import time
from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, TypeVar

import httpx

from pcgeval.core.untrusted import printable_line
from pcgeval.llm.protocol import LlmError, RefusedError, ServerFaultError
from pcgeval.llm.retry import RetryPolicy, TransientError, UnreachableError

REPLY_LIMIT = 32 * 2**20  # bytes on the wire; a streamed reply of 25 000 tokens has about 5 MB
TIMEOUT = httpx.Timeout(None, connect=10.0)  # seconds; the rest is bounded by the deadline
# servers close a connection that is idle for 5 s (llama.cpp, uvicorn, Node): ours must not be about to be used then
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
_T = TypeVar("_T")


@dataclass
class HttpExchange:
    """What one exchange saw of its answers.

    Attributes:
        retry_after: The seconds that the last answer asked to wait.
        has_begun: Whether a part of an answer came.
    """

    retry_after: float | None = None
    has_begun: bool = False


_exchange: ContextVar[HttpExchange] = ContextVar("_exchange")


class BoundedTransport(httpx.AsyncHTTPTransport):
    """The connections to a server, whose answers are neither compressed, nor too long, nor silent for too long."""

    def __init__(self, silence: float) -> None:
        """Set the longest silence within an answer in seconds; the time until it begins is not bounded here."""
        super().__init__(verify=certificates(), limits=_LIMITS)
        self._silence = silence

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; raises httpx.TransportError or, while a body that is too long is read, ServerFaultError."""
        request.headers["accept-encoding"] = "identity"  # a few compressed bytes could unfold to gigabytes
        response = await super().handle_async_request(request)
        if "content-encoding" in response.headers:
            await response.aclose()
            raise httpx.RemoteProtocolError("the answer is compressed although that was not asked for")
        exchange = _exchange.get()
        exchange.retry_after = _retry_after(response.headers.get("retry-after", ""))
        request.extensions["timeout"]["read"] = self._silence  # httpcore reads it again where the body begins
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - what an asynchronous transport returns
        response.stream = _LimitedStream(response.stream, exchange)
        return response


class _LimitedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, exchange: HttpExchange) -> None:
        self._stream, self._exchange = stream, exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for chunk in self._stream:
            self._exchange.has_begun = True
            received += len(chunk)
            if received > REPLY_LIMIT:
                raise ServerFaultError(f"the reply is longer than {REPLY_LIMIT // 2**20} MB")
            yield chunk

    async def aclose(self) -> None:
        """Close the stream that is counted."""
        await self._stream.aclose()


_LOOP = asyncio.new_event_loop()
threading.Thread(target=_LOOP.run_forever, name="model servers", daemon=True).start()


class HttpServer:
    """One model at one HTTP server; the base of the clients of Ollama's and of OpenAI's interface."""

    _interface: ClassVar[str]
    _start_advice: ClassVar[str]
    _key_variable: ClassVar[str]

    def __init__(self, name: str, address: str, *, stream: bool = True, silence: float = RetryPolicy.silence) -> None:
        """Name a model and a server.

        Args:
            name: The model.
            address: The server's URL.
            stream: Whether replies come word by word; without it a stall shows only when time is up.
            silence: Seconds without a byte after which a reply that has begun counts as broken off.
        """
        self.name, self.address = name, address
        self._stream, self._silence = stream, silence

    def _run(self, deadline: float, work: Callable[[HttpExchange], Awaitable[_T]]) -> _T:
        """Run one exchange until the deadline, a time of the monotonic clock.

        Raises:
            UnreachableError: Nobody listens.
            TransientError: The deadline passed, the exchange broke off, or the answer is not the interface's.
        """
        exchange = HttpExchange()

        async def run() -> _T:
            _exchange.set(exchange)
            async with asyncio.timeout(deadline - time.monotonic()):
                return await work(exchange)

        running = asyncio.run_coroutine_threadsafe(run(), _LOOP)
        try:
            return running.result()
        except KeyboardInterrupt:
            running.cancel()
            raise
        except TimeoutError as error:
            raise TransientError(
                f"no {'full answer came' if exchange.has_begun else 'answer began'} in time"
            ) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError) as error:
            reason = self._printable(_system_error(error) or error)
            raise UnreachableError(
                f"no {self._interface} server answers at {self.address} ({reason})", self._start_advice
            ) from error
        except httpx.RequestError as error:
            raise TransientError(f"the exchange broke off ({type(error).__name__})") from error
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            # the clients take the shape of an answer for granted: this is what JSON of another shape raises in them
            raise TransientError(f"the answer does not follow {self._interface}'s interface") from error

    def _status_error(self, status: int, detail: object, retry_after: float | None, code: object = None) -> Exception:
        """Return the error for an answer with this status; -1 is one in the middle of a stream."""
        text = self._printable(detail)
        what = f"{status}: {text}" if status > 0 else text
        if status == 404:
            return self._missing_model(text)
        if status in {401, 403}:
            return LlmError(f"the server at {self.address} refuses access ({what}). Check {self._key_variable}.")
        if status == 402 or code == "insufficient_quota":
            return LlmError(f"{self.address} wants to be paid ({what}). Finished trials are kept; run again.")
        if status in {408, 409, 425, 429} or not 400 <= status < 500:
            wait = f" and asks to wait {retry_after:g} s" if retry_after else ""
            return TransientError(f"the server failed ({what}){wait}", retry_after)
        return RefusedError(f"model {self.name}: the server refused the request ({what})")

    def _printable(self, text: object) -> str:
        """Bring foreign text to one line of bounded length."""
        return printable_line(str(text))

    @abstractmethod
    def _missing_model(self, detail: str) -> LlmError:
        """Return the error for a server without the model."""


async def each_part(answer: Any) -> AsyncIterator[Any]:
    """Yield the parts of a streamed answer, or one that is not streamed as its only part."""
    if isinstance(answer, AsyncIterable):
        async for part in answer:
            yield part
    else:
        yield answer


def _system_error(error: BaseException | None) -> OSError | None:
    """Return the error of the operating system behind one of a client, which the clients hide in their own words."""
    found = None
    for _ in range(10):  # contexts may form a circle
        if error is None:
            break
        if isinstance(error, OSError) and error.errno is not None:
            found = error
        error = error.__cause__ or error.__context__
    return found


@functools.cache
def certificates() -> ssl.SSLContext:
    """Return the authorities that are trusted; to read them takes a tenth of a second, so once for all servers."""
    return httpx.create_ssl_context()


def _retry_after(header: str) -> float | None:
    """Read a Retry-After header (RFC 9110, 10.2.3): a number of seconds, or a date; None where it is neither."""
    if re.fullmatch(r"[0-9]{1,9}", header):
        return float(header)
    try:
        date = parsedate_to_datetime(header)
        return max((date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, OverflowError):
        return None
