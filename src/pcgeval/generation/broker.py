"""Ask the model for a program, enforce the limits of its trial, and note what an inspector should see.

Tokens, seconds, seed, model and options are set here, in a process that the program cannot reach; what it counts or
claims itself changes nothing. As with the competition's package, a call that goes over the tokens raises ValueError in
the program and one that begins after the seconds TimeoutError, and a program that catches them may hand in what it has.
A call that is under way when the seconds end goes on to its end, for `limits.call_seconds` at most; by then the program
has to end as well. A call counts with the seconds that the model took for its reply: neither a replay, nor a server
that failed first and was asked again, changes the time that a program has.

The first reply to a conversation is asked for with the trial's seed, each further one, be it to another call or to one
that wants several (`n`), with a seed derived from it: branches of a tree of thought differ.
"""

import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Literal

from pcgeval.core.params import Limits
from pcgeval.core.trials import Exchange, Flag, FlagKind
from pcgeval.core.untrusted import printable_line, well_formed
from pcgeval.generation.authorship import Transcript
from pcgeval.generation.pipe import AnswerMessage, ChatMessage, ContactMessage, DeadlinePassed, FailureMessage, Pipe
from pcgeval.generation.tasks import TrialJob
from pcgeval.llm.protocol import Backend, CallError, Message

MAX_REPLIES = 128  # to one call, as with the API that the competition's package speaks
LAST_WORDS_SECONDS = 5.0  # at least, for a program to hand in what it has once its time is up
MAX_FLAGS = 10  # of one kind; what an inspector is to look at fits on a page
ROLES: tuple[Literal["system", "user", "assistant"], ...] = ("system", "user", "assistant")


class TrialFailed(Exception):  # noqa: N818 - an outcome
    """The trial has no answer; the text is the reason, as a sentence about the program."""


@dataclass(frozen=True)
class Refusal:
    """The reason why a call gets no reply: the exception that the program sees, and its text."""

    refused: str
    why: str


