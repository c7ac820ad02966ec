"""The rules of a trial and the bounds of its pipe: the test writes the program's messages, and no process runs."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_trials import JOB, SAID, SEED, TestModel, limits, reply

from pcgeval.core.params import Limits
from pcgeval.core.trials import Flag
from pcgeval.generation import broker as broker_module
from pcgeval.generation.broker import MAX_FLAGS, MAX_REPLIES, Broker, Pipe, PipeClosed, TrialFailed, conversation
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, Message, ServerFaultError


class Guest:
    """The program's side: its messages are written before the broker serves, the replies read after."""

    def __init__(self, model: TestModel | None = None, rules: Limits | None = None) -> None:
        self.pipe = Pipe()
        self.model = model or TestModel()
        self.broker = Broker(JOB, self.model.chat, rules or limits(), self.pipe)

    def close(self) -> None:
        self.pipe.close()

    def writes(self, content: bytes) -> "Guest":
        os.write(self.pipe.guest_end, content)
        return self

    def says(self, **values: object) -> "Guest":
        return self.writes(json.dumps(values).encode() + b"\n")

    def chats(self, *contents: str, n: object = 1) -> "Guest":
        """Call the model with user and assistant messages in turns."""
        messages = [{"role": role, "content": text} for role, text in zip(cycle(("user", "assistant")), contents)]
        return self.says(op="chat", messages=messages, n=n)

    def answers(self, text: str = "") -> str:
        return self.says(op="answer", text=text).broker.serve()

    def replies(self) -> list[dict[str, Any]]:
        os.set_blocking(self.pipe.guest_end, False)
        return [json.loads(line) for line in os.read(self.pipe.guest_end, 10**6).splitlines()]

    def kinds(self) -> list[str]:
        return [flag.kind for flag in self.broker.flags]


def opened(model: TestModel | None = None, rules: Limits | None = None) -> closing[Guest]:
    return closing(Guest(model, rules))


@pytest.fixture
def guest() -> Iterator[Guest]:
    with opened() as guest:
        yield guest


def test_a_call_is_answered_and_recorded_and_the_competition_decides_model_and_options(guest: Guest) -> None:
    assert guest.chats("Build K.").answers(SAID) == SAID
    assert guest.replies() == [{"texts": [SAID], "prompt_tokens": 3, "output_tokens": 4}]
    (exchange,), (request,) = guest.broker.exchanges, guest.model.requests
    messages = (Message("user", "Build K."),)
    assert (exchange.messages, exchange.key, exchange.reply) == (messages, request.key, reply(SAID))
    options = {"temperature": 1, "num_ctx": 4096, "seed": SEED}
    assert request == ChatRequest("test-model", "d" * 64, messages, options)
    assert guest.broker.flags == ()


def test_each_reply_to_the_same_conversation_has_another_seed_whether_one_call_or_several_want_it() -> None:
    seeds, costs = [], []
    for counts in ([1, 1, 3], [5], [1] * 5):
        with opened() as guest:
            for n in counts:
                guest.chats("Build.", n=n).chats("Something else.")
            guest.answers()
            costs.append(guest.replies()[-2]["prompt_tokens"])
        seeds.append([r.options["seed"] for r in guest.model.requests if r.messages[0].content == "Build."])
    assert seeds[0] == seeds[1] == seeds[2]
    assert (seeds[0][0], len(set(seeds[0]))) == (SEED, 5)
    assert all(0 <= seed < 2**31 for seed in seeds[0])
    assert costs == [9, 15, 3]


# limits


@pytest.mark.parametrize(("limit", "answered"), [(13, 1), (14, 2), (20, 2), (21, 3)])
def test_a_reply_over_the_tokens_is_refused_and_so_is_every_later_call(limit: int, answered: int) -> None:
    with opened(rules=limits(tokens=limit)) as guest:
        for _ in range(answered):
            guest.chats("Build.")
        guest.chats("Build.", n=100).chats("Build.").answers("what I have")
        replies = guest.replies()
    refused = {"refused": "ValueError", "why": f"used {7 * (answered + 1)} tokens; the limit is {limit}"}
    assert ["texts" in values for values in replies] == [True] * answered + [False] * 2
    assert replies[answered] == {**refused, "prompt_tokens": 3, "output_tokens": 4}
    assert replies[-1] == {**refused, "prompt_tokens": 0, "output_tokens": 0}
    assert len(guest.model.requests) == len(guest.broker.exchanges) == answered + 1  # that one is over it


def test_replayed_seconds_count_and_those_that_were_really_waited_for_count_once() -> None:
    """A reply that took 20 s when the model was asked takes 20 s of the trial when it is replayed at once."""
    with opened(TestModel(lambda _: reply("slow", seconds=20)), limits(seconds=50, call_seconds=50)) as guest:
        guest.chats("1").chats("2").chats("3", n=2).chats("4").answers("what I have")
        replies = guest.replies()
    assert [values.get("refused") for values in replies] == [None, None, None, "TimeoutError"]
    assert [len(values.get("texts", ())) for values in replies] == [1, 1, 2, 0]  # one call is asked to its end
    assert [round(timeout) for timeout in guest.model.timeouts] == [100, 80, 60, 40]

    def slow(_: ChatRequest) -> ChatReply:
        time.sleep(0.1)
        return reply("slow", seconds=0.1)

    with opened(TestModel(slow), limits(seconds=50)) as guest:
        guest.chats("1").chats("2").answers("made up")
    assert 49.8 < guest.model.timeouts[1] < 49.901


