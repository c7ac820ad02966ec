"""What a grading may cost, what it would cost, and what is left where it ended early."""

import json
import shutil
from pathlib import Path

import model_servers
import pytest
from model_servers import ScriptedEndpoint, answer

from pcgeval.cli.main import main

PAPER = Path(__file__).parents[2] / "data/papers/block-letters"
OF_PAPER = ["--paper", PAPER.name, "--set", "rubric.ignore_checks=true", "--set", f"rubric.papers_dir={PAPER.parent}"]
LEAVES, OF_RESULTS = 19, 7  # without a run, the latter are 0 without a call

pytest.importorskip("openai", reason="the extra openai is not installed")


@pytest.fixture
def endpoint():
    shutil.copytree(PAPER / "submissions/half", "half")
    with ScriptedEndpoint() as server:
        yield server


def run(capsys, endpoint, *arguments, code=0):
    at = ["--model", "gpt-4o-mini", "--base-url", endpoint.base_url]
    assert main(["grade", "half", *OF_PAPER, *at, "--json", *arguments]) == code
    printed = capsys.readouterr()
    return (json.loads(printed.out) if printed.out else None), printed.err


def test_a_budget_ends_a_grading_and_a_larger_one_goes_on(capsys, endpoint):
    small = ("--set", "rubric.max_cost=0.002")
    partial, told = run(capsys, endpoint, *small, code=1)
    asked = len(endpoint.asked)
    invalid = partial["num_invalid_leaf_nodes"]
    assert 0 < invalid < LEAVES
    assert f"{invalid} of {LEAVES} leaves were not judged: the budget of" in partial["partial"]
    assert "(max_cost)" in told
    # no call begins once it is used up: only the last one may pass it
    assert 0.002 <= partial["cost"] < 0.002 * (1 + 2 / asked)
    assert run(capsys, endpoint, *small, "--set", "rubric.max_width=1")[0] == partial  # nothing is left of it
    assert len(endpoint.asked) == asked
    whole, _ = run(capsys, endpoint, "--set", "rubric.max_cost=1")
    assert (whole.get("partial"), whole["num_invalid_leaf_nodes"]) == (None, 0)
    bodies = [json.dumps(body, sort_keys=True) for body in endpoint.asked]
    assert len(set(bodies)) == len(bodies) == LEAVES - OF_RESULTS


def test_a_dry_run_foresees_the_calls_and_makes_none(capsys, endpoint, monkeypatch):
    def ranked(schema, prompt):
        names = schema and schema["properties"].get("files", {}).get("items", {}).get("enum")
        return json.dumps({"files": names[len(prompt) % 5 :: 2]}) if names else answer(schema, prompt)

    def planned(*arguments):
        return run(capsys, endpoint, "--dry-run", *arguments)[0]["total"]

    monkeypatch.setattr(model_servers, "answer", ranked)
    for number in range(20):
        Path(f"half/notes-{number}.md").write_text(f"Note {number}.")
    before = planned()
    assert endpoint.asked == []
    assert not Path(".pcgeval").exists()
    assert before["leaves_of_results"] == OF_RESULTS
    assert planned("--set", "rubric.code_only=true")["leaves_of_results"] == 0
    run(capsys, endpoint, "--set", "rubric.token_budget=24000", code=1)
    between = planned()
    assert between["calls"] + between["known_calls"] == before["calls"]
    # known replies tell how long the others will be
    assert between["output_tokens"] / between["calls"] < before["output_tokens"] / before["calls"] / 3
    usage = run(capsys, endpoint)[0]["token_usage"]["grade"]
    assert before["calls"] == len(endpoint.asked) == 2 * usage["calls"]  # each leaf has chosen its files
    assert before["prompt_tokens"] == pytest.approx(sum(map(len, endpoint.prompts)) / 4, rel=0.4)
    assert 0 < before["cost"] < 1
    after = planned()
    assert (after["calls"], after["known_calls"], after["cost"]) == (0, before["calls"], 0)
