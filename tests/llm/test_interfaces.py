"""What is sent to Ollama's and to OpenAI's interface, and what is read of their answers."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from faulty_server import (
    CHUNKS,
    LINES,
    USAGE,
    WHOLE_LINE,
    FaultyServer,
    chunk,
    completion,
    events,
    lines,
    status,
    value,
)

from pcgeval.core.params import Model
from pcgeval.llm import server as module
from pcgeval.llm.backends import open_backend
from pcgeval.llm.protocol import (
    CallError,
    ChatRequest,
    ContextExceededError,
    LlmError,
    Message,
    RefusedError,
    unpinned_digest,
)

pytest.importorskip("openai", reason="the extra openai is not installed")

DIGEST = "ab" * 32
OPTIONS = {"temperature": 1, "top_p": 0.9, "seed": 5, "num_predict": 20, "stop": "END", "top_k": 40}
REQUEST = ChatRequest("toy", DIGEST, (Message("system", "Be brief."), Message("user", "Hi")), OPTIONS)
JUDGE = replace(REQUEST, adaptable=True)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
KEY = "sk-very-secret"
SCHEMA = {"properties": {"n": {"type": "boolean"}}}
LISTING = value({"object": "list", "data": [{"id": "toy"}, {"id": "other"}]})


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("OPENAI", "OLLAMA"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(module, "PAUSE", 0.01)


def ollama(address, name="toy", **how):
    return open_backend(Model(backend="ollama", name=name, host=address, **how))


def openai(address, name="toy", told=None, **how):
    model = Model(backend="openai", name=name, base_url=f"{address}/v1", **how)
    return open_backend(model, report=(told if told is not None else []).append)


def asked(act, request=REQUEST, **how):
    """Return the reply of an endpoint of OpenAI's interface that does one thing."""
    with FaultyServer([act]) as server:
        return openai(server.address, **how).chat(request, 20)


@pytest.mark.parametrize("stream", [True, False])
def test_an_ollama_server_gets_the_request_as_it_is(stream):
    with FaultyServer([lines(WHOLE_LINE)]) as server:
        backend = ollama(server.address, stream=stream, keep_alive=-1, options={"num_ctx": 9})
        backend.chat(replace(REQUEST, schema=SCHEMA), 20)
        backend.chat(replace(REQUEST, options={"reasoning_effort": "high"}), 20)
    ((path, body, _), (_, other, _)) = server.posted
    assert path == "/api/chat"
    assert (body["model"], body["messages"], body["stream"], body["keep_alive"]) == ("toy", MESSAGES, stream, -1)
    assert (body["options"], body["format"]) == ({**OPTIONS, "stop": ["END"]}, SCHEMA)
    assert (other["options"], other["think"], "format" in other) == ({}, "high", False)


def test_what_is_not_set_is_left_to_ollama_and_a_reply_that_is_all_thought_is_named():
    thought = lines({**WHOLE_LINE, "message": {"role": "assistant", "content": "", "thinking": "Hm."}})
    with FaultyServer([LINES, thought]) as server:
        backend = ollama(server.address)
        replies = [backend.chat(REQUEST, 20) for _ in range(2)]
    assert {"keep_alive", "format", "think"}.isdisjoint(server.posted[0][1])
    assert [(reply.text, reply.done_reason) for reply in replies] == [("Hello", "stop"), ("", "reasoning")]


@pytest.mark.parametrize(("act", "stream"), [(CHUNKS, True), (completion(), False)])
def test_an_endpoint_gets_the_names_of_its_interface(act, stream):
    with FaultyServer([act]) as server:
        backend = openai(server.address, stream=stream)
        backend.chat(REQUEST, 20)
        backend.chat(replace(REQUEST, schema=SCHEMA, options={"num_predict": -1}), 20)
    ((path, body, headers), (_, other, _)) = server.posted
    usual = {"model": "toy", "messages": MESSAGES}
    if stream:
        usual |= {"stream": True, "stream_options": {"include_usage": True}}
    options = {"temperature": 1, "top_p": 0.9, "seed": 5, "max_tokens": 20, "stop": "END", "top_k": 40}
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer none")
    assert headers["accept-encoding"] == "identity"
    assert {"stream": False, **body} == {"stream": False, **usual, **options}
    assert {"stream": False, **other} == {"stream": False, **usual, "response_format": form}


