"""Serve the calls of a program, enforce the limits of its trial, and flag facts for the organisers.

This process, which the program cannot reach, decides tokens, seconds, seed, model and options; the program's counters
and claims change nothing. As in the official package, a call that goes over the tokens raises ValueError in the program
and one that begins after the seconds TimeoutError, and a program that catches them may hand in its results. A call that
is under way when the seconds end continues for `limits.call_seconds` at most; by then the program has to end as well.
If one call wants more replies than come by then, the server is not at fault. A call counts with the seconds that the
model took for its reply: neither a replay nor a server that first failed changes a program's time.

The trial's clock goes on by the model's seconds and by whole seconds of the program's own: a fraction would differ in
every run. A repetition takes the times of calls from the record, and answers calls of several threads in its order, so
that program and limits see the same again.

The first reply to a conversation has the trial's seed. Every further one, to another call or to one that wants several
(`n`), has a seed derived from it, so that the branches of a tree of thought differ.

The program may send lines without end, no JSON, deep nesting or wrong types, close the pipe, or never read its replies.
Reading takes time linear in the input, and memory and waiting are bounded.
"""

import json
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from pcgeval.core.text import printable_line, well_formed
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.params import Limits
from pcgeval.formats.trials import Course, Exchange, Flag, FlagKind
from pcgeval.generation.tasks import TrialJob
from pcgeval.llm.protocol import Chat, ChatRequest, Message

LINE_BYTES = 2 * 2**20  # of one message: some ten times a trial's tokens
TRIAL_BYTES = 64 * 2**20  # of all messages of a trial; its record may hold them
CHUNK_BYTES = 65_536
MAX_REPLIES = 128  # to one call, as OpenAI's interface allows
LAST_WORDS_SECONDS = 5.0  # at least, for a program to hand in its results once its time is up
# A repetition waits for the call whose turn it is, while threads make others, until no thread of the program computes
LOOK_SECONDS, QUIET_LOOKS = 0.25, 20
MAX_FLAGS = 10  # of one kind in a trial
_CALL = re.compile(r"drop_block\s*\([^()]*\)")


class PipeClosed(Exception):  # noqa: N818 - an ending, not an error
    """The program closed its end of the pipe; mostly it has ended."""


class TrialFailed(Exception):  # noqa: N818 - an outcome
    """The trial has no answer."""

    def __init__(self, failure: Failure) -> None:
        """Keep the failure."""
        super().__init__(str(failure))
        self.failure = failure


def protocol_fault(fault: str) -> TrialFailed:
    """Return the failure of a program that breaks the interface; `fault` follows `the program`."""
    return TrialFailed(failure("program-protocol", fault=fault))


