import json
import socket
import threading
import zlib

import pytest
from faulty_server import FaultyServer, broken_off, endless, lines, silent, stalled, status

from pcgeval.llm import bounded_http
from pcgeval.llm.ollama_server import OllamaModel, Patience
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, Message

DIGEST = "ab" * 32
OPTIONS = {"temperature": 1, "seed": 5, "num_predict": 20, "num_ctx": 2048, "repeat_penalty": 1.1}
REQUEST = ChatRequest("toy:1b", DIGEST, (Message("system", "Be brief."), Message("user", "Hi")), OPTIONS)
QUICK = Patience(attempts=3, pause=0.01, silence=0.3)


def part(text, **more):
    return {"model": "toy:1b", "message": {"role": "assistant", "content": text}, "done": False, **more}


END = part("", done=True, done_reason="stop", prompt_eval_count=12, eval_count=3)
GOOD = lines(part("Hel"), part("lo"), END)


def tags(*models):
    return lines({"models": list(models)})


def chat(*acts, timeout=20.0, patience=QUICK, stream=True):
    """Ask a server that plays the acts; return the reply and the number of requests, or raise."""
    with FaultyServer(acts) as server:
        reply = OllamaModel("toy:1b", server.address, stream=stream, patience=patience).chat(REQUEST, timeout)
        return reply, len(server.requests)


def failure(*acts, **how):
    """Return the message of the CallError that the acts lead to, and the number of requests."""
    with FaultyServer(acts) as server:
        timeout = how.pop("timeout", 20.0)
        with pytest.raises(CallError) as caught:
            OllamaModel("toy:1b", server.address, patience=QUICK, **how).chat(REQUEST, timeout)
        return str(caught.value), len(server.requests)


def test_a_streamed_reply_is_joined_and_its_costs_are_read():
    reply, count = chat(GOOD)
    assert (reply.text, reply.prompt_tokens, reply.output_tokens, reply.done_reason) == ("Hello", 12, 3, "stop")
    assert reply.seconds >= 0
    assert count == 1


def test_a_whole_reply_is_read():
    reply, _ = chat(lines({**END, "message": {"role": "assistant", "content": "Hello"}}), stream=False)
    assert reply.text == "Hello"


@pytest.mark.parametrize("stream", [True, False])
def test_the_request_is_passed_on_as_it_is(stream):
    with FaultyServer([lines({**END, "message": {"role": "assistant", "content": "x"}})]) as server:
        OllamaModel("toy:1b", server.address, stream=stream).chat(REQUEST, 20)
    ((path, body),) = server.requests
    assert path == "/api/chat"
    assert (body["model"], body["options"], body["stream"]) == ("toy:1b", OPTIONS, stream)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


