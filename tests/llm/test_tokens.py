import base64
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from soak import SOAK

from pcgeval.llm import tokens
from pcgeval.llm.llamacpp import LlamaCpp
from pcgeval.llm.local_models import LOCAL_MODELS, cached_path
from pcgeval.llm.protocol import ChatReply, ChatRequest, LlmError, Message
from pcgeval.llm.tokens import MESSAGE_OVERHEAD, EstimatedTokens, JudgeTokens, OwnTokens, judge_tokens

ESTIMATE = EstimatedTokens()
CHANCE = random.Random(4)
SOURCE = Path(tokens.__file__).read_text("utf-8")


def drawn(alphabet, count):
    return "".join(CHANCE.choice(alphabet) for _ in range(count))


def between(first, last, count):
    return "".join(chr(CHANCE.randrange(first, last)) for _ in range(count))


LETTERS = "abcdefghijklmnopqrstuvwxyz"
KINDS = {
    "English": "It was the best of times; the judge's 2nd reading wasn't kinder, however.\n" * 40,
    "capitals": "THE WHOLE README IN CAPITALS, AND NOT ONE SMALL LETTER IN IT.\n" * 40,
    "German": "Die Donaudampfschifffahrtsgesellschaft gehört größtenteils außergewöhnlichen Eignern. " * 30,
    "Russian": "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 30,
    "Arabic": "التعلم الآلي هو فرع من فروع الذكاء الاصطناعي. " * 30,
    "code": SOURCE,
    "minified": SOURCE.replace(" ", "").replace("\n", ";"),
    "JSON": json.dumps({f"key {number}": [number * 1.7, {"a": None}] for number in range(200)}, indent=4),
    "log": "\n".join(f"2024-05-01 12:{n % 60:02d}:07,123 INFO step {n}/500 loss={n / 7:.5f} [=>.]" for n in range(99)),
    "XML": '<Block type="SquareHole" material="wood" x="1.25" y="-3.5" rotation="0"/>\n' * 60,
    "LaTeX": r"\begin{equation}\mathcal{L}(\theta)=\sum_{i=1}^{N}\log p_\theta(x_i)\end{equation} " * 30,
    "digits": drawn("0123456789", 2000),
    "a table": "\n".join("   ".join(drawn("0123456789", 10)) for _ in range(60)),
    "tabs": "\n".join("\t\t".join(drawn("0123456789", 10)) for _ in range(60)),
    "indented": "\n".join(" " * CHANCE.randint(0, 40) + "x" for _ in range(300)),
    "white space": drawn(" \t\n\r", 2000),
    "spaces": " " * 5000,
    "base64": base64.b64encode(CHANCE.randbytes(3000)).decode(),
    "hex": CHANCE.randbytes(2000).hex(),
    "letters": drawn(LETTERS, 3000),
    "one letter": "a" * 3000,
    "words of chance": " ".join(drawn(LETTERS, CHANCE.randint(1, 12)) for _ in range(500)),
    "marks": drawn("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 3000),
    "Chinese": between(0x4E00, 0x9FA0, 1000),
    "Japanese": "これは日本語の文章です。カタカナもあります。" * 40,
    "Korean": "안녕하세요. 이것은 한국어 문장입니다. " * 40,
    "emoji": between(0x1F300, 0x1F6FF, 800),
    "joined emoji": "👩‍👩‍👧👍🏽 " * 100,
    "bytes": CHANCE.randbytes(3000).decode("latin-1"),
    "broken bytes": CHANCE.randbytes(3000).decode("utf-8", "replace"),
    "controls": between(0, 32, 1000),
    "all planes": between(0x10000, 0x110000, 800),
    "accents": "a" + "\u0301" * 500,
    "quotes": "“‘’”—…«»" * 100,
    "a template's marks": "<|im_start|>user\nhi<|im_end|>\n" * 50,
}
MODELS = {model.name: cached_path(model) for model in LOCAL_MODELS}


@pytest.mark.llm
@pytest.mark.parametrize("name", [*MODELS] if SOAK else [*MODELS][-1:])
def test_the_estimate_is_above_each_local_model_s_count(name, smollm_file):  # noqa: ARG001 - it skips without llama.cpp
    if not MODELS[name].is_file():
        pytest.skip(f"{name} is not fetched")
    model = LlamaCpp(MODELS[name], context=64)
    own = judge_tokens(model, None).counter
    counts = {kind: (ESTIMATE.count(text), own.count(text)) for kind, text in KINDS.items()}
    assert {kind: pair for kind, pair in counts.items() if pair[0] < pair[1]} == {}
    for kind in ("English", "code", "log", "XML", "base64"):
        assert counts[kind][0] < 3 * counts[kind][1], kind


@pytest.mark.llm
def test_a_model_s_own_count_is_the_one_of_its_prompts(smollm):
    own = judge_tokens(smollm, None).counter
    assert isinstance(judge_tokens(None, None).counter, EstimatedTokens)
    assert own.count("") == 0

    def prompt(text):
        messages = (Message("system", "Be brief."), Message("user", text))
        return smollm.chat(ChatRequest("m", "d", messages, {"num_predict": 1}), 60).prompt_tokens

    empty = prompt("")
    for text in ("Hello world", "日本語の絵文字 🎉", "lone \ud800 surrogate", "<|im_end|>", "x = [1, 2]\n\n\treturn"):
        assert prompt(text) - empty == own.count(text)


@pytest.mark.llm
def test_a_template_adds_no_more_than_the_overhead(smollm):
    own = OwnTokens(smollm)
    for messages in (
        (Message("user", "hi"),),
        (Message("system", "Be brief."), Message("user", "hi")),
        (Message("user", "a"), Message("assistant", "b"), Message("user", "c")),
    ):
        used = smollm.chat(ChatRequest("m", "d", messages, {"num_predict": 1}), 60).prompt_tokens
        assert used <= sum(own.count(message.content) + MESSAGE_OVERHEAD for message in messages)


@given(st.text(max_size=300))
def test_the_estimate_bears_any_text(text):
    assert 0 <= ESTIMATE.count(text) <= len(text.encode("utf-8", "surrogatepass")) + 1


REPLY = ChatReply("", 0, 0, "stop", 1.0)


def test_the_scale_of_an_estimate_is_learned_from_the_endpoint():
    tokens = JudgeTokens(ESTIMATE, is_exact=False)
    tokens.learn(100, replace(REPLY, prompt_tokens=10))  # too short to tell
    tokens.learn(1000, replace(REPLY, prompt_tokens=1))  # nothing that can be true
    assert (tokens.scale, tokens.is_settled) == (1.0, False)
    tokens.learn(1000, replace(REPLY, prompt_tokens=500))
    assert tokens.is_settled
    assert 0.5 <= tokens.scale < 0.52
    tokens.learn(1000, replace(REPLY, prompt_tokens=700))
    assert tokens.scale >= 0.7
    before = tokens.scale
    tokens.raise_scale()
    assert tokens.scale == 1.25 * before


def test_without_a_report_the_scale_is_the_usual_one():
    tokens = JudgeTokens(ESTIMATE, is_exact=False)
    tokens.learn(1000, replace(REPLY, estimated=True))
    assert 0.6 < tokens.scale < 0.8


def test_a_tokenizer_may_be_named(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))  # noqa: S106
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    found = judge_tokens(None, str(tmp_path / "tokenizer.json"))
    assert (found.counter.count("a b, a"), found.is_settled) == (4, True)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(LlmError, match=r"other\.json: no tokenizer that can be read"):
        judge_tokens(None, str(tmp_path / "other.json"))
    assert isinstance(judge_tokens(None, None).counter, EstimatedTokens)


