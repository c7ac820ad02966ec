"""How calls are spread over servers and retried; the servers are scripts and the clock is made up."""

import threading
from dataclasses import dataclass, field, replace

import pytest

from pcgeval.llm import retry
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, RefusedError
from pcgeval.llm.retry import RetryPolicy, ServedModel, TransientError, UnreachableError

REQUEST = ChatRequest("toy", "d" * 64, (), {})
REPLY = ChatReply("Hello", 1, 2, "stop", 0.5)
DOWN = UnreachableError("nobody at home", "Ring the bell")
FAULT = TransientError("it stumbled")


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class Script:
    """A server that does one thing after the other: raises what is an exception, returns the rest; then replies."""

    address: str
    acts: list = field(default_factory=list)
    lists: list = field(default_factory=lambda: ["d" * 64])
    asked: int = 0
    requests: list = field(default_factory=list)

    def digest(self, _):
        return played([], self.lists.pop(0) if len(self.lists) > 1 else self.lists[0])

    def ask(self, request, _):
        self.requests.append(request)
        self.asked += 1
        return played(self.acts, REPLY)


def played(acts, otherwise):
    act = acts.pop(0) if acts else otherwise
    if isinstance(act, BaseException):
        raise act
    return act


@pytest.fixture
def clock(monkeypatch):
    made_up = Clock()
    monkeypatch.setattr(retry, "time", made_up)
    return made_up


def model(*scripts, told=None, **policy):
    return ServedModel("toy", scripts, RetryPolicy(**policy), (told if told is not None else []).append)


def test_pauses_double_and_end_before_the_deadline(clock):
    server = Script("one", [FAULT] * 9)
    with pytest.raises(CallError, match="it stumbled; no usable reply within 500 s and 6 requests"):
        model(server).chat(REQUEST, 500)
    assert clock.slept == [1, 2, 4, 8, 16]
    assert server.asked == 6
    clock.slept.clear()
    with pytest.raises(CallError, match="within 6 s"):
        model(Script("one", [FAULT] * 9)).chat(REQUEST, 6)
    assert clock.slept == [1, 2]


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_a_call_is_six_requests_at_most_whatever_the_number_of_servers(clock, servers):
    scripts = [Script(str(number), [FAULT] * 9) for number in range(servers)]
    with pytest.raises(CallError, match="it stumbled"):
        model(*scripts).chat(REQUEST, 500)
    assert sum(script.asked for script in scripts) == 6
    assert clock.slept == ([1, 2, 4, 8, 16] if servers == 1 else [1, 2])  # once all, or two of more, have failed


@pytest.mark.parametrize("servers", [1, 2, 3, 6])
def test_an_outage_of_all_servers_is_waited_for_whatever_their_number(clock, servers):
    scripts = [Script(str(number)) for number in range(servers)]
    up_again = clock.now + 1.5

    def ask(*_):
        if clock.now < up_again:
            raise FAULT
        return REPLY

    for script in scripts:
        script.ask = ask
    assert model(*scripts).chat(REQUEST, 500) is REPLY


def test_servers_that_ask_for_a_long_wait_do_not_keep_a_call_from_the_next_one(clock):
    busy = [Script(name, [TransientError("busy", 400)]) for name in "ab"]
    assert model(*busy, Script("free")).chat(REQUEST, 500) is REPLY
    assert clock.slept == [1]


REFUSED = RefusedError("no response_format")
OPTIONAL = replace(REQUEST, schema={"type": "object"}, schema_required=False)


@pytest.mark.usefixtures("clock")
def test_a_server_that_refuses_schemas_is_asked_without_an_optional_one():
    server = Script("one", [FAULT, REFUSED, FAULT])
    asked = model(server)
    assert asked.chat(OPTIONAL, 500) is asked.chat(OPTIONAL, 500) is REPLY
    assert [request.schema is None for request in server.requests] == [False, False, True, True, True]
    with pytest.raises(RefusedError, match="may not support JSON schemas"):
        model(Script("one", [REFUSED])).chat(replace(OPTIONAL, schema_required=True), 500)


@pytest.mark.usefixtures("clock")
def test_a_request_that_is_refused_with_and_without_a_schema_says_nothing_about_schemas():
    server = Script("one", [REFUSED, REFUSED])
    asked = model(server)
    with pytest.raises(RefusedError, match=r"no response_format$"):
        asked.chat(OPTIONAL, 500)
    asked.chat(OPTIONAL, 500)
    assert [request.schema is None for request in server.requests] == [False, True, False]


@pytest.mark.usefixtures("clock")
def test_the_requests_without_a_schema_count_too():
    server = Script("one", [FAULT, FAULT, REFUSED, *[FAULT] * 9])
    with pytest.raises(CallError, match="it stumbled"):
        model(server).chat(OPTIONAL, 500)
    assert server.asked == 6


@pytest.mark.parametrize(("wait", "slept"), [(0.2, [1.0]), (30, [30])])
def test_the_wait_that_a_server_asks_for_is_kept(clock, wait, slept):
    assert model(Script("one", [TransientError("busy", wait)])).chat(REQUEST, 500) is REPLY
    assert clock.slept == slept


def test_a_wait_beyond_the_deadline_is_not_begun(clock):
    with pytest.raises(CallError, match="busy"):
        model(Script("one", [TransientError("busy", 500)])).chat(REQUEST, 500)
    assert clock.slept == []


