import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from faulty_server import (
    CHUNKS,
    USAGE,
    FaultyServer,
    chunk,
    completion,
    events,
    lines,
    status,
    value,
)

from pcgeval.llm.openai import wire_fields
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, Message, unpinned_digest
from pcgeval.llm.retry import RetryPolicy, ServedModel

pytest.importorskip("openai", reason="the extra openai is not installed")

from pcgeval.llm.openai import OpenAiServer

OPTIONS = {"temperature": 1, "top_p": 0.9, "seed": 5, "num_predict": 20, "stop": "END", "top_k": 40}
MESSAGES = (Message("system", "Be brief."), Message("user", "Hi"))
REQUEST = ChatRequest("toy", unpinned_digest("toy"), MESSAGES, OPTIONS)
QUICK = RetryPolicy(requests=3, pause=0.01)
KEY = "sk-very-secret"
LISTING = value({"object": "list", "data": [{"id": "toy"}, {"id": "other"}]})


def model(address, name="toy", told=None, **how):
    report = (told if told is not None else []).append
    server = OpenAiServer(name, f"{address}/v1", silence=0.3, report=report, **how)
    return ServedModel(name, server, QUICK, report)


def chat(*acts, timeout=20.0, **how):
    """Ask a server that plays the acts; return the reply and the number of times it was asked, or raise."""
    with FaultyServer(acts) as server:
        reply = model(server.address, **how).chat(REQUEST, timeout)
        return reply, len(server.posted)


def failure(*acts, timeout=20.0, **how):
    """Return the message of the CallError that the acts lead to, and the number of times that it was asked."""
    with FaultyServer(acts) as server:
        with pytest.raises(CallError) as caught:
            model(server.address, **how).chat(REQUEST, timeout)
        return str(caught.value), len(server.posted)


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OPENAI")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("act", "stream"), [(CHUNKS, True), (completion(), False)])
def test_the_request_has_the_names_of_this_interface(act, stream):
    with FaultyServer([act]) as server:
        model(server.address, stream=stream).chat(REQUEST, 20)
    ((path, body, headers),) = server.posted
    assert path == "/v1/chat/completions"
    assert body.pop("stream", False) is stream
    assert body.pop("stream_options", None) == ({"include_usage": True} if stream else None)
    assert body == {
        "model": "toy",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "temperature": 1,
        "top_p": 0.9,
        "seed": 5,
        "max_tokens": 20,
        "stop": "END",
        "top_k": 40,
    }
    assert headers["authorization"] == "Bearer none"


@pytest.mark.parametrize(("act", "stream"), [(CHUNKS, True), (completion(), False)])
def test_a_schema_goes_as_the_response_format(act, stream):
    with FaultyServer([act]) as server:
        model(server.address, stream=stream).chat(replace(REQUEST, schema={"type": "object"}), 20)
    form = {"name": "reply", "schema": {"type": "object"}, "strict": True}
    assert server.posted[0][1]["response_format"] == {"type": "json_schema", "json_schema": form}


def test_the_key_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with FaultyServer([CHUNKS]) as server:
        model(server.address).chat(REQUEST, 20)
    assert server.posted[0][2]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("code", [400, 401, 403, 404, 429, 500])
def test_the_key_stands_in_no_message(monkeypatch, code):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    told = []
    for text in (json.dumps({"error": {"message": f"bad key {KEY}!"}}), f"no key {KEY} here", f'{{"e": "{KEY}"}}'):
        with FaultyServer([status(code, text, Content_Type="application/json")]) as server:
            with pytest.raises((CallError, LlmError)) as caught:
                model(server.address, told=told).chat(REQUEST, 20)
            assert KEY not in str(caught.value)
            assert "(the key)" in str(caught.value) or "bad key" not in text
    failing = events(chunk("Hel"), {"error": {"message": f"bad key {KEY}!"}})
    assert "(the key)" in failure(failing)[0]
    assert KEY not in " ".join(told)


def refusal(message, **more):
    return json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None, **more}})


