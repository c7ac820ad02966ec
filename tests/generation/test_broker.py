"""The rules of a trial, with the program's messages written by the test and no process at all."""

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_trials import SEED, TestModel, echo, limits, reply, trial_job

from pcgeval.core.params import Limits
from pcgeval.core.trials import Flag
from pcgeval.generation import broker as broker_module
from pcgeval.generation.broker import MAX_FLAGS, MAX_REPLIES, Broker, TrialFailed, conversation, reply_count
from pcgeval.generation.pipe import Pipe, PipeClosed, ProtocolViolation
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Message


class Guest:
    """The program's side: its messages are written before the broker serves, the replies read after."""

    def __init__(self, model: TestModel, rules: Limits) -> None:
        self.pipe = Pipe()
        self.broker = Broker(trial_job(), model, rules, self.pipe)

    def says(self, **values: object) -> "Guest":
        os.write(self.pipe.guest_ends[0], json.dumps(values).encode() + b"\n")
        return self

    def chats(self, *contents: str, n: object = 1) -> "Guest":
        """Call the model with user and assistant messages in turns."""
        roles = ("user", "assistant")
        messages = [{"role": roles[turn % 2], "content": content} for turn, content in enumerate(contents)]
        return self.says(op="chat", messages=messages, n=n)

    def answers(self, text: str) -> str:
        return self.says(op="answer", text=text).broker.serve()

    def replies(self) -> list[dict[str, Any]]:
        os.set_blocking(self.pipe.guest_ends[1], False)
        return [json.loads(line) for line in os.read(self.pipe.guest_ends[1], 10**6).splitlines()]


@pytest.fixture
def model() -> TestModel:
    return TestModel(echo)


@pytest.fixture
def guest(model: TestModel) -> Iterator[Guest]:
    guest = Guest(model, limits())
    with guest.pipe:
        yield guest


def test_a_call_is_answered_and_recorded(guest: Guest, model: TestModel) -> None:
    said = f"reply to 1 messages with seed {SEED}"
    assert guest.chats("Build K.").answers(said) == said
    assert guest.replies() == [{"texts": [said], "prompt_tokens": 3, "output_tokens": 4}]
    (exchange,) = guest.broker.exchanges
    assert exchange.messages == (Message("user", "Build K."),)
    assert exchange.key == model.requests[0].key
    assert exchange.reply == reply(said)
    assert guest.broker.flags == ()


def test_the_competition_decides_the_model_and_the_options(guest: Guest, model: TestModel) -> None:
    guest.chats("Build K.").answers("")
    assert model.requests == [
        ChatRequest(
            "test-model", "d" * 64, (Message("user", "Build K."),), {"temperature": 1, "num_ctx": 4096, "seed": SEED}
        )
    ]


def test_each_reply_to_the_same_conversation_has_a_seed_of_its_own_be_it_to_one_call_or_to_several(
    model: TestModel,
) -> None:
    guests = []
    for counts in ([1, 1, 3], [5], [1] * 5):
        guest = Guest(model, limits())
        with guest.pipe:
            for n in counts:
                guest.chats("Build.", n=n).chats("Something else.")
            guest.answers("")
            guests.append(guest.replies())
    seeds = [request.options["seed"] for request in model.requests if request.messages[0].content == "Build."]
    assert seeds[:5] == seeds[5:10] == seeds[10:]
    assert seeds[0] == SEED
    assert len(set(seeds[:5])) == 5
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert (guests[0][4]["prompt_tokens"], guests[0][4]["output_tokens"]) == (9, 12)


# limits


