"""Calls that are asked again: the same answer, another one, or the reason why there is none."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from model_servers import SlowOllama
from tampered_competition import Builder
from workspace import make_workspace

from pcgeval import pipeline
from pcgeval.formats.layout import Trial, stage_dir
from pcgeval.formats.params import Params, load_params
from pcgeval.formats.trials import record_path
from pcgeval.proof.replies import ask_again

MODEL, TEAM = "small", "alpha"


@pytest.fixture(scope="module")
def server():
    with SlowOllama(0) as running:
        yield running


@pytest.fixture(scope="module")
def answered(server: SlowOllama, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A competition with trials that a server answered, and which is a replay now."""
    workspace = make_workspace(tmp_path_factory.mktemp("answered"))
    workspace.change("teams", {TEAM: {}})
    workspace.change("models", {MODEL: {"backend": "ollama", "name": "m:1", "host": server.address}})
    pipeline.generate(load_params(workspace.folder / "params.yaml"), workspace.folder)
    workspace.change("models", {MODEL: {"backend": "recorded", "name": "m:1", "host": server.address}})
    return workspace.folder


@pytest.fixture
def competition(answered: Path, tmp_path: Path) -> tuple[Path, Params]:
    root = tmp_path / "competition"
    shutil.copytree(answered, root, ignore=shutil.ignore_patterns("src"))
    return root, load_params(root / "params.yaml")


def test_a_model_that_answers_as_before_shows_it(competition):
    root, params = competition
    calls = ask_again(root, params, 100)
    places = [(letter, number, 1) for letter in "IT" for number in (1, 2)]
    assert [(call.letter, call.trial, call.turn) for call in calls] == places
    assert all(call.same for call in calls)
    assert len(ask_again(root, params, 2)) == 2


@pytest.mark.parametrize(("part", "value"), [("text", "answer that nobody gave"), ("output_tokens", 3)])
def test_a_reply_that_was_altered_is_named(competition, part: str, value: Any):
    root, params = competition
    path = record_path(root / stage_dir("raw", MODEL, TEAM), TEAM, Trial("T", 2))
    record = json.loads(path.read_text())
    record["exchanges"][0]["reply"][part] = value
    path.write_text(json.dumps(record))
    (call,) = [call for call in ask_again(root, params, 100) if not call.same]
    assert (call.letter, call.trial, call.same) == ("T", 2, False)
    assert ("nobody gave" if part == "text" else "tokens") in call.detail


def test_the_calls_of_a_program_are_asked_again_in_their_conversation_and_with_their_seeds(tampered):
    params = load_params(tampered / "params.yaml")
    with Builder(0) as server:
        live = params.models["live"].model_copy(update={"host": server.address})
        calls = ask_again(tampered, params.model_copy(update={"models": {"live": live}}), 1000)
    assert {call.same for call in calls} == {True}
    assert {call.turn for call in calls if call.team == "gamma"} == {*range(1, 7)}, "each of three is asked twice"


def test_what_cannot_be_asked_has_a_reason(competition, server):
    root, params = competition
    server.digest = "cd" * 32
    try:
        (other_digest,) = ask_again(root, params, 1)
    finally:
        server.digest = "ab" * 32
    elsewhere = params.models[MODEL].model_copy(update={"host": "http://127.0.0.1:9"})
    (unreachable,) = ask_again(root, params.model_copy(update={"models": {MODEL: elsewhere}}), 1)
    (root / "data/submissions" / TEAM / "prompt.txt").write_text("Another prompt for <OBJECT>.")
    before = len(server.asked)
    (changed,) = ask_again(root, params, 1)
    assert len(server.asked) == before
    for call, words in ((other_digest, "cd" * 32), (unreachable, "127.0.0.1:9"), (changed, "submission")):
        assert (call.same, words in call.detail) == (None, True)
