"""Asking the judge's model: calls made before are answered from the call log, all others are made and logged.

A reply is found by the SHA-256 of its request: model and digest, options, messages, schema and endpoint, whose model an
OpenAI interface does not pin. An endpoint with less context than the settings say gets a shorter request, but the key
stays that of the request by the settings, so that a replay finds the reply.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pcgeval.core.files import sha256_json
from pcgeval.formats.layout import CALLS
from pcgeval.formats.params import JUDGE_OPTIONS, Model
from pcgeval.judge.prompts import FittedCall, JudgeCall
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.backends import model_file, open_backend, pinned_digest
from pcgeval.llm.blame import LiveModel, neutral_request
from pcgeval.llm.call_log import CallLog, LoggedCall
from pcgeval.llm.protocol import (
    Backend,
    CallError,
    ChatReply,
    ChatRequest,
    LlmError,
    Option,
    profile_of,
    unpinned_digest,
)
from pcgeval.rubric.grades import CallUsage
from pcgeval.rubric.output import EndedBy

OpenBackend = Callable[[Model], Backend]
WAYS = (
    "Name a model of params.yaml, a local model (`pcgeval models list`), one of OpenAI's such as o3-mini or gpt-4o "
    "(with OPENAI_API_KEY), one of an Ollama server (with its host), or one of any endpoint with OpenAI's interface, "
    "such as vLLM, SGLang or LM Studio (with its base_url)."
)
OUTAGE_SECONDS = 15.0  # for which a grading waits for an endpoint that is away
_NEUTRAL_SECONDS = 60.0  # for a neutral call; an endpoint may be at work on others
_ANSWERS_TO_LENGTH = 4  # prompts that are tried at an endpoint that finds them too long
_LEAST_SECONDS = 0.001  # for a call that the deadline overtakes; backends take no negative time
_LEAST_CONTEXT = 1024  # tokens; a smaller number in a refusal is something else
_LESS_CONTEXT = 0.8  # of the context, after a refusal that names none
_SETTABLE_CONTEXT = ("ollama", "llamacpp")  # the backends that take num_ctx


@dataclass(frozen=True)
class CallFiles:
    """The files that hold replies of the judge's model."""

    # the folder of the call log, which gets every new reply; None: they stay in memory
    log: Path | str | None = CALLS
    recordings: Sequence[Path | str] = ()  # files that are only read

    def client(
        self, settings: JudgeSettings, open_backend: OpenBackend = open_backend, *, read_only: bool = False
    ) -> "JudgeClient":
        """Return a client with these replies, for a replay the recordings alone; raises FileError if one is none."""
        folder = None if settings.is_replay or self.log is None else Path(self.log)
        log = CallLog(folder, map(Path, self.recordings), read_only=read_only)
        return JudgeClient(settings, log, open_backend)


class GradingEnded(LlmError):  # noqa: N818 - a budget that is used up is no error
    """No call of a grading is made any more; `by` says why in a word."""

    def __init__(self, by: EndedBy, reason: str) -> None:
        """Say why."""
        super().__init__(reason)
        self.by = by