SLOW = TestModel(lambda _: reply("slow", seconds=20))


@pytest.mark.parametrize(
    ("model", "rules", "calls"),
    [
        pytest.param(SLOW, limits(seconds=50, call_seconds=9), 3, id="a replayed reply would not have ended in time"),
        pytest.param(SLOW, limits(seconds=0.05, call_seconds=19.96), 1, id="last words do not come"),
        pytest.param(TestModel(), limits(seconds=0.05), 0, id="nothing is said"),
        pytest.param(TestModel(lambda _: "x" * 10**6), limits(seconds=0.2), 1, id="a long reply is never read"),
    ],
)
def test_a_trial_that_does_not_end_in_time_fails(
    monkeypatch: pytest.MonkeyPatch, model: TestModel, rules: Limits, calls: int
) -> None:
    monkeypatch.setattr(broker_module, "LAST_WORDS_SECONDS", 0.05)
    with opened(model, rules) as guest:
        for number in range(calls):
            guest.chats(str(number))
        with pytest.raises(TrialFailed, match=r"took more than .* and did not end"):
            guest.broker.serve()


@pytest.mark.parametrize(
    ("error", "seconds", "reason"),
    [
        (ServerFaultError("no answer came"), 0.1, "did not end"),
        (ServerFaultError("no answer came"), 0, "no answer came"),
        (CallError("no answer came"), 0, "did not end"),  # the first one in a replay
    ],
)
def test_more_replies_than_come_in_time_are_the_programs_fault(
    monkeypatch: pytest.MonkeyPatch, error: CallError, seconds: float, reason: str
) -> None:
    def answer(_: ChatRequest) -> ChatReply:
        if len(model.requests) == 1:
            return reply("slow", seconds=20)
        time.sleep(seconds)
        raise error

    monkeypatch.setattr(broker_module, "LAST_WORDS_SECONDS", 0.05)
    model = TestModel(answer)
    with opened(model, limits(seconds=10, call_seconds=10.05)) as guest, pytest.raises(TrialFailed, match=reason):
        guest.chats("Build.", n=2).broker.serve()


# flags

LEVEL = "```\ndrop_block('b11', 3)\n```"
OTHER = "the other reply to the same call"


@pytest.mark.parametrize(
    ("answer", "flagged"),
    [
        (LEVEL, False),
        (OTHER, False),
        (f"  {LEVEL}\n".replace("\n", "\r\n"), False),  # the same word for word
        (LEVEL.replace(", ", ",\n"), True),  # in a call, white space decides whether it is extracted
        ("", False),
        (LEVEL.replace("3", "4"), True),
        (LEVEL.strip("`\n"), True),
        (f"Sure.\n{LEVEL}", True),
        (f"{LEVEL}\n{OTHER}", True),  # joined without need
    ],
)
def test_an_altered_answer_is_flagged(answer: str, *, flagged: bool) -> None:
    replies = iter([LEVEL, OTHER])
    with opened(TestModel(lambda _: next(replies))) as guest:
        assert guest.chats("Build.", n=2).answers(answer) == answer
    assert guest.kinds() == (["altered-answer"] if flagged else [])


