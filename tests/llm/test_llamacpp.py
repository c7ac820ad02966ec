import json
import signal
import threading
from dataclasses import replace

import pytest
from model_fixtures import SMOLLM

from pcgeval.llm.llamacpp import LlamaCpp, native_options
from pcgeval.llm.protocol import CallError, ChatRequest, ContextExceededError, LlmError, Message

pytestmark = pytest.mark.llm


def request(text="Name a colour.", **options):
    return ChatRequest("m", "d", (Message("user", text),), {"temperature": 1, "num_predict": 8, "seed": 7, **options})


def test_the_same_request_gives_the_same_text_and_another_seed_another(smollm):
    first, second = smollm.chat(request(), 60), smollm.chat(request(), 60)
    assert first.text == second.text
    assert smollm.chat(request(seed=8), 60).text != first.text
    assert (first.output_tokens, first.done_reason) == (8, "length")
    assert first.prompt_tokens > 8


def test_the_deadline_stops_a_reply_and_the_next_call_is_served(smollm):
    with pytest.raises(CallError, match=r"in 0\.001 s"):
        smollm.chat(request(num_predict=400), 0.001)
    assert smollm.chat(request(), 60).output_tokens == 8


def test_a_prompt_beyond_the_context_is_a_failed_call(smollm):
    with pytest.raises(ContextExceededError, match="too long"):
        smollm.chat(request("word " * 600), 60)


def test_odd_texts_are_read(smollm):
    for text in ("lone \ud800 surrogate", "NUL \0 byte", "<|im_end|>", ""):
        assert smollm.chat(request(text, num_predict=1), 60).output_tokens == 1


def test_a_value_that_llama_cpp_refuses_is_a_failed_call(smollm):
    with pytest.raises(CallError, match="temperature"):
        smollm.chat(request(temperature="hot"), 60)


GRADE = {
    "type": "object",
    "properties": {
        "valid_score": {"type": "boolean"},
        "score": {"enum": [0, 1]},
        "explanation": {"type": "string", "maxLength": 12},
    },
    "required": ["valid_score", "score", "explanation"],
    "additionalProperties": False,
}


def test_a_schema_gives_json_of_it(smollm):
    for seed in (1, 2):
        asked = replace(request("Is the sky blue? Grade it.", num_predict=120, seed=seed), schema=GRADE)
        found = json.loads(smollm.chat(asked, 120).text)
        assert set(found) == {"valid_score", "score", "explanation"}
        assert (type(found["valid_score"]), found["score"] in {0, 1}, type(found["explanation"])) == (bool, True, str)


def test_a_schema_that_is_refused_is_a_failed_call(smollm):
    with pytest.raises(CallError, match="nonsense"):
        smollm.chat(replace(request(), schema={"type": "nonsense"}), 60)


def test_calls_from_several_threads_are_served_one_after_another(smollm):
    expected, found = smollm.chat(request(), 60).text, []
    threads = [threading.Thread(target=lambda: found.append(smollm.chat(request(), 60).text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 3
    long = threading.Thread(target=smollm.chat, args=(request(num_predict=50), 60))
    long.start()
    with pytest.raises(CallError, match=r"in 0\.05 s"):
        smollm.chat(request(), 0.05)
    long.join()


def test_a_stop_word_ends_a_reply(smollm):
    first = smollm.chat(request(), 60).text
    assert smollm.chat(request(stop=first[3:6]), 60).text == first[:3]


def test_unknown_options_are_refused():
    with pytest.raises(LlmError, match="'top_kk' is not known"):
        native_options({"top_kk": 3})


def test_absent_options_have_the_defaults_of_ollama():
    assert native_options({})["temperature"] == 0.8
    assert native_options({})["repeat_penalty"] == 1.1
    assert native_options({"num_predict": 5, "num_ctx": 9})["num_predict"] == 5


def test_a_missing_file_says_what_to_run(tmp_path):
    with pytest.raises(LlmError, match="pcgeval models fetch"):
        LlamaCpp(tmp_path / "none.gguf")


def test_a_file_that_is_no_model(tmp_path):
    pytest.importorskip("xllamacpp")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(LlmError, match="cannot load it"):
        LlamaCpp(tmp_path / "bad.gguf")


def test_ctrl_c_ends_a_call_and_no_half_reply_comes_back(smollm_file):
    def interrupt(_):
        if not calls:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    calls = []
    model = LlamaCpp(smollm_file, context=512, threads=1, on_text=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.chat(request(num_predict=400), 60)
    calls.append("interrupted")
    assert model.chat(request(), 60).output_tokens == 8


def test_a_closed_model_says_so(smollm_file):
    model = LlamaCpp(smollm_file, context=256, threads=1)
    model.close()
    with pytest.raises(LlmError, match="closed"):
        model.chat(request(), 60)


def test_a_model_may_be_closed_as_soon_as_it_is_loaded(smollm_file):
    for _ in range(2):
        LlamaCpp(smollm_file, context=256, threads=1).close()


def test_a_served_model_is_asked_through_openais_client(local_server):
    openai = pytest.importorskip("openai", reason="the extra openai is not installed")
    with openai.OpenAI(base_url=local_server, api_key="none") as client:
        assert [model.id for model in client.models.list()] == [SMOLLM]
        answer = client.chat.completions.create(
            model=SMOLLM, messages=[{"role": "user", "content": "Say yes."}], max_tokens=4, seed=1
        )
    assert answer.choices[0].message.content
    assert 0 < answer.usage.completion_tokens <= 4
