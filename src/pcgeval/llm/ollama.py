"""The backend `ollama`: an Ollama server, or `pcgeval serve-local`, asked through the official client.

A model that is pulled again in the middle of a run keeps its name. So a reply counts only if the server's list of
models still has the digest that the request names after the reply has ended; any other one stops the run.
"""

import difflib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import httpx
import ollama

from pcgeval.llm.bounded_http import BoundedTransport, Connections, timeouts
from pcgeval.llm.local_models import find_model, full_name
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Option, RefusedError
from pcgeval.llm.schemas import checked_schema
from pcgeval.llm.servers import PassingFault, Patience, Unreachable

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_OPTIONS = frozenset({*ollama.Options.model_fields, "min_p"})  # the client's list lacks one of the server's
_T = TypeVar("_T")


class OllamaServer:
    """One model on one server; may be used from several threads."""

    def __init__(
        self,
        name: str,
        host: str | None = None,
        *,
        stream: bool = True,
        keep_alive: str | int | None = None,
        silence: float = Patience.silence,
    ) -> None:
        """Name a model and a server; the host is OLLAMA_HOST or 127.0.0.1:11434 where none is given.

        Args:
            name: The model.
            host: The server's address.
            stream: Whether replies come word by word; without it a stall shows only when time is up.
            keep_alive: How long the server keeps the model in memory, in Ollama's format; None: as the server is set.
            silence: Seconds without a byte after which a reply that has begun counts as broken off.

        Raises:
            LlmError: The host is no address.
        """
        self.name = name
        self.address = host or os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
        self._stream = stream
        self._keep_alive = keep_alive
        self._silence = silence
        self._connections = Connections()
        try:
            ollama.Client(self.address, transport=self._connections)
        except (ValueError, httpx.InvalidURL) as error:
            raise LlmError(
                f"host {self.address!r} is no address ({error}). Write it like http://127.0.0.1:11434."
            ) from error

    def digest(self, deadline: float) -> str:
        """Return the SHA-256 that the server's list of models has for this one.

        Raises:
            LlmError: No such model, or no digest; the message says what to run.
            PassingFault: No list, this time.
        """
        try:
            listed = self._exchange(deadline, lambda client: client.list())
        except CallError as error:
            raise PassingFault(str(error)) from error
        for model in listed.models:
            if model.model and full_name(model.model) == full_name(self.name):
                return self._checked_digest(model.digest)
        raise self._missing_model("it is not in the server's list")

    def ask(self, request: ChatRequest, deadline: float) -> ChatReply:
        """Return the reply of the model with the request's digest.

        Raises:
            CallError: The server refused this request, or the reply is not usable.
            LlmError: The server has another model under the name, or none.
            PassingFault: The attempt failed in a way that another may not.
        """
        reply = self._exchange(deadline, lambda client: self._chat(client, request))
        found = self.digest(deadline)
        if found != request.digest:
            raise LlmError(
                f"model {self.name}: the server at {self.address} has {found}, this run is of {request.digest}. "
                "Was it pulled again meanwhile? The reply is thrown away. Restore the model, or run again with the "
                "other digest."
            )
        return reply

    def _chat(self, client: ollama.Client, request: ChatRequest) -> ChatReply:
        messages = [asdict(message) for message in request.messages]
        fields: dict[str, Any] = {"options": _wire_options(request.options), "keep_alive": self._keep_alive}
        if request.schema is not None:
            fields["format"] = checked_schema(request.schema)
        started = time.monotonic()
        parts: Iterable[ollama.ChatResponse]
        if self._stream:
            parts = client.chat(request.model, messages, **fields, stream=True)
        else:
            parts = [client.chat(request.model, messages, **fields, stream=False)]
        return _joined(parts, started)

    def _exchange(self, deadline: float, work: Callable[[ollama.Client], _T]) -> _T:
        """Run one exchange and sort its failures: this call's, all calls', or passing."""
        # a client per exchange costs a tenth of a millisecond, for it shares its connections; so each has its deadline
        transport = BoundedTransport(self._connections, deadline, self._silence)
        try:
            return work(ollama.Client(self.address, transport=transport, timeout=timeouts(deadline)))
        except ollama.ResponseError as error:
            raise self._refusal(error.status_code, _one_line(error.error), transport.retry_after) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError) as error:
            raise self._unreachable(error.__context__ or error, deadline) from error
        except httpx.RequestError as error:
            raise PassingFault(f"the exchange broke off ({type(error).__name__})") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            # the client takes the shape of an answer for granted: this is what JSON of another shape raises in it
            raise PassingFault("the answer is not what Ollama's interface promises") from error

    def _refusal(self, status: int, text: str, retry_after: float | None) -> Exception:
        if status == 404:
            return self._missing_model(text)
        if status in {401, 403}:
            return LlmError(f"the server at {self.address} refuses access ({status}: {text}). Check OLLAMA_API_KEY.")
        if status in {408, 429} or not 400 <= status < 500:  # -1: an error in the middle of a stream
            what = f"{status}: {text}" if status > 0 else text
            wait = f" and asks to wait {retry_after:g} s" if retry_after else ""
            return PassingFault(f"the server failed ({what}){wait}", retry_after)
        return RefusedError(f"model {self.name}: the server refused the request ({status}: {text})")

    def _checked_digest(self, digest: str | None) -> str:
        found = _DIGEST.fullmatch((digest or "").lower())
        if found is None:
            raise LlmError(
                f"model {self.name}: the server at {self.address} names no SHA-256 ({digest!r}). Update the server."
            )
        return found[1]

    def _missing_model(self, detail: str) -> LlmError:
        local = find_model(self.name)
        fetch = f", or for `pcgeval serve-local` with `pcgeval models fetch {local.name}`" if local else ""
        return LlmError(
            f"model {self.name} is not on the server at {self.address} ({detail}). "
            f"Get it with `ollama pull {self.name}`{fetch}."
        )

    def _unreachable(self, error: BaseException, deadline: float) -> PassingFault:
        if time.monotonic() >= deadline:
            return PassingFault("there was no time left to connect")
        return Unreachable(
            f"no Ollama server answers at {self.address} ({_one_line(error)})",
            "Start one with `ollama serve`, or `pcgeval serve-local` for the local models; another address goes into "
            "the model's `host` in params.yaml or into OLLAMA_HOST.",
        )


def check_options(model: str, options: Mapping[str, Option]) -> None:
    """Refuse options that an Ollama server would silently ignore; raises LlmError."""
    for name in sorted(set(options) - _OPTIONS):
        close = difflib.get_close_matches(name, sorted(_OPTIONS), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Use some of {', '.join(sorted(_OPTIONS))}."
        raise LlmError(f"model {model}: Ollama has no option {name!r}. {hint}")


def _wire_options(options: Mapping[str, Option]) -> dict[str, Option | list[Option]]:
    """Return the options as the server wants them: it takes a list of stop words only."""
    return {name: [value] if name == "stop" else value for name, value in options.items()}


def _joined(parts: Iterable[ollama.ChatResponse], started: float) -> ChatReply:
    """Join a reply's parts; the last one carries the costs."""
    text: list[str] = []
    last: ollama.ChatResponse | None = None
    for last in parts:
        text.append(last.message.content or "")
    if last is None or not last.done:
        raise PassingFault("the reply broke off before its end")
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
