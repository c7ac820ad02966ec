"""`serve-local` through the official client, with a real model."""

import hashlib
import http.client
import json
import time
from itertools import product

import httpx
import ollama
import pytest
from soak import shortened
from waiting import wait_until

from pcgeval.llm.local_models import LOCAL_MODELS
from pcgeval.llm.ollama import OllamaServer
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, Message
from pcgeval.llm.retry import ServedModel
from pcgeval.serve.server import LocalServer

pytestmark = pytest.mark.llm

SMOLLM, DIGEST = LOCAL_MODELS[-1].name, LOCAL_MODELS[-1].sha256
QUESTION = [{"role": "user", "content": "Name a colour."}]
OPTIONS = {"temperature": 1, "num_predict": 8, "seed": 7, "num_ctx": 512}
REQUEST = ChatRequest(SMOLLM, DIGEST, (Message("user", "Name a colour."),), OPTIONS)


@pytest.fixture
def client(local_server):
    return ollama.Client(local_server.address)


def test_the_list_has_the_file_s_digest_and_details(client, smollm_file):
    (model,) = client.list().models
    assert model.model == SMOLLM
    assert model.digest == hashlib.sha256(smollm_file.read_bytes()).hexdigest()
    assert (model.details.family, model.details.parameter_size) == ("llama", "135M")
    assert model.details.quantization_level == "Q4_1"
    shown = client.show(SMOLLM)
    assert shown.modelinfo["llama.context_length"] == 8192
    assert "im_start" in shown.template
    assert shown.capabilities == ["completion"]


def test_the_same_seed_gives_the_text_that_llama_cpp_gives(client, smollm):
    expected = smollm.chat(REQUEST, 60)
    whole = client.chat(SMOLLM, QUESTION, options=OPTIONS)
    assert whole.message.content == expected.text
    assert (whole.prompt_eval_count, whole.eval_count) == (expected.prompt_tokens, expected.output_tokens)
    assert (whole.done, whole.done_reason) == (True, "length")
    assert min(whole.total_duration, whole.prompt_eval_duration, whole.eval_duration) > 0
    assert whole.total_duration >= whole.load_duration
    parts = list(client.chat(SMOLLM, QUESTION, options=OPTIONS, stream=True))
    assert "".join(part.message.content for part in parts) == expected.text
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 2
    assert (parts[-1].eval_count, parts[-1].done_reason) == (expected.output_tokens, "length")
    assert client.chat(SMOLLM, QUESTION, options={**OPTIONS, "seed": 8}).message.content != expected.text


def test_generate_is_a_chat_of_one_message(client, smollm):
    expected = smollm.chat(REQUEST, 60)
    assert client.generate(SMOLLM, "Name a colour.", options=OPTIONS).response == expected.text
    parts = list(client.generate(SMOLLM, "Name a colour.", options=OPTIONS, stream=True))
    assert "".join(part.response for part in parts) == expected.text
    raw = client.generate(SMOLLM, "My name is", raw=True, options=OPTIONS)
    assert raw.prompt_eval_count < 6  # no template around it
    spoken = client.generate(SMOLLM, "Who?", system="You are a pirate.", options={**OPTIONS, "num_predict": 1})
    assert spoken.prompt_eval_count < expected.prompt_tokens  # the template's own system message gave way


