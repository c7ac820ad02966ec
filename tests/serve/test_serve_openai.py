"""`serve-local` through the official OpenAI client: first without a model, then with a real one."""

import http.client
import json

import pytest
from toy_model import ask

from pcgeval.llm.local_models import LOCAL_MODELS
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, Message, unpinned_digest
from pcgeval.llm.retry import ServedModel
from pcgeval.serve.openai import CompletionBody
from pcgeval.serve.requests import parse_body

openai = pytest.importorskip("openai", reason="the extra openai is not installed")

from pcgeval.llm.openai import OpenAiServer  # noqa: E402 - it needs the extra

SMOLLM = LOCAL_MODELS[-1]
QUESTION = [{"role": "user", "content": "Name a colour."}]
# with serve-local's own fields, so that the text and the context are those of the tests of Ollama's interface
OPTIONS = {"temperature": 1, "top_p": 0.9, "max_tokens": 8, "seed": 7, "extra_body": {"num_ctx": 512}}
SAME = {"temperature": 1, "top_p": 0.9, "num_predict": 8, "seed": 7}


def client(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def test_the_official_client_lists_models(server):
    models = client(server.address).models
    assert [model.id for model in models.list()] == ["toy:small", "toy"]
    assert models.retrieve("toy:small").id == "toy:small"
    with pytest.raises(openai.NotFoundError) as caught:
        models.retrieve("nobody:1b")
    assert caught.value.body["message"] == "model 'nobody:1b' not found"


def test_an_unknown_model_is_not_found(server):
    with pytest.raises(openai.NotFoundError, match="model 'nobody:1b' not found"):
        client(server.address).chat.completions.create(model="nobody:1b", messages=QUESTION)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "missing request body"),
        ("{", "not valid JSON"),
        ("[]", "dictionary"),
        ("{}", "model"),
        ('{"model": ""}', "model"),
        ('{"model": "toy"}', "messages"),
        ('{"model": "toy", "messages": []}', "messages"),
        ('{"model": "toy", "messages": [{"role": "boss", "content": "hi"}]}', "messages.0.role"),
        ('{"model": "toy", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "only text"),
        ('{"model": "toy", "messages": [{"role": "user", "content": ["hi"]}]}', "only text"),
        ('{"model": "toy", "messages": [{"role": "user", "content": 7}]}', "messages.0.content"),
        ('{"model": "toy", "messages": [{"role": "user"}], "temperature": "hot"}', "temperature"),
        ('{"model": "toy", "messages": [{"role": "user"}], "temperature": NaN}', "temperature"),
        ('{"model": "toy", "messages": [{"role": "user"}], "max_tokens": 0}', "max_tokens"),
        ('{"model": "toy", "messages": [{"role": "user"}], "seed": 1e30}', "seed"),
        ('{"model": "toy", "messages": [{"role": "user"}], "stop": 7}', "stop"),
        ('{"model": "toy", "messages": [{"role": "user"}], "n": 2}', "n"),
        ('{"model": "toy", "messages": [{"role": "user"}], "logit_bias": {"5": 1}}', "logit_bias is not supported"),
        ('{"model": "toy", "messages": [{"role": "user"}], "logprobs": true}', "logprobs is not supported"),
    ],
)
def test_bad_bodies_are_refused(server, body, message):
    status, content = ask(server, "POST", "/v1/chat/completions", body.encode())
    assert status == 400
    error = json.loads(content)["error"]
    assert message in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_other_ways_in_are_refused(server):
    assert ask(server, "GET", "/v1/chat/completions")[0] == 405
    assert ask(server, "POST", "/v1/embeddings", b"{}")[0] == 404
    assert "message" in json.loads(ask(server, "GET", "/v1/nowhere")[1])["error"]


def test_llama_cpp_is_asked_for_what_was_checked_only():
    body = {
        "model": "toy",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Name "}, {"type": "text", "text": "one."}]},
            {"role": "assistant", "content": None},
        ],
        "max_completion_tokens": 5,
        "stop": "END",
        "top_k": 3,
        "seed": None,
        "unheard_of": 1,
    }
    read = parse_body(CompletionBody, json.dumps(body).encode())
    assert [message.content for message in read.messages] == ["Be brief.", "Name one.", ""]
    asked = read.wire
    assert (asked["max_tokens"], asked["stop"], asked["top_k"], asked["stream"]) == (5, ["END"], 3, False)
    assert (asked["temperature"], asked["top_p"], asked["seed"], asked["repeat_penalty"]) == (1.0, 1.0, -1, 1.1)
    assert [message["role"] for message in asked["messages"]] == ["system", "user", "assistant"]
    assert "unheard_of" not in asked


