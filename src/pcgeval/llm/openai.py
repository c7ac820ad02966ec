"""The backend `openai`: any endpoint with OpenAI's chat completions (LM Studio, vLLM, ...), asked with OpenAI's client.

Such an endpoint shows no digest of its model, so the digest in a record pins the model's name only. An endpoint that
answers as another model stops the run. The key comes from OPENAI_API_KEY only; no message contains it.

Options have Ollama's names. `num_predict` gets the endpoint's name, and an option that only the server's settings can
decide is refused. Any other name goes into the body unchanged: vLLM, LM Studio and llama.cpp read `top_k`, `min_p` and
more under the names of their manuals.

llama.cpp's own server on this machine (extra `local-llm`) is asked in the same way. There, options have Ollama's
defaults, so that the same request means the same to either. The number of threads and the size of the context do not
change a text; a cached prompt does, so the cache is off for trials.
"""

import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx

from pcgeval.core.console import print_stderr
from pcgeval.core.files import sha256_file
from pcgeval.core.packages import packages_for
from pcgeval.formats.params import Model
from pcgeval.llm.blame import NOT_OFFERED
from pcgeval.llm.protocol import (
    OPENAI_URL,
    TOKEN_FIELDS,
    ChatReply,
    ChatRequest,
    LlmError,
    Option,
    profile_of,
    unpinned_digest,
)
from pcgeval.llm.server import ModelServer, NoReply, ReplyPart, parts_of

with packages_for("the backend openai"):
    import openai
    from openai.types.chat import ChatCompletion

_NO_KEY = "none"  # local servers ask for none, but the client insists on sending one
# decided by the endpoint's settings, or fields that pcgeval sends itself
_NOT_OPTIONS = frozenset({"num_ctx", "model", "messages", "stream", "stream_options", "n", "response_format"})


class OpenAiServer(ModelServer):
    """One model at one endpoint."""

    _interface = "OpenAI"
    _key_variable = "OPENAI_API_KEY"
    _start_advice = "Start the server of this model, or correct its address: --base-url, or `base_url` in params.yaml."
    _missing_advice = "Load it there, or correct name and base_url, by --model and --base-url or in params.yaml."
    _schema_field = "response_format"
    _client_errors = (openai.APIError,)

    def __init__(self, model: Model, report: Callable[[str], None]) -> None:
        """Open the client for the model's `base_url`, which usually ends in /v1; raises LlmError."""
        self._has_stream, self._profile = model.stream, profile_of(model)
        self._key = os.environ.get("OPENAI_API_KEY") or _NO_KEY
        super().__init__(model.name, str(model.base_url), report)
        if self._key == _NO_KEY and self.address == OPENAI_URL:
            raise LlmError(f"model {self.name} needs a key. Set OPENAI_API_KEY.")
        if foreign := sorted(model.options.keys() & {*_NOT_OPTIONS, *TOKEN_FIELDS}):
            raise LlmError(
                f"model {self.name}: {foreign[0]!r} is no option of the backend openai. Remove it from params.yaml; "
                "the room for an answer is `num_predict`, and the endpoint decides how a model is loaded."
            )

    def _new_client(self, address: str) -> openai.AsyncOpenAI:
        url = str(httpx.URL(address))  # the client raises errors of another package
        http: Any = httpx.AsyncClient(**self._http_settings(), follow_redirects=True)
        return openai.AsyncOpenAI(api_key=self._key, base_url=url, http_client=http, max_retries=0)

    async def _listed_digest(self) -> str:
        try:
            names = [str(model.id) for model in (await self._client.models.list()).data]
        except (NoReply, openai.APIConnectionError) as error:  # the client wraps the former in the latter
            no_reply = error.__cause__ or error
            if isinstance(no_reply, NoReply) and no_reply.answer.status in NOT_OFFERED:  # it has no list
                return unpinned_digest(self.name)
            raise
        if self.name not in names:
            raise self._missing_model(sorted(names))
        return unpinned_digest(self.name)

    def _fields(self, request: ChatRequest, refused: Collection[str]) -> dict[str, Any]:
        profile, fields = self._profile, dict[str, Any](request.options)
        limit: str | None = profile.limit_field
        room = fields.pop("num_predict", 0)
        if limit in refused:
            limit = next((field for field in TOKEN_FIELDS if field not in refused), None)
        if limit is not None and room > 0:  # otherwise until the model stops, as in Ollama
            fields[limit] = room
        if request.schema is not None and profile.structured_output is not None:
            form: dict[str, Any] = {"type": profile.structured_output}
            if profile.structured_output == "json_schema":
                form["json_schema"] = {"name": "reply", "schema": request.schema, "strict": True}
            fields["response_format"] = form
        if self._has_stream and "stream" not in refused:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return {name: value for name, value in fields.items() if name not in refused}

    def _names(self, request: ChatRequest, fields: Collection[str]) -> dict[str, str]:  # noqa: ARG002 - all are fields
        ours = dict.fromkeys(TOKEN_FIELDS, "num_predict") | {"stream_options": "stream"}
        return {name: ours.get(name, name) for name in fields} | {"model": "name"}

    async def _parts(self, request: ChatRequest, fields: dict[str, Any]) -> AsyncIterator[ReplyPart]:
        answer = await self._client.chat.completions.create(
            model=request.model,
            messages=[asdict(message) for message in request.messages],
            stream=fields.get("stream", False),
            extra_body={name: value for name, value in fields.items() if name != "stream"},  # any field passes here
        )
        if isinstance(answer, openai.AsyncStream) and "json" in answer.response.headers.get("content-type", ""):
            # an endpoint that does not stream answers whole
            answer = ChatCompletion.construct(**json.loads(await answer.response.aread()))
        async for part in parts_of(answer):
            for choice in getattr(part, "choices", None) or ():
                message = choice.delta if hasattr(choice, "delta") else choice.message
                thoughts = (getattr(message, name, None) for name in ("reasoning_content", "reasoning"))
                yield ReplyPart(
                    _text(message.content),
                    choice.finish_reason,
                    is_thought=any(thoughts),
                    is_refusal=bool(getattr(message, "refusal", None)),
                )
            if usage := getattr(part, "usage", None):
                yield ReplyPart(
                    prompt_tokens=getattr(usage, "prompt_tokens", None),
                    output_tokens=getattr(usage, "completion_tokens", None),
                    cached_tokens=_cached_tokens(usage),
                )
            yield ReplyPart(model=getattr(part, "model", None), fingerprint=getattr(part, "system_fingerprint", None))


