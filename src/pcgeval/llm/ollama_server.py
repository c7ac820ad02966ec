"""The backend `ollama`: one model, asked through the official client on an Ollama server or on `pcgeval serve-local`.

A fault that passes (a busy or failing server, a reply that breaks off or stalls) is borne a few times within the call's
deadline. Asking again is fair: the request carries its seed, so it is the same reply that is asked for.
"""

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TypeVar

import httpx
import ollama

from pcgeval.llm.bounded_http import BoundedTransport, timeouts
from pcgeval.llm.local_models import find_model, full_name
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError

_LIST_SECONDS = 30.0  # for the list of models
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Patience:
    """How faults that pass are borne."""

    attempts: int = 4
    pause: float = 1.0  # seconds before the second attempt; doubles with each further one
    silence: float = 60.0  # seconds without a byte once a reply has begun; loading a model may take longer than that


class _PassingFault(Exception):  # noqa: N818 - not an error until patience ends
    """One attempt failed in a way that another may not."""


class _NoServer(_PassingFault):
    """Nobody listens."""


class OllamaModel:
    """One model on one server; may be used from several threads."""

    def __init__(
        self, name: str, host: str | None = None, *, stream: bool = True, patience: Patience | None = None
    ) -> None:
        """Name a model and a server; the host is OLLAMA_HOST or 127.0.0.1:11434 where none is given.

        Raises:
            LlmError: The host is no address.
        """
        self.name = name
        self.host = host or os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
        self._stream = stream
        self._patience = patience or Patience()
        self._connections = httpx.HTTPTransport()
        try:
            self._client(deadline=time.monotonic())
        except (ValueError, httpx.InvalidURL) as error:
            raise LlmError(
                f"host {self.host!r} is no address ({error}). Write it like http://127.0.0.1:11434."
            ) from error

    def digest(self) -> str:
        """Return the SHA-256 that the server's list of models has for this one.

        Raises:
            LlmError: No server, no such model, or no digest; the message says what to run.
        """
        deadline = time.monotonic() + _LIST_SECONDS
        try:
            listed = self._patiently(lambda: self._list(deadline), deadline)
        except (_PassingFault, CallError) as fault:
            raise LlmError(f"the server at {self.host} does not list its models: {fault}. Look at its log.") from fault
        for model in listed.models:
            if model.model and full_name(model.model) == full_name(self.name):
                return self._checked_digest(model.digest)
        raise self._missing_model("it is not in the server's list")

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds, all attempts together.

        Raises:
            CallError: No usable reply in time or after several attempts, or the server refused this request.
            LlmError: The server is gone, or no longer has the model.
        """
        deadline = time.monotonic() + timeout
        try:
            return self._patiently(lambda: self._ask(request, deadline), deadline)
        except _NoServer as fault:
            raise self._no_server() from fault
        except _PassingFault as fault:
            bounds = f"{timeout:g} s and {self._patience.attempts} attempts"
            raise CallError(f"model {self.name}: {fault}; no usable reply within {bounds}") from fault

    def _patiently(self, attempt: Callable[[], _T], deadline: float) -> _T:
        for number in range(1, self._patience.attempts):
            try:
                return attempt()
            except _PassingFault:
                pause = self._patience.pause * 2 ** (number - 1)
                if time.monotonic() + pause >= deadline:
                    raise
                time.sleep(pause)
        return attempt()

    def _list(self, deadline: float) -> ollama.ListResponse:
        try:
            return self._exchange(self._client(deadline).list)
        except _NoServer as fault:
            raise self._no_server() from fault

    def _ask(self, request: ChatRequest, deadline: float) -> ChatReply:
        client = self._client(deadline)
        messages = [asdict(message) for message in request.messages]
        options = dict(request.options)

        def exchange() -> ChatReply:
            started = time.monotonic()
            if self._stream:
                parts: Iterable[ollama.ChatResponse] = client.chat(
                    request.model, messages, options=options, stream=True
                )
            else:
                parts = [client.chat(request.model, messages, options=options, stream=False)]
            return _joined(parts, started)

        return self._exchange(exchange)

    def _client(self, deadline: float) -> ollama.Client:
        # a client per call costs a tenth of a millisecond, for it shares its connections; so each has its own deadline
        transport = BoundedTransport(self._connections, deadline, self._patience.silence)
        return ollama.Client(self.host, transport=transport, timeout=timeouts(deadline))

    def _exchange(self, work: Callable[[], _T]) -> _T:
        """Run one exchange and sort its failures: this call's, all calls', or passing."""
        try:
            return work()
        except ollama.ResponseError as error:
            raise self._refusal(error.status_code, _one_line(error.error)) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError) as error:
            raise _NoServer(f"no connection to {self.host}") from error
        except httpx.RequestError as error:
            raise _PassingFault(f"the exchange broke off ({type(error).__name__})") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            # the client takes the shape of an answer for granted: this is what JSON of another shape raises in it
            raise _PassingFault("the answer is not what Ollama's interface promises") from error

    def _refusal(self, status: int, text: str) -> Exception:
        if status == 404:
            return self._missing_model(text)
        if status in {401, 403}:
            return LlmError(f"the server at {self.host} refuses access ({status}: {text}). Check OLLAMA_API_KEY.")
        if status in {408, 429} or not 400 <= status < 500:  # -1: an error in the middle of a stream
            return _PassingFault(
                f"the server failed ({status}: {text})" if status > 0 else f"the server failed ({text})"
            )
        return CallError(f"model {self.name}: the server refused the request ({status}: {text})")

    def _checked_digest(self, digest: str | None) -> str:
        found = _DIGEST.fullmatch((digest or "").lower())
        if found is None:
            raise LlmError(
                f"model {self.name}: the server at {self.host} names no SHA-256 ({digest!r}). Update the server."
            )
        return found[1]

    def _missing_model(self, detail: str) -> LlmError:
        local = find_model(self.name)
        fetch = f", or for `pcgeval serve-local` with `pcgeval models fetch {local.name}`" if local else ""
        return LlmError(
            f"model {self.name} is not on the server at {self.host} ({detail}). "
            f"Get it with `ollama pull {self.name}`{fetch}."
        )

    def _no_server(self) -> LlmError:
        return LlmError(
            f"no Ollama server answers at {self.host}. Start one with `ollama serve`, or `pcgeval serve-local` for the "
            "local models; another address goes into the model's `host` in params.yaml or into OLLAMA_HOST."
        )


def _joined(parts: Iterable[ollama.ChatResponse], started: float) -> ChatReply:
    """Join a reply's parts; the last one carries the costs."""
    text: list[str] = []
    last: ollama.ChatResponse | None = None
    for last in parts:
        text.append(last.message.content or "")
    if last is None or not last.done:
        raise _PassingFault("the reply broke off before its end")
    for what, count in (("prompt_eval_count", last.prompt_eval_count), ("eval_count", last.eval_count)):
        if count is None or count < 0:
            raise CallError(f"the server reports {what} {count}: without it the token limit cannot be kept")
    return ChatReply(
        text="".join(text),
        prompt_tokens=last.prompt_eval_count or 0,
        output_tokens=last.eval_count or 0,
        done_reason=last.done_reason or "unknown",
        seconds=round(time.monotonic() - started, 3),
    )


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:300]