@pytest.mark.parametrize(("limit", "answered"), [(13, 1), (14, 2), (20, 2), (21, 3)])
def test_a_call_over_the_tokens_is_refused_and_so_is_every_later_one(limit: int, answered: int) -> None:
    model = TestModel(echo)
    guest = Guest(model, limits(tokens=limit))
    with guest.pipe:
        for _ in range(answered + 3):
            guest.chats("Build.")
        guest.answers("what I have")
        replies = guest.replies()
    why = f"used {7 * (answered + 1)} tokens; the limit is {limit}"
    assert ["texts" in each for each in replies] == [True] * answered + [False] * 3
    assert replies[answered] == {"refused": "ValueError", "why": why, "prompt_tokens": 3, "output_tokens": 4}
    assert replies[-1] == {"refused": "ValueError", "why": why, "prompt_tokens": 0, "output_tokens": 0}
    assert len(model.requests) == answered + 1  # that one is over it; no later one is made
    assert len(guest.broker.exchanges) == answered + 1


def test_several_replies_end_at_the_tokens() -> None:
    model = TestModel(echo)
    guest = Guest(model, limits(tokens=20))
    with guest.pipe:
        guest.chats("Build.", n=100).answers("")
        assert guest.replies()[0]["refused"] == "ValueError"
    assert len(model.requests) == 3


def test_replayed_seconds_count() -> None:
    """A reply that took 20 s when the model was asked takes 20 s of the trial when it is replayed at once."""
    model = TestModel(lambda _: reply("slow", seconds=20))
    guest = Guest(model, limits(seconds=50, call_seconds=30))
    with guest.pipe:
        guest.chats("1").chats("2").chats("3").chats("4").answers("what I have")
        replies = guest.replies()
    assert [each.get("refused") for each in replies] == [None, None, None, "TimeoutError"]  # the third ends late
    assert replies[-1]["why"] == "took more than 50 s"
    assert len(model.requests) == 3
    assert [round(timeout) for timeout in model.timeouts] == [80, 60, 40]


def test_a_replayed_reply_that_would_not_have_ended_in_time_fails_the_trial() -> None:
    guest = Guest(TestModel(lambda _: reply("slow", seconds=20)), limits(seconds=50, call_seconds=9))
    with guest.pipe, pytest.raises(TrialFailed, match="took more than 50 s and did not end in the 9 s"):
        guest.chats("1").chats("2").chats("3").answers("what I have")


def test_what_one_call_wants_is_asked_to_its_end() -> None:
    guest = Guest(TestModel(lambda _: reply("slow", seconds=20)), limits(seconds=50, call_seconds=50))
    with guest.pipe:
        guest.chats("1", n=4).chats("1").answers("what I have")
        first, second = guest.replies()
    assert len(first["texts"]) == 4
    assert second["refused"] == "TimeoutError"


def test_a_program_that_asks_for_nothing_may_hand_in_after_the_limit(model: TestModel) -> None:
    guest = Guest(model, limits(seconds=0.01, call_seconds=30))
    with guest.pipe:
        time.sleep(0.02)
        assert guest.answers("late") == "late"


def test_a_slow_reply_counts_once() -> None:
    def slow(_: ChatRequest) -> ChatReply:
        time.sleep(0.1)
        return reply("slow", seconds=0.1)

    model = TestModel(slow)
    guest = Guest(model, limits(seconds=50))
    with guest.pipe:
        guest.chats("1").chats("2").answers("")
    assert 49.8 < model.timeouts[1] < 49.901


def test_a_program_that_says_nothing_runs_out_of_time(model: TestModel) -> None:
    guest = Guest(model, limits(seconds=0.05))
    with guest.pipe, pytest.raises(TrialFailed, match=r"^took more than 0\.05 s and did not end in the 0 s"):
        guest.broker.serve()


def test_a_program_that_was_told_has_a_moment_for_its_last_words_but_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "LAST_WORDS_SECONDS", 0.05)
    guest = Guest(TestModel(lambda _: reply("slow", seconds=99)), limits(seconds=50, call_seconds=49.05))
    with guest.pipe, pytest.raises(TrialFailed, match=r"^took more than 50 s"):
        guest.chats("1").broker.serve()


def test_replies_that_are_never_read_end_the_trial_in_time() -> None:
    model = TestModel(lambda _: "x" * 1_000_000)
    guest = Guest(model, limits(seconds=0.2))
    with guest.pipe, pytest.raises(TrialFailed, match="took more than"):
        guest.chats("Build.").broker.serve()


