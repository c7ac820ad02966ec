"""The backend `openai`: any endpoint with OpenAI's chat completions (LM Studio, vLLM, ...), asked with OpenAI's client.

Such an endpoint shows no digest of its model, so the digest in a record pins the model's name and says so (UNPINNED).
An endpoint that answers as another model in the middle of a run stops it, and a changed `system_fingerprint` is
reported. The key comes from OPENAI_API_KEY alone and is removed from all messages.

Options have Ollama's names, and `num_predict` gets the endpoint's. An option that only the server's settings can decide
is refused. Any other name goes into the body unchanged: vLLM, LM Studio and llama.cpp read `top_k`, `min_p` and more
under the names of their manuals.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import httpx

from pcgeval.core.packages import packages_for
from pcgeval.core.params import Model
from pcgeval.core.profiles import TOKEN_FIELDS
from pcgeval.core.untrusted import listed
from pcgeval.llm.protocol import (
    REASONING,
    REFUSAL,
    ChatReply,
    ChatRequest,
    ContextExceededError,
    LlmError,
    OnText,
    Option,
    unpinned_digest,
)
from pcgeval.llm.server import ModelServer, TransientError, finished_reply, http_settings, is_count, parts_of

with packages_for("the backend openai"):
    import openai
    from openai.types.chat import ChatCompletion

_NO_KEY = "none"  # local servers ask for none, but the client insists on sending one
_MOST_NAMED = 20  # models of an endpoint
_TOO_LONG = re.compile(
    r"context_length_exceeded|(?:maximum|max|exceeds?|available|model's) (?:the )?(?:model's )?(?:maximum )?context"
    r"|prompt is too long|too many tokens|reduce the length",
    re.IGNORECASE,
)
_CONTEXT_SIZE = re.compile(r"(?:context[^.0-9]{0,60}?|n_ctx\D{0,5})([0-9]{4,8})", re.IGNORECASE)
# fields that load a model in Ollama, that pcgeval sends itself, or that would change the shape of an answer
_NOT_OPTIONS = """
    num_ctx num_batch num_gpu main_gpu low_vram f16_kv vocab_only use_mmap use_mlock num_thread num_keep numa
    model messages stream stream_options n tools tool_choice functions logprobs
    max_tokens max_completion_tokens response_format