PASSING = {
    "500": status(500),
    "503": status(503, "busy"),
    "429": status(429),
    "error in the stream": lines(part("Hel"), {"error": "the runner died"}),
    "broken off": broken_off(part("Hel")),
    "ended without its end": lines(part("Hel")),
    "nothing at all": lines(),
    "stalled": stalled(part("Hel")),
    "no JSON": lines("<html>"),
    "an array": lines([1, 2]),
    "a number": lines(7),
    "another shape": lines({"message": "Hello", "done": True}),
    "an error that is no text": lines({"error": {"code": 1}}),
    "deeply nested": lines("[" * 200_000),
    "compressed": status(200, "", Content_Encoding="gzip"),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_passing_fault_is_borne(fault):
    reply, count = chat(fault, GOOD)
    assert (reply.text, count) == ("Hello", 2)


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_fault_that_stays_fails_the_call(fault):
    message, count = failure(fault)
    assert message.startswith("model toy:1b: ")
    assert "no usable reply within 20 s and 3 attempts" in message
    assert count == 3


def test_a_refused_request_is_not_repeated():
    message, count = failure(status(400, '{"error": "invalid options: temperature"}'))
    assert "refused the request (400: invalid options: temperature)" in message
    assert count == 1


def test_a_missing_model_stops_the_run():
    with pytest.raises(LlmError, match=r"ollama pull toy:1b"):
        chat(status(404, '{"error": "model \'toy:1b\' not found"}'))


@pytest.mark.parametrize(
    "counts", [{}, {"prompt_eval_count": 3}, {"eval_count": 3}, {"prompt_eval_count": -1, "eval_count": 3}]
)
def test_a_reply_without_counts_fails_the_call(counts):
    end = part("x", done=True, **counts)
    with pytest.raises(CallError, match="without it the token limit cannot be kept"):
        chat(lines(end))


def test_the_deadline_covers_all_attempts():
    message, count = failure(status(503), timeout=0.001)
    assert "no usable reply within 0.001 s" in message
    assert count <= 1


@pytest.mark.parametrize("act", [silent(), endless(b"x", 0.02)], ids=["silent", "dripping"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_deadline_ends_a_call_that_would_not_end(act, stream):
    message, _ = failure(act, timeout=0.5, stream=stream)
    assert "no usable reply within 0.5 s" in message


def test_an_endless_reply_is_cut_off(monkeypatch):
    monkeypatch.setattr(bounded_http, "REPLY_LIMIT", 2**20)
    line = json.dumps(part("x" * 10_000)).encode() + b"\n"
    for piece in (line, b"x" * 65_536):
        message, count = failure(endless(piece))
        assert "longer than 1 MB" in message
        assert count == 1


def test_a_compressed_answer_is_never_unfolded():
    bomb = zlib.compress(b"x" * 10**7).decode("latin-1")
    message, _ = failure(status(200, bomb, Content_Encoding="deflate"))
    assert "broke off" in message


def test_no_server_says_how_to_start_one():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host = f"http://127.0.0.1:{unused.getsockname()[1]}"
    for stream in (True, False):
        model = OllamaModel("toy:1b", host, stream=stream, patience=QUICK)
        for call in (model.digest, lambda model=model: model.chat(REQUEST, 5)):
            with pytest.raises(LlmError, match=r"no Ollama server answers at .*ollama serve.*serve-local") as caught:
                call()
            assert host in str(caught.value)


@pytest.mark.parametrize("host", ["http://[", "127.0.0.1:port"])
def test_a_host_that_is_no_address(host):
    with pytest.raises(LlmError, match="is no address"):
        OllamaModel("toy:1b", host)


def digest(*acts, name="toy:1b"):
    with FaultyServer(acts) as server:
        return OllamaModel(name, server.address, patience=QUICK).digest()


@pytest.mark.parametrize("given", [DIGEST, f"sha256:{DIGEST}", DIGEST.upper()])
def test_the_digest_is_the_one_in_the_list(given):
    other = {"model": "toy:2b", "digest": "cd" * 32}
    assert digest(tags(other, {"model": "toy:1b", "digest": given})) == DIGEST
    assert digest(status(503), tags({"model": "Toy:latest", "digest": given}), name="toy") == DIGEST


@pytest.mark.parametrize("given", [None, "", "ab", DIGEST + "0", "sha512:" + DIGEST])
def test_no_digest_no_run(given):
    with pytest.raises(LlmError, match="names no SHA-256"):
        digest(tags({"model": "toy:1b", "digest": given}))


def test_a_model_that_is_not_listed_names_the_command():
    with pytest.raises(LlmError, match=r"Get it with `ollama pull toy:1b`\."):
        digest(tags({"model": "toy:2b", "digest": DIGEST}))
    with pytest.raises(LlmError, match=r"pcgeval models fetch smollm2:135m-instruct-q4_1"):
        digest(tags(), name="smollm2:135m-instruct-q4_1")


@pytest.mark.parametrize("act", [status(500), lines("<html>"), lines({"models": 7}), status(401)])
def test_a_server_that_cannot_list_stops_the_run(act):
    with pytest.raises(LlmError, match="the server at http"):
        digest(act)


def test_calls_from_several_threads_share_one_model():
    replies = []
    with FaultyServer([GOOD]) as server:
        model = OllamaModel("toy:1b", server.address, patience=QUICK)
        threads = [threading.Thread(target=lambda: replies.append(model.chat(REQUEST, 20).text)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert replies == ["Hello"] * 8
