"""Ollama's and OpenAI's interface: what is sent, what is read, and the faults of servers that both clients bear."""

import json
import os
from dataclasses import replace

import pytest
from faulty_server import (
    CHUNKS,
    DIGEST,
    FAULTS,
    LAST_CHUNKS,
    OLLAMA,
    OPENAI,
    USAGE,
    WHOLE_LINE,
    FaultyServer,
    chunk,
    completion,
    endless,
    events,
    lines,
    ollama,
    openai,
    silent,
    status,
    value,
)
from model_servers import free_port

from pcgeval.llm import server as module
from pcgeval.llm.protocol import OPENAI_URL, CallError, ChatRequest, LlmError, Message

OPTIONS = {"temperature": 1, "top_p": 0.9, "seed": 5, "num_predict": 20, "stop": "END", "top_k": 40}
ASKED = ChatRequest("toy", DIGEST, (Message("system", "Be brief."), Message("user", "Hi")), OPTIONS)
JUDGED = replace(ASKED, adaptable=True)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
SCHEMA = {"properties": {"n": {"type": "boolean"}}}


def asked(act):
    """Return the reply of an endpoint of OpenAI's interface that does one thing."""
    with FaultyServer([act]) as server:
        return openai(server.address).chat(ASKED, 20)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("OPENAI", "OLLAMA"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr(module, "SILENCE", 0.3)
    monkeypatch.setattr(module, "REPLY_LIMIT", 2**20)


@pytest.fixture(params=[OLLAMA, OPENAI], ids=["ollama", "openai"])
def api(request):
    return request.param


def failure(api, *acts, timeout=20.0, kind=CallError, request=ASKED, **how):
    """Return the message of the error that the acts lead to, and the number of requests."""
    with FaultyServer(acts, [api.listing]) as server:
        with pytest.raises(kind) as caught:
            api.open(server.address, **how).chat(request, timeout)
        return str(caught.value), len(server.posted)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_reply_is_read_with_its_costs_over_one_connection(api, stream):
    clients = set()

    def answer(player):
        clients.add(player.client_address)
        (api.good if stream else api.whole)(player)

    with FaultyServer([answer], [api.listing]) as server:
        backend = api.open(server.address, stream=stream)
        replies = [backend.chat(ASKED, 20) for _ in range(3)]
    for reply in replies:
        assert (reply.text, reply.prompt_tokens, reply.output_tokens, reply.done_reason) == ("Hello", 12, 3, "stop")
    assert (len(server.posted), len(clients)) == (3, 1)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("request_", [ASKED, JUDGED], ids=["trial", "judge"])
def test_a_transient_error_is_left_to_the_neutral_call(api, fault, request_):
    with FaultyServer([fault(api)]) as server, pytest.raises(CallError) as caught:
        api.open(server.address).chat(request_, 60)
    assert caught.value.verdict.blame in {"server", "undecided"}
    assert len(server.posted) == 1


def test_the_wait_that_a_server_asks_for_is_told(api):
    for wait, seconds in (("30", 30), ("soon", 0), ("9" * 40, 0)):
        with FaultyServer([status(503, Retry_After=wait)]) as server, pytest.raises(CallError) as caught:
            api.open(server.address).chat(JUDGED, 60)
        assert caught.value.wait == seconds


def test_a_refused_request_is_not_repeated(api):
    text = '{"error": "no such thing"}'
    message, requests = failure(api, status(422, text, Content_Type="text/plain; charset=hex"), request=JUDGED)
    assert "422 (no such thing)" in message
    assert requests == 1


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('{"error": {"message": "must be at most 2", "param": "top_p"}}', "`top_p: 0.9`"),
        ('{"detail": [{"loc": ["body", "top_k"], "msg": "Input should be less"}]}', "`top_k: 40`"),
        ('{"error": {"message": "unsupported", "param": "seed"}}', "competition.seed"),
        ('{"error": {"message": "1 only", "param": "temperature"}}', "competition's rule"),
    ],
)
def test_an_option_that_the_server_refuses_is_the_organisers_to_correct(api, text, remedy):
    message, requests = failure(api, status(400, text), kind=LlmError)
    assert remedy in message
    assert requests == 1


def test_a_server_that_refuses_schemas_is_asked_without(api):
    asked = replace(ASKED, schema={"type": "object"})
    asked = replace(asked, adaptable=True)
    acts = [api.good, status(400), status(400, "no such option"), status(400, "no grammar"), api.good]
    with FaultyServer(acts, [api.listing]) as server:
        backend = api.open(server.address)
        assert backend.chat(asked, 20).text == "Hello"
        with pytest.raises(CallError, match="no such option"):  # with and without: the schema is not at fault
            backend.chat(asked, 20)
        assert {backend.chat(asked, 20).text for _ in range(2)} == {"Hello"}
    with_schema = ["object" in json.dumps(body) for _, body, _ in server.posted]
    assert with_schema == [True, True, False, True, False, False]