@pytest.mark.parametrize(
    ("backend", "options", "words"),
    [
        (ollama, {"temprature": 1}, r"no option 'temprature'\. Did you mean 'temperature'\?"),
        (ollama, {"xyz": 1}, r"Use some of .*num_ctx"),
        (openai, {"num_ctx": 2048}, "'num_ctx' is no option"),
        (openai, {"max_tokens": 5}, "'max_tokens' is no option .*num_predict"),
        (openai, {"num_predict": "many"}, "num_predict is 'many'"),
    ],
)
def test_options_and_addresses_that_cannot_be_used_are_refused_at_once(backend, options, words):
    with pytest.raises(LlmError, match=words):
        backend("http://127.0.0.1:9", options=options)
    with pytest.raises(LlmError, match=r"is no (address|URL)"):
        backend("http://127.0.0.1:port")


def listed_digest(listing, backend=openai, name="toy"):
    with FaultyServer([], [listing]) as server:
        return backend(server.address, name=name).digest()


def test_the_digest_of_an_ollama_model_is_the_one_in_the_list():
    for digest in (DIGEST, f"sha256:{DIGEST}", DIGEST.upper()):
        other = {"model": "toy:2b", "digest": "cd" * 32}
        listing = lines({"models": [other, {"model": "Toy:latest", "digest": digest}]})
        assert listed_digest(listing, ollama) == DIGEST
    for digest in (None, "", "ab", DIGEST + "0", "sha512:" + DIGEST):
        with pytest.raises(LlmError, match="names no SHA-256"):
            listed_digest(lines({"models": [{"model": "toy:latest", "digest": digest}]}), ollama)
    with pytest.raises(LlmError, match=r"toy:2b\).* Get it with `ollama pull toy:1b`\."):
        listed_digest(lines({"models": [{"model": "toy:2b"}]}), ollama, "toy:1b")


def test_the_digest_of_an_endpoint_pins_a_name_whether_or_not_it_lists_its_models():
    assert listed_digest(LISTING) == unpinned_digest("toy") != listed_digest(LISTING, name="other")
    assert unpinned_digest("toy").startswith("unpinned:")
    for code in (404, 405, 501):
        assert listed_digest(status(code), name="nobody") == unpinned_digest("nobody")
    with pytest.raises(LlmError, match=r"model nobody is not at http.*other, toy.*base_url"):
        listed_digest(LISTING, name="nobody")


def test_the_key_comes_from_the_environment_and_stands_in_no_message(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    told = []
    with FaultyServer([CHUNKS]) as server:
        openai(server.address).chat(REQUEST, 20)
    assert server.posted[0][2]["authorization"] == f"Bearer {KEY}"
    texts = (json.dumps({"error": {"message": f"bad key {KEY}!"}}), f"no key {KEY} here", f'{{"e": "{KEY}"}}')
    acts = [status(code, text, Content_Type="application/json") for code in (400, 401, 404, 429, 500) for text in texts]
    for act in (*acts, events(chunk("Hel"), {"error": {"message": f"bad key {KEY}!"}})):
        with pytest.raises((CallError, LlmError)) as caught:
            asked(act, told=told)
        assert KEY not in str(caught.value)
    assert "(the key)" in str(caught.value)
    assert KEY not in " ".join(told)


def test_refusals_say_what_they_mean_for_the_run():
    with pytest.raises(LlmError, match="wants to be paid"):
        asked(status(429, json.dumps({"error": {"message": "no credit", "code": "insufficient_quota"}})))
    text = "This model's maximum context length is 4096 tokens. Please reduce the length."
    with pytest.raises(ContextExceededError, match="too long") as caught:
        asked(status(400, json.dumps({"error": {"message": text}})))
    assert caught.value.context == 4096


def test_a_changed_fingerprint_is_told_once_and_another_model_stops_the_run():
    told = []
    names = [("toy-v1", "fp_1"), ("toy-v1", "fp_1"), (None, None), ("toy-v1", "fp_2"), ("toy-v2", "fp_2")]
    acts = [
        events({**chunk("x", "stop", usage=USAGE, system_fingerprint=fingerprint), "model": model})
        for model, fingerprint in names
    ]
    with FaultyServer(acts) as server:
        backend = openai(server.address, told=told)
        for _ in range(4):
            backend.chat(REQUEST, 20)
        with pytest.raises(LlmError, match="answered as toy-v1 before and answers as toy-v2"):
            backend.chat(REQUEST, 20)
    assert len(told) == 1
    assert "system_fingerprint fp_2 now, fp_1 before" in told[0]


def message(content, reason="stop", **more):
    more = {"role": "assistant", "content": content, **more}
    return completion(choices=[{"index": 0, "message": more, "finish_reason": reason}])


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (message(None, refusal="I can't help with that."), "refusal"),
        (events({**chunk(), "choices": [{"delta": {"refusal": "No."}}]}, chunk(None, "stop", usage=USAGE)), "refusal"),
        (message("", "content_filter"), "content_filter"),
        (message("", reasoning="Let me see."), "reasoning"),
        (message("", "length", reasoning="Let me"), "length"),
        (message("Yes.", reasoning="Hm.", refusal=""), "stop"),
    ],
    ids=["refused", "refused in a stream", "filtered", "all thought", "cut off", "answered"],
)
def test_a_reply_without_an_answer_is_kept_and_says_why(act, reason):
    reply = asked(act)
    assert (reply.text, reply.output_tokens, reply.done_reason) == ("Yes." if reason == "stop" else "", 3, reason)


