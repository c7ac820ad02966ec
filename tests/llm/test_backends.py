import pytest
from faulty_server import WHOLE_LINE, FaultyServer, lines, unused_address

from pcgeval.core.params import Model
from pcgeval.llm.backends import open_backend
from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.llamacpp import LlamaCpp
from pcgeval.llm.local_models import LOCAL_MODELS
from pcgeval.llm.protocol import ChatReply, ChatRequest, LlmError
from pcgeval.llm.recorded import RecordedModel
from pcgeval.llm.retry import ServedModel

SMOLLM = LOCAL_MODELS[-1]


def test_a_recorded_model_is_its_recording(tmp_path):
    path = tmp_path / "team.jsonl"
    write_recording(path, [LoggedCall(key="key", reply=ChatReply("text", 1, 2, "stop", 0.1))])
    backend = open_backend(Model(backend="recorded", name="toy:1b", digest="ab" * 32), path)
    assert isinstance(backend, RecordedModel)
    assert backend.digest() == "ab" * 32


def test_an_ollama_model_has_its_host(tmp_path, monkeypatch):
    host = unused_address()
    monkeypatch.setenv("OLLAMA_HOST", host)
    for model in (Model(backend="ollama", name="toy:1b"), Model(backend="ollama", name="toy:1b", host=host)):
        with pytest.raises(LlmError, match=host):
            open_backend(model, tmp_path).chat(ChatRequest("toy:1b", "d" * 64, (), {}), 1)
    with pytest.raises(LlmError, match="Did you mean 'num_ctx'"):
        open_backend(Model(backend="ollama", name="toy:1b", options={"num_ctxt": 1}), tmp_path)


def test_what_params_say_reaches_the_server(tmp_path):
    listing = lines({"models": [{"model": "toy:latest", "digest": "ab" * 32}]})
    with FaultyServer([lines(WHOLE_LINE)], [listing]) as server:
        how = {"host": server.address, "keep_alive": -1, "stream": False, "options": {"num_ctx": 9, "num_predict": 8}}
        model = Model(backend="ollama", name="toy", **how)
        backend = open_backend(model, tmp_path)
        backend.chat(ChatRequest("toy", backend.digest(), (), model.options), 20)
    ((_, body, _),) = server.posted
    assert (body["keep_alive"], body["stream"], body["options"]) == (-1, False, {"num_ctx": 9, "num_predict": 8})


def test_an_openai_model_has_its_endpoint(tmp_path):
    pytest.importorskip("openai", reason="the extra openai is not installed")
    model = Model(backend="openai", name="toy", base_url="http://here:1/v1")
    assert isinstance(open_backend(model, tmp_path), ServedModel)
    with pytest.raises(LlmError, match="num_ctx"):
        open_backend(model.model_copy(update={"options": {"num_ctx": 5}}), tmp_path)


def test_a_local_model_must_be_fetched_and_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PCGEVAL_CACHE", str(tmp_path))
    with pytest.raises(LlmError, match="pcgeval models fetch smollm2"):
        open_backend(Model(backend="llamacpp", name=SMOLLM.name), tmp_path)
    with pytest.raises(LlmError, match="not one of the local models"):
        open_backend(Model(backend="llamacpp", name="toy:1b"), tmp_path)


@pytest.mark.parametrize("context", ["many", 0, -5, True, 2.5])
def test_a_context_is_a_number_of_tokens(tmp_path, monkeypatch, context):
    monkeypatch.setenv("PCGEVAL_CACHE", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / SMOLLM.file).write_bytes(b"")
    with pytest.raises(LlmError, match="num_ctx"):
        open_backend(Model(backend="llamacpp", name=SMOLLM.name, options={"num_ctx": context}), tmp_path)


@pytest.mark.llm
def test_a_local_model_is_loaded(smollm_file, tmp_path):
    backend = open_backend(Model(backend="llamacpp", name=SMOLLM.name, options={"num_ctx": 256}), tmp_path)
    assert isinstance(backend, LlamaCpp)
    assert (backend.path, backend.digest()) == (smollm_file, SMOLLM.sha256)
    backend.close()