@pytest.mark.parametrize("act", [silent(), endless(b"x", 0.02)], ids=["silent", "dripping"])
def test_the_deadline_ends_a_call_that_would_not_end(api, act):
    assert "no whole answer came" in failure(api, act, timeout=0.4)[0]


@pytest.mark.parametrize("is_one_line", [True, False])
def test_an_endless_reply_is_cut_off(api, is_one_line):
    parts = api.begun_text.replace("Hel", "x" * 10_000).encode()
    message, requests = failure(api, endless(b"x" * 65_536 if is_one_line else parts))
    assert "1 MB" in message
    assert requests == 1


def test_no_server_says_how_to_start_one(api):
    address = f"http://127.0.0.1:{free_port()}"
    backend = api.open(address)
    with pytest.raises(LlmError, match=rf"{address}.*no .* server answers.*params\.yaml"):
        backend.digest()
    with pytest.raises(CallError, match=r"no .* server answers"):
        backend.chat(ASKED, 20)


UNPAID = json.dumps({"error": {"message": "no credit", "code": "insufficient_quota"}})


@pytest.mark.parametrize(
    ("act", "fragment"),
    [
        *((status(code), "_API_KEY and what is left on its account") for code in (401, 402, 403)),
        (status(429, UNPAID), r"no credit\)\. Check"),
        (status(404), "ollama pull|base_url"),
    ],
)
def test_what_the_server_answers_to_a_neutral_request_stops_the_run_and_to_any_other_one_call(api, act, fragment):
    with FaultyServer([act]) as server, pytest.raises(LlmError, match=fragment):
        api.open(server.address).chat(replace(ASKED, digest=""), 20)
    assert len(server.posted) == 1
    failure(api, act)  # a firewall before the server may refuse a text so


@pytest.mark.parametrize(
    "act", [status(500), value({"data": 7, "models": 7}), endless(b"[" * 65_536)], ids=["failing", "odd", "endless"]
)
def test_a_server_that_cannot_list_its_models_stops_the_run(api, act):
    with FaultyServer([], [act]) as server, pytest.raises(LlmError, match="http"):
        api.open(server.address).digest()
    assert len(server.got) <= 3
    with FaultyServer([], [status(503), api.listing]) as server:
        assert api.open(server.address).digest()


@pytest.mark.parametrize(("read", "written"), [(None, None), (-1, 2), (3, int("9" * 4_299))])
def test_a_reply_without_its_costs_fails_a_trial_and_is_estimated_for_a_judge(api, read, written):
    if api is OLLAMA:
        act = lines({**WHOLE_LINE, "prompt_eval_count": read, "eval_count": written})
    else:
        act = completion(usage=read and {"prompt_tokens": read, "completion_tokens": written})
    reason = failure(api, act)[0]
    assert "tokens read and" in reason
    assert len(reason) < 500
    with FaultyServer([act]) as server:
        reply = api.open(server.address).chat(replace(ASKED, adaptable=True), 20)
    assert (reply.prompt_tokens, reply.output_tokens, reply.estimated) == (4, 2, True)


def test_an_ollama_server_gets_the_request_as_it_is_and_a_reply_that_is_all_thought_is_named():
    thought = lines({**WHOLE_LINE, "message": {"role": "assistant", "content": "", "thinking": "Hm."}})
    with FaultyServer([lines(WHOLE_LINE), thought]) as server:
        backend = ollama(server.address, stream=False, keep_alive=-1, options={"num_ctx": 9})
        backend.chat(replace(ASKED, schema=SCHEMA), 20)
        reply = backend.chat(replace(ASKED, options={"reasoning_effort": "high"}), 20)
    ((path, body, _), (_, other, _)) = server.posted
    usual = {"model": "toy", "messages": MESSAGES, "stream": False, "keep_alive": -1}
    assert (path, reply.text, reply.done_reason, reply.thoughts) == ("/api/chat", "", "stop", True)
    assert body == {**usual, "tools": [], "options": {**OPTIONS, "stop": ["END"]}, "format": SCHEMA}
    assert other == {**usual, "tools": [], "options": {}, "think": "high"}


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
    [(ollama, {"temprature": 1}, "no option 'temprature'"), (openai, {"max_tokens": 5}, "'max_tokens'.*num_predict")],
)
def test_options_and_addresses_that_cannot_be_used_are_refused_at_once(backend, options, fragment):
    with pytest.raises(LlmError, match=fragment):
        backend("http://127.0.0.1:9", options=options)
    with pytest.raises(LlmError, match="is not a valid server address"):
        backend("http://127.0.0.1:port")


def test_a_reply_of_other_bytes_than_the_pinned_ones_is_none():
    other = lines({"models": [{"model": "toy:latest", "digest": "cd" * 32}]})
    with FaultyServer([OLLAMA.good], [OLLAMA.listing, other]) as server:
        backend = ollama(server.address)
        assert backend.chat(ASKED, 20).text == "Hello"
        with pytest.raises(LlmError, match=f"has the digest {'cd' * 32} now, and had {DIGEST} before"):
            backend.chat(ASKED, 20)
        assert backend.chat(replace(ASKED, digest=""), 20).text == "Hello", "a neutral request"


