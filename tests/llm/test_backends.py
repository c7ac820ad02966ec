import pytest

from pcgeval.competition.params import Model
from pcgeval.llm.backends import open_backend
from pcgeval.llm.llamacpp import LlamaCpp
from pcgeval.llm.local_models import LOCAL_MODELS
from pcgeval.llm.ollama_server import OllamaModel
from pcgeval.llm.protocol import ChatReply, LlmError
from pcgeval.llm.recorded import RecordedExchange, RecordedModel, write_recording

SMOLLM = LOCAL_MODELS[-1]


def test_a_recorded_model_is_its_recording(tmp_path):
    path = tmp_path / "team.jsonl"
    write_recording(path, [RecordedExchange("A", 1, 0, "key", ChatReply("text", 1, 2, "stop", 0.1))])
    backend = open_backend(Model(backend="recorded", name="toy:1b", digest="ab" * 32), path)
    assert isinstance(backend, RecordedModel)
    assert backend.digest() == "ab" * 32


def test_an_ollama_model_has_its_host(tmp_path, monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "elsewhere:1234")
    backend = open_backend(Model(backend="ollama", name="toy:1b"), tmp_path)
    assert isinstance(backend, OllamaModel)
    assert (backend.name, backend.host) == ("toy:1b", "elsewhere:1234")
    given = open_backend(Model(backend="ollama", name="toy:1b", host="http://here:1"), tmp_path)
    assert isinstance(given, OllamaModel)
    assert given.host == "http://here:1"


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
