"""Faults that both HTTP backends bear: each test asks a scripted server as a client of Ollama's and of OpenAI's API."""

import asyncio
import json
import os
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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

from pcgeval.llm import http
from pcgeval.llm.ollama import OllamaServer
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, Message, unpinned_digest
from pcgeval.llm.retry import RetryPolicy, ServedModel

DIGEST = "ab" * 32
MESSAGES = (Message("system", "Be brief."), Message("user", "Hi"))
QUICK = RetryPolicy(requests=3, pause=0.01)


@dataclass(frozen=True)
class Interface:
    """How one interface is asked and how it answers."""

    digest: str
    server: Callable[..., Any]
    good: Act  # "Hello", streamed
    whole: Act  # the same, not streamed
    begun: str  # the first part of a stream
    listing: Act
    faults: dict[str, Act]  # transient ones that only this interface knows

    def model(self, address, *, policy=QUICK, **how):
        return ServedModel("toy", self.server(address, **how), policy, lambda _: None)

    @property
    def request(self):
        return ChatRequest("toy", self.digest, MESSAGES, {"temperature": 1, "seed": 5})


def openai_server(address, **how):
    pytest.importorskip("openai", reason="the extra openai is not installed")
    from pcgeval.llm.openai import OpenAiServer

    return OpenAiServer("toy", f"{address}/v1", silence=0.3, **how)


OLLAMA = Interface(
    digest=DIGEST,
    server=lambda address, **how: OllamaServer("toy", address, silence=0.3, **how),
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
    digest=unpinned_digest("toy"),
    server=openai_server,
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
        "no delta": events({"choices": [{"index": 0}]}),
        "text that is none": events(chunk(7), *LAST_CHUNKS),
        "deeply nested": events("[" * 200_000),
    },
)
INTERFACES = {"ollama": OLLAMA, "openai": OPENAI}
FAULTS = {
    "500": lambda _: status(500),
    "503": lambda _: status(503, "busy"),
    "429": lambda _: status(429),
    "429 with an odd wait": lambda _: status(429, Retry_After="Fri, 99 Foo 20000 99:99:99 GMT"),
    "429 with a negative wait": lambda _: status(429, Retry_After="-5"),
    "nothing at all": lambda _: lines(),
    "broken off": lambda api: broken_off(api.begun),
    "stalled": lambda api: stalled(api.begun),
    "compressed": lambda _: status(200, "", Content_Encoding="gzip"),
}
EACH_FAULT = [(api, fault) for api in INTERFACES for fault in (*FAULTS, *INTERFACES[api].faults)]


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OPENAI")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=INTERFACES)
def api(request):
    return INTERFACES[request.param]


def chat(api, *acts, timeout=20.0, **how):
    """Ask a server that plays the acts; return the reply and the number of requests, or raise."""
    with FaultyServer(acts, [api.listing]) as server:
        reply = api.model(server.address, **how).chat(api.request, timeout)
        return reply, len(server.posted)


def failure(api, *acts, timeout=20.0, **how):
    """Return the message of the CallError that the acts lead to, and the number of requests."""
    with FaultyServer(acts, [api.listing]) as server:
        with pytest.raises(CallError) as caught:
            api.model(server.address, **how).chat(api.request, timeout)
        return str(caught.value), len(server.posted)


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_is_read_with_its_costs(api, stream):
    reply, count = chat(api, api.good if stream else api.whole, stream=stream)
    assert (reply.text, reply.prompt_tokens, reply.output_tokens, reply.done_reason) == ("Hello", 12, 3, "stop")
    assert reply.seconds >= 0
    assert count == 1


@pytest.mark.parametrize(("name", "fault"), EACH_FAULT)
def test_a_transient_error_is_retried(name, fault):
    api = INTERFACES[name]
    act = api.faults[fault] if fault in api.faults else FAULTS[fault](api)
    reply, count = chat(api, act, api.good)
    assert (reply.text, count) == ("Hello", 2)


@pytest.mark.parametrize("fault", ["500", "broken off", "compressed"])
def test_a_call_to_a_server_that_always_fails_is_six_requests(api, fault):
    message, count = failure(api, FAULTS[fault](api), policy=RetryPolicy(pause=0.01))
    assert message.startswith("model toy: ")
    assert "6 requests in 20 s" in message
    assert count == 6


