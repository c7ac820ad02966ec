from dataclasses import replace

import pytest
from faulty_server import (
    LINES,
    WHOLE_LINE,
    FaultyServer,
    line,
    lines,
    status,
    unused_address,
)

from pcgeval.llm.ollama import OllamaServer, check_options
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, Message
from pcgeval.llm.retry import RetryPolicy, ServedModel

DIGEST = "ab" * 32
OTHER = "cd" * 32
OPTIONS = {"temperature": 1, "seed": 5, "num_predict": 20, "num_ctx": 2048, "repeat_penalty": 1.1}
REQUEST = ChatRequest("toy:1b", DIGEST, (Message("system", "Be brief."), Message("user", "Hi")), OPTIONS)
QUICK = RetryPolicy(requests=3, pause=0.01)


def tags(*models):
    return lines({"models": list(models)})


def toy(digest=DIGEST):
    return tags({"model": "toy:1b", "digest": digest})


def model(address, name="toy:1b", report=lambda _: None, **how):
    return ServedModel(name, OllamaServer(name, address, silence=0.3, **how), QUICK, report)


def chat(*acts, listings=None, timeout=20.0, **how):
    """Ask a server that plays the acts; return the reply and the number of times it was asked, or raise."""
    with FaultyServer(acts, listings or [toy()]) as server:
        reply = model(server.address, **how).chat(REQUEST, timeout)
        return reply, len(server.posted)


@pytest.mark.parametrize("stream", [True, False])
def test_the_request_is_passed_on_as_it_is(stream):
    with FaultyServer([lines(WHOLE_LINE)], [toy()]) as server:
        model(server.address, stream=stream, keep_alive="24h").chat(REQUEST, 20)
    ((path, body, _),) = server.posted
    assert path == "/api/chat"
    assert (body["model"], body["options"], body["stream"]) == ("toy:1b", OPTIONS, stream)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert body["keep_alive"] == "24h"


def test_what_is_not_set_is_left_to_the_server():
    with FaultyServer([LINES], [toy()]) as server:
        model(server.address).chat(REQUEST, 20)
    assert server.posted[0][1].get("keep_alive") is None


def test_a_stop_word_goes_as_the_list_that_ollama_takes():
    with FaultyServer([LINES], [toy()]) as server:
        model(server.address).chat(ChatRequest("toy:1b", DIGEST, (), {"stop": "```"}), 20)
    assert server.posted[0][1]["options"] == {"stop": ["```"]}


@pytest.mark.parametrize("stream", [True, False])
def test_a_schema_goes_as_the_format_that_ollama_takes(stream):
    asked = replace(REQUEST, schema={"properties": {"n": {"type": "boolean"}}})
    with FaultyServer([lines(WHOLE_LINE)], [toy()]) as server:
        model(server.address, stream=stream).chat(asked, 20)
        model(server.address, stream=stream).chat(REQUEST, 20)
    with_schema, without = (body for _, body, _ in server.posted)
    assert with_schema["format"] == {"properties": {"n": {"type": "boolean"}}}
    assert not without.get("format")


@pytest.mark.parametrize(
    "counts", [{}, {"prompt_eval_count": 3}, {"eval_count": 3}, {"prompt_eval_count": -1, "eval_count": 3}]
)
def test_a_reply_without_counts_fails_the_call(counts):
    end = line("x", done=True, **counts)
    with pytest.raises(CallError, match="without it the token limit cannot be kept"):
        chat(lines(end))


def test_no_server_says_how_to_start_one():
    host = unused_address()
    for stream in (True, False):
        asked = model(host, stream=stream)
        for call in (asked.digest, lambda asked=asked: asked.chat(REQUEST, 5)):
            with pytest.raises(LlmError, match=r"no Ollama server answers at .*\(\[Errno.*ollama serve") as caught:
                call()
            assert host in str(caught.value)


@pytest.mark.parametrize("host", ["http://[", "127.0.0.1:port"])
def test_a_host_that_is_no_address(host):
    with pytest.raises(LlmError, match="is no address"):
        OllamaServer("toy:1b", host)


def digest(*listings, name="toy:1b"):
    with FaultyServer([], listings) as server:
        return model(server.address, name=name).digest()


@pytest.mark.parametrize("given", [DIGEST, f"sha256:{DIGEST}", DIGEST.upper()])
def test_the_digest_is_the_one_in_the_list(given):
    other = {"model": "toy:2b", "digest": OTHER}
    assert digest(tags(other, {"model": "toy:1b", "digest": given})) == DIGEST
    assert digest(status(503), tags({"model": "Toy:latest", "digest": given}), name="toy") == DIGEST


@pytest.mark.parametrize("given", [None, "", "ab", DIGEST + "0", "sha512:" + DIGEST])
def test_no_digest_no_run(given):
    with pytest.raises(LlmError, match="names no SHA-256"):
        digest(toy(given))


def test_a_model_that_is_not_listed_names_the_command():
    with pytest.raises(LlmError, match=r"Get it with `ollama pull toy:1b`\."):
        digest(tags({"model": "toy:2b", "digest": DIGEST}))
    with pytest.raises(LlmError, match=r"ollama pull smollm2:135m-instruct-q4_1"):
        digest(tags(), name="smollm2:135m-instruct-q4_1")


def test_options_that_ollama_would_ignore_are_refused():
    check_options("toy:1b", {**OPTIONS, "min_p": 0.1, "stop": "x"})
    with pytest.raises(LlmError, match=r"no option 'temprature'\. Did you mean 'temperature'\?"):
        check_options("toy:1b", {"temprature": 1})
    with pytest.raises(LlmError, match=r"Use some of .*num_ctx"):
        check_options("toy:1b", {"xyz": 1})
