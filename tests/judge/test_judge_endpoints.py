"""Models of every kind judge at a scripted endpoint: what they are sent, what they refuse, what their replies hold."""

import asyncio
import json
from pathlib import Path

import pytest
from rubric_trees import leaf, node
from scripted_endpoint import ScriptedEndpoint

from pcgeval import run_judge
from pcgeval.core.files import write_text
from pcgeval.core.params import Model
from pcgeval.core.profiles import ModelProfile, Price, known_profile
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import GradingError, JudgeSettings, model_of

pytest.importorskip("openai", reason="the extra openai is not installed")
LEAVES = 2
LOCAL = "http://127.0.0.1:8000/v1"


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    tree = node("root", 1, *(leaf(f"leaf-{number}") for number in range(LEAVES)))
    write_text(tmp_path / "data/papers/toy/rubric.json", json.dumps(tree))
    write_text(tmp_path / "data/papers/toy/paper.md", "# A toy")
    write_text(tmp_path / "attempt/README.md", "We did it.")
    write_text(tmp_path / "attempt/main.py", "print('it')")
    return tmp_path / "attempt"


def judged(attempt, endpoint, name="m", options=None, profile=None, **settings):
    model = Model(backend="openai", name=name, base_url=endpoint.base_url, options=options or {}, profile=profile)
    settings = JudgeSettings.checked({"judge": "simple", "model": model, **settings})
    return grade_submission(attempt, "toy", settings, calls=CallFiles(log=None))


def fields(endpoint):
    """Return the fields beside the messages of what was answered, as one value each; all calls must agree."""
    found = [{name: value for name, value in body.items() if name != "messages"} for body in endpoint.asked]
    common = {name: found[0][name] for name in found[0] if name not in {"response_format", "stream", "stream_options"}}
    assert all(each[name] == value for each in found for name, value in common.items())
    return common


# the fields that OpenAI's reasoning models refuse
STRICT = {"max_tokens": "max_completion_tokens", "temperature": "", "seed": "", "top_p": ""}


@pytest.mark.parametrize("name", ["o1", "o1-2024-12-17", "o3-mini", "o3", "o4-mini-2025-04-16", "gpt-5", "gpt-5-mini"])
def test_reasoning_models_are_sent_only_what_they_take(attempt, name):
    with ScriptedEndpoint(refuses=STRICT) as endpoint:
        output = judged(attempt, endpoint, name)
    assert output.num_invalid_leaf_nodes == 0
    assert endpoint.refused == []
    sent = fields(endpoint)
    assert sent.pop("reasoning_effort", None) == ("high" if name == "o3-mini" else None)
    assert sent == {"model": name, "max_completion_tokens": 10_000}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-4o-2024-08-06", {"max_tokens": 4000, "temperature": 0, "seed": 0}),
        ("gpt-4.1", {"max_tokens": 4000, "temperature": 0, "seed": 0}),
        ("deepseek-ai/DeepSeek-R1", {"max_tokens": 10_000, "temperature": 0.6, "seed": 0}),
        ("Qwen/Qwen3-32B", {"max_tokens": 6000, "temperature": 0.6, "seed": 0}),
        ("openai/gpt-oss-120b", {"max_tokens": 10_000, "temperature": 1.0, "seed": 0}),
        ("somebodys-own", {"max_tokens": 4000, "temperature": 0, "seed": 0}),
    ],
)
def test_other_models_by_their_profile(attempt, name, expected):
    with ScriptedEndpoint() as endpoint:
        judged(attempt, endpoint, name)
    assert fields(endpoint) == {"model": name, **expected}


