"""Faults that both HTTP backends bear: each test asks a scripted server as a client of Ollama's and of OpenAI's API."""

import json
import os
from dataclasses import dataclass, replace

import pytest
from faulty_server import (
    CHUNKS,
    LAST_CHUNKS,
    LINES,
    WHOLE_LINE,
    Act,
    FaultyServer,
    broken_off,
    chunk,
    completion,
    endless,
    events,
    headless,
    line,
    lines,
    silent,
    stalled,
    status,
    unused_address,
    value,
)

from pcgeval.core.params import Model
from pcgeval.llm import server as module
from pcgeval.llm.backends import open_backend
from pcgeval.llm.protocol import (
    CallError,
    ChatRequest,
    LlmError,
    Message,
    RefusedError,
    ServerFaultError,
    unpinned_digest,
)

DIGEST = "ab" * 32
MESSAGES = (Message("system", "Be brief."), Message("user", "Hi"))


@dataclass(frozen=True)
class Interface:
    """How one interface is asked and how it answers."""

    backend: str
    digest: str
    good: Act  # "Hello", streamed
    whole: Act  # the same, not streamed
    begun: str  # the first part of a stream
    listing: Act
    faults: dict[str, Act]  # transient ones that only this interface knows

    def open(self, address, told=None, **how):
        place = {"host": address} if self.backend == "ollama" else {"base_url": f"{address}/v1"}
        return open_backend(
            Model(backend=self.backend, name="toy", **place, **how), report=(told if told is not None else []).append
        )

    @property
    def request(self):
        return ChatRequest("toy", self.digest, MESSAGES, {"temperature": 1, "seed": 5})


