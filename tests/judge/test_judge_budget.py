"""What a grading may cost, what it would cost, and what is left where it ended early."""

import json
import shutil
from pathlib import Path

import pytest
import scripted_endpoint
from scripted_endpoint import ScriptedEndpoint
from scripted_judge import answer

from pcgeval.cli.main import main

PAPER = Path(__file__).parents[2] / "data/papers/block-letters"
HALF = [
    str(PAPER / "submissions/half"),
    "--set",
    "rubric.ignore_checks=true",
    "--paper",
    PAPER.name,
    "--set",
    f"rubric.papers_dir={PAPER.parent}",
]

pytest.importorskip("openai", reason="the extra openai is not installed")


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ScriptedEndpoint() as server:
        yield server


def run(capsys, endpoint, *words, code=0):
    model = [] if "--model" in words else ["--model", "gpt-4o-mini"]
    assert main(["grade", *HALF, *model, "--base-url", endpoint.base_url, "--json", *words]) == code
    said = capsys.readouterr()
    return (json.loads(said.out) if said.out else None), said.err


@pytest.mark.parametrize(("key", "small", "large"), [("max_cost", "0.002", "1"), ("max_tokens", "9000", "99999")])
def test_a_budget_ends_a_grading_and_a_larger_one_goes_on(capsys, endpoint, key, small, large):
    partial, told = run(capsys, endpoint, "--set", f"rubric.{key}={small}", code=1)
    asked = len(endpoint.asked)
    spent = sum((len(prompt) // 4) for prompt in endpoint.prompts)
    assert 0 < partial["num_invalid_leaf_nodes"] < partial["num_leaf_nodes"]
    assert f"{partial['num_invalid_leaf_nodes']} of 19 leaves were not judged: the budget of" in partial["partial"]
    assert "Raise it, and grade again to go on" in told
    assert "no reply is paid for twice" in told
    # no call begins once it is used up: only the last one may pass it
    if key == "max_tokens":
        assert int(small) / 2 < spent - len(endpoint.prompts[-1]) // 4 < int(small)
    else:
        assert float(small) / 2 < partial["cost"] < float(small) * (1 + 2 / asked)

    assert (
        run(capsys, endpoint, "--set", f"rubric.{key}={small}", code=1)[0] == partial
    )  # a second time, nothing is left of it
    assert run(capsys, endpoint, "--set", f"rubric.{key}={small}", "--max-invalid", "19")[0] == partial
    assert len(endpoint.asked) == asked

    whole, _ = run(capsys, endpoint, "--set", f"rubric.{key}={large}")
    assert "partial" not in whole
    assert whole["num_invalid_leaf_nodes"] == 0
    bodies = [json.dumps(body, sort_keys=True) for body in endpoint.asked]
    assert len(set(bodies)) == len(bodies)


def test_a_model_without_a_price_cannot_have_a_budget_in_money(capsys, endpoint):
    _, told = run(capsys, endpoint, "--model", "nobodys-model", "--set", "rubric.max_cost=1", code=2)
    assert "price of nobodys-model is unknown" in told
    assert "max_tokens" in told
    assert endpoint.asked == []


def test_a_dry_run_foresees_the_calls_and_makes_none(capsys, endpoint):
    planned = run(capsys, endpoint, "--dry-run")[0]["total"]
    assert endpoint.asked == []
    assert not Path(".pcgeval").exists()
    graded, _ = run(capsys, endpoint)
    calls = [graded["token_usage"]["grade"]]
    assert planned["calls"] == sum(call["calls"] for call in calls) == len(endpoint.asked)
    read = sum(call["prompt_tokens"] for call in calls)
    cached = sum(call["cached_tokens"] for call in calls)
    assert planned["prompt_tokens"] == pytest.approx(read, rel=0.4)
    assert planned["cached_tokens"] / planned["prompt_tokens"] == pytest.approx(cached / read, abs=0.2)
    assert 0 < planned["cost"] < 1
    after = run(capsys, endpoint, "--dry-run")[0]["total"]
    assert (after["calls"], after["known_calls"], after["cost"]) == (0, planned["calls"], 0)


def test_a_dry_run_after_a_grading_knows_every_call_whatever_files_the_leaves_chose(
    capsys, endpoint, monkeypatch, tmp_path
):
    def ranked(schema, prompt):
        names = schema and schema["properties"].get("files", {}).get("items", {}).get("enum")
        return json.dumps({"files": names[len(prompt) % 5 :: 2]}) if names else answer(schema, prompt)

    monkeypatch.setattr(scripted_endpoint, "answer", ranked)
    shutil.copytree(HALF[0], tmp_path / "attempt")
    for number in range(20):
        (tmp_path / f"attempt/notes-{number}.md").write_text(f"Note {number}.")
    monkeypatch.setitem(globals(), "HALF", [str(tmp_path / "attempt"), *HALF[1:]])
    run(capsys, endpoint)
    planned = run(capsys, endpoint, "--dry-run")[0]["total"]
    assert (planned["calls"], planned["known_calls"]) == (0, len(endpoint.asked))


def test_replies_that_are_known_tell_how_long_the_others_will_be(capsys, endpoint):
    first = run(capsys, endpoint, "--dry-run")[0]["total"]
    run(capsys, endpoint, "--set", "rubric.max_tokens=12000", code=1)
    second = run(capsys, endpoint, "--dry-run")[0]["total"]
    assert second["calls"] + second["known_calls"] == first["calls"]
    assert second["output_tokens"] / second["calls"] < first["output_tokens"] / first["calls"] / 3


@pytest.mark.parametrize(("words", "leaves"), [(["--reproduce"], 7), ([], 7), (["--set", "rubric.code_only=true"], 0)])
def test_what_only_results_of_reproduce_sh_would_cost_is_told(capsys, endpoint, words, leaves):
    planned, _ = run(capsys, endpoint, *words, "--dry-run")
    assert planned["total"]["leaves_of_results"] == leaves
    assert main(["grade", *HALF, "--model", "gpt-4o", "--base-url", endpoint.base_url, *words, "--dry-run"]) == 0
    assert (f"{leaves} more leaves" in capsys.readouterr().err) == ("--reproduce" in words)


def test_a_dry_run_of_a_judge_that_asks_nobody_costs_nothing(capsys, endpoint):
    assert main(["grade", *HALF, "--judge", "checks", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["cost"] == 0
    assert endpoint.asked == []
