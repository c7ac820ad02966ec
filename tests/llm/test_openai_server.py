import json
import os
import subprocess
import sys
import threading
import zlib
from dataclasses import replace

import pytest
from faulty_server import (
    FaultyServer,
    broken_off,
    endless,
    events,
    headless,
    lines,
    silent,
    stalled,
    status,
    unused_address,
    value,
)

from pcgeval.llm import bounded_http
from pcgeval.llm.openai_options import wire_fields
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, Message, unpinned_digest
from pcgeval.llm.servers import Patience, ServedModel

pytest.importorskip("openai", reason="the extra openai is not installed")

from pcgeval.llm.openai import OpenAiServer

OPTIONS = {"temperature": 1, "top_p": 0.9, "seed": 5, "num_predict": 20, "stop": "END", "top_k": 40}
MESSAGES = (Message("system", "Be brief."), Message("user", "Hi"))
REQUEST = ChatRequest("toy", unpinned_digest("toy"), MESSAGES, OPTIONS)
QUICK = Patience(attempts=3, pause=0.01, rest=0.05)
KEY = "sk-very-secret"
USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
LISTING = value({"object": "list", "data": [{"id": "toy"}, {"id": "other"}]})


def chunk(text=None, reason=None, **more):
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]
    return {"id": "1", "object": "chat.completion.chunk", "model": "toy-v1", "choices": choices, **more}


def event(*chunks):
    return "".join(f"data: {json.dumps(each)}\n\n" for each in chunks)


END = (chunk(reason="stop"), {**chunk(), "choices": [], "usage": USAGE}, "[DONE]")
GOOD = events(chunk("Hel"), chunk("lo"), *END)


def whole(text="Hello", **more):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return value(
        {"id": "1", "object": "chat.completion", "model": "toy-v1", "choices": [choice], "usage": USAGE, **more}
    )


def model(address, name="toy", told=None, **how):
    report = (told if told is not None else []).append
    server = OpenAiServer(name, f"{address}/v1", silence=0.3, report=report, **how)
    return ServedModel(name, [server], QUICK, report)


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


@pytest.mark.parametrize(("act", "stream"), [(GOOD, True), (whole(), False)])
def test_a_reply_is_read_with_its_costs(act, stream):
    reply, count = chat(act, stream=stream)
    assert (reply.text, reply.prompt_tokens, reply.output_tokens, reply.done_reason) == ("Hello", 12, 3, "stop")
    assert reply.seconds >= 0
    assert count == 1


@pytest.mark.parametrize(("act", "stream"), [(GOOD, True), (whole(), False)])
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


@pytest.mark.parametrize(("act", "stream"), [(GOOD, True), (whole(), False)])
def test_a_schema_goes_as_the_response_format(act, stream):
    with FaultyServer([act]) as server:
        model(server.address, stream=stream).chat(replace(REQUEST, schema={"type": "object"}), 20)
    form = {"name": "reply", "schema": {"type": "object"}, "strict": True}
    assert server.posted[0][1]["response_format"] == {"type": "json_schema", "json_schema": form}


def test_a_schema_that_is_refused_fails_the_call_and_says_so():
    with FaultyServer([status(400, "no grammar")]) as server:
        with pytest.raises(CallError, match=r"400.*JSON of a schema, which it may not support"):
            model(server.address).chat(replace(REQUEST, schema={"type": "object"}), 20)
        with pytest.raises(CallError, match="refers to itself"):
            model(server.address).chat(replace(REQUEST, schema={"$ref": "#"}), 20)
    assert len(server.posted) == 1


def test_the_key_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with FaultyServer([GOOD]) as server:
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


