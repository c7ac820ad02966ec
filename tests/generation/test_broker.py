"""The rules of a trial and the bounds of its pipe: the test writes the program's messages, and no process runs."""

import json
import os
import threading
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from program_trials import JOB, SAID, SEED, TestModel, limits, reply

from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.params import Limits
from pcgeval.formats.trials import Flag
from pcgeval.generation import broker as broker_module
from pcgeval.generation.broker import MAX_FLAGS, MAX_REPLIES, Broker, Pipe, PipeClosed, TrialFailed
from pcgeval.llm.protocol import ChatReply, ChatRequest, Message


class Guest:
    """The program's side: its messages are written before the broker serves, the replies read after."""

    def __init__(self, rules: Limits | None = None, model: TestModel | None = None) -> None:
        self.pipe = Pipe()
        self.model = model or TestModel()
        self.broker = Broker(JOB, self.model.chat, rules or limits(), self.pipe)

    def writes(self, content: bytes) -> "Guest":
        os.write(self.pipe.guest_end, content)
        return self

    def says(self, **values: object) -> "Guest":
        return self.writes(json.dumps(values).encode() + b"\n")

    def chats(self, *contents: str, n: object = 1) -> "Guest":
        """Call the model with user and assistant messages in turns."""
        messages = [{"role": role, "content": text} for role, text in zip(cycle(("user", "assistant")), contents)]
        return self.says(op="chat", id=1, messages=messages, n=n)

    def answers(self, text: str = "") -> str:
        return self.says(op="answer", text=text).broker.serve()

    def replies(self) -> list[dict[str, Any]]:
        os.set_blocking(self.pipe.guest_end, False)
        replies = [json.loads(line) for line in os.read(self.pipe.guest_end, 10**6).splitlines()]
        assert {reply.pop("id") for reply in replies} == {1}
        self.times = [reply.pop("at") for reply in replies]
        return replies

    def kinds(self) -> list[str]:
        return [flag.kind for flag in self.broker.flags]


def test_a_call_is_answered_and_recorded_and_the_competition_decides_model_and_options():
    guest, said = Guest(), f"reply to 2 messages with seed {SEED}"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b\ud800"}]
    sent = [{"role": "system", "content": ""}, {"role": "user", "content": parts, "name": "x", "tokens": 0}]
    assert guest.says(op="chat", id=1, messages=sent, n=1, model="other").answers(said) == said
    assert guest.replies() == [{"texts": [said], "prompt_tokens": 3, "output_tokens": 4}]
    (exchange,), (request,) = guest.broker.exchanges, guest.model.requests
    messages = (Message("system", ""), Message("user", "ab\ufffd"))
    assert (exchange.messages, exchange.key, exchange.reply) == (messages, request.key, reply(said))
    options = {"temperature": 1, "num_ctx": 4096, "seed": SEED}
    assert request == ChatRequest("test-model", "d" * 64, messages, options)
    assert guest.broker.flags == ()


def test_each_reply_to_the_same_conversation_has_another_seed_whether_one_call_or_several_want_it():
    seeds, costs = [], []
    for counts in ([1, 1, 3], [5], [1] * 5):
        guest = Guest()
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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time as the broker sees it, which passes only in a test."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(broker_module, "time", clock)
    return clock


@pytest.mark.parametrize(("limit", "answered"), [(13, 1), (14, 2)])
def test_a_reply_over_the_tokens_is_refused_and_so_is_every_later_call(limit, answered):
    guest = Guest(limits(tokens=limit))
    for _ in range(answered):
        guest.chats("Build.")
    guest.chats("Build.", n=100).chats("Build.").answers("what I have")
    replies = guest.replies()
    refused = {"refused": "ValueError", "why": f"used {7 * (answered + 1)} tokens; the limit is {limit}"}
    assert ["texts" in values for values in replies] == [True] * answered + [False] * 2
    assert replies[answered] == {**refused, "prompt_tokens": 3, "output_tokens": 4}
    assert replies[-1] == {**refused, "prompt_tokens": 0, "output_tokens": 0}
    assert len(guest.broker.exchanges) == answered + 1  # with the one that is over it


