"""The backend `openai`: any endpoint with OpenAI's chat completions (LM Studio, vLLM, ...), asked through the client.

Such an endpoint shows no digest of its model, so what a record carries pins the model's name and says so (UNPINNED).
What can be seen is watched: an endpoint that answers as another model in the middle of a run stops it, and a changed
`system_fingerprint` is told. The key comes from OPENAI_API_KEY alone and is struck out of all messages.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import httpx

from pcgeval.core.console import print_stderr
from pcgeval.llm.bounded_http import BoundedTransport, Connections, timeouts
from pcgeval.llm.openai_options import wire_fields
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, RefusedError, unpinned_digest
from pcgeval.llm.schemas import checked_schema
from pcgeval.llm.servers import PassingFault, Patience, Unreachable

try:
    import openai
except ImportError as error:  # an optional extra
    raise LlmError("the backend openai needs its client. Run `pip install 'pcgeval[openai]'`.") from error

_NO_KEY = "none"  # servers of one's own ask for none, but the client insists on sending one
_SHOWN = 20  # models that a message names
_T = TypeVar("_T")


class OpenAiServer:
    """One model at one endpoint; may be used from several threads."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        stream: bool = True,
        silence: float = Patience.silence,
        report: Callable[[str], None] = print_stderr,
    ) -> None:
        """Name a model and an endpoint.

        Args:
            name: The model's id, as the endpoint lists it.
            base_url: The URL that ends in /v1, as a rule.
            stream: Whether replies come word by word; without it a stall shows only when time is up.
            silence: Seconds without a byte after which a reply that has begun counts as broken off.
            report: Is told when the endpoint changes.

        Raises:
            LlmError: The endpoint is no URL.
        """
        self.name = name
        self.address = base_url
        self._key = os.environ.get("OPENAI_API_KEY") or _NO_KEY
        self._stream = stream
        self._silence = silence
        self._report = report
        self._connections = Connections()
        self._lock = threading.Lock()
        self._first_answer: _Answer | None = None
        self._fingerprint = ""
        try:
            httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise LlmError(
                f"base_url {base_url!r} is no URL ({error}). Write it like http://127.0.0.1:1234/v1."
            ) from error

    def digest(self, deadline: float) -> str:
        """Return the digest that pins the model's name alone, once the endpoint has listed the model, if it lists any.

        Raises:
            LlmError: The endpoint lists other models only, or refuses access.
            PassingFault: No list, this time.
        """
        try:
            listed = self._exchange(deadline, _model_names)
        except CallError as error:
            raise PassingFault(str(error)) from error
        if listed is not None and self.name not in listed:
            raise self._missing_model("it is not in the endpoint's list", listed)
        return unpinned_digest(self.name)

    def ask(self, request: ChatRequest, deadline: float) -> ChatReply:
        """Return the model's reply.

        Raises:
            CallError: The endpoint refused this request, or the reply is not usable.
            LlmError: The endpoint refuses access, has no such model, or answers as another one than before.
            PassingFault: The attempt failed in a way that another may not.
        """
        answer = self._exchange(deadline, lambda client: self._chat(client, request))
        self._watch(answer)
        return answer.reply

    def _chat(self, client: openai.OpenAI, request: ChatRequest) -> "_Answer":
        fields: dict[str, Any] = {
            "model": request.model,
            "messages": [asdict(message) for message in request.messages],
            **wire_fields(request.model, request.options),
        }
        if request.schema is not None:
            form = {"name": "reply", "schema": checked_schema(request.schema), "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": form}
        create: Any = client.chat.completions.create
        started = time.monotonic()
        if self._stream:
            return _joined(create(**fields, stream=True, stream_options={"include_usage": True}), started)
        return _joined([create(**fields)], started)

    def _watch(self, answer: "_Answer") -> None:
        """Compare what a reply says of its model with the first reply's."""
        with self._lock:
            before = self._first_answer or answer
            told, self._fingerprint = self._fingerprint, answer.fingerprint or self._fingerprint
            self._first_answer = before
        if answer.model != before.model:
            raise LlmError(
                f"model {self.name}: {self.address} answered as {before.model} before and answers as {answer.model} "
                "now. Name the one that is meant, with its version, in params.yaml: to go on would mix the two."
            )
        if told and answer.fingerprint and answer.fingerprint != told:
            self._report(
                f"model {self.name}: {self.address} has system_fingerprint {answer.fingerprint} now, {told} before: "
                "its model or settings may have changed"
            )

    def _exchange(self, deadline: float, work: Callable[[openai.OpenAI], _T]) -> _T:
        """Run one exchange and sort its failures: this call's, all calls', or passing."""
        # a client per exchange costs a fifth of a millisecond, for it shares its connections; so each has its deadline
        transport = BoundedTransport(self._connections, deadline, self._silence)
        http: Any = httpx.Client(transport=transport, timeout=timeouts(deadline), follow_redirects=True)
        client = openai.OpenAI(api_key=self._key, base_url=self.address, http_client=http, max_retries=0)
        try:
            return work(client)
        except openai.APIStatusError as error:
            raise self._refusal(error, transport.retry_after) from error
        except openai.APIConnectionError as error:
            raise self._broken(error.__cause__ or error, deadline) from error
        except openai.APIError as error:  # in the middle of a stream
            raise PassingFault(f"the endpoint failed ({self._safe(error.message)})") from error
        except httpx.RequestError as error:  # while the text of a refusal was read
            raise self._broken(error, deadline) from error
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            # the client takes the shape of an answer for granted: this is what JSON of another shape raises in it
            raise PassingFault("the answer is not what OpenAI's interface promises") from error

    def _refusal(self, error: openai.APIStatusError, retry_after: float | None) -> Exception:
        status, text = error.status_code, self._safe(_detail(error))
        if status == 404:
            return self._missing_model(text)
        if status in {401, 403}:
            return LlmError(f"{self.address} refuses access ({status}: {text}). Set OPENAI_API_KEY to a key for it.")
        if status == 402 or error.code == "insufficient_quota":
            return LlmError(f"{self.address} wants to be paid ({status}: {text}). Finished trials are kept; run again.")
        if status in {408, 409, 425, 429} or status >= 500:
            wait = f" and asks to wait {retry_after:g} s" if retry_after else ""
            return PassingFault(f"the endpoint failed ({status}: {text}){wait}", retry_after)
        return RefusedError(f"model {self.name}: the endpoint refused the request ({status}: {text})")

    def _broken(self, error: BaseException, deadline: float) -> PassingFault:
        if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return PassingFault(f"the exchange broke off ({type(error).__name__})")
        if time.monotonic() >= deadline:
            return PassingFault("there was no time left to connect")
        return Unreachable(
            f"nothing answers at {self.address} ({self._safe(error)})",
            "Start the server of this model, or correct the model's `base_url` in params.yaml.",
        )

    def _missing_model(self, detail: str, listed: Iterable[str] = ()) -> LlmError:
        others = sorted(self._safe(name) for name in listed)[:_SHOWN]
        there = f" It has {', '.join(others)}." if others else ""
        return LlmError(
            f"model {self.name} is not at {self.address} ({detail}).{there} "
            "Load it there, or correct the model's `name` or `base_url` in params.yaml."
        )

    def _safe(self, text: object) -> str:
        """Bring foreign text to one line without the key, which some servers repeat."""
        struck = str(text) if self._key == _NO_KEY else str(text).replace(self._key, "(the key)")
        return " ".join(struck.split())[:300]