class JudgeClient:
    """The model of one grading, or of several, one after the other, which share a budget; threads may share it.

    A reply counts against the budget when a grading uses it, whenever it was paid for. Once the budget is used up, no
    call begins; calls under way may exceed it. A call that fails while a neutral one is answered costs only its leaf.
    An LlmError (the endpoint is dead, the disk is full) ends the gradings: only the log answers from then on. Replies
    of two models end their grading, as no grade comes from two judges.
    """

    def __init__(self, settings: JudgeSettings, log: CallLog, open_backend: OpenBackend = open_backend) -> None:
        """Prepare the client; the model is opened with the first call that is not in the log."""
        self.settings, self.log, self._open_backend = settings, log, open_backend
        self._lock = threading.RLock()
        self._live: LiveModel | None = None
        self._context = 0 if settings.model is None else settings.context_tokens  # smaller once the endpoint says so
        self._counted: set[str] = set()  # keys of calls
        self._cost, self._tokens = 0.0, 0
        self._dead: GradingEnded | None = None  # why no call of any grading begins any more
        self.digest: str | None = None
        if (model := settings.model) is not None:
            self.digest = unpinned_digest(model.name) if model.backend == "openai" else model.digest
        self.begin(threading.Event())

    def begin(self, stopping: threading.Event) -> None:
        """Begin a grading, which ends when `stopping` is set, and clear what belongs to the one before."""
        self._stopping = stopping
        self._ends = time.monotonic() + (self.settings.deadline or float("inf"))
        self.used: dict[str, LoggedCall] = {}  # the calls of this grading by their keys, failed ones included
        self._answering: tuple[bool, str] | None = None  # whether the first reply was new, and who gave it
        self.answered_by: set[str] = set()  # how the answering models call themselves, with their fingerprints
        self.called: set[str] = set()  # the leaves about which the model was asked just now
        self.ended: GradingEnded | None = None  # why no call of this grading is made any more
        self.failed: dict[str, str] = {}  # why a call failed, by its leaf
        if self._live is not None:
            self._live.stopping = stopping

    def fitted(self, call: JudgeCall) -> FittedCall:
        """Return a call as it fits the context of the settings; raises ContextError."""
        return call.fitted(self.settings.context_tokens, self._room(call) or 0)

    def knows(self, call: JudgeCall) -> bool:
        """Return whether the reply to a call is there already; the model is not opened for it."""
        try:
            return self.digest is not None and self.log.find(self.key(call)) is not None
        except CallError:
            return False

    def ask(self, call: JudgeCall) -> ChatReply:
        """Return the reply to a call; raises CallError if it fails, now or when it was recorded, or was not recorded.

        Raises LlmError if no call can be made any more.
        """
        try:
            key = self.key(call)
            logged = self.log.find(key, failed_too=self.settings.is_replay)
            is_new = logged is None
            if logged is None and self.settings.is_replay:
                raise CallError(
                    f"no reply of {self.settings.judge_model.name} to this call is recorded: it was never made, or the "
                    "criterion, the files, the prompts or the model changed since. Set the judge's backend to the one "
                    "that has the model, grade again, and keep the replies with `pcgeval export recordings`."
                )
            if logged is None:
                logged = self.log.answer(key, lambda _: self._call(call, key), self._seconds_left())
            if logged.reply is not None:
                self._check_answering(logged.reply, is_new=is_new)
        except LlmError as error:
            ended = error if isinstance(error, GradingEnded) else GradingEnded("endpoint", str(error))
            if ended.by == "endpoint":
                self._dead = self._dead or ended
            self.ended = self.ended or ended
            self.failed[call.leaf] = str(self.ended)
            raise
        self.used[key] = logged
        if logged.reply is None:
            self.failed[call.leaf] = logged.reason or "the call failed"
            raise CallError(self.failed[call.leaf])
        self.count(key, CallUsage.of(logged.reply))
        self.answered_by |= {logged.reply.answered_by} - {""}
        return logged.reply

    def key(self, call: JudgeCall) -> str:
        """Return the SHA-256 of what is sent, for which the model's digest is needed; raises CallError as `fitted`."""
        if self.digest is None and self.settings.is_replay:
            raise LlmError("a recorded judge needs its model's digest: replies are found by it. Add it to the model.")
        if self.digest is None:
            self._live_model()
        model = self.settings.judge_model
        values = {
            "model": model.name,
            "digest": self.digest,
            "endpoint": model.base_url,
            "options": self._options(call),
            "messages": [[message.role, message.content] for message in self.fitted(call).messages],
            "schema": call.schema,
        }
        return sha256_json(values)

    def _request(self, call: JudgeCall, context: int) -> ChatRequest:
        """Return the request of a call to an endpoint with so much context."""
        settings, model, options, room = self.settings, self.settings.judge_model, self._options(call), self._room(call)
        if model.backend in _SETTABLE_CONTEXT:
            options["num_ctx"] = settings.context_tokens
        if room is not None and context < settings.context_tokens:
            options["num_predict"] = room = min(room, context // 2)
        messages = call.fitted(context, room or 0).messages
        schema = call.schema if profile_of(model).structured_output else None
        return ChatRequest(model.name, self.digest or "", messages, options, schema, adaptable=True)

    def _options(self, call: JudgeCall) -> dict[str, Option]:
        """Return the options that decide an answer: the profile's, then the user's own; what is None is not sent."""
        model, profile = self.settings.judge_model, profile_of(self.settings.judge_model)
        usual = {"temperature": profile.temperature, "reasoning_effort": profile.reasoning_effort}
        options = {name: value for name, value in usual.items() if value is not None}
        options |= {name: value for name, value in model.options.items() if name not in JUDGE_OPTIONS}
        if profile.seed or "seed" in model.options:
            options["seed"] = int(model.options.get("seed", self.settings.seed)) + call.vote
        if (room := self._room(call)) is not None:
            options["num_predict"] = room
        return options

    def _room(self, call: JudgeCall) -> int | None:
        """Return the room for the answer in tokens; CallError where one that was cut off has no more room."""
        usual = self.settings.answer_tokens
        if call.rooms == 1:
            return usual
        if usual is None:  # the same call again would be the same reply, counted twice
            raise CallError("the endpoint cut the answer off, and the profile has no answer_tokens to raise")
        if (most := min(call.rooms * usual, self.settings.context_tokens // 2)) < 1.5 * usual:
            raise CallError(f"the answer has more than {usual} tokens, and the context has no more room for it")
        return most

    def count(self, key: str, usage: CallUsage) -> None:
        """Count a call, or all calls of a grading that was finished before, once."""
        price = self.settings.price
        with self._lock:
            if key not in self._counted:
                self._counted.add(key)
                self._tokens += usage.prompt_tokens + usage.output_tokens
                if price is not None:
                    self._cost += price.cost(usage.prompt_tokens, usage.output_tokens, usage.cached_tokens)

    def begin_budget(self) -> None:
        """Begin the budget anew: what was spent before does not count."""
        self._counted, self._cost, self._tokens = set(), 0.0, 0

    def reason_to_end(self) -> GradingEnded | None:
        """Return why no call may begin: the endpoint is dead, or the budget is used up; None if one may."""
        most_cost, most_tokens = self.settings.max_cost, self.settings.token_budget
        if self._dead is not None:
            return self._dead
        if most_cost is not None and self._cost >= most_cost:
            spent = f"{most_cost} US dollars (max_cost)"
        elif most_tokens is not None and self._tokens >= most_tokens:
            spent = f"{most_tokens} tokens (token_budget)"
        else:
            return None
        return GradingEnded("budget", f"the budget of {spent} is used up. Raise it, and grade again to go on.")

    def _check_answering(self, reply: ChatReply, *, is_new: bool) -> None:
        """Raise GradingEnded if another model gave an earlier reply; its fingerprint may change."""
        if reply.model is None:
            return
        with self._lock:
            self._answering = self._answering or (is_new, reply.model)
        # a logged reply was given before a new one, whichever is used first
        (_, before), (is_now, other) = sorted([self._answering, (is_new, reply.model)], key=lambda one: one[0])
        if before != other:
            who = f"{before} answered before and {other} {'answers now' if is_now else 'has answered, too'}"
            advice = f"Serve {before} again, or name {other} exactly (rubric.model.name), which asks all anew."
            raise GradingEnded("mixed", f"{self.settings.judge_model.name}: {who}; one judge gives a grade. {advice}")

    def _live_model(self) -> LiveModel:
        """Open the model once and check its digest."""
        model = self.settings.judge_model
        with self._lock:
            self._check_running()
            if self._live is None:
                served = _served(model, self.settings.context_tokens)
                try:
                    backend = self._open_backend(served)
                    digest = pinned_digest(model, backend)
                except LlmError as error:
                    is_named_alone = model.backend == "ollama" and model.digest is None
                    self._dead = GradingEnded("endpoint", f"{error} {WAYS}" if is_named_alone else str(error))
                    raise self._dead from error
                self.digest = self.digest or digest
                neutral = neutral_request(served, adaptable=True)
                seconds = partial(self._seconds_left, _NEUTRAL_SECONDS)
                self._live = LiveModel(backend, neutral, seconds, OUTAGE_SECONDS, stopping=self._stopping)
            return self._live

    def _call(self, call: JudgeCall, key: str) -> LoggedCall:
        """Make a call and return it as it is logged: with a reply, or the reason why there is none."""
        live, name = self._live_model(), self.settings.judge_model.name
        logged = partial(LoggedCall, key=key, model=name, leaf=call.leaf, kind=call.kind, vote=call.vote)
        self.called.add(call.leaf)
        try:
            reply = self._reply(live, call)
        except (CallError, LlmError) as error:
            self._check_running()  # what the deadline cut short says nothing about the leaf, or about later gradings
            if isinstance(error, LlmError):
                raise
            return logged(reason=str(error))
        self._check_answering(reply, is_new=True)  # before it is logged: another model's would stay in the way
        return logged(reply=reply)

    def _reply(self, live: LiveModel, call: JudgeCall, prompts: int = _ANSWERS_TO_LENGTH) -> ChatReply:
        """Ask the model, with less if the endpoint finds the prompt too long, with so many prompts at most."""
        context = self._context
        outcome = live.ask(self._request(call, context), self._seconds_left)
        if outcome.reply is not None:
            return outcome.reply
        error = outcome.error or CallError("the call failed")
        if error.verdict is None or not error.verdict.is_too_long or prompts == 1:
            raise error
        size = error.verdict.context or 0
        less = size if _LEAST_CONTEXT <= size < context else int(context * _LESS_CONTEXT)
        self._context = min(self._context, less)
        return self._reply(live, call, prompts - 1)

    def _seconds_left(self, most: float = float("inf")) -> float:
        """Return how long a call that begins now may take; raises GradingEnded if none may begin."""
        self._check_running()
        return max(_LEAST_SECONDS, min(most, self.settings.call_seconds, self._ends - time.monotonic()))

    def _check_running(self) -> None:
        if (ended := self.ended or self.reason_to_end()) is not None:
            raise ended
        if time.monotonic() >= self._ends:
            passed = f"the deadline of {self.settings.deadline:g} s for this grading has passed"
            raise GradingEnded("deadline", f"{passed}. Raise it, and grade again to go on.")
        if self._stopping.is_set():
            raise GradingEnded("stop", "the grading was stopped. Grade again to go on.")


def _served(model: Model, context: int | None = None) -> Model:
    """Return a model without the options that are settings of the judge, but with its context where it takes one."""
    options = {name: value for name, value in model.options.items() if name not in JUDGE_OPTIONS}
    if context is not None and model.backend in _SETTABLE_CONTEXT:
        options["num_ctx"] = context
    return model.model_copy(update={"options": options})


def check_judge(model: Model) -> None:
    """Raise LlmError if a judge's model is not where it should be, or is another one than the pinned."""
    if model.backend == "llamacpp":
        model_file(model.name)  # not loaded yet: that takes its memory
    elif model.backend != "recorded":
        pinned_digest(model, open_backend(_served(model)))