@pytest.mark.parametrize(
    ("joined", "flagged"),
    [("{0}\n{1}", False), ("{1}", False), ("{0}{1}", False), ("{1}\n{0}", True), ("{0}\n{1}\nmine", True)],
)
def test_replies_joined_when_the_tokens_are_used_up_are_the_models(joined: str, *, flagged: bool) -> None:
    calls = [f"drop_block('b{n}1', {n})" for n in (1, 2, 3)]
    with opened(TestModel(lambda request: calls[len(request.messages) // 2]), limits(tokens=20)) as guest:  # of 21
        guest.chats("a").chats("a", calls[0], "b").chats("a", calls[0], "b", calls[1], "c")
        guest.answers(joined.format(*calls))
    assert guest.kinds() == (["altered-answer"] if flagged else [])


def test_a_reply_is_invented_unless_it_came_before_and_is_flagged_once(guest: Guest) -> None:
    later = f"reply to 3 messages with seed {SEED}"
    guest.chats("1").chats("1", later, "2").chats("1", SAID, "2").chats("1", later, "2").chats("1", "no", "2")
    guest.chats("1", "no", "2").answers(SAID)
    details = [f"the model never said in this trial: {text!r}" for text in (later, "no")]
    assert guest.broker.flags == tuple(Flag("invented-reply", detail) for detail in details)
    assert [exchange.repeats for exchange in guest.broker.exchanges] == [0, 1, 1, 1, 1, 3]  # what is not recorded again


def test_flags_and_reasons_are_few_and_short(guest: Guest) -> None:
    for number in range(MAX_FLAGS + 2):
        guest.says(op="contact", text=f"tried to reach {number}.org\n" + "x" * 400)
    with pytest.raises(TrialFailed) as caught:
        guest.says(op="failure", text="KeyError:\x1b[31m 'x'\n\r" + "y" * 10**4).broker.serve()
    assert guest.kinds() == ["other-host"] * MAX_FLAGS
    assert str(caught.value).startswith("KeyError: [31m 'x' yyy")
    for text in (str(caught.value), *(flag.detail for flag in guest.broker.flags)):
        assert len(text) <= 300
        assert text.isprintable()


# conversations


@pytest.mark.parametrize(
    ("messages", "contents"),
    [
        ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": ""}], ["Be brief.", ""]),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], ["ab"]),
        ([{"role": "user", "content": "a\ud800", "name": "x", "tokens": 0}], ["a\ufffd"]),
    ],
)
def test_conversations(messages: object, contents: list[str]) -> None:
    assert [message.content for message in conversation(messages)] == contents


FINE = {"role": "user", "content": "fine"}
NO_MESSAGES = [None, "Build.", {}, [], [None], ["Build."], [[]], [{"role": "user"}], [{"content": "x"}], [FINE, 5]]
NO_MESSAGES += [[{"role": role, "content": "x"}] for role in ("tool", None, ["user"])]
NO_CONTENTS = [None, 5, [], ["x"], [{"type": "image_url", "image_url": "x"}], [{"type": "text", "text": 1}]]
NO_MESSAGES += [[{"role": "user", "content": content}] for content in NO_CONTENTS]
NO_COUNTS = [0, -1, MAX_REPLIES + 1, 10**30, 1.0, float("nan"), True, None, "1", [1], {}]


@pytest.mark.parametrize(
    ("messages", "n"), [*((messages, 1) for messages in NO_MESSAGES), *(([FINE], n) for n in NO_COUNTS)]
)
def test_a_call_that_is_none_is_refused_and_costs_nothing(guest: Guest, messages: object, n: object) -> None:
    guest.says(op="chat", messages=messages, n=n).answers()
    (refusal,) = guest.replies()
    assert refusal["refused"] == "ValueError"
    assert guest.broker.exchanges == ()


# the pipe


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"hello", b"\xff\xfe{}", b"[]", b"null", b"NaN", b"[" * 100_000, b'{"op":' * 10_000),
        b'{"op": "chat", "messages": []}',
        b'{"op": "answer", "text": null}',
        b'{"op": ["answer"], "text": "x"}',
        b'{"op": "result", "text": "x"}',
        b'{"op": "chat", "messages": 1, "n": ' + b"9" * 5000 + b"}",
        b'{"op": "answer", "text": "x"} {"op": "answer", "text": "y"}',
    ],
)
def test_what_is_no_message_of_the_interface_fails_the_trial(guest: Guest, content: bytes) -> None:
    with pytest.raises(TrialFailed, match="no message of the interface"):
        guest.writes(content + b"\n").broker.serve()


@given(st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_no_bytes_do_more_than_fail_the_trial(content: bytes | str) -> None:
    with opened() as guest:
        guest.writes(content.encode() if isinstance(content, str) else content).pipe.close_guest_end()
        with pytest.raises((TrialFailed, PipeClosed)):
            guest.broker.serve()


def test_messages_may_come_in_pieces_and_together_and_their_text_fits_into_files(guest: Guest) -> None:
    content = b'{"op": "contact", "text": "here"}\n{"op": "answer", "text": "a\\ud800\xc3\xbc"}\n'
    sender = threading.Thread(target=lambda: [guest.writes(content[at : at + 1]) for at in range(len(content))])
    sender.start()
    assert guest.broker.serve() == "a\ufffd\u00fc"
    sender.join()


def test_what_a_program_said_before_it_ended_counts_though_it_takes_no_reply() -> None:
    for last, kinds in ((b'{"op": "answer", "te', []), (b'{"op": "contact", "text": "x"}\n', ["other-host"])):
        with opened() as guest:
            guest.chats("Build.").writes(last).pipe.close_guest_end()
            with pytest.raises(PipeClosed):
                guest.broker.serve()
        assert guest.kinds() == kinds
    with opened() as guest:
        guest.chats("Build.").says(op="answer", text="mine").pipe.close_guest_end()
        assert guest.broker.serve() == "mine"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x" * 65536, "a message of more than 1 MiB"),
        (b'{"op": "contact", "text": "%s"}\n' % (b"x" * 60_000), "more than 2 MiB together"),
    ],
)
def test_what_comes_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str) -> None:
    monkeypatch.setattr(broker_module, "LINE_BYTES", 2**20)
    monkeypatch.setattr(broker_module, "TRIAL_BYTES", 2**21)

    def write() -> None:
        try:
            while True:
                os.write(end, content)
        except OSError:  # the trial has failed and its pipe is closed
            os.close(end)

    with opened() as guest:
        end = os.dup(guest.pipe.guest_end)
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        with pytest.raises(TrialFailed, match=reason):
            guest.broker.serve()
    writer.join()