def test_the_limit_is_the_reason_when_the_program_fails_on_it() -> None:
    guest = Guest(TestModel(echo), limits(tokens=5))
    with guest.pipe, pytest.raises(TrialFailed, match=r"^used 7 tokens; the limit is 5$"):
        guest.chats("Build.").says(op="failure", text="ValueError: anything").broker.serve()


# failures


def test_a_failed_call_is_a_failed_trial() -> None:
    def broken(_: ChatRequest) -> str:
        raise CallError("the stream broke off")

    guest = Guest(TestModel(broken), limits())
    with guest.pipe, pytest.raises(TrialFailed, match=r"^the stream broke off$"):
        guest.chats("Build.").broker.serve()


def test_a_backend_that_cannot_serve_stops_the_run() -> None:
    def gone(_: ChatRequest) -> str:
        raise LlmError("no server")

    guest = Guest(TestModel(gone), limits())
    with guest.pipe, pytest.raises(LlmError, match="no server"):
        guest.chats("Build.").broker.serve()


def test_the_programs_failure_is_the_reason_on_one_line(guest: Guest) -> None:
    with pytest.raises(TrialFailed) as caught:
        guest.says(op="failure", text="KeyError:\x1b[31m 'x'\n\r" + "y" * 10**4).broker.serve()
    assert str(caught.value).startswith("KeyError: [31m 'x' yyy")
    assert len(str(caught.value)) == 300
    assert str(caught.value).isprintable()


def test_a_closed_pipe_and_nonsense_pass_through(guest: Guest) -> None:
    os.write(guest.pipe.guest_ends[0], b"nonsense\n")
    with pytest.raises(ProtocolViolation):
        guest.broker.serve()
    guest.pipe.close_guest_ends()
    with pytest.raises(PipeClosed):
        guest.broker.serve()


# flags


def kinds(guest: Guest) -> list[str]:
    return [flag.kind for flag in guest.broker.flags]


@pytest.mark.parametrize(
    ("answer", "flagged"),
    [
        ("```\ndrop_block('b11', 3)\n```", False),
        ("  ```\r\ndrop_block('b11', 3)\n```\n", False),  # the same word for word
        ("```\ndrop_block('b11',\n3)\n```", True),  # in a call, white space decides whether it is extracted
        ("", False),
        ("```\ndrop_block('b11', 4)\n```", True),
        ("drop_block('b11', 3)", True),
        ("Sure.\n```\ndrop_block('b11', 3)\n```", True),
    ],
)
def test_an_altered_answer_is_flagged(answer: str, *, flagged: bool) -> None:
    guest = Guest(TestModel(lambda _: "```\ndrop_block('b11', 3)\n```"), limits())
    with guest.pipe:
        assert guest.chats("Build.").answers(answer) == answer
    assert kinds(guest) == (["altered-answer"] if flagged else [])


def test_an_answer_without_a_call_is_flagged(guest: Guest) -> None:
    guest.answers("made up")
    assert guest.broker.flags == (
        Flag("altered-answer", "the model gave no reply in this trial; the answer: 'made up'"),
    )


def test_a_reply_that_the_program_never_got_is_none_of_its_own(model: TestModel) -> None:
    """Every reply to a call of several is the model's, whichever of them the program hands in."""
    second = trial_job().request(repetition=1).options["seed"]
    guest = Guest(model, limits())
    with guest.pipe:
        guest.chats("Build.", n=2).answers(f"reply to 1 messages with seed {second}")
    assert kinds(guest) == []


LEVEL = "drop_block('b31', 7)\ndrop_block('b13', 7)\ndrop_block('b31', 7)"