def test_a_profile_is_overridden_field_by_field_and_options_come_first(attempt):
    profile = {"temperature": None, "seed": False, "limit_field": "max_completion_tokens", "answer_tokens": 3000}
    with ScriptedEndpoint() as endpoint:
        judged(attempt, endpoint, "gpt-4o", profile=profile)
    assert fields(endpoint) == {"model": "gpt-4o", "max_completion_tokens": 3000}
    with ScriptedEndpoint() as endpoint:
        judged(attempt, endpoint, "o3", {"num_predict": 777, "seed": 5, "reasoning_effort": "low", "temperature": 1})
    assert fields(endpoint) == {
        "model": "o3",
        "max_completion_tokens": 777,
        "seed": 5,
        "reasoning_effort": "low",
        "temperature": 1,
    }
    with ScriptedEndpoint() as endpoint:
        judged(attempt, endpoint, "gpt-4o", profile={"structured_output": None, "limit_field": None})
    assert fields(endpoint) == {"model": "gpt-4o", "temperature": 0, "seed": 0}
    assert not any("response_format" in body for body in endpoint.asked)


def test_what_a_400_names_is_dropped_or_renamed_once(attempt, capsys):
    refuses = {**STRICT, "stream_options": ""}
    with ScriptedEndpoint(refuses=refuses) as endpoint:
        output = judged(attempt, endpoint, "a-new-one")
    assert output.num_invalid_leaf_nodes == 0
    assert len(endpoint.refused) == len(set(refuses) - {"top_p"})  # each of those sent, once for the whole grading
    assert all(body["max_completion_tokens"] == 4000 for body in endpoint.asked)
    told = capsys.readouterr().err
    assert "does not take max_tokens; it is sent as max_completion_tokens from now on" in told
    assert "does not take temperature; it is left out from now on" in told


def test_an_answer_that_was_cut_off_gets_twice_the_room(attempt):
    with ScriptedEndpoint(least_room=5000) as endpoint:
        output = judged(attempt, endpoint)
    assert output.num_invalid_leaf_nodes == 0
    assert [body["max_tokens"] for body in endpoint.asked] == [4000, 8000] * LEAVES
    assert output.token_usage.total.calls == 2 * LEAVES


def test_an_answer_cut_off_by_the_endpoint_itself_is_counted_once(attempt):
    with ScriptedEndpoint(least_room=10**10, thinks="# Score\n1\nThis is") as endpoint:
        output = judged(attempt, endpoint, profile=ModelProfile(answer_tokens=None))
    assert output.score == 1
    assert output.token_usage.total.calls == len(endpoint.asked) == LEAVES


def test_an_endpoint_that_reports_no_tokens_judges(attempt):
    with ScriptedEndpoint(usage=False) as endpoint:
        output = judged(attempt, endpoint)
    total = output.token_usage.total
    assert output.num_invalid_leaf_nodes == 0
    assert total.estimated
    asked = sum(len(message["content"]) for body in endpoint.asked for message in body["messages"])
    assert total.prompt_tokens == pytest.approx(asked / 4, rel=0.05)
    assert "estimated" in json.dumps(output.to_json()["token_usage"])


@pytest.mark.parametrize(
    "thinks",
    [
        "<think>\n# Score\n1\nor is it 0?\n</think>\n",
        "The template began this thought. # Score\n1\n</think>\n",
        "<think>" + "I wonder. # Score\n1\n" * 3000 + "</think>",
        "<|channel|>analysis<|message|># Score\n1<|end|><|start|>assistant<|channel|>final<|message|>",
    ],
)
def test_thoughts_are_not_the_answer(attempt, thinks):
    with ScriptedEndpoint(thinks=thinks) as thinking, ScriptedEndpoint() as plain:
        found, expected = judged(attempt, thinking), judged(attempt, plain)
    assert found.num_invalid_leaf_nodes == 0
    assert [each.score for each in found.graded_task_tree.leaves] == [
        each.score for each in expected.graded_task_tree.leaves
    ]