@pytest.mark.llm
def test_the_same_seed_gives_the_text_that_llama_cpp_gives(local_server, smollm):
    expected = smollm.chat(ChatRequest(SMOLLM.name, "d", (Message("user", "Name a colour."),), SAME), 60)
    create = client(local_server.address).chat.completions.create
    whole = create(model=SMOLLM.name, messages=QUESTION, **OPTIONS)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (expected.text, "length")
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (expected.prompt_tokens, 8)
    assert whole.usage.total_tokens == expected.prompt_tokens + 8
    assert (whole.model, whole.system_fingerprint) == (SMOLLM.name, f"fp_{SMOLLM.sha256[:16]}")
    usage = {"include_usage": True}
    *parts, end, costs = create(model=SMOLLM.name, messages=QUESTION, stream=True, stream_options=usage, **OPTIONS)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == expected.text
    assert {part.usage for part in [*parts, end]} == {None}
    assert (end.choices[0].finish_reason, costs.choices, costs.usage) == ("length", [], whole.usage)
    assert len({part.id for part in [*parts, end, costs]}) == 1
    plain = list(create(model=SMOLLM.name, messages=QUESTION, stream=True, **OPTIONS))
    assert [part.usage for part in plain] == [None] * (len(parts) + 1)
    other = create(model=SMOLLM.name, messages=QUESTION, **{**OPTIONS, "seed": 8})
    assert other.choices[0].message.content != expected.text


@pytest.mark.llm
def test_stop_format_and_a_prompt_that_is_too_long(local_server):
    create = client(local_server.address).chat.completions.create
    stopped = create(model=SMOLLM.name, messages=QUESTION, stop=["e", "a", "o"], **OPTIONS).choices[0]
    assert stopped.finish_reason == "stop"
    assert not set("eao") & set(stopped.message.content)
    schema = {
        "type": "object",
        "properties": {"n": {"type": "boolean"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = create(model=SMOLLM.name, messages=QUESTION, response_format=form, **{**OPTIONS, "max_tokens": 24})
    assert isinstance(json.loads(answer.choices[0].message.content)["n"], bool)
    for stream in (True, False):
        long = [{"role": "user", "content": "first"}, {"role": "user", "content": "word " * 600}]
        with pytest.raises(openai.BadRequestError, match="exceeds the context length") as caught:
            create(model=SMOLLM.name, messages=long, stream=stream, **OPTIONS)
        assert caught.value.code == "context_length_exceeded"


@pytest.mark.llm
def test_the_stream_is_server_sent_events(local_server):
    connection = http.client.HTTPConnection(local_server.host, local_server.port, timeout=60)
    body = {"model": SMOLLM.name, "messages": QUESTION, "max_tokens": 2, "num_ctx": 512, "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    answer = connection.getresponse()
    assert answer.getheader("content-type").startswith("text/event-stream")
    events = answer.read().decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(event.removeprefix("data: "))["object"] == "chat.completion.chunk" for event in events[:-2])


@pytest.mark.llm
def test_the_openai_backend_asks_it(local_server, smollm):
    messages = (Message("user", "Name a colour."),)
    expected = smollm.chat(ChatRequest(SMOLLM.name, "d", messages, SAME), 60)
    for stream in (True, False):
        model = ServedModel(SMOLLM.name, [OpenAiServer(SMOLLM.name, f"{local_server.address}/v1", stream=stream)])
        assert model.digest() == unpinned_digest(SMOLLM.name)
        found = model.chat(ChatRequest(SMOLLM.name, model.digest(), messages, SAME), 60)
        assert (found.text, found.prompt_tokens, found.output_tokens, found.done_reason) == (
            expected.text,
            expected.prompt_tokens,
            8,
            "length",
        )
    with pytest.raises(CallError, match="input length exceeds"):
        model.chat(ChatRequest(SMOLLM.name, "d", (Message("user", "word " * 5000),), SAME), 60)
    with pytest.raises(LlmError, match=f"It has {SMOLLM.name}"):
        ServedModel("nobody", [OpenAiServer("nobody", f"{local_server.address}/v1")]).digest()