def _text(content: Any) -> str:
    """Return the text of a message's content: the content, or its parts that are no thoughts."""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping) and part.get("type", "text") == "text"]
        return "".join(str(part.get("text") or "") for part in parts)
    return content or ""


def _cached_tokens(usage: Any) -> Any:
    """Return how much of a prompt the endpoint had in its cache, as OpenAI and vLLM, or DeepSeek, report it."""
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return getattr(usage, "prompt_cache_hit_tokens", None) if cached is None else cached


_CONTEXT = 4096  # tokens; Ollama's default num_ctx
_HTTP_THREADS = 64  # a call that waits for its turn holds one
# Ollama's documented defaults (its API reference, "Parameters")
_DEFAULTS: dict[str, Option] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.0,
    "repeat_penalty": 1.1,
    "repeat_last_n": 64,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "num_predict": -1,
    "seed": 0,
}
_OPTIONS = frozenset({*_DEFAULTS, "num_ctx", "stop"})


class LlamaCpp(OpenAiServer):
    """One loaded GGUF model; llama.cpp answers calls from several threads one after another."""

    _says_model = False  # the digest is that of the loaded file

    def __init__(self, path: Path, context: Option | None = None, report: Callable[[str], None] = print_stderr) -> None:
        """Load a GGUF file with a context of so many tokens, and serve it on a free port of 127.0.0.1.

        Raises LlmError if llama.cpp cannot load the file.
        """
        context = _CONTEXT if context is None else context
        if type(context) is not int or context < 1:
            raise LlmError(f"{path.name}: num_ctx is {context!r}. Set it to a number of tokens, such as {_CONTEXT}.")
        self.path = path
        self._digest: str | None = None
        self._server = _start(path, context)
        url = f"{self._server.listening_address}/v1"
        super().__init__(Model(backend="openai", name=path.stem, base_url=url), report)

    def digest(self) -> str:
        """Return the SHA-256 of the GGUF file."""
        self._digest = self._digest or sha256_file(self.path)
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds, the wait for other calls included; raises LlmError for unknown options."""
        if unknown := sorted(request.options.keys() - _OPTIONS):
            raise LlmError(f"option {unknown[0]!r} is not known. Use some of {', '.join(sorted(_OPTIONS))}.")
        options = {**_DEFAULTS, **request.options, "cache_prompt": request.adaptable}
        options.pop("num_ctx", None)  # the model is loaded with it
        return super().chat(replace(request, options=options), timeout)


def serve(path: Path, name: str, port: int) -> None:
    """Serve a GGUF file under a name, with OpenAI's interface, on 127.0.0.1 until Ctrl-C; raises LlmError."""
    server = _start(path, _CONTEXT, name, port)
    print_stderr(f"{name}: {server.listening_address}/v1 (Ctrl-C stops it)")
    threading.Event().wait()


def _start(path: Path, context: int, name: str = "", port: int = 0) -> Any:
    with packages_for("a local model"):
        import xllamacpp  # noqa: PLC0415 - an optional extra
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.model_alias = {name} if name else set()
    settings.port = port
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.warmup = False
    settings.verbosity = 0
    for processor in (settings.cpuparams, settings.cpuparams_batch):
        processor.n_threads = max((os.cpu_count() or 2) - 1, 1)  # llama.cpp crawls where another program holds a core
        processor.poll = 0  # busy polling collapses on a loaded machine
    settings.n_threads_http = _HTTP_THREADS
    settings.endpoint_metrics = True
    try:
        server = xllamacpp.Server(settings)
    except RuntimeError as error:
        raise LlmError(
            f"{path}: llama.cpp cannot load it ({error}). Fetch it again with `pcgeval models fetch`."
        ) from error
    # the queue answers this only once it runs; a server that is freed earlier waits for its thread for ever
    server.handle_metrics()
    return server
