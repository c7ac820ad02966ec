"""Asking the judge's model: calls made before are answered from the call log, all others are made and logged.

The key of a call is made of the whole call before anything was cut out of it, the model, its digest, its options and
its context, and its endpoint where the digest pins only a name. So a replay needs neither the model nor its tokenizer,
and only a call whose criterion, files, model or prompt changed is made again.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_json
from pcgeval.core.layout import CALLS, state_name
from pcgeval.core.locks import lock_folder
from pcgeval.core.params import Model
from pcgeval.judge.limits import CallLimits
from pcgeval.judge.prompts import CALL_KINDS, ContextFitter, FittedCall, JudgeCall
from pcgeval.judge.settings import GradingError, JudgeSettings
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.call_log import CallLog, LoggedCall, read_recording, write_recording
from pcgeval.llm.local_models import model_file
from pcgeval.llm.protocol import (
    Backend,
    CallError,
    ChatReply,
    ChatRequest,
    ContextExceededError,
    LlmError,
    Option,
)
from pcgeval.llm.tokens import JudgeTokens, judge_tokens

OpenBackend = Callable[[Model], Backend]
_LEAST_CONTEXT = 1024  # tokens; a smaller number in a refusal is something else
_LEAST_SECONDS = 0.001  # for a call that the deadline overtakes; backends take no negative time
_OWN_CONTEXT = ("ollama", "llamacpp")  # an endpoint of the backend openai has a fixed context
_OF_SETTINGS = ("num_ctx", "num_predict", "seed")  # options that are settings of the judge
WAYS = (
    "--model names a model of params.yaml, a local model (`pcgeval models list`), one of OpenAI's such as o3-mini or "
    "gpt-4o (with OPENAI_API_KEY), one of an Ollama server (with model.host), or one of any "
    "endpoint with OpenAI's interface, such as vLLM, SGLang or LM Studio (with --base-url URL)."
)


@dataclass(frozen=True)
class CallFiles:
    """The files from which the model's replies of one grading come, and in which they are kept.

    Attributes:
        log: The folder of the call log, so that a grading that was killed goes on; None keeps nothing on disk.
        recordings: Files that are only read.
        export: A recording that is written of the calls that the grading used; earlier calls in it are known, too.
        shared: A log that several gradings of this process share, instead of all these files.
    """

    log: Path | None = CALLS
    recordings: tuple[Path, ...] = ()
    export: Path | None = None
    shared: CallLog | None = None

    @contextmanager
    def opened(self, submission: Path, settings: JudgeSettings, *, read_only: bool = False) -> Iterator[CallLog]:
        """Open the log and the recordings; a replay (backend `recorded`) knows the recordings alone.

        One grading at a time asks a model about a submission and logs the replies: two would pay for each call.

        Raises:
            FolderBusyError: Another grading asks about it at this moment.
            FileError: A recording is missing, a file holds something else than calls, or the export has other calls
                than a judge's.
        """
        if missing := [path for path in self.recordings if not path.is_file()]:
            raise FileError(f"{missing[0]}: no such recording. Name a file of recorded calls, or leave it out.")
        if read_only:
            yield CallLog(self.log, self.recordings, read_only=True)
            return
        with ExitStack() as stack:
            if self.log is not None and settings.judge == "simple" and not settings.is_replay:
                lock = self.log.parent / "judgements" / state_name(submission) / "grading.lock"
                stack.enter_context(lock_folder(submission, lock))
            if self.shared is not None:
                yield self.shared
                return
            exported = [] if self.export is None or not self.export.is_file() else [self.export]
            log = CallLog(
                self.log, [*self.recordings, *exported]
            )  # refuses an export of another kind, also in a replay
            if any(call.leaf is None for path in exported for call in read_recording(path)):
                raise FileError(
                    f"{self.export}: holds calls that no judge made and would be rewritten. Name another file."
                )
            yield CallLog(None, self.recordings) if settings.is_replay else log

    def write_export(self, log: CallLog, *, keep_others: bool) -> None:
        """Write the calls that a grading used, in an order that does not depend on their timing.

        With `keep_others` earlier calls of the file stay that it did not use, as after a grading that ended early.
        """
        if self.export is None or not log.used:
            return
        others = read_recording(self.export) if keep_others and self.export.is_file() else ()
        calls = {call.key: call for call in (*others, *log.used)}
        write_recording(self.export, sorted(calls.values(), key=_recording_order))


class JudgeClient:
    """The model of one grading; several threads may use it.

    After an LlmError (the endpoint died, the disk is full, the deadline has passed) no call is made any more: calls
    that are not in the log then fail with the same reason.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        log: CallLog,
        *,
        stopping: threading.Event,
        open_backend: OpenBackend,
        limits: CallLimits | None = None,
    ) -> None:
        """Prepare the client; the model is opened with the first call that is not in the log.

        Without `limits`, those of the settings hold for this client alone.

        Raises:
            GradingError: The settings name no model.
        """
        if settings.model is None:
            raise GradingError("the judge simple needs a model. Name one, or choose another judge.")
        self.model, self._settings, self._log = settings.model, settings, log
        self._stopping, self._limits = stopping, limits or CallLimits(settings)
        self._ends = None if settings.deadline is None else time.monotonic() + settings.deadline
        self._profile = settings.model.known_profile
        self._context = {"num_ctx": settings.context_tokens} if settings.model.backend in _OWN_CONTEXT else {}
        self._open_backend = open_backend
        self._lock = threading.Lock()
        self._backend: tuple[Backend, JudgeTokens, ContextFitter] | None = None
        self.shown: dict[tuple[str, str], float] = {}  # the share of each part that was cut, by its leaf and name
        self._called: set[str] = set()
        self.digest = settings.model.digest
        self.stopped: str | None = None  # why no call is made any more
        self.failed: dict[str, str] = {}  # why a call failed, by its leaf

    def stop(self) -> None:
        """Let no further call begin."""
        self._stopping.set()

    def was_called(self, leaf: str) -> bool:
        """Return whether a call about this leaf was made, not found in the log."""
        return leaf in self._called

    def ask(self, call: JudgeCall) -> ChatReply:
        """Return the reply to a call.

        Raises:
            CallError: This call failed, now or when it was recorded; or it was not recorded.
            LlmError: No call can be made any more.
        """
        is_replay = self._settings.is_replay
        try:
            key = self._key(call)
            logged = self._log.find(key, failed_too=is_replay)
            if logged is None and is_replay:
                raise CallError(
                    f"no reply of {self.model.name} to this call is recorded: it was never made, or the criterion, the "
                    "files, the prompts or the model changed since. Set the judge's backend to the one that has the "
                    "model, grade again, and keep the replies with `pcgeval record`."
                )
            if logged is None:
                with self._limits.place(self._check_running):
                    logged = self._log.answer(key, lambda _: self._call(call, key), self._seconds_left())
        except LlmError as error:
            self.stopped = self.stopped or str(error)
            self.failed[call.leaf] = self.stopped
            raise
        if logged.reply is None:
            self.failed[call.leaf] = logged.reason or "the call failed"
            raise CallError(self.failed[call.leaf])
        self.shown |= {(call.leaf, name): share for name, share in (logged.shown or {}).items()}
        return logged.reply

    def _key(self, call: JudgeCall) -> str:
        if self.digest is None and self._settings.is_replay:
            raise LlmError("a recorded judge needs its model's digest: replies are found by it. Add it to the model.")
        if self.digest is None:
            self._open()
        values: dict[str, Any] = {
            "call": call.identity(),
            "model": self.model.name,
            "digest": self.digest,
            "options": self._options(call),
            "context": self._settings.context_tokens,
        }
        if call.rooms > 1:  # an answer that came to its end is the same with any room
            values["room"] = self._room(call)
        if self.model.base_url is not None:
            values["endpoint"] = self.model.base_url
        return sha256_json(values)

    def _options(self, call: JudgeCall) -> dict[str, Option]:
        """Return the options that decide an answer: the profile's, then the user's own; what is None is not sent."""
        usual = {"temperature": self._profile.temperature, "reasoning_effort": self._profile.reasoning_effort}
        options = {name: value for name, value in usual.items() if value is not None}
        options |= {name: value for name, value in self.model.options.items() if name not in _OF_SETTINGS}
        if self._profile.seed or "seed" in self.model.options:
            options["seed"] = self._settings.first_seed + call.vote
        return options

    def _room(self, call: JudgeCall) -> int | None:
        """Return the room for the answer in tokens; more than the usual room is at most half of the context.

        Raises:
            CallError: The answer was cut off, and there is no more room.
        """
        usual = self._settings.answer_tokens
        if usual is None or call.rooms == 1:
            return usual
        if (most := min(call.rooms * usual, self._settings.context_tokens // 2)) < 1.5 * usual:
            raise CallError(f"the answer has more than {usual} tokens, and the context has no more room for it")
        return most

    def _open(self) -> tuple[Backend, JudgeTokens, ContextFitter]:
        """Open the backend once and check its digest."""
        with self._lock:
            self._check_running()
            if self._backend is None:
                try:
                    own = {name: value for name, value in self.model.options.items() if name not in _OF_SETTINGS}
                    options = {**own, **self._context}
                    backend = self._open_backend(self.model.model_copy(update={"options": options}))
                    found = backend.digest()
                except LlmError as error:
                    by_name = self.model.backend == "ollama" and self.model.digest is None
                    self.stopped = f"{error} {WAYS}" if by_name else str(error)  # before another thread tries the same
                    self._limits.ended = self._limits.ended or str(error)
                    raise LlmError(self.stopped) from error
                if self.digest not in {None, found}:
                    self.stopped = (
                        f"model {self.model.name}: the judge's digest is pinned to {self.digest}, but the backend "
                        f"serves {found}. Fetch the pinned model, or change the digest to judge with the other one."
                    )
                    raise LlmError(self.stopped)
                self.digest = found
                tokens = judge_tokens(backend, self._profile.tokenizer)
                self._backend = backend, tokens, ContextFitter(self._settings.context_tokens, tokens)
            return self._backend

    def _call(self, call: JudgeCall, key: str) -> LoggedCall:
        """Make a call and return it as it is logged: with a reply, or the reason why there is none."""
        self._open()
        self._called.add(call.leaf)
        sent = reply = reason = None
        shown: Mapping[str, float] = {}
        try:
            fitted, reply = self._reply(call, key)
            sent = sha256_json([[message.role, message.content] for message in fitted.messages])
            shown = fitted.shown
        except CallError as error:
            self._check_running()  # a call that was cut short by the deadline says nothing about the leaf
            reason = str(error)
        return LoggedCall(
            key=key,
            reply=reply,
            reason=reason,
            model=self.model.name,
            leaf=call.leaf,
            kind=call.kind,
            vote=call.vote,
            attempt=call.attempt,
            sent=sent,
            shown=dict(shown) or None,
        )

    def _reply(self, call: JudgeCall, key: str) -> tuple[FittedCall, ChatReply]:
        """Ask the model, with less if the endpoint finds the prompt too long."""
        backend, tokens, fitter = self._open()
        room = self._room(call)
        options = {**self._options(call), **self._context}
        for is_last in (False, False, False, True):
            fitted = fitter.fit(call, room or 0)
            if room is not None:
                options["num_predict"] = room
            request = ChatRequest(
                self.model.name,
                self.digest or "",
                fitted.messages,
                options,
                call.schema if self._profile.structured_output else None,
                adaptable=True,
            )
            self._check_running()
            read = round(fitted.counted * tokens.scale)
            try:
                with self._limits.budget(read, room, self._check_running) as count:
                    count(key, reply := backend.chat(request, self._seconds_left()))
            except ContextExceededError as error:
                if is_last:
                    raise
                if error.context is not None and _LEAST_CONTEXT <= error.context < fitter.context:
                    fitter.context = error.context
                    room = room and min(room, error.context // 2)
                else:
                    tokens.raise_scale()
            else:
                tokens.learn(fitted.counted, reply)
                return fitted, reply
        raise AssertionError("the last try returns or raises")

    def _seconds_left(self) -> float:
        """Return how long a call that begins now may take."""
        seconds = self._settings.call_seconds
        return seconds if self._ends is None else max(_LEAST_SECONDS, min(seconds, self._ends - time.monotonic()))

    def _check_running(self) -> None:
        if self._ends is not None and time.monotonic() >= self._ends:
            self.stopped = self.stopped or (
                f"the deadline of {self._settings.deadline:g} s for this grading has passed. Raise it, and grade again "
                "to go on."
            )
        self.stopped = self.stopped or self._limits.ended
        if self._stopping.is_set():
            self.stopped = self.stopped or "the grading was stopped. Grade again to go on."
        if self.stopped is not None:
            raise LlmError(self.stopped)


def opened_once(open_backend: OpenBackend) -> OpenBackend:
    """Return what opens each model's backend once, for several gradings at once."""
    opened: dict[str, Backend] = {}
    lock = threading.Lock()

    def open_or_reuse(model: Model) -> Backend:
        key = model.model_dump_json()
        with lock:
            if key not in opened:
                opened[key] = open_backend(model)
            return opened[key]

    return open_or_reuse


def check_judge(model: Model) -> None:
    """Check that a judge's model can be asked, before anything is paid for that it should judge.

    Raises:
        LlmError: The model is not where it should be, or is another one than the pinned.
    """
    if model.backend == "llamacpp":
        model_file(model.name, model.digest)  # not loaded yet: that takes its memory
    elif model.backend != "recorded":
        options = {name: value for name, value in model.options.items() if name not in _OF_SETTINGS}
        pinned_digest(model, open_backend(model.model_copy(update={"options": options})))


def _recording_order(call: LoggedCall) -> tuple[str, int, int, int, str]:
    """Return the place of a call in a recording: by leaf, vote, kind and attempt, whenever it was made."""
    kind = CALL_KINDS.index(call.kind) if call.kind in CALL_KINDS else len(CALL_KINDS)
    return call.leaf or "", call.vote or 0, kind, call.attempt or 0, call.key
