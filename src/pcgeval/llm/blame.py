"""Whose fault it is that a request has no reply: the table of blame, and the neutral call that decides where it cannot.

`verdict_on` is the table, a pure function of what came back to one request. It never blames a submission for more than
a prompt that is too long or that a content filter refused; everything that it cannot decide is `undecided`.

The neutral call is one short request with the model's options, the same for all teams and on nobody's account. A
`LiveModel` makes it before the first trial, and after every failure of a trial's call:

- It fails. Then the server is away, and everybody waits for it with growing pauses, in a run up to
  `limits.outage_seconds`; or a setting is wrong, and the model's run ends at once.
- It is answered. Then the request is sent once more, and if that fails again, the failure is the request's: of a trial,
  the record holds both attempts and the neutral reply after each. A server that fails other requests now and then,
  which succeed when they are repeated, has to fail one request more often.
"""

import json
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from pcgeval.core.console import print_stderr
from pcgeval.core.text import duration, well_formed
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.params import Limits, Model
from pcgeval.formats.trials import MAX_COUNT, Attempt, Blame, ChatReply
from pcgeval.llm.call_log import NEUTRAL, CallLog, LoggedCall
from pcgeval.llm.protocol import Backend, BlameVerdict, CallError, ChatRequest, LlmError, Message, full_name

# why replies end; other words, such as `abort` or `load`, are no end of a reply
FILTERED = "content_filter"
REFUSAL = "refusal"  # the interface's field of this name holds the reply
ENDS = frozenset({"stop", "length", FILTERED, REFUSAL, "eos", "eos_token", "end_turn", "stop_sequence", "max_tokens"})
CUT_OFF = frozenset({"length", "max_tokens"})  # of ENDS: the reply is not whole

_ACCESS = frozenset({401, 402, 403})
NOT_OFFERED = frozenset({404, 405, 501})  # no such model, or no such address
_BUSY = frozenset({408, 409, 425, 429, 503, 529})  # the server names itself
_TOO_LARGE = re.compile(r"request too large|tokens must be reduced", re.IGNORECASE)  # for any minute, at a 429
_CONTEXT = re.compile(
    r"context_length_exceeded|(?:maximum|max|exceeds?|available|model's|loaded with) (?:the |a )?(?:model's )?"
    r"(?:maximum )?context|context (?:length|size|window) (?:is )?(?:exceeded|overflow)|context (?:the )?overflows"
    r"|greater than the context|exceed_context_size|prompt is too long|too many tokens|reduce the length"
    rf"|{_TOO_LARGE.pattern}",
    re.IGNORECASE,
)
_CONTEXT_SIZE = re.compile(r"(?:context[^.0-9]{0,60}?|n_ctx\D{0,5})([0-9]{3,8})", re.IGNORECASE)
_FILTER = re.compile(
    r"content[_ -]?(?:filter|policy|management)|data_inspection_failed|moderation|flagged|safety (?:system|filter)",
    re.IGNORECASE,
)
_PLACES = ("param", "loc", "path", "field", "location", "parameter")  # keys whose values place an error
# other names of options by which servers know them, by the names in params.yaml
_OTHER_NAMES = {
    "num_predict": ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict"),
    "repeat_penalty": ("repetition_penalty",),
    "reasoning_effort": ("think", "thinking", "reasoning"),
    "stream": ("stream_options", "streaming"),
    "name": ("model",),
}
_ONLY_PLACED = frozenset({"name"})  # `model` stands in messages about anything

TEXT = 'Answer with the single word "ready".'
SEED = 1
ATTEMPTS = 2  # to make a call that fails while the neutral call is answered
MOST_ATTEMPTS = 6  # the same at a server that fails other requests, too, or that says that it is busy
_SLOW, _SLOW_SECONDS = 5.0, 5.0  # a neutral call that takes this many times the usual, and seconds more, is slow
PAUSE = 1.0  # seconds after the first neutral call that fails; doubles each time
_LEAST_SECONDS = 60.0  # for a neutral call, however little time a trial has
_LONGEST_PAUSE, _LINE_SECONDS = 60.0, 60.0
_RATE_LIMIT, _BUSY_SECONDS = 429, 120.0  # a server of this status is there, so a judge waits longer for it


@dataclass(frozen=True)
class Answer:
    """What came back to one request; token counts and names are as the server reports them."""

    status: int | None = None  # None where no HTTP answer came
    body: str = ""  # of an error, on one line
    trouble: str = ""  # why there is no whole answer, in our words
    end: str | None = None  # why the reply ended; None if it did not
    prompt_tokens: object = None
    output_tokens: object = None
    model: str | None = None  # how the answering model calls itself, if the server says it
    wait: float = 0.0  # seconds that the server asks to wait