@pytest.mark.parametrize("waited", [0, 20])
def test_a_reply_takes_the_models_seconds_whether_it_is_replayed_at_once_or_waited_for(clock, waited):
    def answer(_: ChatRequest) -> ChatReply:
        clock.now += waited
        return reply("slow", seconds=20)

    guest = Guest(limits(seconds=50, call_seconds=50), TestModel(answer))
    guest.chats("1").chats("2").chats("3", n=2).chats("4").answers("what I have")
    replies = guest.replies()
    assert [values.get("refused") for values in replies] == [None, None, None, "TimeoutError"]
    assert [len(values.get("texts", ())) for values in replies] == [1, 1, 2, 0]  # one call is asked to its end
    assert guest.model.timeouts == [100, 80, 60, 40]


def test_the_clock_goes_on_by_the_whole_seconds_that_a_program_thinks_and_ends_at_the_limit(clock, monkeypatch):
    guest = Guest(limits(seconds=2))
    receive = guest.pipe.receive

    def think(deadline: float) -> Any:
        clock.now += 0.6
        assert clock.now < deadline, "it has some seconds for its last words"
        return receive(deadline)

    monkeypatch.setattr(guest.pipe, "receive", think)
    guest.chats("1").chats("2").chats("3").chats("4").answers()
    assert [values.get("refused") for values in guest.replies()] == [None, None, None, "TimeoutError"]
    assert guest.times == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (reply("slow", seconds=20), "overtime"),  # it would not have come in time
        (failure("server-failed", fault="no answer came"), "server-failed"),
        (failure("request-fails", attempts=2, last="no answer came"), "overtime"),
    ],
)
def test_more_replies_than_come_in_time_are_the_programs_fault(clock, second, kind):
    def answer(_: ChatRequest) -> ChatReply:
        if len(model.requests) == 1:
            return reply("slow", seconds=20)
        clock.now += 4
        if isinstance(second, Failure):
            raise TrialFailed(second)
        return second

    model = TestModel(answer)
    with pytest.raises(TrialFailed) as caught:
        Guest(limits(seconds=10, call_seconds=11), model).chats("Build.", n=2).answers("in time")
    assert caught.value.failure.kind == kind


def test_last_words_that_do_not_come_fail_the_trial(monkeypatch):
    monkeypatch.setattr(broker_module, "LAST_WORDS_SECONDS", 0.05)
    guest = Guest(limits(seconds=0.05, call_seconds=20), TestModel(lambda _: reply("slow", seconds=20)))
    with pytest.raises(TrialFailed, match="did not end"):
        guest.chats("Build.").broker.serve()


# flags

LEVEL = "```\ndrop_block('b11', 3)\n```"
OTHER = "another reply"


@pytest.mark.parametrize(
    ("tokens", "answer", "flagged"),
    [
        (100, LEVEL, False),
        (100, OTHER, False),
        (100, f"  {LEVEL}\n".replace("\n", "\r\n"), False),  # the same word for word
        (100, LEVEL.replace(", ", ",\n"), True),  # in a call, white space decides whether it is extracted
        (100, "", False),
        (100, LEVEL.replace("3", "4"), True),
        (100, LEVEL.strip("`\n"), True),
        (100, f"{LEVEL}\n{OTHER}", True),  # joined without need
        (20, f"{LEVEL}\n{OTHER}", False),  # of 21
        (20, f"{LEVEL}{OTHER}", False),
        (20, OTHER, False),
        (20, f"{OTHER}\n{LEVEL}", True),
        (20, f"{LEVEL}\n{OTHER}\nmine", True),
    ],
)
def test_an_answer_is_altered_unless_it_is_a_reply_or_joins_replies_when_the_tokens_are_used_up(
    tokens: int, answer: str, *, flagged: bool
) -> None:
    replies = iter([LEVEL, OTHER, "a third one"])
    guest = Guest(limits(tokens=tokens), TestModel(lambda _: next(replies)))
    assert guest.chats("Build.", n=2).chats("Build.").answers(answer) == answer
    assert guest.kinds() == (["altered-answer"] if flagged else [])