def test_stop_and_format(client):
    whole = client.chat(SMOLLM, QUESTION, options={**OPTIONS, "stop": ["e", "a", "o"]})
    assert whole.done_reason == "stop"
    assert not set("eao") & set(whole.message.content)
    schema = {
        "type": "object",
        "properties": {"n": {"type": "boolean"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    answer = client.chat(SMOLLM, QUESTION, format=schema, options={**OPTIONS, "num_predict": 24}).message.content
    assert isinstance(json.loads(answer)["n"], bool)
    told = client.generate(SMOLLM, "Name a colour.", format=schema, options={**OPTIONS, "num_predict": 24}).response
    assert isinstance(json.loads(told)["n"], bool)
    for bad, words in (({"type": "nonsense"}, "nonsense"), ({"$ref": "#"}, "refers to itself")):
        for ask in (
            lambda form: client.chat(SMOLLM, QUESTION, format=form),
            lambda form: client.generate(SMOLLM, "x", format=form),
        ):
            with pytest.raises(ollama.ResponseError, match=words) as caught:
                ask(bad)
            assert caught.value.status_code == 400


def test_a_model_is_loaded_and_unloaded_on_request(client):
    assert client.chat(SMOLLM, [], options={"num_ctx": 256}).done_reason == "load"
    (running,) = client.ps().models
    assert (running.model, running.context_length, running.size_vram) == (SMOLLM, 256, 0)
    assert client.generate(SMOLLM, keep_alive=0).done_reason == "unload"
    assert client.ps().models == []
    client.chat(SMOLLM, QUESTION, options={**OPTIONS, "num_predict": 1}, keep_alive="0s")
    assert client.ps().models == []


def test_the_oldest_messages_give_way_but_not_the_system_s_and_the_last(client):
    turns = [{"role": "user", "content": f"word {number} " * 30} for number in range(4)]
    system, last = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a colour."}
    options = {**OPTIONS, "num_predict": 1, "num_ctx": 256}
    cut = client.chat(SMOLLM, [system, *turns, last], options=options).prompt_eval_count
    two, one = (
        client.chat(SMOLLM, [system, *turns[first:], last], options=options).prompt_eval_count for first in (2, 3)
    )
    assert cut == two
    assert two + (two - one) > 256  # a third turn would not have fitted
    with pytest.raises(ollama.ResponseError, match="exceeds the context length") as caught:
        client.chat(SMOLLM, [system, {"role": "user", "content": "word " * 300}], options=options)
    assert caught.value.status_code == 400


@pytest.mark.parametrize(
    ("path", "stream"), shortened([*product(["/api/chat", "/v1/chat/completions"], [True, False])], 0, 3)
)
def test_a_client_that_goes_away_frees_the_model(local_server, client, path, stream):
    connection = http.client.HTTPConnection(local_server.host, local_server.port, timeout=60)
    body = {"model": SMOLLM, "messages": QUESTION, "stream": stream, "num_ctx": 4096, "max_tokens": 4000}
    connection.request("POST", path, json.dumps({**body, "options": {"num_ctx": 4096, "num_predict": 4000}}))
    if stream:
        assert connection.getresponse().readline()
    else:
        wait_until(lambda: local_server.manager.loaded and local_server.manager.loaded.context == 4096)
        time.sleep(0.3)
    connection.close()
    hung_up = time.monotonic()
    assert client.chat(SMOLLM, QUESTION, options=OPTIONS).eval_count == 8
    assert time.monotonic() - hung_up < 60  # 4000 tokens take longer


def test_http_1_0_gets_its_stream_without_chunks(local_server):
    connection = http.client.HTTPConnection(local_server.host, local_server.port, timeout=60)
    connection._http_vsn, connection._http_vsn_str = 10, "HTTP/1.0"
    connection.request("POST", "/api/chat", json.dumps({"model": SMOLLM, "messages": QUESTION, "options": OPTIONS}))
    lines = connection.getresponse().read().splitlines()
    assert json.loads(lines[-1])["done"] is True


def test_the_ollama_backend_asks_it(local_server, smollm, smollm_file):
    expected = smollm.chat(REQUEST, 60)
    for stream in (True, False):
        server = OllamaServer(SMOLLM, local_server.address, stream=stream, keep_alive="10m")
        model = ServedModel(SMOLLM, [server])
        assert model.digest() == hashlib.sha256(smollm_file.read_bytes()).hexdigest()
        found = model.chat(REQUEST, 60)
        assert (found.text, found.prompt_tokens, found.output_tokens, found.done_reason) == (
            expected.text,
            expected.prompt_tokens,
            expected.output_tokens,
            "length",
        )
    with pytest.raises(CallError, match=r"refused the request \(400: the input length exceeds"):
        model.chat(ChatRequest(SMOLLM, DIGEST, (Message("user", "word " * 600),), OPTIONS), 60)
    with pytest.raises(LlmError, match="ollama pull nobody:1b"):
        ServedModel("nobody:1b", [OllamaServer("nobody:1b", local_server.address)]).digest()


def test_a_server_that_stops_ends_the_reply_in_progress(smollm_file):
    with LocalServer("127.0.0.1", 0, {SMOLLM: smollm_file}, threads=1) as server:
        options = {**OPTIONS, "num_predict": 450, "num_ctx": 512}
        stream = ollama.Client(server.address).chat(SMOLLM, QUESTION, options=options, stream=True)
        assert not next(stream).done
    assert server.manager.loaded is None
    with pytest.raises(httpx.RemoteProtocolError):
        list(stream)
