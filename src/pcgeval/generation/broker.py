"""The referee of one trial: what a program gets from the model, and what is known about it afterwards.

Tokens, seconds, seed, model and options are held to here, in a process that the program cannot reach; what it counts or
claims itself changes nothing. As with the competition's package, a call that goes over the tokens raises ValueError in
the program and one after the seconds TimeoutError, and a program that catches them may hand in what it has.

Every call has the trial's seed, so that the same conversation gets the same reply however often it is sent in a trial.
Several replies to one call (`n`) have the seeds that follow each other from there.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from pcgeval.core.params import Limits
from pcgeval.core.trials import Exchange, Flag, FlagKind
from pcgeval.core.untrusted import printable_line, well_formed
from pcgeval.generation.tasks import TrialCall
from pcgeval.generation.wire import Answer, Chat, Contact, Failure, OutOfTime, Pipe
from pcgeval.llm.protocol import CallError, Message

MOST_REPLIES = 128  # to one call, as with the API that the competition's package speaks
LAST_WORDS_SECONDS = 5.0  # for a program that was told its time is up to hand in what it has
MOST_FLAGS = 10  # of one kind; what an inspector is to look at fits on a page
_ROLES = ("system", "user", "assistant")


class TrialFailed(Exception):  # noqa: N818 - an outcome
    """The trial has no answer; the text is the reason, as a sentence about the program."""


@dataclass(frozen=True)
class Refusal:
    """Why a call gets no reply: the exception that the program sees, and its text."""

    refused: str
    why: str


class Broker:
    """Serves the calls of one trial until it is over, and keeps the record of it."""

    def __init__(self, call: TrialCall, limits: Limits, pipe: Pipe) -> None:
        """Start the trial's clock."""
        self._call, self._limits, self._pipe = call, limits, pipe
        self._start = time.monotonic()
        self._replayed = 0.0  # seconds that replies took when the model was asked, beyond those that they took now
        self._told_time_is_up: float | None = None
        self._tokens = 0
        self._said: set[str] = set()  # the model's replies, as their words
        self._flags: dict[Flag, None] = {}
        self._exchanges: list[Exchange] = []
        self._conversation: tuple[Message, ...] = ()  # up to and with the last reply
        self.limit: Refusal | None = None  # the limit that was reached

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every call that was answered, in order."""
        return tuple(self._exchanges)

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What an inspector should look at, in the order in which it was noticed."""
        return tuple(self._flags)

    def serve(self) -> str:
        """Answer the program's calls until it hands in an answer; return that.

        Raises:
            TrialFailed: There will be no answer.
            Misused: The same: the program abused the pipe.
            Gone: The program closed the pipe; how it ended tells why.
            LlmError: The model cannot be asked at all.
        """
        try:
            while True:
                match self._pipe.receive(self._deadline):
                    case Chat() as chat:
                        self._pipe.send(self._reply_to(chat), self._deadline)
                    case Contact(text):
                        self._flag("other-host", text)
                    case Failure(text):
                        raise TrialFailed(self.limit.why if self.limit else printable_line(text))
                    case Answer(text):
                        return self._accepted(text)
        except OutOfTime:
            raise TrialFailed(f"took more than {self._limits.seconds:g} s") from None

    @property
    def _deadline(self) -> float:
        """When to give up waiting for the program, on the clock of time.monotonic."""
        if self._told_time_is_up is not None:
            return self._told_time_is_up + LAST_WORDS_SECONDS
        return self._start + self._limits.seconds - self._replayed

    def _reply_to(self, chat: Chat) -> dict[str, object]:
        """Return what the program is told; the counts are those that this call has cost."""
        before = len(self._exchanges)
        texts = self._texts(chat)
        replies = [exchange.reply for exchange in self._exchanges[before:]]
        told: dict[str, object] = {
            "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
            "output_tokens": sum(reply.output_tokens for reply in replies),
        }
        return told | (asdict(texts) if isinstance(texts, Refusal) else {"texts": texts})

    def _texts(self, chat: Chat) -> list[str] | Refusal:
        """Ask the model as often as the call wants replies; each has the seed after that of the one before."""
        try:
            messages, n = conversation(chat.messages), reply_count(chat.n)
        except ValueError as error:
            return Refusal("ValueError", str(error))
        self._flag_inventions(messages)
        texts: list[str] = []
        while not self._is_over_limit() and len(texts) < n:
            texts.append(self._ask(messages, (self._call.seed + len(texts)) % 2**31))
        return self.limit or texts

    def _ask(self, messages: tuple[Message, ...], seed: int) -> str:
        request = replace(self._call, seed=seed).request(messages)
        started = time.monotonic()
        try:
            reply = self._call.backend.chat(request, max(0.001, self._deadline - started))
        except CallError as error:
            raise TrialFailed(str(error)) from error
        self._replayed += max(0.0, reply.seconds - (time.monotonic() - started))
        # a program mostly sends what was said so far and a little more: only that little is recorded
        pairs = enumerate(zip(self._conversation, messages, strict=False))
        shorter = min(len(self._conversation), len(messages))
        repeats = next((at for at, (before, now) in pairs if before != now), shorter)
        self._exchanges.append(Exchange(request.key, reply, messages[repeats:], repeats))
        self._conversation = (*messages, Message("assistant", reply.text))
        self._tokens += reply.prompt_tokens + reply.output_tokens
        self._said.add(_words(well_formed(reply.text)))
        return reply.text

    def _is_over_limit(self) -> bool:
        """Tell whether the program may have no more; `limit` is what stands against it."""
        if self._tokens > self._limits.tokens:
            self.limit = Refusal("ValueError", f"used {self._tokens} tokens; the limit is {self._limits.tokens}")
        elif (now := time.monotonic()) >= self._start + self._limits.seconds - self._replayed:
            self.limit = Refusal("TimeoutError", f"took more than {self._limits.seconds:g} s")
            self._told_time_is_up = self._told_time_is_up or now
        return self.limit is not None

    def _accepted(self, answer: str) -> str:
        # an empty answer scores nothing, so there is nothing in it to inspect
        if answer.strip() and _words(answer) not in self._said:
            if self._said:
                self._flag(
                    "altered-answer", f"none of the model's replies in this trial is the answer: {_shown(answer)}"
                )
            else:
                self._flag("altered-answer", f"the model gave no reply in this trial; the answer: {_shown(answer)}")
        return answer

    def _flag_inventions(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            if message.role == "assistant" and _words(message.content) not in self._said:
                self._flag("invented-reply", f"the model never said in this trial: {_shown(message.content)}")

    def _flag(self, kind: FlagKind, detail: str) -> None:
        if sum(flag.kind == kind for flag in self._flags) < MOST_FLAGS:
            self._flags[Flag(kind, printable_line(detail))] = None


def conversation(messages: object) -> tuple[Message, ...]:
    """Return the messages of a call as the model is sent them.

    Args:
        messages: What the program wrote, as JSON values: dicts with `role` and `content`, the content a text or a list
            of parts `{"type": "text", "text": ...}`; other keys are left out.

    Raises:
        ValueError: It is no conversation; the text says why.
    """
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list of at least one message")
    return tuple(_message(each) for each in messages)


def reply_count(n: object) -> int:
    """Return how many replies a call wants.

    Raises:
        ValueError: It is no number of replies.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_REPLIES:
        raise ValueError(f"n must be a whole number from 1 to {MOST_REPLIES}")
    return n


def _message(value: object) -> Message:
    if not isinstance(value, dict):
        raise ValueError("a message must be a dict with role and content")  # noqa: TRY004 - as the program sees it
    role = value.get("role")
    for known in _ROLES:
        if role == known:
            return Message(known, well_formed(_content(value.get("content"))))  # type: ignore[arg-type]
    raise ValueError(f"the role of a message must be {', '.join(_ROLES[:-1])} or {_ROLES[-1]}")


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        return "".join(_texts(content))
    raise ValueError("the content of a message must be a text")


def _texts(parts: list[object]) -> Iterator[str]:
    for part in parts:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise ValueError("the parts of a message's content must be texts")  # noqa: TRY004 - as the program sees it
        yield text


def _words(text: str) -> str:
    """Return the text with single spaces: what differs in white space alone is the same word for word."""
    return " ".join(text.split())


def _shown(text: str) -> str:
    return repr(printable_line(text, 120))