def test_a_server_that_is_gone_stops_the_run_and_one_that_fails_does_not(clock):
    with pytest.raises(LlmError, match=r"nobody at home\. Ring the bell"):
        model(Script("one", [DOWN] * 9)).chat(REQUEST, 500)
    with pytest.raises(CallError, match="it stumbled"):
        model(Script("one", [DOWN] * 5 + [FAULT] * 4)).chat(REQUEST, 500)
    assert clock.slept[:5] == [1, 2, 4, 8, 16]


def test_no_further_server_is_tried_when_time_is_up(clock):
    late, idle = Script("late"), Script("idle")

    def ask(*_):
        clock.now += 500
        raise FAULT

    late.ask = ask
    with pytest.raises(CallError, match="it stumbled"):
        model(late, idle).chat(REQUEST, 500)
    assert idle.asked == 0


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("error", [LlmError("no such model"), CallError("too long")])
def test_what_does_not_pass_is_not_tried_again(error):
    one, two = Script("one", [error]), Script("two")
    with pytest.raises(type(error), match=str(error)):
        model(one, two).chat(REQUEST, 500)
    assert (one.asked, two.asked) == (1, 0)


def test_calls_go_round(clock):
    scripts = [Script(name) for name in "abc"]
    asked = model(*scripts)
    for _ in range(9):
        asked.chat(REQUEST, 500)
    assert [script.asked for script in scripts] == [3, 3, 3]
    assert clock.slept == []


def test_the_least_busy_server_is_asked():
    gate, inside = threading.Event(), threading.Semaphore(0)
    slow, quick = Script("slow"), Script("quick")

    def wait_inside(*_):
        slow.asked += 1
        inside.release()
        gate.wait(60)
        return REPLY

    slow.ask = wait_inside
    asked = model(slow, quick)
    first = threading.Thread(target=asked.chat, args=(REQUEST, 500))
    first.start()
    inside.acquire()
    for _ in range(5):
        asked.chat(REQUEST, 500)
    gate.set()
    first.join()
    assert (slow.asked, quick.asked) == (1, 5)


def test_a_server_that_is_down_is_left_out_and_tried_again_later(clock):
    told = []
    up, down = Script("up"), Script("down", [DOWN, DOWN])
    asked = model(down, up, told=told, rest=15.0)
    for _ in range(10):
        assert asked.chat(REQUEST, 500) is REPLY
    assert (down.asked, up.asked) == (1, 10)
    assert told == ["model toy, server down: nobody at home; the others go on without it"]
    clock.now += 16
    asked.chat(REQUEST, 500)
    assert down.asked == 2  # still down: it rests twice as long now, and nobody is told again
    clock.now += 16
    asked.chat(REQUEST, 500)
    assert (down.asked, len(told)) == (2, 1)
    clock.now += 15
    asked.chat(REQUEST, 500)
    assert down.asked == 3
    assert told[1:] == ["model toy, server down: answers again"]
    assert clock.slept == []  # no call had to wait


def test_a_server_that_fails_every_call_is_left_out_too(clock):
    bad, good = Script("bad", [FAULT] * 99), Script("good")
    asked = model(bad, good)
    for _ in range(20):
        assert asked.chat(REQUEST, 500) is REPLY
    assert (bad.asked, good.asked) == (3, 20)
    assert clock.slept == []


def test_a_call_that_runs_out_of_time_is_nobody_s_fault(clock):
    told = []
    slow = Script("slow")

    def ask(*_):
        slow.asked += 1
        clock.now += 500
        raise FAULT

    slow.ask = ask
    asked = model(slow, Script("other"), told=told)
    for _ in range(4):
        with pytest.raises(CallError):
            asked.chat(REQUEST, 500)
        asked.chat(REQUEST, 500)
    assert (slow.asked, told) == (4, [])


def test_when_all_are_down_they_are_tried_in_turn(clock):
    one, two = Script("one", [DOWN] * 2), Script("two", [DOWN] * 99)
    asked = model(one, two)
    assert asked.chat(REQUEST, 500) is REPLY
    assert one.asked == 3
    assert clock.slept == [1, 2]
    with pytest.raises(LlmError, match="nobody at home"):
        model(Script("one", [DOWN] * 99), Script("two", [DOWN] * 99)).chat(REQUEST, 500)


def test_the_digest_is_that_of_the_servers_that_answer(clock):
    told = []
    down = Script("down", lists=[DOWN])
    assert model(down, Script("up"), told=told).digest() == "d" * 64
    assert told == ["model toy, server down: nobody at home; the others go on without it"]
    assert clock.slept == [1, 2]
    with pytest.raises(LlmError, match=r"nobody at home\. Ring the bell"):
        model(down, down).digest()
    with pytest.raises(LlmError, match="the server at one does not list its models: it stumbled"):
        model(Script("one", lists=[FAULT])).digest()
    assert model(Script("one", lists=[FAULT, FAULT, "d" * 64])).digest() == "d" * 64
    with pytest.raises(LlmError, match="one has aa, two has bb"):
        model(Script("one", lists=["aa"]), Script("two", lists=["bb"])).digest()


@pytest.mark.usefixtures("clock")
def test_many_threads_count_every_call_back():
    scripts = [Script(name, [FAULT, DOWN] * 5) for name in "abc"]
    asked = model(*scripts, requests=50)
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(asked.chat(REQUEST, 10**9))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [REPLY] * 40
    assert [host.calls for host in asked._hosts] == [0, 0, 0]
