"""Ollama's and OpenAI's interface: what is sent, what is read, and the faults of servers that both clients bear."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from faulty_server import (
    CHUNKS,
    LAST_CHUNKS,
    LINES,
    USAGE,
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
    value,
)
from threaded_server import free_port

from pcgeval.core.params import Model
from pcgeval.llm import server as module
from pcgeval.llm.backends import open_backend
from pcgeval.llm.protocol import (
    Backend,
    CallError,
    ChatRequest,
    LlmError,
    Message,
    RefusedError,
    ServerFaultError,
    unpinned_digest,
)

DIGEST = "ab" * 32
OPTIONS = {"temperature": 1, "top_p": 0.9, "seed": 5, "num_predict": 20, "stop": "END", "top_k": 40}
ASKED = ChatRequest("toy", DIGEST, (Message("system", "Be brief."), Message("user", "Hi")), OPTIONS)
JUDGE = replace(ASKED, adaptable=True)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
KEY = "sk-very-secret"
SCHEMA = {"properties": {"n": {"type": "boolean"}}}
LISTING = value({"object": "list", "data": [{"id": "toy"}, {"id": "other"}]})


def ollama(address, name="toy", reports=None, **how):
    model = Model(backend="ollama", name=name, host=address, **how)
    return open_backend(model, report=(reports if reports is not None else []).append)


def openai(address, name="toy", reports=None, **how):
    pytest.importorskip("openai", reason="the extra openai is not installed")
    model = Model(backend="openai", name=name, base_url=f"{address}/v1", **how)
    return open_backend(model, report=(reports if reports is not None else []).append)


def asked(act, request=ASKED, **how):
    """Return the reply of an endpoint of OpenAI's interface that does one thing."""
    with FaultyServer([act]) as server:
        return openai(server.address, **how).chat(request, 20)


@dataclass(frozen=True)
class Interface:
    """How one interface is asked and how it answers."""

    open: Callable[..., Backend]
    good: Act  # "Hello", streamed
    whole: Act  # the same, not streamed
    stream: Callable[..., Act]
    begun: dict  # the first part of a stream
    listing: Act
    digest: str
    faults: dict[str, Act]  # transient ones that only this interface knows

    @property
    def request(self):
        return replace(ASKED, digest=self.digest, options={"temperature": 1, "seed": 5})

    @property
    def begun_text(self):
        text = json.dumps(self.begun)
        return f"data: {text}\n\n" if self.stream is events else f"{text}\n"