"""


class OpenAiServer(ModelServer):
    """One model at one endpoint."""

    _interface = "OpenAI"
    _key_variable = "OPENAI_API_KEY"
    _start_advice = "Start the server of this model, or correct the model's `base_url` in params.yaml."

    def __init__(self, model: Model, report: Callable[[str], None], on_text: OnText | None = None) -> None:
        """Open the client for the model's `base_url`, which ends in /v1 as a rule.

        Raises:
            LlmError: The endpoint is no URL, or cannot obey an option.
        """
        address = str(model.base_url)
        super().__init__(model.name, address, report, on_text)
        self._has_stream, profile = model.stream, model.known_profile
        self._limit_field, self._structured_output = profile.limit_field, profile.structured_output
        self._wire_fields(model.options)  # an option that cannot be obeyed shows now, not in the first trial
        self._replacements: dict[str, str | None] = {}  # of fields that the endpoint refused; None: nothing is sent
        self._model_answering = self._fingerprint = ""
        self._key = os.environ.get("OPENAI_API_KEY") or _NO_KEY
        try:
            url = str(httpx.URL(address))
        except httpx.InvalidURL as error:
            raise LlmError(
                f"base_url {address!r} is no URL ({error}). Write it like http://127.0.0.1:1234/v1."
            ) from error
        http: Any = httpx.AsyncClient(**http_settings(), follow_redirects=True)
        self._client = openai.AsyncOpenAI(api_key=self._key, base_url=url, http_client=http, max_retries=0)

    async def _listed_digest(self) -> str:
        """Return the digest that pins the model's name alone, once the endpoint has listed the model, if it lists any.

        Raises:
            LlmError: The endpoint lists other models only, or refuses access.
        """
        with self._translated_errors():
            try:
                names = [str(model.id) for model in (await self._client.models.list()).data]
            except openai.APIStatusError as error:
                if error.status_code not in {404, 405, 501}:
                    raise
                return unpinned_digest(self.name)
        if self.name not in names:
            raise self._missing_model(f"it has {listed(sorted(names), _MOST_NAMED) or 'none'}")
        return unpinned_digest(self.name)

    async def _ask(self, request: ChatRequest) -> ChatReply:
        started = time.monotonic()
        with self._translated_errors():
            answer = await self._created(request)
            if isinstance(answer, openai.AsyncStream) and "json" in answer.response.headers.get("content-type", ""):
                # an endpoint that does not stream answers whole
                answer = ChatCompletion.construct(**json.loads(await answer.response.aread()))
            return await self._joined(answer, started, request)

    async def _created(self, request: ChatRequest) -> Any:
        """Make the request; a judge's is adapted to what the endpoint refuses, each field once.

        The client remembers an adaptation once the endpoint accepts a request with it: until then the message may mean
        something else.
        """
        messages = [asdict(message) for message in request.messages]
        fields, replacements = self._fields(request), dict(self._replacements)
        reports: list[str] = []
        create: Any = self._client.chat.completions.create  # its overloads know no variable `stream`
        while True:
            sent = _replaced(fields, replacements)
            stream, extra = sent.get("stream", False), {name: sent[name] for name in sent if name != "stream"}
            try:
                # in `extra_body`, the client passes on what it does not know, and nothing that is absent
                answer = await create(model=request.model, messages=messages, stream=stream, extra_body=extra)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                text = self._printable(error.response.text)
                if _TOO_LONG.search(text):
                    size = _CONTEXT_SIZE.search(text)
                    message = f"model {self.name}: the prompt is too long ({text:.300})"
                    raise ContextExceededError(message, int(size[1]) if size else None) from error
                # a replaced field is never sent again under the same name, so this ends
                name = _refused_field(error.param, text, sent) if request.adaptable else None
                if name is None:
                    raise
                replacements[name] = _replacement(name, text, replacements)
                change = f"is sent as {replacements[name]}" if replacements[name] else "is left out"
                reports.append(f"{self.address} does not take {name}; it {change} from now on ({text:.200})")
            else:
                for report in reports:
                    self._report(f"model {self.name}: {report}")
                self._replacements |= replacements
                return answer

    def _fields(self, request: ChatRequest) -> dict[str, Any]:
        """Return the body's fields beside the model and the messages."""
        fields = self._wire_fields(request.options)
        if request.schema is not None and self._structured_output == "json_schema":
            form = {"name": "reply", "schema": request.schema, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": form}
        elif request.schema is not None and self._structured_output is not None:
            fields["response_format"] = {"type": self._structured_output}
        if self._has_stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return fields

    def _wire_fields(self, options: Mapping[str, Option]) -> dict[str, Any]:
        """Return the fields of a request's body for its options.

        Raises:
            LlmError: An option that such an endpoint cannot obey.
        """
        if foreign := sorted(set(options).intersection(_NOT_OPTIONS.split())):
            raise LlmError(
                f"model {self.name}: {foreign[0]!r} is no option of the backend openai. The room for an answer is "
                "`num_predict`; how a model is loaded is set at its endpoint. Take it out of the model's options in "
                "params.yaml."
            )
        fields = dict(options)
        most = fields.pop("num_predict", 0)
        if isinstance(most, bool) or not isinstance(most, int):
            raise LlmError(f"model {self.name}: num_predict is {most!r}. Set it to a number of tokens.")
        if most > 0 and self._limit_field is not None:  # else Ollama's way to say "until the model stops"
            fields[self._limit_field] = most
        return fields

    async def _joined(self, answer: Any, started: float, request: ChatRequest) -> ChatReply:
        """Join a reply's parts, or take a whole one; endpoints leave out fields that the client's types promise."""
        texts: list[str] = []
        reason = usage = None
        model = fingerprint = ""
        is_refused = has_thought = False
        async for part in parts_of(answer):
            for choice in getattr(part, "choices", None) or ():
                message = choice.delta if hasattr(choice, "delta") else choice.message
                texts.append(_text(message.content))
                if self._on_text and texts[-1]:
                    self._on_text(texts[-1])
                is_refused |= bool(getattr(message, "refusal", None))
                has_thought |= any(getattr(message, name, None) for name in ("reasoning_content", "reasoning"))
                reason = choice.finish_reason or reason
            usage = getattr(part, "usage", None) or usage
            model = str(getattr(part, "model", None) or model)
            fingerprint = str(getattr(part, "system_fingerprint", None) or fingerprint)
        if reason is None:
            raise TransientError("the reply broke off before its end")
        self._check_identity(self._printable(model), self._printable(fingerprint))
        text = "".join(texts)
        if not text.strip() and reason == "stop" and (is_refused or has_thought):
            reason = REFUSAL if is_refused else REASONING
        read, written = (getattr(usage, f"{kind}_tokens", None) for kind in ("prompt", "completion"))
        reply = finished_reply(request, text, self._printable(reason), started, read, written)
        cached = _cached_tokens(usage) if request.adaptable and not reply.estimated else None
        return replace(reply, cached_tokens=cached and min(cached, reply.prompt_tokens))

    def _check_identity(self, model: str, fingerprint: str) -> None:
        """Compare the endpoint's model and fingerprint with those before; runs on the event loop alone.

        Raises:
            LlmError: It answers as another model.
        """
        self._model_answering = self._model_answering or model
        if model and model != self._model_answering:
            raise LlmError(
                f"model {self.name}: {self.address} answered as {self._model_answering} before and answers as {model} "
                "now. Name the one that is meant, with its version, in params.yaml: to go on would mix the two."
            )
        if self._fingerprint and fingerprint and fingerprint != self._fingerprint:
            self._report(
                f"model {self.name}: {self.address} has system_fingerprint {fingerprint} now, {self._fingerprint} "
                "before: its model or settings may have changed"
            )
        self._fingerprint = fingerprint or self._fingerprint

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except openai.APIStatusError as error:
            detail = error.body.get("message") if isinstance(error.body, Mapping) else error.body
            wait = error.response.headers.get("retry-after", "")
            raise self._status_error(error.status_code, detail or error.message, wait, error.code) from error
        except openai.APIConnectionError as error:
            raise error.__cause__ or error  # noqa: B904 - a new cause would hide the one that it has
        except openai.APIError as error:  # in the middle of a stream
            raise self._status_error(-1, error.message) from error

    def _missing_model(self, detail: str) -> LlmError:
        return LlmError(
            f"model {self.name} is not at {self.address} ({detail}). "
            "Load it there, or correct the model's `name` or `base_url` in params.yaml."
        )

    def _printable(self, text: object) -> str:
        """Bring foreign text to one line without the key, which some servers repeat."""
        return super()._printable(text if self._key == _NO_KEY else str(text).replace(self._key, "(the key)"))


def _replaced(fields: Mapping[str, Any], replacements: dict[str, str | None]) -> dict[str, Any]:
    """Return the fields without those that were refused, or under the names that stand instead."""
    sent = {}
    for name, value in fields.items():
        final: str | None = name
        while final in replacements:
            final = replacements[final]
        if final is not None:
            sent[final] = value
    if "stream" not in sent:
        sent.pop("stream_options", None)
    return sent


def _refused_field(named: object, text: str, sent: Iterable[str]) -> str | None:
    """Return which of the fields that were sent a refusal names: as its `param`, in quotes, or else as a word."""
    if isinstance(named, str) and (name := named.split(".")[0]) in sent:
        return name
    for pattern in (r"[\"'`\\]{}[\"'`\\.]", r"(?<![\w-]){}(?![\w-])"):
        if names := [name for name in sent if re.search(pattern.format(name), text)]:
            return min(names, key=text.find)
    return None


def _replacement(name: str, text: str, replacements: Mapping[str, str | None]) -> str | None:
    """Return the field that sends the limit of an answer instead, preferably one that the refusal names."""
    tried = {name, *replacements, *replacements.values()}
    untried = [field for field in TOKEN_FIELDS if name in TOKEN_FIELDS and field not in tried]
    return next((field for field in untried if field in text), untried[0] if untried else None)


def _text(content: Any) -> str:
    """Return the text of a message's content: itself, or its parts that are no thoughts."""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping) and part.get("type", "text") == "text"]
        return "".join(str(part.get("text") or "") for part in parts)
    return content or ""


def _cached_tokens(usage: Any) -> int | None:
    """Return how much of a prompt the endpoint had in its cache, as OpenAI and vLLM, or DeepSeek, report it."""
    details = getattr(usage, "prompt_tokens_details", None)
    reported = (getattr(details, "cached_tokens", None), getattr(usage, "prompt_cache_hit_tokens", None))
    return next((tokens for tokens in reported if is_count(tokens)), None)