class Pipe:
    """The connection to a program, with one JSON message per line."""

    def __init__(self) -> None:
        """Open both ends."""
        self._host, self._guest = socket.socketpair()
        self._buffer = bytearray()
        self._bytes = 0

    @property
    def guest_end(self) -> int:
        """The descriptor that the program reads and writes."""
        return self._guest.fileno()

    def close_guest_end(self) -> None:
        """Close the program's end in this process, so that its exit is noticed."""
        self._guest.close()

    def close(self) -> None:
        """Close both ends."""
        self._host.close()
        self._guest.close()

    def receive(self, deadline: float) -> Any:
        """Return the program's next message before a time of the monotonic clock: any JSON value.

        Raises PipeClosed if there will be none, TimeoutError, and TrialFailed if it is too large or no JSON.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > LINE_BYTES:
                raise protocol_fault(f"sent a message of more than {LINE_BYTES // 2**20} MiB")
            self._wait_until(deadline)
            try:
                chunk = self._host.recv(CHUNK_BYTES)
            except ConnectionError:  # it left something unread
                chunk = b""
            if not chunk:
                raise PipeClosed
            self._bytes += len(chunk)
            if self._bytes > TRIAL_BYTES:
                raise protocol_fault(f"sent messages of more than {TRIAL_BYTES // 2**20} MiB together")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise protocol_fault("sent something that is no message of the interface (not valid JSON)") from error

    def send(self, values: Mapping[str, object], deadline: float) -> None:
        """Send the program a message, unless it has ended; raises TimeoutError if it did not read it in time."""
        self._wait_until(deadline)
        with suppress(ConnectionError):  # its last messages can still be received
            self._host.sendall(json.dumps(values).encode() + b"\n")

    def _wait_until(self, deadline: float) -> None:
        self._host.settimeout(max(0.001, deadline - time.monotonic()))


class Broker:
    """Serve the calls of one trial until it is over, and keep the record of it."""

    def __init__(
        self,
        job: TrialJob,
        chat: Chat,
        limits: Limits,
        pipe: Pipe,
        course: Course | None = None,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start the trial's clock; `course` is that of the trial if this is a repetition.

        `is_busy` tells whether a thread of the program computes.
        """
        self._is_busy = is_busy
        self._job, self._chat, self._limits, self._pipe, self._course = job, chat, limits, pipe, course
        self._is_repetition, self._start = course is not None, time.monotonic()
        self._at, self._since = 0.0, self._start  # the trial's clock at a time of the monotonic clock
        self._end = limits.seconds + limits.call_seconds  # on the trial's clock, to stop waiting for reply or program
        self._is_late = False  # no call may begin any more
        self._tokens = 0
        self._replies: list[str] = []  # as `_comparable` returns them
        self._asked: Counter[str] = Counter()  # replies to each conversation, by the key of its first request
        self._conversation: tuple[Message, ...] = ()  # up to and with the last reply
        self._held: list[dict[str, Any]] = []  # calls of threads that have to wait for another's
        self.exchanges: tuple[Exchange, ...] = ()
        self.flags: tuple[Flag, ...] = ()
        self.limit: Failure | None = None  # the limit that the trial has reached
        self.late: float | None = None  # when the first call began that came too late
        self.thought = 0.0  # seconds in which the program, and not the model, let this process wait for its calls

    def serve(self) -> str:
        """Answer the program's calls until it hands in an answer; return that.

        Raises TrialFailed or PipeClosed if there will be no answer, and LlmError if the model cannot be asked at all.
        """
        try:
            while True:
                match self._next_message():
                    case {"op": "chat", "id": int(number), "messages": messages, "n": n}:
                        reply = {"id": number, **self._reply_to(messages, n), "at": self._at}
                        self._pipe.send(reply, self._deadline)
                    case {"op": "contact", "text": str(text)}:
                        self._flag("other-host", text)
                    case {"op": "failure", "text": str(text)}:
                        raise TrialFailed(failure("program-error", detail=text))
                    case {"op": "answer", "text": str(text)}:
                        answer = well_formed(text)
                        self._inspect(answer)
                        return answer
                    case _:
                        raise protocol_fault("sent something that is no message of the interface")
        except TimeoutError:  # of the pipe
            raise TrialFailed(overtime(self._limits)) from None

    @property
    def _deadline(self) -> float:
        """The time at which to stop waiting for a reply or the program, on the monotonic clock."""
        end = self._since + self._end - self._at
        return min(end, self._start + self._end) if self._is_repetition else end  # there the clock stands at times

    def _set_clock(self, at: float) -> None:
        self._at, self._since = at, time.monotonic()
        if not self._is_late and at >= self._limits.seconds:
            self._is_late, self._end = True, max(self._end, at + LAST_WORDS_SECONDS)

    def _recorded(self) -> Exchange | None:
        """The exchange whose turn it is in a repetition, until it takes another course."""
        if not self._course or len(self.exchanges) >= len(self._course.exchanges):
            return None
        return self._course.exchanges[len(self.exchanges)]

    def _next_message(self) -> Any:
        """Return the program's next message; in a repetition, of several threads' calls the one whose turn it is."""
        quiet = 0
        while (recorded := self._recorded()) and not self.limit and len(self._held) < MAX_REPLIES:
            for call in self._held:
                if self._key_of(call) in (recorded.key, None):
                    self._held.remove(call)
                    return call
            try:
                look = time.monotonic() + LOOK_SECONDS
                message = self._pipe.receive(min(look, self._deadline) if self._held else self._deadline)
            except TimeoutError:
                if time.monotonic() >= self._deadline:
                    raise
                quiet = 0 if self._is_busy() else quiet + 1
                if quiet == QUIET_LOOKS:
                    break
                continue
            if not (isinstance(message, dict) and message.get("op") == "chat"):
                return message
            quiet = 0
            self._held.append(message)
        if not self._held:
            return self._pipe.receive(self._deadline)
        self._course = None  # another than this run's
        return self._held.pop(0)

    def _key_of(self, call: dict[str, Any]) -> str | None:
        """Return the key of the first request that a call makes; None if it makes none."""
        try:
            return self._request(conversation(call.get("messages"), call.get("n"))).key
        except ValueError:
            return None

    def _request(self, messages: tuple[Message, ...]) -> ChatRequest:
        first = self._job.request(*messages)
        asked = self._asked[first.key]
        return self._job.request(*messages, repetition=asked) if asked else first

    def _reply_to(self, messages: object, n: Any) -> dict[str, object]:
        """Ask the model as often as the call wants replies; return these or the refusal, and the call's cost."""
        before = len(self.exchanges)
        texts: list[str] = []
        refusal: dict[str, str] = {}
        try:
            sent = conversation(messages, n)
        except ValueError as error:
            refusal = {"refused": "ValueError", "why": str(error)}
        else:
            for message in sent:
                if message.role == "assistant" and _comparable(message.content) not in self._replies:
                    self._flag_text("invented-reply", "the model never said in this trial", message.content)
            if self.limit is None:
                self._begin(self._request(sent).key)
            while self.limit is None and len(texts) < n:
                texts.append(self._ask(sent))
            if self.limit:
                kind = "TimeoutError" if self.limit.kind == "late-call" else "ValueError"
                refusal = {"refused": kind, "why": self.limit.sentence}
        replies = [exchange.reply for exchange in self.exchanges[before:]]
        return {
            "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
            "output_tokens": sum(reply.output_tokens for reply in replies),
            **(refusal or {"texts": texts}),
        }

    def _begin(self, key: str) -> None:
        """Set the clock to the time at which a call begins, and refuse it if that is too late."""
        before = self.thought
        self.thought += time.monotonic() - self._since
        begins = self._at
        if not self._is_repetition:  # one that leaves the course goes on by the model's seconds, the same as any other
            begins += int(self.thought) - int(before)
        if (recorded := self._recorded()) and recorded.key == key:
            if recorded.at is not None:
                begins = recorded.at - recorded.reply.seconds
        elif self._course and self._course.late is not None and not recorded:
            begins = self._course.late
        self._set_clock(max(self._at, round(begins, 3)))
        if self._is_late:
            self.limit, self.late = failure("late-call", seconds=self._limits.seconds), self._at

    def _ask(self, messages: tuple[Message, ...]) -> str:
        request, recorded = self._request(messages), self._recorded()
        self._asked[self._job.request(*messages).key] += 1
        seconds = max(0.001, self._end - self._at)
        was_late = self._is_late  # so this is a further reply to one call
        try:
            reply = self._chat(request, seconds)
        except TrialFailed as error:
            is_servers = error.failure.type.owner != "submission"
            raise TrialFailed(overtime(self._limits)) if was_late and not is_servers else error from error
        at = round(self._at + reply.seconds, 3)
        if recorded and recorded.key == request.key and recorded.at is not None:
            at = max(at, recorded.at)
        self._set_clock(at)
        # a program mostly repeats the conversation and adds a little: only that little is recorded
        pairs = enumerate(zip(self._conversation, messages, strict=False))
        shorter = min(len(self._conversation), len(messages))
        repeats = next((place for place, (before, now) in pairs if before != now), shorter)
        self.exchanges += (Exchange(request.key, reply, messages[repeats:], repeats, at),)
        self._conversation = (*messages, Message("assistant", reply.text))
        self._tokens += reply.prompt_tokens + reply.output_tokens
        self._replies.append(_comparable(reply.text))
        if reply.seconds > seconds:  # a replay comes at once, but the model took longer
            raise TrialFailed(overtime(self._limits))
        if self._tokens > self._limits.tokens:
            self.limit = failure("too-many-tokens", used=self._tokens, limit=self._limits.tokens)
        return reply.text

    def _inspect(self, answer: str) -> None:
        """Flag an answer that the model did not write; one that is empty scores nothing."""
        text = _comparable(answer)
        # after a limit a program may hand in the replies that it has, as the official tree of thought does
        if text and text not in self._replies and not (self.limit and self._is_joined(text)):
            self._flag_text("altered-answer", "none of the model's replies in this trial is the answer", answer)

    def _is_joined(self, text: str) -> bool:
        """Tell whether a text is several whole replies in the order in which they came."""
        ends = {0}
        for reply in self._replies:
            new = {end + len(reply) for end in ends if reply and text.startswith(reply, end)}
            ends |= {end + text[end : end + 1].isspace() for end in new}
        return len(text) in ends

    def _flag_text(self, kind: FlagKind, why: str, text: str) -> None:
        self._flag(kind, f"{why}: {printable_line(text, 120)!r}")

    def _flag(self, kind: FlagKind, detail: str) -> None:
        flag = Flag(kind, printable_line(well_formed(detail)))
        if flag not in self.flags and sum(other.kind == kind for other in self.flags) < MAX_FLAGS:
            self.flags += (flag,)