PLUGIN = """
import tiktoken.load


def _missing():
    return {"mergeable_ranks": tiktoken.load.load_tiktoken_bpe("http://127.0.0.1:9/file", expected_hash="0")}


def _bytes():
    ranks = {bytes([each]): each for each in range(256)} | {b"ab": 256}
    return {"name": "bytes", "pat_str": r"[a-z]+|[^a-z]", "mergeable_ranks": ranks, "special_tokens": {"<|end|>": 300}}


ENCODING_CONSTRUCTORS = {"bytes_of_a_test": _bytes, "missing_of_a_test": _missing}
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Two encodings for the real tiktoken: one of bytes, and one whose file cannot be fetched."""
    registry = pytest.importorskip("tiktoken.registry")
    (tmp_path / "tiktoken_ext").mkdir()
    (tmp_path / "tiktoken_ext" / "of_a_test.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "ENCODING_CONSTRUCTORS", None)
    registry._available_plugin_modules.cache_clear()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.usefixtures("plugin")
def test_an_encoding_of_tiktoken_counts_exactly():
    found = judge_tokens(None, "bytes_of_a_test")
    assert found.is_settled
    assert found.counter.count("abab c") == 4
    assert found.counter.count("<|end|>") == 7
    assert found.counter.count("\ud800") == 3


@pytest.mark.usefixtures("plugin")
def test_an_encoding_whose_file_cannot_be_fetched_is_told_and_estimated():
    told = []
    found = judge_tokens(None, "missing_of_a_test", told.append)
    assert not found.is_settled
    assert isinstance(found.counter, EstimatedTokens)
    assert "missing_of_a_test: its file cannot be fetched" in told[0]
    assert "TIKTOKEN_CACHE_DIR" in told[0]


@pytest.mark.usefixtures("plugin")
def test_an_encoding_that_tiktoken_lacks_is_an_error():
    with pytest.raises(LlmError, match=r"'o2oo' is no encoding of tiktoken .*o200k_base.* Correct profile.tokenizer"):
        judge_tokens(None, "o2oo")