def test_cached_tokens_and_the_price_are_counted(attempt):
    with ScriptedEndpoint() as endpoint:
        output = judged(attempt, endpoint, "o3-mini")
    total, price = output.token_usage.total, known_profile("o3-mini").price
    assert 0 < total.cached_tokens < total.prompt_tokens
    fresh = total.prompt_tokens - total.cached_tokens
    expected = (fresh * 1.1 + total.cached_tokens * 0.55 + total.output_tokens * 4.4) / 1e6
    assert output.cost == pytest.approx(expected, abs=1e-6)
    assert output.to_json()["price"] == price.model_dump()
    with ScriptedEndpoint() as endpoint:
        assert judged(attempt, endpoint, "somebodys-own").cost is None


@pytest.mark.parametrize(
    "name", ["o1-pro", "o3-pro", "gpt-5-pro", "gpt-4o-2024-05-13", "openai/gpt-4o", "gpt-4o-audio"]
)
def test_the_price_of_a_name_that_only_begins_like_a_known_one_is_unknown(name):
    model = Model(backend="openai", name=name, base_url="https://api.example.com/v1")
    assert JudgeSettings(judge="simple", model=model).price is None
    with pytest.raises(GradingError, match=f"price of {name} is unknown"):
        JudgeSettings.checked({"judge": "simple", "model": model, "max_cost": 1})
    priced = model.model_copy(update={"profile": ModelProfile(price=Price(input=1, output=2))})
    assert JudgeSettings(judge="simple", model=priced, max_cost=1).price.output == 2


@pytest.mark.parametrize(
    ("url", "given", "at_once"),
    [("https://api.example.com/v1", {}, 8), ("https://api.example.com/v1", {"concurrency": 1}, 1), (LOCAL, {}, 1)],
)
def test_a_hosted_endpoint_has_eight_calls_at_once(url, given, at_once):
    model = Model(backend="openai", name="m", base_url=url, **given)
    assert JudgeSettings(judge="simple", model=model).concurrency == at_once
    if not given:
        model = model_of({"model": "m", "base_url": url})
        assert JudgeSettings.checked({"judge": "simple", "model": model}).concurrency == at_once


def test_papers_may_be_a_path_and_no_model_means_gpt_4o(attempt, monkeypatch):
    with ScriptedEndpoint() as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        output = asyncio.run(run_judge(attempt, "toy", "simple", calls=CallFiles(log=None)))
        settings = JudgeSettings(papers_dir=Path("data/papers"))
        again = asyncio.run(run_judge(attempt, "toy", "simple", settings=settings, calls=CallFiles(log=None)))
    assert output.model == again.model == "gpt-4o-2024-08-06"


def test_a_completer_of_paperbench_is_a_model_of_openais_endpoint(attempt, monkeypatch):
    async def run(**config):
        return await run_judge(attempt, "toy", completer_config=config, calls=CallFiles(log=None))

    with ScriptedEndpoint() as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        output = asyncio.run(run(model="gpt-4o-2024-08-06", temperature=0.5, max_tokens=3000, reasoning_effort=None))
    assert (output.model, output.num_invalid_leaf_nodes) == ("gpt-4o-2024-08-06", 0)
    assert fields(endpoint) == {"model": "gpt-4o-2024-08-06", "temperature": 0.5, "max_tokens": 3000, "seed": 0}
    with pytest.raises(GradingError, match=r"'modell' is not known\. Use some of model, base_url,"):
        asyncio.run(run(model="gpt-4o", modell="o1"))


@pytest.mark.parametrize(
    ("name", "context", "answer"),
    [("o3-mini", 128_000, 10_000), ("gpt-4.1", 128_000, 4000), ("qwen3:8b", 40_960, 6000), ("unknown", 32_768, 4000)],
)
def test_the_context_and_the_room_follow_from_the_profile(name, context, answer):
    settings = JudgeSettings(judge="simple", model=Model(backend="ollama", name=name))
    assert (settings.context_tokens, settings.answer_tokens) == (context, answer)
    small = settings.model_copy(update={"context": 4096})
    assert (small.context_tokens, small.answer_tokens) == (4096, 2000)
    assert settings.model_copy(update={"context": 2048}).answer_tokens == 1024