def overtime(limits: Limits) -> Failure:
    """Return the failure of a trial that did not end in time."""
    return failure("overtime", seconds=limits.seconds, call_seconds=limits.call_seconds)


def conversation(messages: object, n: Any) -> tuple[Message, ...]:
    """Return the messages of a call for `n` replies as the model is sent them; raises ValueError if it is no call.

    A program sends dicts with `role` and `content`, a text or a list of parts `{"type": "text", "text": ...}`; other
    keys are left out.
    """
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list of at least one message")
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_REPLIES:
        raise ValueError(f"n must be a whole number from 1 to {MAX_REPLIES}")
    sent = []
    for message in messages:
        match message:
            case {"role": "system" | "user" | "assistant" as role, "content": str(text)}:
                sent.append(Message(role, well_formed(text)))
            case {"role": "system" | "user" | "assistant" as role, "content": [_, *_] as parts}:
                sent.append(Message(role, well_formed("".join(map(_part_text, parts)))))
            case _:
                raise ValueError("a message must be a dict with a role (system, user or assistant) and a content")
    return tuple(sent)


def is_reply(answer: str, exchanges: Iterable[Exchange]) -> bool:
    """Tell whether an answer is one of the model's replies, but for white space outside of calls."""
    return _comparable(answer) in (_comparable(exchange.reply.text) for exchange in exchanges)


def _part_text(part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
    raise ValueError("the content of a message must be a text, or parts that are texts")


def _comparable(text: str) -> str:
    """Return a text with single spaces outside of its calls; within a call white space can change what is extracted."""
    pieces, end = [], 0
    for call in _CALL.finditer(text):
        pieces += [*text[end : call.start()].split(), call[0]]
        end = call.end()
    return " ".join([*pieces, *text[end:].split()])
