"""Models of every kind judge at a scripted endpoint: what they are sent, what they refuse, what their replies hold."""

import asyncio
from pathlib import Path

import pytest
from judged_attempt import ATTEMPT, graded_at, write_files, write_paper
from model_servers import ScriptedEndpoint
from rubric_trees import RESULT, leaf, node

from pcgeval import run_judge
from pcgeval.formats.params import Model, ModelProfile, Price
from pcgeval.judge.settings import GradingError, JudgeSettings

pytest.importorskip("openai", reason="the extra openai is not installed")
LEAVES = 2
HOSTED, LOCAL = "https://api.example.com/v1", "http://127.0.0.1:1234/v1"
GPT_4O = "gpt-4o-2024-08-06"


@pytest.fixture(autouse=True)
def attempt():
    write_paper(node("root", 1, leaf("code"), leaf("table", 1, RESULT)))
    write_files({"README.md": "We did it.", "main.py": "print('it')", "results.csv": "n,mean\n9,1\n"})
    write_files({"reproduce.log": "it ran", "reproduce.log.creation_time": "0"})


def judged(endpoint, name="m", **more):
    output = graded_at(endpoint, name, **more)
    assert output.num_invalid_leaf_nodes == 0
    return output


def fields(endpoint):
    """Return the fields beside the messages of what was answered, as one value each; all calls must agree."""
    beside = {"messages", "response_format", "stream", "stream_options"}
    first, *others = [{name: value for name, value in body.items() if name not in beside} for body in endpoint.asked]
    assert all(body == first for body in others)
    return first


# the fields that OpenAI's reasoning models refuse
STRICT = {"max_tokens": "max_completion_tokens", "temperature": "", "seed": "", "top_p": ""}
REASONING = {"max_completion_tokens": 10_000}
USUAL = {"max_tokens": 4000, "temperature": 0, "seed": 0}
BARE = {"temperature": None, "seed": False, "limit_field": "max_completion_tokens", "answer_tokens": 3000}
OWN = {"num_predict": 777, "seed": 5, "reasoning_effort": "low", "temperature": 1}
OWN_SENT = {"max_completion_tokens": 777, "seed": 5, "reasoning_effort": "low", "temperature": 1}


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        *((name, {}, REASONING) for name in ("o1", "o4-mini-2025-04-16", "gpt-5-mini")),
        ("o3-mini", {}, {**REASONING, "reasoning_effort": "high"}),
        *((name, {}, USUAL) for name in (GPT_4O, "gpt-4.1", "somebodys-own")),
        ("deepseek-ai/DeepSeek-R1", {}, {"max_tokens": 10_000, "temperature": 0.6, "seed": 0}),
        ("Qwen/Qwen3-32B", {}, {"max_tokens": 6000, "temperature": 0.6, "seed": 0}),
        ("gpt-4o", {"profile": BARE}, {"max_completion_tokens": 3000}),
        ("gpt-4o", {"profile": {"structured_output": None, "limit_field": None}}, {"temperature": 0, "seed": 0}),
        ("gpt-4o", {"max_tokens": 555}, {**USUAL, "max_tokens": 555}),
        ("o3", {"options": OWN}, OWN_SENT),
    ],
)
def test_models_are_sent_what_their_profile_says_and_options_come_first(name, more, expected):
    with ScriptedEndpoint(refuses=STRICT if REASONING.items() <= expected.items() else {}) as endpoint:
        judged(endpoint, name, **more)
    assert endpoint.refused == []
    assert fields(endpoint) == {"model": name, **expected}


def test_what_a_400_names_is_dropped_or_renamed_once(capsys):
    refuses = {**STRICT, "stream_options": ""}
    with ScriptedEndpoint(refuses=refuses) as endpoint:
        judged(endpoint, "a-new-one")
    assert len(endpoint.refused) == len(set(refuses) - {"top_p"})  # each of those sent, once for the whole grading
    assert fields(endpoint) == {"model": "a-new-one", "max_completion_tokens": 4000}
    told = capsys.readouterr().err
    assert "does not take max_tokens; it is sent as max_completion_tokens from now on" in told