@pytest.mark.parametrize("act", [lines("<html>"), value(7), value([]), value({}), value({"choices": []})])
def test_a_whole_reply_of_another_shape_is_a_passing_fault(act):
    reply, count = chat(act, completion(), stream=False)
    assert (reply.text, count) == ("Hello", 2)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (status(404, refusal("no such model")), r"toy is not at http.*no such model.*Load it there.*base_url"),
        (status(401, refusal("no")), r"refuses access \(401: no\).*OPENAI_API_KEY"),
        (status(403, refusal("no")), r"refuses access \(403: no\).*OPENAI_API_KEY"),
        (status(402, refusal("no credit")), r"wants to be paid"),
        (status(429, refusal("no credit", code="insufficient_quota")), r"wants to be paid"),
    ],
)
def test_what_concerns_all_calls_stops_the_run(act, words):
    with pytest.raises(LlmError, match=words):
        chat(act)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 3},
        {"prompt_tokens": -1, "completion_tokens": 2},
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_without_usage_fails_the_call(usage, stream):
    act = events(chunk("x", "stop", usage=usage), "[DONE]") if stream else completion(usage=usage)
    message, _ = failure(act, stream=stream)
    assert "token limit cannot be kept" in message or "not what OpenAI's interface promises" in message


def test_usage_may_come_with_the_last_piece_of_text():
    reply, _ = chat(events(chunk("Hel"), chunk("lo", "length", usage=USAGE)))
    assert (reply.text, reply.done_reason, reply.output_tokens) == ("Hello", "length", 3)


def digest(*listings, name="toy"):
    with FaultyServer([], listings) as server:
        return model(server.address, name=name).digest()


def test_the_digest_says_that_it_pins_no_bytes():
    assert digest(status(503), LISTING) == unpinned_digest("toy")
    assert unpinned_digest("toy").startswith("unpinned:")
    assert digest(LISTING, name="other") != unpinned_digest("toy")


def test_a_model_that_is_not_listed_is_named_with_those_that_are():
    with pytest.raises(LlmError, match=r"model nobody is not at http.* It has other, toy\."):
        digest(LISTING, name="nobody")


@pytest.mark.parametrize("code", [404, 405, 501])
def test_an_endpoint_need_not_list_its_models(code):
    assert digest(status(code), name="nobody") == unpinned_digest("nobody")


def test_an_endpoint_that_answers_as_another_model_stops_the_run():
    other = events({**chunk("x", "stop", usage=USAGE), "model": "toy-v2"})
    with FaultyServer([CHUNKS, CHUNKS, other]) as server:
        asked = model(server.address)
        assert asked.chat(REQUEST, 20).text == asked.chat(REQUEST, 20).text == "Hello"
        with pytest.raises(LlmError, match="answered as toy-v1 before and answers as toy-v2"):
            asked.chat(REQUEST, 20)


def test_a_changed_fingerprint_is_told():
    told = []
    acts = [events(chunk("x", "stop", usage=USAGE, system_fingerprint=name)) for name in ("fp_1", "fp_1", None, "fp_2")]
    with FaultyServer(acts) as server:
        asked = model(server.address, told=told)
        for _ in range(5):
            asked.chat(REQUEST, 20)
    assert len(told) == 1
    assert "system_fingerprint fp_2 now, fp_1 before" in told[0]


def test_an_endpoint_that_is_no_url():
    with pytest.raises(LlmError, match="is no URL"):
        OpenAiServer("toy", "http://a:port")


def test_a_missing_client_says_what_to_install():
    hide = "import sys; sys.modules['openai'] = None; import pcgeval.llm.openai"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, check=False)
    assert "pip install 'pcgeval[openai]'" in done.stderr


def test_options_get_the_names_of_this_interface():
    assert wire_fields("toy", {"num_predict": -1, "repeat_penalty": 1.1}) == {"repeat_penalty": 1.1}
    with pytest.raises(LlmError, match="cannot pass on 'num_ctx'"):
        wire_fields("toy", {"num_ctx": 2048})
    with pytest.raises(LlmError, match=r"'max_tokens' is not an option\. Use num_predict"):
        wire_fields("toy", {"max_tokens": 5})
    with pytest.raises(LlmError, match="'n' is not an option"):
        wire_fields("toy", {"n": 5})
    with pytest.raises(LlmError, match="num_predict is 'many'"):
        wire_fields("toy", {"num_predict": "many"})