def test_text_in_parts_is_joined_without_thoughts():
    parts = [{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "Yes"}, {"type": "text", "text": "."}]
    assert asked(message(parts)).text == "Yes."


@pytest.mark.parametrize(
    "usage",
    [{"prompt_tokens_details": {"cached_tokens": 8}}, {"prompt_cache_hit_tokens": 8}],
    ids=["OpenAI", "DeepSeek"],
)
def test_cached_tokens_are_read_for_a_judge(usage):
    act = completion(usage={**USAGE, **usage})
    assert [asked(act, JUDGE).cached_tokens, asked(act).cached_tokens] == [8, None]


def refusal(text, param=None):
    return status(400, json.dumps({"error": {"message": text, "param": param, "code": "unsupported"}}))


def test_a_judge_s_fields_that_an_endpoint_refuses_are_renamed_or_left_out_once_for_all_calls():
    told = []
    acts = [refusal("Use 'max_completion_tokens' instead.", "max_tokens"), refusal("no 'seed' here"), completion()]
    with FaultyServer(acts) as server:
        backend = openai(server.address, told=told)
        for _ in range(2):
            assert backend.chat(JUDGE, 20).text == "Hello"
    sent = [body for _, body, _ in server.posted]
    assert ["max_tokens" in body for body in sent] == [True, False, False, False]
    assert [body.get("max_completion_tokens") for body in sent] == [None, 20, 20, 20]
    assert ["seed" in body for body in sent] == [True, True, False, False]
    assert len(told) == 2
    with FaultyServer([acts[0], completion()]) as server, pytest.raises(RefusedError):
        openai(server.address).chat(REQUEST, 20)  # a trial is asked as it is, or fails


@pytest.mark.parametrize("text", ["the stream broke", "no temperature, seed, top_p, top_k, stop, stream or max_tokens"])
def test_a_refusal_that_no_adaptation_ends_costs_a_request_for_each_field_and_is_forgotten(text):
    told = []
    with FaultyServer([refusal(text)]) as server:
        backend = openai(server.address, told=told)
        with pytest.raises(RefusedError, match=text):
            backend.chat(JUDGE, 20)
        requests = len(server.posted)
        assert requests <= len(OPTIONS) + 3
        server.acts = [completion()]
        backend.chat(JUDGE, 20)
    assert server.posted[-1][1] == server.posted[0][1]
    assert told == []


def test_a_missing_client_says_what_to_install():
    hide = "import sys; sys.modules['openai'] = None; import pcgeval.llm.openai"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, check=False)
    assert "pip install 'pcgeval[openai]'" in done.stderr
