import json
import shutil
from pathlib import Path

import pytest
from slow_ollama import SlowOllama
from workspace import make_workspace

from pcgeval import pipeline
from pcgeval.core.layout import Trial, stage_dir
from pcgeval.core.params import Params, load_params
from pcgeval.core.trials import record_path
from pcgeval.proof.asking import ask_again

MODEL, TEAM = "small", "alpha"


@pytest.fixture(scope="module")
def server():
    with SlowOllama(0) as running:
        yield running


@pytest.fixture(scope="module")
def answered(server: SlowOllama, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A competition whose trials a server answered, and which is a replay now."""
    workspace = make_workspace(tmp_path_factory.mktemp("answered"))
    workspace.change_params("teams", value=[TEAM])
    workspace.change_params("models", value={MODEL: {"backend": "ollama", "name": "m:1", "host": server.address}})
    pipeline.generate(load_params(workspace.folder / "params.yaml"), MODEL, workspace.folder)
    workspace.change_params("models", MODEL, value={"backend": "recorded", "name": "m:1", "host": server.address})
    return workspace.folder


@pytest.fixture
def asked(answered: Path, tmp_path: Path) -> tuple[Path, Params]:
    """A copy of it."""
    root = tmp_path / "competition"
    shutil.copytree(answered, root, ignore=shutil.ignore_patterns("src"))
    return root, load_params(root / "params.yaml")


def test_a_model_that_answers_as_before_shows_it(asked):
    root, params = asked
    found = ask_again(root, params, 100)
    assert [(each.model, each.team, each.letter, each.trial, each.turn) for each in found] == [
        (MODEL, TEAM, letter, number, 1) for letter in "IT" for number in (1, 2)
    ]
    assert all(each.same for each in found)


def test_the_sample_is_the_same_for_everybody(asked):
    root, params = asked
    one, other = (ask_again(root, params, 2) for _ in range(2))
    assert one == other
    assert len(one) == 2
    drawn = {tuple(ask_again(root, params, 2, seed=seed)) for seed in range(5)}
    assert len(drawn) > 1


def test_an_invented_reply_is_named(asked):
    root, params = asked
    path = record_path(root / stage_dir("raw", MODEL, TEAM), TEAM, Trial("T", 2))
    record = json.loads(path.read_text())
    record["exchanges"][0]["reply"]["text"] = "answer that nobody gave"
    path.write_text(json.dumps(record))
    (other,) = [each for each in ask_again(root, params, 100) if not each.same]
    assert (other.letter, other.trial, other.same) == ("T", 2, False)
    assert "that nobody gave" in other.detail


def test_other_tokens_of_the_same_answer_are_named(asked):
    root, params = asked
    path = record_path(root / stage_dir("raw", MODEL, TEAM), TEAM, Trial("I", 1))
    record = json.loads(path.read_text())
    record["exchanges"][0]["reply"]["output_tokens"] -= 1
    path.write_text(json.dumps(record))
    (other,) = [call for call in ask_again(root, params, 100) if not call.same]
    assert (other.letter, other.trial, other.same) == ("I", 1, False)
    assert "tokens" in other.detail


def test_what_cannot_be_asked_has_a_reason(asked, server):
    root, params = asked
    server.digest = "cd" * 32
    try:
        (another,) = ask_again(root, params, 1)
    finally:
        server.digest = "ab" * 32
    assert another.same is None
    assert "cd" * 32 in another.detail
    elsewhere = params.models[MODEL].model_copy(update={"host": "http://127.0.0.1:9"})
    (down,) = ask_again(root, params.model_copy(update={"models": {MODEL: elsewhere}}), 1)
    assert down.same is None
    assert "127.0.0.1:9" in down.detail


def test_a_changed_submission_is_no_reason_to_ask_for_something_else(asked, server):
    root, params = asked
    (root / "data/submissions" / TEAM / "prompt.txt").write_text("Another prompt for <OBJECT>.")
    before = len(server.asked)
    assert {each.same for each in ask_again(root, params, 100)} == {None}
    assert len(server.asked) == before