@dataclass(frozen=True)
class Sent:
    """What was sent, as far as a server can refuse it."""

    model: str  # that was asked
    fields: Mapping[str, str]  # the names in params.yaml of the fields that were sent, by the server's names
    room: int | None = None  # for the reply, in tokens; None without a limit


def verdict_on(answer: Answer, sent: Sent) -> BlameVerdict:
    """Return whose fault an answer is."""
    if answer.status is not None and not 200 <= answer.status < 300:
        return _on_refusal(answer, sent)
    if answer.trouble:
        return _on_context(answer, sent) or BlameVerdict("undecided", answer.trouble)
    if answer.end not in ENDS:
        return BlameVerdict("undecided", f"the reply ended with {answer.end!r}")
    if not is_count(answer.prompt_tokens) or not is_count(answer.output_tokens) or not answer.output_tokens:
        tokens = f"{answer.prompt_tokens!r:.40} tokens read and {answer.output_tokens!r:.40} written"
        return BlameVerdict("undecided", f"the server reports {tokens}")
    if answer.model and not same_model(sent.model, answer.model):
        return BlameVerdict("settings", f"the server answers as {answer.model}", "name", "model", is_certain=True)
    return BlameVerdict("reply")


def _on_refusal(answer: Answer, sent: Sent) -> BlameVerdict:
    status, reason = answer.status or 0, f"the server answered {answer.status}"
    is_refused = 400 <= status < 500 and status not in _BUSY
    if (status in _ACCESS and not _FILTER.search(answer.body)) or "insufficient_quota" in answer.body:
        return BlameVerdict("settings", "the server refuses access")
    if (status not in _BUSY or _TOO_LARGE.search(answer.body)) and (verdict := _on_context(answer, sent)):
        return verdict
    if is_refused and _FILTER.search(answer.body):
        return BlameVerdict("request", reason, failure=failure("filtered", detail=answer.body))
    if is_refused and (verdict := _on_field(answer, sent, reason)):
        return verdict
    if status in NOT_OFFERED:
        return BlameVerdict("settings", reason, "name", "model")
    return BlameVerdict("server" if status in _BUSY else "undecided", reason)


def _on_field(answer: Answer, sent: Sent, reason: str) -> BlameVerdict | None:
    """Return the verdict on a refusal that places or names a field that was sent."""
    places = [*_placed(_json(answer.body))]
    if placed := next(_fields_in(places, sent.fields, in_words=False), None):
        return BlameVerdict("settings", reason, sent.fields[placed], placed, is_certain=True)
    if answer.status not in NOT_OFFERED and (
        named := next(_fields_in([answer.body], sent.fields, in_words=True), None)
    ):
        return BlameVerdict("settings", reason, sent.fields[named], named)
    return None


def _on_context(answer: Answer, sent: Sent) -> BlameVerdict | None:
    """Return the verdict on a context that is exceeded, by the prompt or by the room that the settings ask for."""
    if not _CONTEXT.search(answer.body):
        return None
    found = _CONTEXT_SIZE.search(answer.body)
    context = int(found[1]) if found else None
    if context is not None and sent.room is not None and 2 * sent.room > context:
        reason = f"num_predict {sent.room} leaves too little of the context of {context} tokens"
        sent_as = next((name for name, ours in sent.fields.items() if ours == "num_predict"), None)
        return BlameVerdict("settings", reason, "num_predict", sent_as, is_certain=True, context=context)
    size = "" if context is None else f" of {context} tokens"
    failed = failure("context-exceeded", size=size, detail=answer.body)
    return BlameVerdict("request", "the prompt is too long", failure=failed, context=context)


def _fields_in(texts: Collection[str], fields: Mapping[str, str], *, in_words: bool) -> Iterator[str]:
    """Yield the sent fields that texts name, in quotes first; `in_words` are whole sentences, else single names."""
    names = {
        name: sent_as
        for sent_as, ours in fields.items()
        if not (in_words and ours in _ONLY_PLACED)
        for name in (sent_as, ours, *_OTHER_NAMES.get(ours, ()))
    }
    if not in_words:
        for text in texts:
            yield from (names[part] for part in re.split(r"[.\[\]/]", text) if part in names)
        return
    spelt = {name: re.escape(name).replace("_", "[ _-]") for name in names}  # a sentence may separate words so
    for pattern in (r"[\"'`\\]{}[\"'`\\.]", r"(?<![\w-]){}(?![\w-])"):
        for text in texts:
            sought = ((name, re.search(pattern.format(spelt[name]), text, re.IGNORECASE)) for name in names)
            places = {name: match.start() for name, match in sought if match}
            yield from (names[name] for name in sorted(places, key=places.__getitem__))