def _model_names(client: openai.OpenAI) -> list[str] | None:
    """Return the models that an endpoint lists; None for one that offers no list."""
    try:
        return [str(model.id) for model in client.models.list().data]
    except openai.APIStatusError as error:
        if error.status_code in {404, 405, 501}:
            return None
        raise


@dataclass(frozen=True)
class _Answer:
    """A reply, and what the endpoint said of the model that gave it."""

    reply: ChatReply
    model: str
    fingerprint: str


def _joined(parts: Iterable[Any], started: float) -> _Answer:
    """Join a reply's parts, or take a whole one; endpoints leave out what the client's types promise."""
    text: list[str] = []
    reason = usage = model = fingerprint = None
    for part in parts:
        for choice in getattr(part, "choices", None) or ():
            text.append((choice.delta if hasattr(choice, "delta") else choice.message).content or "")
            reason = choice.finish_reason or reason
        usage = getattr(part, "usage", None) or usage
        model = getattr(part, "model", None) or model
        fingerprint = getattr(part, "system_fingerprint", None) or fingerprint
    if reason is None:
        raise PassingFault("the reply broke off before its end")
    if usage is None:
        raise CallError("the endpoint reports no usage: without it the token limit cannot be kept")
    return _Answer(
        ChatReply(
            text="".join(text),
            prompt_tokens=_count(usage.prompt_tokens),
            output_tokens=_count(usage.completion_tokens),
            done_reason=str(reason),
            seconds=round(time.monotonic() - started, 3),
        ),
        str(model),
        str(fingerprint or ""),
    )


def _count(tokens: object) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise CallError(f"the endpoint reports a usage of {tokens!r} tokens: the token limit cannot be kept by it")
    return tokens


def _detail(error: openai.APIStatusError) -> object:
    """Return what the endpoint says of a refusal; error.message has it in the words of the client."""
    said = error.body.get("message") if isinstance(error.body, Mapping) else error.body
    return said or error.message
