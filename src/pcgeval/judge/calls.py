"""Asking the judge's model: calls made before are answered from the call log, all others are made and logged."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.layout import CALLS
from pcgeval.core.params import Model
from pcgeval.judge.prompts import FittedCall, JudgeCall
from pcgeval.judge.requests import fitted_call, less_context, request_key, request_of, served_model
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.call_log import CallLog, LoggedCall
from pcgeval.llm.local_models import model_file
from pcgeval.llm.neutral import LiveModel, neutral_request
from pcgeval.llm.protocol import Backend, CallError, ChatReply, LlmError, unpinned_digest
from pcgeval.rubric.grades import EndedBy
from pcgeval.rubric.record import CallUsage

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


@dataclass(frozen=True)
class CallFiles:
    """The files that hold replies of the judge's model."""

    log: Path | None = CALLS  # the folder of the call log, which gets every new reply; None: they stay in memory
    recordings: tuple[Path, ...] = ()  # files that are only read

    def client(
        self, settings: JudgeSettings, open_backend: OpenBackend = open_backend, *, read_only: bool = False
    ) -> "JudgeClient":
        """Return a client with these replies, for a replay the recordings alone; raises FileError if one is none."""
        log = CallLog(None if settings.is_replay else self.log, self.recordings, read_only=read_only)
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

    @property
    def ended_by(self) -> EndedBy | None:
        """Why the grading ended early, in a word."""
        return None if self.ended is None else self.ended.by

    def fitted(self, call: JudgeCall) -> FittedCall:
        """Return a call as it fits the context of the settings; raises ContextError."""
        return fitted_call(call, self.settings)

    def knows(self, call: JudgeCall) -> bool:
        """Return whether the reply to a call is there already; the model is not opened for it."""
        try:
            return self.digest is not None and self.log.find(self.key(call)) is not None
        except CallError:
            return False

    def ask(self, call: JudgeCall) -> ChatReply:
        """Return the reply to a call.

        Raises:
            CallError: This call failed, now or when it was recorded; or it was not recorded.
            LlmError: No call can be made any more.
        """
        try:
            key = self.key(call)
            logged = self.log.find(key, failed_too=self.settings.is_replay)
            if logged is None and self.settings.is_replay:
                raise CallError(
                    f"no reply of {self.settings.judge_model.name} to this call is recorded: it was never made, or the "
                    "criterion, the files, the prompts or the model changed since. Set the judge's backend to the one "
                    "that has the model, grade again, and keep the replies with `pcgeval export recordings`."
                )
            is_new = logged is None
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
        """Return the SHA-256 of what is sent; the model is opened if nobody has given its digest."""
        if self.digest is None and self.settings.is_replay:
            raise LlmError("a recorded judge needs its model's digest: replies are found by it. Add it to the model.")
        if self.digest is None:
            self._opened()
        return request_key(call, self.settings, self.digest)

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

    def _opened(self) -> LiveModel:
        """Open the model once and check its digest."""
        model = self.settings.judge_model
        with self._lock:
            self._check_running()
            if self._live is None:
                served = served_model(model, self.settings.context_tokens)
                try:
                    backend = self._open_backend(served)
                    digest = pinned_digest(model, backend)
                except LlmError as error:
                    is_named_alone = model.backend == "ollama" and model.digest is None
                    self._dead = GradingEnded("endpoint", f"{error} {WAYS}" if is_named_alone else str(error))
                    raise self._dead from error
                self.digest = self.digest or digest
                neutral = neutral_request(served, adaptable=True)
                self._live = LiveModel(backend, neutral, self._neutral_seconds, OUTAGE_SECONDS, stopping=self._stopping)
            return self._live

    def _call(self, call: JudgeCall, key: str) -> LoggedCall:
        """Make a call and return it as it is logged: with a reply, or the reason why there is none."""
        live, reply, reason = self._opened(), None, None
        self.called.add(call.leaf)
        try:
            reply = self._reply(live, call)
        except (CallError, LlmError) as error:
            self._check_running()  # what the deadline cut short says nothing about the leaf, or about later gradings
            if isinstance(error, LlmError):
                raise
            reason = str(error)
        else:
            self._check_answering(reply, is_new=True)  # before it is logged: another model's would stay in the way
        name = self.settings.judge_model.name
        return LoggedCall(
            key=key, reply=reply, reason=reason, model=name, leaf=call.leaf, kind=call.kind, vote=call.vote
        )

    def _reply(self, live: LiveModel, call: JudgeCall, prompts: int = _ANSWERS_TO_LENGTH) -> ChatReply:
        """Ask the model, with less if the endpoint finds the prompt too long, with so many prompts at most."""
        context = self._context
        outcome = live.ask(request_of(call, self.settings, self.digest, context), self._seconds_left)
        if outcome.reply is not None:
            return outcome.reply
        error = outcome.error or CallError("the call failed")
        if error.verdict is None or not error.verdict.is_too_long or prompts == 1:
            raise error
        self._context = min(self._context, less_context(context, error.verdict.context))
        return self._reply(live, call, prompts - 1)

    def _seconds_left(self) -> float:
        """Return how long a call that begins now may take; raises GradingEnded if none may begin."""
        self._check_running()
        return max(_LEAST_SECONDS, min(self.settings.call_seconds, self._ends - time.monotonic()))

    def _neutral_seconds(self) -> float:
        return min(_NEUTRAL_SECONDS, self._seconds_left())

    def _check_running(self) -> None:
        if (ended := self.ended or self.reason_to_end()) is not None:
            raise ended
        if time.monotonic() >= self._ends:
            passed = f"the deadline of {self.settings.deadline:g} s for this grading has passed"
            raise GradingEnded("deadline", f"{passed}. Raise it, and grade again to go on.")
        if self._stopping.is_set():
            raise GradingEnded("stop", "the grading was stopped. Grade again to go on.")


def check_judge(model: Model) -> None:
    """Raise LlmError if a judge's model is not where it should be, or is another one than the pinned."""
    if model.backend == "llamacpp":
        model_file(model.name, model.digest)  # not loaded yet: that takes its memory
    elif model.backend != "recorded":
        pinned_digest(model, open_backend(served_model(model)))