def _json(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _placed(values: Any, key: str = "") -> Iterator[str]:
    """Yield the texts below the keys that place an error, and nothing of a place in the messages."""
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _placed(value, name if isinstance(value, str | list) else "")
    elif isinstance(values, list):
        texts = [value for value in values if isinstance(value, str) and key in _PLACES]
        yield from () if "messages" in texts else texts
        for value in values:
            if isinstance(value, dict | list):
                yield from _placed(value)
    elif key in _PLACES and isinstance(values, str) and not values.startswith("messages"):
        yield values


def is_count(tokens: object) -> TypeGuard[int]:
    """Tell whether a server's number of tokens is one."""
    return isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= MAX_COUNT


def same_model(asked: str, answering: str) -> bool:
    """Tell whether an answering model is the one that was asked, maybe with its version or without its owner."""
    if full_name(asked) == full_name(answering):
        return True
    one, other = (re.split(r"[/\\]", name.casefold())[-1] for name in (asked, answering))
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and not long[len(short) :][:1].isalnum()


class OutageError(LlmError):
    """A server answered no neutral call for as long as anybody waits for it."""


@dataclass(frozen=True)
class Outcome:
    """The end of a call: a reply or a failure, the attempts without a reply, and the error of the last of them."""

    reply: ChatReply | None
    failure: Failure | None
    attempts: tuple[Attempt, ...] = ()
    error: CallError | None = None


def neutral_request(model: Model, *, adaptable: bool = False) -> ChatRequest:
    """Return the neutral request to a model."""
    options = {"temperature": 1, **model.options, "seed": SEED}
    return ChatRequest(model.name, "", (Message("user", TEXT),), options, adaptable=adaptable)


def neutral_seconds(limits: Limits) -> float:
    """Return how long a neutral call of a run may take."""
    most = max(limits.seconds + limits.call_seconds, _LEAST_SECONDS)
    return min(most, limits.outage_seconds or most)


@dataclass
class LiveModel:
    """One live model that the trials of a run, or the calls of a judge, share; several threads may ask it."""

    backend: Backend
    neutral: ChatRequest
    seconds: Callable[[], float]  # how long a neutral call may take
    outage_seconds: float  # for which a server that is away is waited for
    log: CallLog = field(default_factory=lambda: CallLog(None))  # of neutral calls, with their failures
    report: Callable[[str], None] = print_stderr
    stopping: threading.Event = field(default_factory=threading.Event)  # ends every wait
    trial_seconds: float = math.inf  # the most that a call of a trial may take
    answering: str | None = None  # how the answering model calls itself, by the neutral call, if the server says it
    _usual: float | None = None  # seconds of the fastest neutral call
    _unsteady: int = 0  # requests that failed and succeeded when they were repeated
    _outage: OutageError | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Make the first neutral call, unless it is made, and wait for a server that is away.

        Raises LlmError if a setting is wrong or the model is not there, OutageError if the server was away too long.
        """
        if self._usual is None:
            self.answering = self._neutral().model

    def digest(self) -> str:
        """Return the digest that the server has for the model; raises LlmError as `begin` does."""
        self.begin()
        return self.backend.digest()

    def ask(self, request: ChatRequest, seconds: Callable[[], float]) -> Outcome:
        """Make a call, each attempt in at most so many seconds; raises LlmError as `begin` does."""
        attempts: list[Attempt] = []
        while True:
            started = time.monotonic()
            try:
                reply = self.backend.chat(request, seconds())
            except CallError as error:
                verdict, took = error.verdict, round(time.monotonic() - started, 3)
                attempt: dict[str, Any] = {"status": error.status, "words": well_formed(error.words), "seconds": took}
                if verdict is not None and verdict.failure and self.neutral.adaptable:  # a judge blames no team
                    attempts.append(Attempt("request", **attempt))
                    return Outcome(None, verdict.failure, tuple(attempts), error)
                # a judge needs no proof that a server is busy which says so
                is_busy = error.status == _RATE_LIMIT and self.neutral.adaptable and len(attempts) < MOST_ATTEMPTS - 1
                neutral = None if is_busy else self._neutral()
                most = min(_SLOW * (self._usual or 0.0) + _SLOW_SECONDS, self.trial_seconds)
                is_slow = error.status is None and neutral is not None and neutral.seconds > most
                blame: Blame = "server" if is_slow else verdict.blame if verdict else "undecided"
                attempts.append(Attempt(blame, **attempt, neutral=neutral, field=verdict.field if verdict else None))
                if (failed := self._failure(attempts, error)) is not None:
                    return Outcome(None, failed, tuple(attempts), error)
                if blame == "server":
                    self._pause(min(max(error.wait, PAUSE * 2 ** (len(attempts) - 1)), _LONGEST_PAUSE))
            else:
                self._unsteady += bool(attempts)
                return Outcome(reply, None, tuple(attempts))

    def _failure(self, attempts: list[Attempt], error: CallError) -> Failure | None:
        """Return the failure that these attempts prove, the last with this error; None to make the call again."""
        verdict = error.verdict
        reason, needed = verdict.reason if verdict else str(error), min(ATTEMPTS + self._unsteady, MOST_ATTEMPTS)
        if verdict and verdict.failure and [attempt.blame for attempt in attempts[-needed:]] == ["request"] * needed:
            return verdict.failure
        if any(attempt.blame == "server" for attempt in attempts):  # the server said so, or was slow: never the team's
            return failure("server-failed", fault=reason) if len(attempts) >= MOST_ATTEMPTS else None
        if len(attempts) < needed:
            return None
        return failure("request-fails", attempts=len(attempts), last=reason, detail=attempts[-1].words)

    def _neutral(self) -> ChatReply:
        """Make a neutral call; wait while the server is away. One thread makes it while the others wait."""
        pause = PAUSE
        with self._lock:
            away_since = time.monotonic()
            next_line = away_since + 2 * PAUSE
            while True:
                if self._outage is not None:
                    raise self._outage
                try:
                    reply = self.backend.chat(self.neutral, self.seconds())
                except CallError as error:
                    self._keep(reason=str(error))
                    self._check_settings(error)
                    away, most = time.monotonic() - away_since, self.outage_seconds
                    if error.status == _RATE_LIMIT and self.neutral.adaptable:
                        most = max(most, _BUSY_SECONDS)
                    if away >= most:
                        limit = "" if self.neutral.adaptable else f" (limits.outage_seconds is {most:g})"
                        self._outage = OutageError(
                            f"{error}. It has answered no neutral request for {duration(away)}{limit}. Look at the "
                            "server's log, then run again; what is finished stays."
                        )
                        raise self._outage from error
                    if time.monotonic() >= next_line:
                        self.report(f"{error}; waiting for the server since {duration(away)}")
                        next_line = time.monotonic() + _LINE_SECONDS
                    self._pause(min(max(pause, error.wait), _LONGEST_PAUSE, most - away))
                    pause *= 2
                else:
                    self._keep(reply=reply)
                    self._usual = min(self._usual or reply.seconds, reply.seconds)
                    return reply

    def _check_settings(self, error: CallError) -> None:
        """Raise LlmError if a neutral call failed through the model's settings or the account."""
        verdict = error.verdict
        if verdict and verdict.field is not None:
            advice = advice_on(verdict.field, self.neutral.options.get(verdict.field))
            raise LlmError(f"{error}. {advice}") from error
        if verdict and verdict.is_too_long:
            raise LlmError(f"{error}. Even a short request does not fit: raise the context.") from error
        if error.status in _ACCESS:
            raise LlmError(f"{error}. Even a neutral request is refused: look at the account.") from error

    def _keep(self, **outcome: Any) -> None:
        self.log.keep(LoggedCall(key=self.neutral.key, model=self.neutral.model, kind=NEUTRAL, **outcome))

    def _pause(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise LlmError(f"model {self.neutral.model}: the run was stopped. Run again to continue.")


def advice_on(field: str, value: object) -> str:
    """Return what to do about a setting by its name in params.yaml, whose value may come from elsewhere there."""
    if field == "seed":
        return (
            "pcgeval sends `seed`, which follows from competition.seed, with every request; use a server that takes it."
        )
    if field == "stream":
        return "Set `stream: false` for the model in params.yaml."
    if field == "num_predict":
        return (
            f"Correct the option `num_predict: {value}` of the model in params.yaml, which `pcgeval init` writes; the "
            "model's `profile: {limit_field: ...}` names the field that the server takes."
        )
    if field == "temperature" and value == 1:
        return "pcgeval sends `temperature: 1`, the competition's rule; use a server that takes it."
    return f"Correct the option `{field}: {value}` of the model in params.yaml, which `pcgeval init` writes."
