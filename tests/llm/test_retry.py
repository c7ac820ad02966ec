"""How calls are retried; the server is a script and the clock is made up."""

from dataclasses import dataclass, field, replace

import pytest

from pcgeval.llm import retry
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, RefusedError, ServerFaultError
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


def model(script, told=None, **policy):
    return ServedModel("toy", script, RetryPolicy(**policy), (told if told is not None else []).append)


def test_pauses_double_and_end_before_the_deadline(clock):
    server = Script("one", [FAULT] * 9)
    with pytest.raises(CallError, match="it stumbled; no usable reply to 6 requests in 500 s"):
        model(server).chat(REQUEST, 500)
    assert clock.slept == [1, 2, 4, 8, 16]
    assert server.asked == 6
    clock.slept.clear()
    with pytest.raises(CallError, match="to 3 requests in 6 s"):
        model(Script("one", [FAULT] * 9)).chat(REQUEST, 6)
    assert clock.slept == [1, 2]


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


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("error", [LlmError("no such model"), CallError("too long")])
def test_what_does_not_pass_is_not_tried_again(error):
    server = Script("one", [error])
    with pytest.raises(type(error), match=str(error)):
        model(server).chat(REQUEST, 500)
    assert server.asked == 1


def test_one_failed_request_is_called_one(clock):
    with pytest.raises(ServerFaultError, match=r"it stumbled; no usable reply to 1 request in 0\.5 s"):
        model(Script("one", [FAULT])).chat(REQUEST, 0.5)
    assert clock.slept == []


@pytest.mark.usefixtures("clock")
def test_a_person_is_told_once_that_a_server_fails_and_once_that_it_answers_again():
    told = []
    asked = model(Script("one", [FAULT, FAULT]), told=told)
    asked.chat(REQUEST, 500)
    asked.chat(REQUEST, 500)
    assert told == ["model toy, server one: it stumbled; trying again", "model toy, server one: answers again"]


def test_the_digest_is_that_of_the_server_in_three_requests(clock):
    assert model(Script("one", lists=[FAULT, FAULT, "e" * 64])).digest() == "e" * 64
    assert clock.slept == [1, 2]
    with pytest.raises(LlmError, match="does not list its models: it stumbled"):
        model(Script("one", lists=[FAULT])).digest()
    with pytest.raises(LlmError, match="Ring the bell"):
        model(Script("one", lists=[DOWN])).digest()
