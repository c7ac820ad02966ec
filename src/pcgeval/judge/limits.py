"""Limit what the calls of one or several gradings cost together, and how many are under way at once."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pcgeval.core.profiles import Price
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.call_log import LoggedCall
from pcgeval.llm.protocol import ChatReply, LlmError
from pcgeval.rubric.record import CallUsage

_LOOK_SECONDS = 0.5  # between two looks whether a call that waits is still wanted


class CallLimits:
    """The budget and the number of calls at once; several gradings and threads may share it.

    A call counts whenever it was paid for: a grading that is begun again has what is left of the budget. A call begins
    only if the budget also covers it with an answer as long as the longest so far, or as its room; before there is one,
    one call is made alone. So the budget can be passed only by what the answers under way are longer than any before.
    Once the budget does not cover a call, or the model cannot be asked any more, none begins.
    """

    def __init__(self, settings: JudgeSettings, paid: Iterable[LoggedCall] = ()) -> None:
        """Take the limits of the settings, and calls that were paid for before."""
        assert settings.model is not None  # noqa: S101 - asked only of a judge with a model
        self._max_cost, self._max_tokens = settings.max_cost, settings.max_tokens
        self._has_budget = settings.has_budget
        self._price = settings.model.known_profile.price or Price(input=0, output=0)
        self._at_once = settings.model.concurrency
        self._changed = threading.Condition()
        self._under_way = 0
        self._cost, self._tokens = 0.0, 0
        self._reserved: list[tuple[float, int]] = []  # price and tokens of each call under way, at most
        self._longest_answer = 0  # in tokens
        self._counted: set[str] = set()  # keys of calls
        self.ended: str | None = None  # why no call begins any more
        self.add_paid(paid)

    def add_paid(self, calls: Iterable[LoggedCall]) -> None:
        """Count calls that were paid for before, each once."""
        for call in calls:
            if call.reply is not None:
                self._count(call.key, call.reply)

    def add_usage(self, usage: CallUsage) -> None:
        """Count the calls of a grading that was finished before."""
        with self._changed:
            self._cost += self._price.cost(usage.prompt_tokens, usage.output_tokens, usage.cached_tokens)
            self._tokens += usage.prompt_tokens + usage.output_tokens
            if usage.calls:
                self._longest_answer = max(self._longest_answer, usage.output_tokens // usage.calls)

    @contextmanager
    def place(self, check_running: Callable[[], None]) -> Iterator[None]:
        """Wait until another call may be under way; it is until its reply is kept.

        Args:
            check_running: Raises where the call is not wanted any more.
        """
        with self._changed:
            while self._under_way >= self._at_once:
                self._changed.wait(_LOOK_SECONDS)
                check_running()
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @contextmanager
    def budget(
        self, prompt_tokens: int, room: int | None, check_running: Callable[[], None]
    ) -> Iterator[Callable[[str, ChatReply], None]]:
        """Wait until the budget is known to cover a call; what this gives is told of its key and its reply.

        Args:
            prompt_tokens: Of the call, about.
            room: For its answer in tokens, where it is bounded.
            check_running: Raises where the call is not wanted any more.

        Raises:
            LlmError: The budget does not cover the call, or an earlier one has shown that the model cannot be asked.
        """
        with self._changed:
            while self.ended is None:
                answer = self._longest_answer if room is None else min(self._longest_answer, room)
                reserved = self._price.cost(prompt_tokens, answer), prompt_tokens + answer
                is_first = self._longest_answer == 0 and self._has_budget
                if self._fits(reserved, *self._reserved) and not (is_first and self._reserved):
                    break
                if not self._fits(reserved):
                    self.ended = self._too_small(reserved[0])
                else:  # what is under way may cost less than is reserved for it
                    self._changed.wait(_LOOK_SECONDS)
                    check_running()
            if self.ended is not None:
                raise LlmError(self.ended)
            self._reserved.append(reserved)
        try:
            yield self._count
        except LlmError as error:
            self.ended = self.ended or str(error)
            raise
        finally:
            with self._changed:
                self._reserved.remove(reserved)
                self._changed.notify_all()

    def _count(self, key: str, reply: ChatReply) -> None:
        with self._changed:
            is_new = key not in self._counted
            self._counted.add(key)
        if is_new:
            self.add_usage(CallUsage.of(reply))

    def _fits(self, *calls: tuple[float, int]) -> bool:
        """Whether the budget covers what was paid and these calls, each by its price and its tokens."""
        cost, tokens = math.fsum(call[0] for call in calls), sum(call[1] for call in calls)
        return (self._max_cost is None or self._cost + cost <= self._max_cost) and (
            self._max_tokens is None or self._tokens + tokens <= self._max_tokens
        )

    def _too_small(self, cost: float) -> str:
        budget, option = f"{self._max_tokens} tokens", "max_tokens"
        if self._max_cost is not None and self._cost + cost > self._max_cost:
            budget, option = f"{self._max_cost:g} US dollars", "max_cost"
        return f"the budget of {budget} ({option}) does not cover the next call. Raise it, and grade again to go on."
