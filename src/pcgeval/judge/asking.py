"""Asking the judge's model: what was asked before is answered from the exchanges, everything else for real and kept.

The key of an exchange is made of the whole call before anything was cut out of it, the model, its digest, its options
and its context, and its endpoint where the digest pins only a name. So a replay needs neither the model nor its
tokenizer, and only a call whose criterion, files, model or prompt changed is made again.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pcgeval.core.files import sha256_json
from pcgeval.core.params import Model
from pcgeval.core.untrusted import well_formed
from pcgeval.judge.calls import Call, DoesNotFit
from pcgeval.judge.exchanges import Exchanges, JudgeExchange
from pcgeval.llm.backends import open_backend
from pcgeval.llm.protocol import (
    Backend,
    CallError,
    ChatReply,
    ChatRequest,
    LlmError,
    Message,
    Option,
)
from pcgeval.llm.tokens import TokenCounter, token_counter

OpenBackend = Callable[[Model], Backend]
_Result = TypeVar("_Result")
_LEAST_SECONDS = 0.001  # for a call that the deadline overtakes; backends take no negative time
_OWN_CONTEXT = ("ollama", "llamacpp")  # an endpoint of the backend openai has loaded its model with its own


def usual_backend(model: Model) -> Backend:
    """Open the backend that a model names; its recorded replies are not looked for there."""
    return open_backend(model, Path())


class JudgeAsker:
    """The way of one grading to its model; several threads may use it.

    After an LlmError (the endpoint died, the disk is full, time is up) nothing is asked any more: what is not among the
    exchanges then fails with the same reason.
    """

    def __init__(
        self,
        model: Model,
        exchanges: Exchanges,
        *,
        seed: int = 0,
        context: int = 8192,
        call_seconds: float = 600.0,
        deadline: float | None = None,
        stopping: threading.Event | None = None,
        opened: OpenBackend = usual_backend,
    ) -> None:
        """Say who is asked and how; the model is opened with the first call that is made for real.

        Args:
            model: The model; with the backend `recorded` no call is made.
            exchanges: What is known already, and where new exchanges are kept.
            seed: Of the first vote; the next ones have the next numbers.
            context: Tokens of a call, its answer included.
            call_seconds: For one call, retries included.
            deadline: Seconds from now on after which nothing is asked any more; None: no end.
            stopping: Set from outside when nothing more is to be asked.
            opened: Opens the model's backend.
        """
        self._model, self._exchanges, self._seed, self._context = model, exchanges, seed, context
        self._call_seconds, self._deadline = call_seconds, deadline
        self._ends = None if deadline is None else time.monotonic() + deadline
        self._stopping = stopping or threading.Event()
        self._opened = opened
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._counter: TokenCounter | None = None
        self._digest = model.digest
        self._asked: set[str] = set()
        self.stopped: str | None = None  # why nothing is asked any more

    @property
    def digest(self) -> str | None:
        """The model's digest; None as long as it is neither pinned nor was asked for."""
        return self._digest

    def was_asked(self, leaf: str) -> bool:
        """Tell whether a call about this leaf was made for real, not found among the exchanges."""
        return leaf in self._asked

    def ask(self, call: Call) -> ChatReply:
        """Return the reply to a call.

        Raises:
            CallError: This call came to nothing, now or when it was recorded; or it was not recorded.
            LlmError: Nothing can be asked any more.
        """
        key = self._key(call)
        is_replay = self._model.backend == "recorded"
        exchange = self._exchanges.find(key, failed_too=is_replay)
        if exchange is None and is_replay:
            raise CallError(
                f"no reply of {self._model.name} to this call is recorded: it was never made, or the criterion, the "
                "files, the prompts or the model changed since. Set the judge's backend to the one that has the model, "
                "grade again, and keep the replies with `pcgeval record`."
            )
        exchange = exchange or self._made(call, key)
        if exchange.reply is None:
            raise CallError(exchange.reason)
        return exchange.reply

    def _key(self, call: Call) -> str:
        values: dict[str, Any] = {
            "call": call.identity(),
            "model": self._model.name,
            "digest": self._digest or self._found_digest(),
            "options": self._options(call),
            "context": self._context,
        }
        if self._model.base_url is not None:
            values["endpoint"] = self._model.base_url
        return sha256_json(values)

    def _options(self, call: Call) -> dict[str, Option]:
        return {"temperature": 0, **self._model.options, "seed": self._seed + call.vote}

    def _found_digest(self) -> str:
        if self._model.backend == "recorded":
            raise LlmError("a recorded judge needs its model's digest: replies are found by it. Add it to the model.")
        self._open()
        assert self._digest is not None  # noqa: S101 - `_open` found it
        return self._digest

    def _open(self) -> Backend:
        """Open the backend once; whoever fails to stops the grading."""
        with self._lock:
            self._check_running()
            if self._backend is None:
                backend = self._stop_on_fault(lambda: self._opened(self._with_context()))
                self._digest = self._stop_on_fault(lambda: self._checked_digest(backend))
                self._counter = token_counter(backend)
                self._backend = backend
            return self._backend

    def _checked_digest(self, backend: Backend) -> str:
        found = backend.digest()
        if self._digest not in {None, found}:
            raise LlmError(
                f"model {self._model.name}: the judge's digest is pinned to {self._digest}, but the backend serves "
                f"{found}. Fetch the pinned model, or change the digest to judge with the other one."
            )
        return found

    def _with_context(self) -> Model:
        if self._model.backend not in _OWN_CONTEXT:
            return self._model
        return self._model.model_copy(update={"options": {**self._model.options, "num_ctx": self._context}})

    def _made(self, call: Call, key: str) -> JudgeExchange:
        backend = self._open()
        assert self._counter is not None  # noqa: S101 - `_open` made it
        self._asked.add(call.leaf)
        try:
            messages = call.messages(self._context, self._counter)
        except DoesNotFit as error:
            exchange = JudgeExchange(key, call.leaf, call.kind, call.vote, call.attempt, "", None, str(error))
        else:
            exchange = self._exchanged(backend, call, key, messages)
        self._stop_on_fault(lambda: self._exchanges.keep(exchange))
        return exchange

    def _exchanged(self, backend: Backend, call: Call, key: str, messages: tuple[Message, ...]) -> JudgeExchange:
        sent = sha256_json([[message.role, message.content] for message in messages])
        options = {**self._with_context().options, **self._options(call), "num_predict": call.output_tokens}
        # an answer in words can be read too
        request = ChatRequest(
            self._model.name, self._digest or "", messages, options, call.schema, schema_required=False
        )
        reply = reason = None
        self._stop_on_fault(self._exchanges.check_room)
        try:
            reply = _whole(self._chat(backend, request))
        except CallError as error:
            self._check_running()  # a call that was cut short by the deadline says nothing about the leaf
            reason = str(error)
        return JudgeExchange(key, call.leaf, call.kind, call.vote, call.attempt, sent, reply, reason)

    def _chat(self, backend: Backend, request: ChatRequest) -> ChatReply:
        self._check_running()
        seconds = self._call_seconds
        if self._ends is not None:
            seconds = max(_LEAST_SECONDS, min(seconds, self._ends - time.monotonic()))
        return self._stop_on_fault(lambda: backend.chat(request, seconds))

    def _check_running(self) -> None:
        if self._ends is not None and time.monotonic() >= self._ends:
            self.stopped = self.stopped or (
                f"the deadline of {self._deadline:g} s for this grading has passed. Raise it, and grade again to go on."
            )
        if self._stopping.is_set():
            self.stopped = self.stopped or "the grading was stopped. Grade again to go on."
        if self.stopped is not None:
            raise LlmError(self.stopped)

    def _stop_on_fault(self, action: Callable[[], _Result]) -> _Result:
        try:
            return action()
        except LlmError as error:
            self.stopped = self.stopped or str(error)
            raise


def _whole(reply: ChatReply) -> ChatReply:
    return replace(reply, text=well_formed(reply.text), done_reason=well_formed(reply.done_reason))