PASSING = {
    "500": status(500, refusal("overloaded")),
    "503": status(503, "busy"),
    "429": status(429, refusal("slow down", code="rate_limit_exceeded")),
    "429 with an odd wait": status(429, Retry_After="-5"),
    "error in the stream": events(chunk("Hel"), {"error": {"message": "the engine died"}}),
    "an error that is no text": events({"error": 7}),
    "broken off": broken_off(event(chunk("Hel"))),
    "ended without its end": events(chunk("Hel")),
    "nothing at all": events(),
    "stalled": stalled(event(chunk("Hel"))),
    "no JSON": events("<html>"),
    "a page": lines("<html>"),
    "an array": events([1, 2]),
    "a number": events(7),
    "another shape": events({"choices": "Hello"}),
    "no delta": events({"choices": [{"index": 0}]}),
    "text that is none": events(chunk(7), *END),
    "deeply nested": events("[" * 200_000),
    "compressed": status(200, "", Content_Encoding="gzip"),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_passing_fault_is_borne(fault):
    reply, count = chat(fault, GOOD)
    assert (reply.text, count) == ("Hello", 2)


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_fault_that_stays_fails_the_call(fault):
    message, count = failure(fault)
    assert message.startswith("model toy: ")
    assert "no usable reply within 20 s and 3 attempts" in message
    assert count == 3


@pytest.mark.parametrize("act", [lines("<html>"), value(7), value([]), value({}), value({"choices": []})])
def test_a_whole_reply_of_another_shape_is_a_passing_fault(act):
    reply, count = chat(act, whole(), stream=False)
    assert (reply.text, count) == ("Hello", 2)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_refused_request_is_not_repeated(code):
    text = refusal("maximum context length is 4096 tokens", code="context_length_exceeded")
    message, count = failure(status(code, text))
    assert f"refused the request ({code}: maximum context length is 4096 tokens)" in message
    assert count == 1


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
    act = events(chunk("x", "stop", usage=usage), "[DONE]") if stream else whole(usage=usage)
    message, _ = failure(act, stream=stream)
    assert "token limit cannot be kept" in message or "not what OpenAI's interface promises" in message


def test_usage_may_come_with_the_last_piece_of_text():
    reply, _ = chat(events(chunk("Hel"), chunk("lo", "length", usage=USAGE)))
    assert (reply.text, reply.done_reason, reply.output_tokens) == ("Hello", "length", 3)


@pytest.mark.parametrize("act", [silent(), endless(b"x", 0.02), headless()], ids=["silent", "dripping", "headless"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_deadline_ends_a_call_that_would_not_end(act, stream):
    message, _ = failure(act, timeout=0.5, stream=stream)
    assert "no usable reply within 0.5 s" in message


@pytest.mark.parametrize("piece", [event(chunk("x" * 10_000)).encode(), b"x" * 65_536, b":\n" * 30_000])
def test_an_endless_reply_is_cut_off(monkeypatch, piece):
    monkeypatch.setattr(bounded_http, "REPLY_LIMIT", 2**20)
    message, count = failure(endless(piece))
    assert "longer than 1 MB" in message
    assert count == 1


def test_a_compressed_answer_is_never_unfolded():
    bomb = zlib.compress(b"x" * 10**7).decode("latin-1")
    message, _ = failure(status(200, bomb, Content_Encoding="deflate"))
    assert "broke off" in message


def test_a_wait_that_the_endpoint_asks_for_is_waited_if_there_is_time():
    reply, count = chat(status(429, Retry_After="1"), GOOD)
    assert (reply.text, count) == ("Hello", 2)
    message, count = failure(status(503, Retry_After="3600"))
    assert "asks to wait 3600 s" in message
    assert count == 1


@pytest.mark.parametrize("stream", [True, False])
def test_no_server_says_where_to_look(stream):
    asked = model(unused_address(), stream=stream)
    for call in (asked.digest, lambda: asked.chat(REQUEST, 5)):
        with pytest.raises(LlmError, match=r"nothing answers at http.*/v1.*base_url"):
            call()


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


@pytest.mark.parametrize("act", [status(500), lines("<html>"), value({"data": 7}), status(401), endless(b"[" * 65_536)])
def test_an_endpoint_that_cannot_list_stops_the_run(act, monkeypatch):
    monkeypatch.setattr(bounded_http, "REPLY_LIMIT", 2**20)
    with pytest.raises(LlmError, match="http"):
        digest(act)


def test_an_endpoint_that_answers_as_another_model_stops_the_run():
    other = events({**chunk("x", "stop", usage=USAGE), "model": "toy-v2"})
    with FaultyServer([GOOD, GOOD, other]) as server:
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


def test_calls_from_several_threads_share_one_model():
    replies = []
    with FaultyServer([GOOD]) as server:
        asked = model(server.address)
        threads = [threading.Thread(target=lambda: replies.append(asked.chat(REQUEST, 20).text)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert replies == ["Hello"] * 8


def test_an_endpoint_that_is_no_url():
    with pytest.raises(LlmError, match="is no URL"):
        OpenAiServer("toy", "http://a:port")


def test_a_missing_client_says_what_to_install():
    hide = "import sys; sys.modules['openai'] = None; import pcgeval.llm.openai"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, check=False)
    assert "pip install 'pcgeval[openai]'" in done.stderr


def test_options_get_the_names_of_this_interface():
    assert wire_fields("toy", {"num_predict": -1, "repeat_penalty": 1.1}) == {"extra_body": {"repeat_penalty": 1.1}}
    with pytest.raises(LlmError, match="cannot pass on 'num_ctx'"):
        wire_fields("toy", {"num_ctx": 2048})
    with pytest.raises(LlmError, match=r"'max_tokens' is not an option\. Use num_predict"):
        wire_fields("toy", {"max_tokens": 5})
    with pytest.raises(LlmError, match="'n' is not an option"):
        wire_fields("toy", {"n": 5})
    with pytest.raises(LlmError, match="num_predict is 'many'"):
        wire_fields("toy", {"num_predict": "many"})