def test_a_reply_is_invented_unless_it_came_before_and_is_flagged_once():
    guest = Guest()
    later = f"reply to 3 messages with seed {SEED}"
    guest.chats("1").chats("1", later, "2").chats("1", SAID, "2").chats("1", later, "2").chats("1", "no", "2")
    guest.chats("1", "no", "2").answers(SAID)
    details = [f"the model never said in this trial: {text!r}" for text in (later, "no")]
    assert guest.broker.flags == tuple(Flag("invented-reply", detail) for detail in details)
    assert [exchange.repeats for exchange in guest.broker.exchanges] == [0, 1, 1, 1, 1, 3]  # what is not recorded again


def test_flags_and_reasons_are_few_and_short():
    guest = Guest()
    for number in range(MAX_FLAGS + 2):
        guest.says(op="contact", text=f"tried to reach {number}.org\n" + "x" * 400)
    with pytest.raises(TrialFailed) as caught:
        guest.says(op="failure", text="KeyError:\x1b[31m 'x'\n\r" + "y" * 10**4).broker.serve()
    assert guest.kinds() == ["other-host"] * MAX_FLAGS
    assert caught.value.failure.detail.startswith("KeyError: [31m 'x' yyy")
    for text in (caught.value.failure.detail, *(flag.detail for flag in guest.broker.flags)):
        assert len(text) <= 300
        assert text.isprintable()


FINE = {"role": "user", "content": "fine"}
NO_MESSAGES = [None, "Build.", [], ["Build."], [{"role": "user"}], [{"content": "x"}], [FINE, 5]]
NO_MESSAGES += [[{"role": role, "content": "x"}] for role in ("tool", ["user"])]
NO_MESSAGES += [[{"role": "user", "content": content}] for content in (None, [], [{"type": "image_url", "text": "x"}])]
NO_CALLS = [*((messages, 1) for messages in NO_MESSAGES), *(([FINE], n) for n in (0, MAX_REPLIES + 1, 1.0, True))]


@pytest.mark.parametrize(("messages", "n"), NO_CALLS)
def test_a_call_that_is_none_is_refused_and_costs_nothing(messages, n):
    guest = Guest()
    guest.says(op="chat", id=1, messages=messages, n=n).answers()
    (refusal,) = guest.replies()
    assert refusal["refused"] == "ValueError"
    assert guest.broker.exchanges == ()


# the pipe


@pytest.mark.parametrize(
    "content",
    [
        *(b"\xff\xfe{}", b"[" * 100_000, b'{"op":' * 10_000, b'{"op": "chat", "messages": []}'),
        b'{"op": "answer", "text": null}',
        b'{"op": "chat", "id": 1, "messages": 1, "n": ' + b"9" * 5000 + b"}",
        b'{"op": "answer", "text": "x"} {"op": "answer", "text": "y"}',
    ],
)
def test_what_is_no_message_of_the_interface_fails_the_trial(content):
    guest = Guest()
    with pytest.raises(TrialFailed, match="no message of the interface"):
        guest.writes(content + b"\n").broker.serve()


ANY_JSON = st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists)
ANY_MESSAGE = st.dictionaries(st.sampled_from(["op", "id", "text", "messages", "n"]), st.just("chat") | ANY_JSON)


@given(st.binary(max_size=200) | (ANY_JSON | ANY_MESSAGE).map(lambda value: json.dumps(value).encode() + b"\n"))
def test_no_bytes_do_more_than_fail_the_trial(content):
    guest = Guest().writes(content)
    guest.pipe.close_guest_end()
    with pytest.raises((TrialFailed, PipeClosed)):
        guest.broker.serve()


def test_messages_may_come_in_pieces_and_together_and_their_text_fits_into_files():
    guest = Guest()
    content = b'{"op": "contact", "text": "here"}\n{"op": "answer", "text": "a\\ud800\xc3\xbc"}\n'
    sender = threading.Thread(target=lambda: [guest.writes(content[at : at + 1]) for at in range(len(content))])
    sender.start()
    assert guest.broker.serve() == "a\ufffd\u00fc"
    sender.join()


def test_what_a_program_said_before_it_ended_counts_though_it_takes_no_reply():
    guest = Guest().chats("Build.").says(op="contact", text="x").writes(b'{"op": "answer", "te')
    guest.pipe.close_guest_end()
    with pytest.raises(PipeClosed):
        guest.broker.serve()
    assert guest.kinds() == ["other-host"]
    guest = Guest().chats("Build.").says(op="answer", text="mine")
    guest.pipe.close_guest_end()
    assert guest.broker.serve() == "mine"