def listed_digest(listing, backend, name):
    with FaultyServer([], [listing]) as server:
        return backend(server.address, name=name).digest()


def test_the_digest_is_the_one_in_ollamas_list_and_pins_a_name_at_other_endpoints():
    models = [{"model": "toy:2b", "digest": "cd" * 32}, {"model": "Toy:latest", "digest": f"sha256:{DIGEST}"}]
    for name in ("toy", "TOY:Latest", "library/toy", "registry.ollama.ai/library/toy:latest"):
        assert listed_digest(lines({"models": models}), ollama, name) == DIGEST
    with pytest.raises(LlmError, match="names no SHA-256"):
        listed_digest(lines({"models": [{"model": "toy:latest", "digest": "ab"}]}), ollama, "toy")
    with pytest.raises(LlmError, match=r"toy:2b, Toy:latest\).* Get it with `ollama pull toy:1b`\."):
        listed_digest(lines({"models": models}), ollama, "toy:1b")
    pinned = [listed_digest(OPENAI.listing, openai, name) for name in ("toy", "toy", "other")]
    assert pinned[0] == pinned[1] != pinned[2]
    assert listed_digest(status(404), openai, "nobody").startswith("unpinned:")  # it has no list
    with pytest.raises(LlmError, match=r"model nobody is not at http.*other, toy.*base_url"):
        listed_digest(OPENAI.listing, openai, "nobody")


def test_openais_own_endpoint_is_not_asked_without_a_key():
    with pytest.raises(LlmError, match=r"gpt-4o needs a key\. Set OPENAI_API_KEY"):
        openai(OPENAI_URL.removesuffix("/v1"), "gpt-4o")


@pytest.mark.parametrize("key", ["hunter2", "sk-very-secret-1234"])
def test_the_key_comes_from_the_environment_and_stands_in_no_message_or_record(monkeypatch, capsys, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with FaultyServer([CHUNKS]) as server:
        openai(server.address).chat(ASKED, 20)
    assert server.posted[0][2]["authorization"] == f"Bearer {key}"
    texts = (json.dumps({"error": {"message": f"bad key {key}!"}}), f"no key {key} here", f'{{"e": "{key}"}}')
    texts += (f"content_filter: {key}", f"{'x' * 290} {key} is over the maximum context of 50")
    acts = [status(code, text, Content_Type="application/json") for code in (400, 401, 404, 429, 500) for text in texts]
    for act in (*acts, events(chunk("Hel"), {"error": {"message": f"bad key {key}!"}})):
        with pytest.raises((CallError, LlmError)) as caught:
            asked(act)
        assert key not in f"{caught.value} {vars(caught.value)}"
    assert "(the key)" in str(caught.value)
    assert key not in capsys.readouterr().err


@pytest.mark.parametrize("key", ["x", "token", "max_tokens", "stop", "toy", "maximum"])
def test_a_dummy_key_that_is_a_word_of_the_servers_changes_no_verdict(monkeypatch, key):
    def verdicts():
        refusals = ("max_tokens is too large", '{"error": {"param": "max_tokens"}}', "over the maximum context of 5000")
        for act in (*(status(400, text) for text in refusals), events(chunk("Hi", "x"), *LAST_CHUNKS[1:])):
            with pytest.raises((CallError, LlmError)) as caught:
                asked(act)
            verdict = getattr(caught.value, "verdict", None)
            yield type(caught.value), verdict and (verdict.blame, verdict.field, verdict.is_too_long)
        yield asked(CHUNKS).done_reason

    expected = list(verdicts())
    monkeypatch.setenv("OPENAI_API_KEY", key)
    assert list(verdicts()) == expected


def test_an_endpoint_that_answers_as_another_model_stops_the_run():
    acts = [events({**chunk("x", "stop", usage=USAGE), "model": name}) for name in ("toy-v1", None, "toy-v2" * 10_000)]
    with FaultyServer(acts) as server:
        backend = openai(server.address)
        for _ in range(2):
            backend.chat(ASKED, 20)
        with pytest.raises(LlmError, match="answered as toy-v1 before and answers as toy-v2") as caught:
            backend.chat(ASKED, 20)
    assert len(str(caught.value)) < 1000


PARTS = [{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "Yes"}, {"type": "text", "text": "."}]


@pytest.mark.parametrize(
    ("message", "reason", "kept"),
    [
        ({"content": None, "refusal": "I can't help with that."}, "stop", "refusal"),
        ({"content": "", "reasoning": "Let me see."}, "stop", "stop"),
        ({"content": "", "reasoning": "Let me"}, "length", "length"),
        ({"content": PARTS, "reasoning": "Hm.", "refusal": ""}, "stop", "stop"),
    ],
)
def test_a_reply_without_an_answer_is_kept_and_says_why(message, reason, kept):
    reply = asked(completion(choices=[{"index": 0, "message": message, "finish_reason": reason}]))
    assert (reply.text, reply.output_tokens, reply.done_reason) == ("Yes." if message["content"] else "", 3, kept)
    assert reply.thoughts == (True if message.get("reasoning") and not reply.text else None)