OLLAMA = Interface(
    backend="ollama",
    digest=DIGEST,
    good=LINES,
    whole=lines(WHOLE_LINE),
    begun=json.dumps(line("Hel")) + "\n",
    listing=lines({"models": [{"model": "toy:latest", "digest": DIGEST}]}),
    faults={
        "error in the stream": lines(line("Hel"), {"error": "the runner died"}),
        "an error that is no text": lines({"error": {"code": 1}}),
        "ended without its end": lines(line("Hel")),
        "no JSON": lines("<html>"),
        "an array": lines([1, 2]),
        "a number": lines(7),
        "another shape": lines({"message": "Hello", "done": True}),
        "deeply nested": lines("[" * 200_000),
    },
)
OPENAI = Interface(
    backend="openai",
    digest=unpinned_digest("toy"),
    good=CHUNKS,
    whole=completion(),
    begun=f"data: {json.dumps(chunk('Hel'))}\n\n",
    listing=value({"object": "list", "data": [{"id": "toy"}, {"id": "other"}]}),
    faults={
        "error in the stream": events(chunk("Hel"), {"error": {"message": "the engine died"}}),
        "an error that is no text": events({"error": 7}),
        "ended without its end": events(chunk("Hel")),
        "no JSON": events("<html>"),
        "a page": lines("<html>"),
        "an array": events([1, 2]),
        "a number": events(7),
        "another shape": events({"choices": "Hello"}),
        "no choices": value({"choices": []}),
        "no delta": events({"choices": [{"index": 0}]}),
        "text that is none": events(chunk(7), *LAST_CHUNKS),
        "deeply nested": events("[" * 200_000),
    },
)
INTERFACES = {"ollama": OLLAMA, "openai": OPENAI}
FAULTS = {
    "500": lambda _: status(500),
    "429 with an odd wait": lambda _: status(429, Retry_After="Fri, 99 Foo 20000 99:99:99 GMT"),
    "429 with a negative wait": lambda _: status(429, Retry_After="-5"),
    "nothing at all": lambda _: lines(),
    "broken off": lambda api: broken_off(api.begun),
    "stalled": lambda api: stalled(api.begun),
    "compressed": lambda _: status(200, "", Content_Encoding="gzip"),
}
EACH_FAULT = [(api, fault) for api in INTERFACES for fault in (*FAULTS, *INTERFACES[api].faults)]
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("OPENAI", "OLLAMA"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr(module, "SILENCE", 0.3)
    monkeypatch.setattr(module, "REPLY_LIMIT", 2**20)


@pytest.fixture
def slept(monkeypatch):
    """The pauses, on a clock that only they move."""

    class Clock(list):
        sleep = list.append

        def monotonic(self):
            return sum(self)

    clock = Clock()
    monkeypatch.setattr(module, "PAUSE", 1.0)
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture(params=INTERFACES)
def api(request):
    if request.param == "openai":
        pytest.importorskip("openai", reason="the extra openai is not installed")
    return INTERFACES[request.param]


def chat(api, *acts, timeout=20.0, request=None, **how):
    """Ask a server that plays the acts; return the reply and the number of requests, or raise."""
    with FaultyServer(acts, [api.listing]) as server:
        reply = api.open(server.address, **how).chat(request or api.request, timeout)
        return reply, len(server.posted)


def failure(api, *acts, timeout=20.0, kind=CallError, **how):
    """Return the message of the error that the acts lead to, and the number of requests."""
    with FaultyServer(acts, [api.listing]) as server:
        with pytest.raises(kind) as caught:
            api.open(server.address, **how).chat(api.request, timeout)
        return str(caught.value), len(server.posted)


@BOTH_WAYS
def test_a_reply_is_read_with_its_costs_over_one_connection(api, stream):
    clients = set()

    def answer(player):
        clients.add(player.client_address)
        (api.good if stream else api.whole)(player)

    with FaultyServer([answer]) as server:
        backend = api.open(server.address, stream=stream)
        replies = [backend.chat(api.request, 20) for _ in range(3)]
    for reply in replies:
        assert (reply.text, reply.prompt_tokens, reply.output_tokens, reply.done_reason) == ("Hello", 12, 3, "stop")
    assert (len(server.posted), len(clients)) == (3, 1)


@pytest.mark.parametrize(("name", "fault"), EACH_FAULT)
def test_a_transient_error_is_retried(name, fault):
    api = INTERFACES[name]
    act = api.faults[fault] if fault in api.faults else FAULTS[fault](api)
    reply, requests = chat(api, act, api.good)
    assert (reply.text, requests) == ("Hello", 2)


@pytest.mark.parametrize("fault", ["500", "broken off", "compressed"])
def test_pauses_double_and_end_before_the_deadline(api, slept, fault):
    for seconds, pauses in ((500, [1, 2, 4, 8, 16]), (6, [1, 2]), (0.5, [])):
        slept.clear()
        message, requests = failure(api, FAULTS[fault](api), timeout=seconds)
        assert message.startswith("model toy: ")
        assert f"{requests} request{'s' * (requests > 1)} in {seconds} s" in message
        assert (requests, slept) == (len(pauses) + 1, pauses)


def test_a_wait_that_the_server_asks_for_is_waited_if_there_is_time(api, slept):
    for seconds, pause in (("0", 1), ("30", 30)):
        slept.clear()
        assert chat(api, status(429, Retry_After=seconds), api.good, timeout=500)[0].text == "Hello"
        assert slept == [pause]
    slept.clear()
    message, requests = failure(api, status(503, Retry_After="3600"), timeout=500)
    assert "wait 3600 s" in message
    assert (requests, slept) == (1, [])


def test_a_person_is_told_once_that_a_server_fails_and_once_that_it_answers_again(api):
    told = []
    with FaultyServer([status(500), status(500), api.good]) as server:
        backend = api.open(server.address, told)
        for _ in range(2):
            backend.chat(api.request, 20)
    assert ["trying again" in told[0], "answers again" in told[1], len(told)] == [True, True, 2]


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_refused_request_is_not_repeated(api, code):
    message, requests = failure(api, status(code, '{"error": "the context is too small"}'), kind=RefusedError)
    assert f"{code}: " in message
    assert "the context is too small" in message
    assert requests == 1


@BOTH_WAYS
def test_a_server_that_refuses_schemas_is_asked_without(api, stream):
    asked = replace(api.request, schema={"type": "object"})
    good = api.good if stream else api.whole
    acts = [good, status(400), status(400, "no such option"), status(400, "no grammar"), status(500), good]
    with FaultyServer(acts, [api.listing]) as server:
        backend = api.open(server.address, stream=stream)
        assert backend.chat(asked, 20).text == "Hello"
        with pytest.raises(RefusedError, match="no such option"):  # with and without: the schema is not at fault
            backend.chat(asked, 20)
        assert {backend.chat(asked, 20).text for _ in range(2)} == {"Hello"}
    with_schema = ["object" in json.dumps(body) for _, body, _ in server.posted]
    assert with_schema == [True, True, False, True, False, False, False]


@pytest.mark.parametrize("act", [silent(), endless(b"x", 0.02), headless()], ids=["silent", "dripping", "headless"])
@BOTH_WAYS
def test_the_deadline_ends_a_call_that_would_not_end(api, act, stream):
    assert "0.4 s" in failure(api, act, timeout=0.4, kind=ServerFaultError, stream=stream)[0]


@pytest.mark.parametrize("piece", [None, b"x" * 65_536, b":\n" * 30_000], ids=["parts", "one line", "comments"])
def test_an_endless_reply_is_cut_off(api, piece):
    if piece is None:
        piece = api.begun.replace("Hel", "x" * 10_000).encode()
    message, requests = failure(api, endless(piece), kind=ServerFaultError)
    assert "1 MB" in message or (piece[:1] == b":" and api is OLLAMA)
    assert requests == 1 or api is OLLAMA


@BOTH_WAYS
def test_no_server_says_how_to_start_one(api, stream):
    address = unused_address()
    backend = api.open(address, stream=stream)
    for call in (backend.digest, lambda: backend.chat(api.request, 20)):
        with pytest.raises(LlmError, match=rf"no .* server answers at {address}.*\(.+\).*params\.yaml"):
            call()


@pytest.mark.parametrize(
    ("code", "words"), [(401, "API_KEY"), (403, "refuses access"), (402, "paid"), (404, "toy is not")]
)
def test_what_concerns_all_calls_stops_the_run(api, code, words):
    assert words in failure(api, status(code), kind=LlmError)[0]


@pytest.mark.parametrize(
    "act",
    [status(500), lines("<html>"), value({"data": 7, "models": 7}), status(401), endless(b"[" * 65_536)],
    ids=["failing", "a page", "another shape", "refusing", "endless"],
)
def test_a_server_that_cannot_list_its_models_stops_the_run(api, act):
    with FaultyServer([], [act]) as server, pytest.raises(LlmError, match="http"):
        api.open(server.address).digest()
    assert len(server.got) <= 3
    with FaultyServer([], [status(503), api.listing]) as server:
        assert api.open(server.address).digest() == api.digest


@pytest.mark.parametrize(("read", "written"), [(None, None), (3, None), (-1, 2)])
def test_a_reply_without_its_costs_fails_a_trial_and_is_estimated_for_a_judge(api, read, written):
    if api is OLLAMA:
        act = lines({**WHOLE_LINE, "prompt_eval_count": read, "eval_count": written})
    else:
        act = completion(usage=read and {"prompt_tokens": read, "completion_tokens": written})
    assert "token limit cannot be kept" in failure(api, act)[0]
    reply, _ = chat(api, act, request=replace(api.request, adaptable=True))
    assert (reply.prompt_tokens, reply.output_tokens, reply.estimated) == (4, 2, True)