OLLAMA = Interface(
    open=ollama,
    good=LINES,
    whole=lines(WHOLE_LINE),
    stream=lines,
    begun=line("Hel"),
    listing=lines({"models": [{"model": "toy:latest", "digest": DIGEST}]}),
    digest=DIGEST,
    faults={"another shape": lines({"message": "Hello", "done": True})},
)
OPENAI = Interface(
    open=openai,
    good=CHUNKS,
    whole=completion(),
    stream=events,
    begun=chunk("Hel"),
    listing=LISTING,
    digest=unpinned_digest("toy"),
    faults={
        "a page": lines("<html>"),
        "another shape": events({"choices": "Hello"}),
        "no choices": value({"choices": []}),
        "no delta": events({"choices": [{"index": 0}]}),
        "text that is none": events(chunk(7), *LAST_CHUNKS),
    },
)
INTERFACES = {"ollama": OLLAMA, "openai": OPENAI}
FAULTS = {
    "500": lambda _: status(500),
    "304": lambda _: status(304, ""),
    "an odd character set": lambda _: status(200, "{}\n", Content_Type="application/json; charset=hex"),
    "429 with an odd wait": lambda _: status(429, Retry_After="Fri, 99 Foo 20000 99:99:99 GMT"),
    "nothing at all": lambda _: lines(),
    "broken off": lambda api: broken_off(api.begun_text),
    "stalled": lambda api: stalled(api.begun_text),
    "error in the stream": lambda api: api.stream(api.begun, {"error": "the runner died"}),
    "an error that is no text": lambda api: api.stream({"error": {"code": 1}}),
    "ended without its end": lambda api: api.stream(api.begun),
    "no JSON": lambda api: api.stream("<html>"),
    "an array": lambda api: api.stream([1, 2]),
    "deeply nested": lambda api: api.stream("[" * 200_000),
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
    return INTERFACES[request.param]


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
def test_a_transient_error_is_told_and_retried(name, fault):
    api, reports = INTERFACES[name], []
    act = api.faults[fault] if fault in api.faults else FAULTS[fault](api)
    with FaultyServer([act, api.good]) as server:
        assert api.open(server.address, reports=reports).chat(api.request, 20).text == "Hello"
    assert len(server.posted) == 2
    assert ["trying again" in report for report in reports] == [True]


@pytest.mark.parametrize(
    ("act", "seconds", "pauses"),
    [
        (status(500), 500, [1, 2, 4, 8, 16]),
        (status(500), 6, [1, 2]),
        (status(429, Retry_After="30"), 62, [30, 30]),
        (status(503, Retry_After="3600"), 500, []),
    ],
)
def test_pauses_double_or_are_those_that_the_server_wants_and_end_before_the_deadline(api, slept, act, seconds, pauses):
    message, requests = failure(api, act, timeout=seconds)
    assert f"{requests} request{'s' * (requests > 1)} in {seconds} s" in message
    assert (requests, slept) == (len(pauses) + 1, pauses)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_refused_request_is_not_repeated(api, code):
    text = '{"error": "the seed is too small", "param": "seed"}'  # a trial is asked as it is, or fails
    act = status(code, text, Content_Type="text/plain; charset=hex")
    message, requests = failure(api, act, kind=RefusedError)
    assert f"{code}: the seed is too small" in message
    assert requests == 1


def test_a_server_that_refuses_schemas_is_asked_without(api):
    asked = replace(api.request, schema={"type": "object"})
    acts = [api.good, status(400), status(400, "no such option"), status(400, "no grammar"), status(500), api.good]
    with FaultyServer(acts, [api.listing]) as server:
        backend = api.open(server.address)
        assert backend.chat(asked, 20).text == "Hello"
        with pytest.raises(RefusedError, match="no such option"):  # with and without: the schema is not at fault
            backend.chat(asked, 20)
        assert {backend.chat(asked, 20).text for _ in range(2)} == {"Hello"}
    with_schema = ["object" in json.dumps(body) for _, body, _ in server.posted]
    assert with_schema == [True, True, False, True, False, False, False]


@pytest.mark.parametrize("act", [silent(), endless(b"x", 0.02), headless()], ids=["silent", "dripping", "headless"])
@BOTH_WAYS
def test_the_deadline_ends_a_call_that_would_not_end(api, act, stream):
    assert "in 0.4 s" in failure(api, act, timeout=0.4, kind=ServerFaultError, stream=stream)[0]


@pytest.mark.parametrize("piece", [None, b"x" * 65_536, b":\n" * 30_000], ids=["parts", "one line", "comments"])
def test_an_endless_reply_is_cut_off(api, piece):
    if piece is None:
        piece = api.begun_text.replace("Hel", "x" * 10_000).encode()
    message, requests = failure(api, endless(piece), kind=ServerFaultError)
    assert "1 MB" in message or (piece[:1] == b":" and api is OLLAMA)
    assert requests == 1 or api is OLLAMA


def test_no_server_says_how_to_start_one(api):
    address = f"http://127.0.0.1:{free_port()}"
    backend = api.open(address)
    for call in (backend.digest, lambda: backend.chat(api.request, 20)):
        with pytest.raises(LlmError, match=rf"no .* server answers at {address}.*\(.+\).*params\.yaml"):
            call()


UNPAID = json.dumps({"error": {"message": "no credit", "code": "insufficient_quota"}})


@pytest.mark.parametrize(
    ("act", "fragment"),
    [
        *((status(code), "_API_KEY and what is left on its account") for code in (401, 402, 403)),
        (status(429, UNPAID), r"429: no credit\)\. Check"),
        (status(404), "toy is not at"),
    ],
)
def test_what_concerns_all_calls_stops_the_run(api, act, fragment):
    with FaultyServer([act]) as server, pytest.raises(LlmError, match=fragment):
        api.open(server.address).chat(api.request, 20)
    assert len(server.posted) == 1


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


@pytest.mark.parametrize(("read", "written"), [(None, None), (3, None), (-1, 2), (3, int("9" * 4_299))])
def test_a_reply_without_its_costs_fails_a_trial_and_is_estimated_for_a_judge(api, read, written):
    if api is OLLAMA:
        act = lines({**WHOLE_LINE, "prompt_eval_count": read, "eval_count": written})
    else:
        act = completion(usage=read and {"prompt_tokens": read, "completion_tokens": written})
    reason = failure(api, act)[0]
    assert "token limit cannot be kept" in reason
    assert len(reason) < 500
    with FaultyServer([act]) as server:
        reply = api.open(server.address).chat(replace(api.request, adaptable=True), 20)
    assert (reply.prompt_tokens, reply.output_tokens, reply.estimated) == (4, 2, True)


# what is sent to one interface and read of its answers


@BOTH_WAYS
def test_an_ollama_server_gets_the_request_as_it_is_and_a_reply_that_is_all_thought_is_named(stream):
    thought = lines({**WHOLE_LINE, "message": {"role": "assistant", "content": "", "thinking": "Hm."}})
    with FaultyServer([lines(WHOLE_LINE), thought, lines(WHOLE_LINE)]) as server:
        backend = ollama(server.address, stream=stream, keep_alive=-1, options={"num_ctx": 9})
        backend.chat(replace(ASKED, schema=SCHEMA), 20)
        reply = backend.chat(replace(ASKED, options={"reasoning_effort": "high"}), 20)
        ollama(server.address).chat(ASKED, 20)
    ((path, body, _), (_, other, _), (_, least, _)) = server.posted
    usual = {"model": "toy", "messages": MESSAGES, "stream": stream, "keep_alive": -1}
    assert (path, reply.text, reply.done_reason) == ("/api/chat", "", "reasoning")
    assert body == {**usual, "tools": [], "options": {**OPTIONS, "stop": ["END"]}, "format": SCHEMA}
    assert other == {**usual, "tools": [], "options": {}, "think": "high"}
    assert {"keep_alive", "format", "think"}.isdisjoint(least)


@pytest.mark.parametrize(("act", "stream"), [(CHUNKS, True), (completion(), False), (completion(), True)])
def test_an_endpoint_gets_the_names_of_its_interface(act, stream):
    with FaultyServer([act]) as server:
        backend = openai(server.address, stream=stream)
        assert backend.chat(ASKED, 20).text == "Hello"
        backend.chat(replace(ASKED, schema=SCHEMA, options={"num_predict": -1}), 20)
    ((path, body, headers), (_, other, _)) = server.posted
    usual = {"model": "toy", "messages": MESSAGES, "stream": stream}
    if stream:
        usual |= {"stream_options": {"include_usage": True}}
    options = {"temperature": 1, "top_p": 0.9, "seed": 5, "max_tokens": 20, "stop": "END", "top_k": 40}
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer none")
    assert headers["accept-encoding"] == "identity"
    assert {"stream": False, **body} == {**usual, **options}
    assert {"stream": False, **other} == {**usual, "response_format": form}


@pytest.mark.parametrize(
    ("backend", "options", "fragment"),
    [
        (ollama, {"temprature": 1}, "no option 'temprature'.* temperature"),
        (openai, {"num_ctx": 2048}, "'num_ctx' is no option"),
        (openai, {"max_tokens": 5}, "'max_tokens' is no option .*num_predict"),
    ],
)
def test_options_and_addresses_that_cannot_be_used_are_refused_at_once(backend, options, fragment):
    with pytest.raises(LlmError, match=fragment):
        backend("http://127.0.0.1:9", options=options)
    with pytest.raises(LlmError, match="is no address"):
        backend("http://127.0.0.1:port")


def listed_digest(listing, backend=openai, name="toy"):
    with FaultyServer([], [listing]) as server:
        return backend(server.address, name=name).digest()


def test_the_digest_is_the_one_in_ollamas_list_and_pins_a_name_at_other_endpoints():
    other = {"model": "toy:2b", "digest": "cd" * 32}
    listing = lines({"models": [other, {"model": "Toy:latest", "digest": f"sha256:{DIGEST}"}]})
    assert listed_digest(listing, ollama) == DIGEST
    with pytest.raises(LlmError, match="names no SHA-256"):
        listed_digest(lines({"models": [{"model": "toy:latest", "digest": "ab"}]}), ollama)
    with pytest.raises(LlmError, match=r"toy:2b\).* Get it with `ollama pull toy:1b`\."):
        listed_digest(lines({"models": [other]}), ollama, "toy:1b")
    assert listed_digest(LISTING) == unpinned_digest("toy") != listed_digest(LISTING, name="other")
    for code in (404, 405, 501):  # it has no list
        assert listed_digest(status(code), name="nobody") == unpinned_digest("nobody")
    with pytest.raises(LlmError, match=r"model nobody is not at http.*other, toy.*base_url"):
        listed_digest(LISTING, name="nobody")


def test_the_key_comes_from_the_environment_and_stands_in_no_message(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    reports = []
    with FaultyServer([CHUNKS]) as server:
        openai(server.address).chat(ASKED, 20)
    assert server.posted[0][2]["authorization"] == f"Bearer {KEY}"
    texts = (json.dumps({"error": {"message": f"bad key {KEY}!"}}), f"no key {KEY} here", f'{{"e": "{KEY}"}}')
    acts = [status(code, text, Content_Type="application/json") for code in (400, 401, 404, 429, 500) for text in texts]
    for act in (*acts, events(chunk("Hel"), {"error": {"message": f"bad key {KEY}!"}})):
        with pytest.raises((CallError, LlmError)) as caught:
            asked(act, reports=reports)
        assert KEY not in str(caught.value)
    assert "(the key)" in str(caught.value)
    assert KEY not in " ".join(reports)


def test_an_endpoint_that_answers_as_another_model_stops_the_run():
    acts = [events({**chunk("x", "stop", usage=USAGE), "model": name}) for name in ("v1", None, "v2", "v2" * 10_000)]
    with FaultyServer(acts) as server:
        backend = openai(server.address)
        for _ in range(2):
            backend.chat(ASKED, 20)
        for _ in range(2):
            with pytest.raises(LlmError, match="answered as v1 before and answers as v2") as caught:
                backend.chat(ASKED, 20)
            assert len(str(caught.value)) < 1000


def message(content, reason="stop", **more):
    more = {"role": "assistant", "content": content, **more}
    return completion(choices=[{"index": 0, "message": more, "finish_reason": reason}])


PARTS = [("thinking", "Hm."), ("text", "Yes"), ("text", ".")]


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (message(None, refusal="I can't help with that."), "refusal"),
        (events({**chunk(), "choices": [{"delta": {"refusal": "No."}}]}, chunk(None, "stop", usage=USAGE)), "refusal"),
        (message("", "content_filter"), "content_filter"),
        (message("", reasoning="Let me see."), "reasoning"),
        (message("", "length", reasoning="Let me"), "length"),
        (message("Yes.", reasoning="Hm.", refusal=""), "stop"),
        (message([{"type": kind, "text": text} for kind, text in PARTS]), "stop"),
    ],
    ids=["refused", "refused in a stream", "filtered", "all thought", "cut off", "answered", "in parts"],
)
def test_a_reply_without_an_answer_is_kept_and_says_why(act, reason):
    reply = asked(act)
    assert (reply.text, reply.output_tokens, reply.done_reason) == ("Yes." if reason == "stop" else "", 3, reason)


@pytest.mark.parametrize("text", ["the stream broke", "no temperature, seed, top_p, top_k, stop, stream or max_tokens"])
def test_a_refusal_that_no_adaptation_ends_costs_a_request_for_each_field_and_is_forgotten(text):
    reports = []
    with FaultyServer([status(400, json.dumps({"error": {"message": text}}))]) as server:
        backend = openai(server.address, reports=reports)
        with pytest.raises(RefusedError, match=text):
            backend.chat(JUDGE, 20)
        assert len(server.posted) <= len(OPTIONS) + 3
        server.acts = [completion(usage={**USAGE, "prompt_cache_hit_tokens": 8})]
        assert backend.chat(JUDGE, 20).cached_tokens == 8
    assert server.posted[-1][1] == server.posted[0][1]
    assert reports == []