def test_cached_tokens_and_the_price_are_counted():
    with ScriptedEndpoint() as endpoint:
        output = judged(endpoint, "o3-mini")
        assert judged(endpoint, "somebodys-own").cost is None
    total = output.token_usage.total
    assert 0 < total.cached_tokens < total.prompt_tokens
    fresh = total.prompt_tokens - total.cached_tokens
    expected = (fresh * 1.1 + total.cached_tokens * 0.55 + total.output_tokens * 4.4) / 1e6
    assert output.cost == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["o1-pro", "gpt-4o-2024-05-13", "o3-2099-01-01", "openai/gpt-4o", "gpt-4o-audio"])
def test_the_price_of_a_name_that_only_begins_like_a_known_one_is_unknown(name):
    model = Model(backend="openai", name=name, base_url=HOSTED)
    assert JudgeSettings(judge="simple", model=model).price is None
    with pytest.raises(GradingError, match=f"price of {name} is unknown"):
        JudgeSettings.checked({"judge": "simple", "model": model, "max_cost": 1})
    priced = model.model_copy(update={"profile": ModelProfile(price=Price(input=1, output=2))})
    assert JudgeSettings(judge="simple", model=priced, max_cost=1).price.output == 2


@pytest.mark.parametrize(("url", "given", "calls"), [(HOSTED, {}, 8), (HOSTED, {"concurrency": 1}, 1), (LOCAL, {}, 1)])
def test_a_hosted_endpoint_has_eight_calls_at_once(url, given, calls):
    model = Model(backend="openai", name="m", base_url=url, **given)
    assert JudgeSettings(judge="simple", model=model).concurrency == calls


@pytest.mark.parametrize(
    ("name", "context", "answer"),
    [("o3-mini", 128_000, 10_000), ("gpt-4.1", 128_000, 4000), ("qwen3:8b", 40_960, 6000), ("unknown", 32_768, 4000)],
)
def test_the_context_and_the_room_follow_from_the_profile(name, context, answer):
    settings = JudgeSettings(judge="simple", model=Model(backend="ollama", name=name))
    assert (settings.context_tokens, settings.answer_tokens) == (context, answer)
    rooms = [settings.model_copy(update={"context": context}).answer_tokens for context in (4096, 2048)]
    assert rooms == [2000, 1024]


def run(**arguments):
    """Call the judge as PaperBench does; no model means GPT-4o."""
    usual = {"paper_id": "toy", "judge_type": "simple", "code_only": False, "completer_config": None, "computer": None}
    return asyncio.run(run_judge(**{"submission_path": ATTEMPT, **usual, **arguments}))


def test_the_samples_by_which_others_call_the_judge(monkeypatch):
    with ScriptedEndpoint(lists=[GPT_4O]) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        output = run(completer_config={"model": GPT_4O})
        assert (len(endpoint.asked), output.prompts) == (LEAVES, "pcgeval")
        assert fields(endpoint) == {"model": GPT_4O, **USUAL}
        assert run() == output == run(settings=JudgeSettings(papers_dir=Path("data/papers")))
        assert len(endpoint.asked) == LEAVES
        named_alone = run(completer_config={"model": GPT_4O}, judge_type=None, settings=JudgeSettings(votes=1))
        assert named_alone.judge_type == "simple"
        completer = {"model": GPT_4O, "temperature": 0.5, "max_tokens": 3000, "reasoning_effort": None}
        assert run(completer_config=completer).num_invalid_leaf_nodes == 0
        assert endpoint.asked[-1].items() >= {"temperature": 0.5, "max_tokens": 3000, "seed": 0}.items()
    with pytest.raises(GradingError, match=r"'modell' is not known\. Use some of model, base_url,"):
        run(completer_config={"model": GPT_4O, "modell": "o1"})
    with pytest.raises(GradingError, match="judge: "):
        run(judge_type="simpel")
    with pytest.raises(GradingError, match="name: "):  # which means no other model
        run(completer_config="")
    with pytest.raises(GradingError, match=r"needs a base_url such as http.*junk"):
        run(completer_config={"model": "m", "base_url": "junk"})
    monkeypatch.setenv("OPENAI_BASE_URL", "rubbish")
    with pytest.raises(GradingError, match=r"needs a base_url such as http.*rubbish"):
        run()