def test_a_refused_request_is_not_repeated(api):
    for code in (400, 413, 422):
        message, count = failure(api, status(code, '{"error": "the context is too small"}'))
        assert f"{code}: " in message
        assert "the context is too small" in message
        assert count == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_schema_that_is_refused_fails_the_call_unless_it_is_optional(api, stream):
    asked = replace(api.request, schema={"type": "object"})
    with FaultyServer([status(400, "no grammar"), status(400, "no"), api.good], [api.listing]) as server:
        with pytest.raises(CallError, match=r"400: .*schemas"):
            api.model(server.address).chat(asked, 20)
        assert len(server.posted) == 1
    acts = [status(400, "no grammar"), api.good if stream else api.whole]
    with FaultyServer(acts, [api.listing]) as server:
        assert api.model(server.address, stream=stream).chat(replace(asked, schema_required=False), 20).text == "Hello"
    assert ["object" in json.dumps(body) for _, body, _ in server.posted] == [True, False]


@pytest.mark.parametrize("act", [silent(), endless(b"x", 0.02), headless()], ids=["silent", "dripping", "headless"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_deadline_ends_a_call_that_would_not_end(api, act, stream):
    started = time.monotonic()
    message, _ = failure(api, act, timeout=0.4, stream=stream)
    assert "0.4 s" in message
    assert time.monotonic() - started < 10


def test_the_deadline_covers_all_requests(api):
    message, count = failure(api, status(503), timeout=0.001)
    assert "0.001 s" in message
    assert count <= 1


@pytest.mark.parametrize("piece", [None, b"x" * 65_536, b":\n" * 30_000], ids=["parts", "one line", "comments"])
def test_an_endless_reply_is_cut_off(api, monkeypatch, piece):
    monkeypatch.setattr(http, "REPLY_LIMIT", 2**20)
    if piece is None:
        piece = api.begun.replace("Hel", "x" * 10_000).encode()
    message, count = failure(api, endless(piece))
    assert "1 MB" in message or (piece[:1] == b":" and api is OLLAMA)
    assert count == 1 or api is OLLAMA


def test_a_compressed_answer_is_never_unfolded(api):
    bomb = zlib.compress(b"x" * 10**7).decode("latin-1")
    message, _ = failure(api, status(200, bomb, Content_Encoding="deflate"))
    assert "broke off" in message


def test_a_wait_that_the_server_asks_for_is_waited_if_there_is_time(api):
    reply, count = chat(api, status(429, Retry_After="1"), api.good)
    assert (reply.text, count) == ("Hello", 2)
    message, count = failure(api, status(503, Retry_After="3600"))
    assert "wait 3600 s" in message
    assert count == 1


@pytest.mark.parametrize("stream", [True, False])
def test_no_server_says_how_to_start_one(api, stream):
    address = unused_address()
    asked = api.model(address, stream=stream)
    for call in (asked.digest, lambda: asked.chat(api.request, 1)):
        with pytest.raises(LlmError, match=r"answers at .*\(\[Errno.*params\.yaml") as caught:
            call()
        assert address in str(caught.value)


@pytest.mark.parametrize(
    ("code", "words"), [(401, "refuses access.*API_KEY"), (403, "refuses access"), (402, "paid"), (404, "toy is not")]
)
def test_what_concerns_all_calls_stops_the_run(api, code, words):
    with pytest.raises(LlmError, match=words):
        chat(api, status(code))


@pytest.mark.parametrize("act", [status(500), lines("<html>"), value({"data": 7, "models": 7}), status(401)])
def test_a_server_that_cannot_list_its_models_stops_the_run(api, act):
    with FaultyServer([], [act]) as server, pytest.raises(LlmError, match="http"):
        api.model(server.address).digest()
    assert len(server.got) <= 3


def test_an_endless_list_stops_the_run(api, monkeypatch):
    monkeypatch.setattr(http, "REPLY_LIMIT", 2**20)
    with FaultyServer([], [endless(b"[" * 65_536)]) as server, pytest.raises(LlmError, match="1 MB"):
        api.model(server.address).digest()


def test_a_list_is_asked_for_again(api):
    with FaultyServer([], [status(503), api.listing]) as server:
        assert api.model(server.address).digest() == api.digest


def test_calls_share_a_connection(api):
    clients = set()

    def answer(player):
        clients.add(player.client_address)
        api.good(player)

    with FaultyServer([answer]) as server:
        model = api.model(server.address)
        for _ in range(5):
            assert model.chat(api.request, 20).text == "Hello"
    assert len(clients) == 1


def test_calls_from_several_threads_share_one_model(api):
    replies = []
    with FaultyServer([api.good], [api.listing]) as server:
        asked = api.model(server.address)
        threads = [threading.Thread(target=lambda: replies.append(asked.chat(api.request, 20).text)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert replies == ["Hello"] * 8


def test_a_call_may_come_from_a_coroutine(api):
    async def ask(address):
        return api.model(address).chat(api.request, 20)

    with FaultyServer([api.good], [api.listing]) as server:
        assert asyncio.run(ask(server.address)).text == "Hello"