class Broker:
    """Serve the calls of one trial until it is over, and keep the record of it.

    Attributes:
        exchanges: Every call that was answered, in order.
        flags: Findings for an inspector, in the order in which they were noticed.
        limit: The limit that was reached, if any.
    """

    def __init__(self, job: TrialJob, backend: Backend, limits: Limits, pipe: Pipe) -> None:
        """Start the trial's clock."""
        self._job, self._backend, self._limits, self._pipe = job, backend, limits, pipe
        self._start = time.monotonic()
        self._replayed = 0.0  # seconds that replies took the model, less those for which they were waited for now
        self._late_since: float | None = None  # when it was noticed that time is up
        self._tokens = 0
        self._said = Transcript()
        self._asked: Counter[str] = Counter()  # replies asked for, by the key of a conversation's first
        self._conversation: tuple[Message, ...] = ()  # up to and with the last reply
        self.exchanges: tuple[Exchange, ...] = ()
        self.flags: tuple[Flag, ...] = ()
        self.limit: Refusal | None = None

    def serve(self) -> str:
        """Answer the program's calls until it hands in an answer; return that.

        Raises:
            TrialFailed: There will be no answer.
            ProtocolViolation: The same: the program abused the pipe.
            PipeClosed: The program closed the pipe; how it ended tells why.
            LlmError: The model cannot be asked at all.
        """
        try:
            while True:
                match self._pipe.receive(self._deadline):
                    case ChatMessage() as chat:
                        self._pipe.send(self._reply_to(chat), self._deadline)
                    case ContactMessage(text):
                        self._flag("other-host", text)
                    case FailureMessage(text):
                        raise TrialFailed(self.limit.why if self.limit else printable_line(text))
                    case AnswerMessage(text):
                        # an empty answer scores nothing, so there is nothing in it to inspect
                        if text.strip():
                            self._inspect(text)
                        return text
        except DeadlinePassed:
            raise TrialFailed(self._limits.overtime) from None

    def _inspect(self, answer: str) -> None:
        """Flag an answer that is not the model's own."""
        # a program that reached a limit may hand in the replies that it has, as the official tree of thought does
        if not self._said.is_reply(answer) and not (self.limit and self._said.is_joined(answer)):
            why = "none of the model's replies in this trial is the answer"
            why = why if self.exchanges else "the model gave no reply in this trial; the answer"
            self._flag_text("altered-answer", why, answer)

    @property
    def _deadline(self) -> float:
        """The time at which to stop waiting for a reply or the program, on the clock of time.monotonic."""
        end = self._start + self._limits.seconds + self._limits.call_seconds - self._replayed
        return end if self._late_since is None else max(end, self._late_since + LAST_WORDS_SECONDS)

    def _reply_to(self, chat: ChatMessage) -> dict[str, object]:
        """Ask the model as often as the call wants replies; return these or the refusal, and the call's cost."""
        before = len(self.exchanges)
        try:
            messages, n = conversation(chat.messages), reply_count(chat.n)
        except ValueError as error:
            return {"prompt_tokens": 0, "output_tokens": 0, **asdict(Refusal("ValueError", str(error)))}
        for message in messages:
            if message.role == "assistant" and not self._said.is_reply(message.content):
                self._flag_text("invented-reply", "the model never said in this trial", message.content)
        if self._is_late() and self.limit is None:
            self.limit = Refusal("TimeoutError", f"took more than {self._limits.seconds:g} s")
        texts: list[str] = []
        while self.limit is None and len(texts) < n:
            texts.append(self._ask(messages))
        replies = [exchange.reply for exchange in self.exchanges[before:]]
        return {
            "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
            "output_tokens": sum(reply.output_tokens for reply in replies),
            **(asdict(self.limit) if self.limit else {"texts": texts}),
        }

    def _ask(self, messages: tuple[Message, ...]) -> str:
        first = self._job.request(*messages).key
        request = self._job.request(*messages, repetition=self._asked[first])
        self._asked[first] += 1
        started = time.monotonic()
        seconds = max(0.001, self._deadline - started)
        try:
            reply = self._backend.chat(request, seconds)
        except CallError as error:
            raise TrialFailed(str(error)) from error
        self._replayed += reply.seconds - (time.monotonic() - started)
        # a program mostly sends what was said so far and a little more: only that little is recorded
        pairs = enumerate(zip(self._conversation, messages, strict=False))
        shorter = min(len(self._conversation), len(messages))
        repeats = next((at for at, (before, now) in pairs if before != now), shorter)
        self.exchanges += (Exchange(request.key, reply, messages[repeats:], repeats),)
        self._conversation = (*messages, Message("assistant", reply.text))
        self._tokens += reply.prompt_tokens + reply.output_tokens
        self._said.add_reply(reply.text)
        if reply.seconds > seconds:  # when the model was really asked
            raise TrialFailed(self._limits.overtime)
        if self._tokens > self._limits.tokens:
            self.limit = Refusal("ValueError", f"used {self._tokens} tokens; the limit is {self._limits.tokens}")
        self._is_late()
        return reply.text

    def _is_late(self) -> bool:
        """Return whether no call may be begun any more, and note since when."""
        now = time.monotonic()
        if self._late_since is None and now >= self._start + self._limits.seconds - self._replayed:
            self._late_since = now
        return self._late_since is not None

    def _flag_text(self, kind: FlagKind, why: str, text: str) -> None:
        self._flag(kind, f"{why}: {printable_line(text, 120)!r}")

    def _flag(self, kind: FlagKind, detail: str) -> None:
        flag = Flag(kind, printable_line(detail))
        if flag not in self.flags and sum(each.kind == kind for each in self.flags) < MAX_FLAGS:
            self.flags += (flag,)


def conversation(messages: object) -> tuple[Message, ...]:
    """Return the messages of a call as the model is sent them.

    Args:
        messages: A program's JSON values: dicts with `role` and `content`, the content a text or a list of parts
            `{"type": "text", "text": ...}`; other keys are left out.

    Raises:
        ValueError: It is no conversation; the text says why.
    """
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list of at least one message")
    found = []
    for message in messages:
        if not isinstance(message, dict):
            raise ValueError("a message must be a dict with role and content")  # noqa: TRY004 - as the program sees it
        role = next((role for role in ROLES if role == message.get("role")), None)
        if role is None:
            raise ValueError(f"the role of a message must be {', '.join(ROLES[:-1])} or {ROLES[-1]}")
        found.append(Message(role, well_formed(_content(message.get("content")))))
    return tuple(found)


def reply_count(n: object) -> int:
    """Return how many replies a call wants.

    Raises:
        ValueError: It is no number of replies.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_REPLIES:
        raise ValueError(f"n must be a whole number from 1 to {MAX_REPLIES}")
    return n


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise ValueError("the content of a message must be a text")
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    whole = [text for text in texts if isinstance(text, str)]
    if len(whole) < len(content):
        raise ValueError("the parts of a message's content must be texts")
    return "".join(whole)