@pytest.mark.parametrize(
    ("joined", "flagged"),
    [("{0}\n{1}", False), ("{1}", False), ("{0}{1}", False), ("{1}\n{0}", True), ("{0}\n{1}\nmine", True)],
)
def test_replies_joined_when_the_tokens_are_used_up_are_the_models(joined: str, *, flagged: bool) -> None:
    said = [f"drop_block('b{n}1', {n})" for n in (1, 2, 3)]
    guest = Guest(TestModel(lambda request: said[len(request.messages) // 2]), limits(tokens=20))  # three replies: 21
    with guest.pipe:
        guest.chats("a").chats("a", said[0], "b").chats("a", said[0], "b", said[1], "c").answers(joined.format(*said))
    assert kinds(guest) == (["altered-answer"] if flagged else [])


def test_replies_joined_without_need_are_flagged() -> None:
    guest = Guest(TestModel(lambda request: f"drop_block('b11', {len(request.messages)})"), limits())
    with guest.pipe:
        guest.chats("a").chats("a", "drop_block('b11', 1)", "b")
        guest.answers("drop_block('b11', 1)\ndrop_block('b11', 3)")
    assert kinds(guest) == ["altered-answer"]


def test_an_invented_reply_is_flagged_once(guest: Guest) -> None:
    said = f"reply to 1 messages with seed {SEED}"
    guest.chats("1").chats("1", said, "2").chats("1", "never", "2").chats("1", "never", "2").answers(said)
    assert guest.broker.flags == (Flag("invented-reply", "the model never said in this trial: 'never'"),)


def test_what_the_model_says_later_was_invented_before(guest: Guest) -> None:
    guest.chats("1", f"reply to 3 messages with seed {SEED}", "2").answers("")
    assert kinds(guest) == ["invented-reply"]


def test_flags_are_few_and_short(guest: Guest) -> None:
    for number in range(MAX_FLAGS + 2):
        guest.says(op="contact", text=f"tried to reach {number}.org\n" + "x" * 400)
    guest.answers("")
    assert kinds(guest) == ["other-host"] * MAX_FLAGS
    assert all(len(flag.detail) <= 300 and flag.detail.isprintable() for flag in guest.broker.flags)


# conversations

MESSAGES = [
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": ""}], ["Be brief.", ""]),
    ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], ["ab"]),
    ([{"role": "user", "content": "a\ud800", "name": "x", "tokens": 0}], ["a\ufffd"]),
]
NO_MESSAGES: list[object] = [
    None,
    "Build.",
    {},
    [],
    [None],
    ["Build."],
    [[]],
    [{"role": "user"}],
    [{"content": "x"}],
    [{"role": "tool", "content": "x"}],
    [{"role": None, "content": "x"}],
    [{"role": ["user"], "content": "x"}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "content": []}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
    [{"role": "user", "content": [{"type": "text", "text": 1}]}],
    [{"role": "user", "content": ["x"]}],
    [{"role": "user", "content": "fine"}, 5],
]


@pytest.mark.parametrize(("messages", "contents"), MESSAGES)
def test_conversations(messages: object, contents: list[str]) -> None:
    assert [message.content for message in conversation(messages)] == contents


@pytest.mark.parametrize("messages", NO_MESSAGES)
def test_no_conversation_is_told_to_the_program_and_costs_nothing(guest: Guest, messages: object) -> None:
    guest.says(op="chat", messages=messages, n=1).answers("")
    (told,) = guest.replies()
    assert told["refused"] == "ValueError"
    assert guest.broker.exchanges == ()


@pytest.mark.parametrize("n", [0, -1, MAX_REPLIES + 1, 10**30, 1.0, True, None, "1", [1], {}])
def test_n_must_be_a_number_of_replies(guest: Guest, n: object) -> None:
    guest.chats("Build.", n=n).answers("")
    assert guest.replies()[0]["refused"] == "ValueError"
    with pytest.raises(ValueError, match="whole number from 1 to 128"):
        reply_count(n)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text"]) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_any_value_is_a_conversation_or_a_value_error(value: object) -> None:
    try:
        messages = conversation(value)
    except ValueError:
        return
    assert all(isinstance(message, Message) and isinstance(message.content, str) for message in messages)
    assert all(message.role in ("system", "user", "assistant") for message in messages)
