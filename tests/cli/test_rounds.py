"""A round has a workspace and a seed of its own; what a model was asked is not asked again."""

import os
from pathlib import Path

import pytest
import yaml
from competition_folder import PROMPT, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama

from pcgeval.cli.main import main
from pcgeval.cli.rounds import INPUTS, ROUNDS, prepare_round
from pcgeval.core.errors import FileError
from pcgeval.core.layout import STATE, SUBMISSIONS, state_name
from pcgeval.core.locks import lock_folder
from pcgeval.core.params import ParamsError
from pcgeval.submissions.filing import LOCK


def with_round(competition: CompetitionFolder, letters: str, **values: object) -> Path:
    """Add the round `midterm` and the inputs that the stage generate has no need of; return params.yaml."""
    path = competition.folder / "params.yaml"
    rounds = {"midterm": {"characters": letters, "trials": 2, **values}}
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "rounds": rounds}))
    for name in INPUTS:
        if not (competition.folder / name).exists():
            (competition.folder / name).mkdir(parents=True)
    return path


def test_an_earlier_round_shows_nothing_of_the_final(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
        params = with_round(competition, "AB")
        midterm = CompetitionFolder(prepare_round("midterm", params))
        midterm.generate()
        competition.generate()
        assert len(set(server.asked)) == len(server.asked) == 8
        other = yaml.safe_load(params.read_text())
        params.write_text(yaml.safe_dump({**other, "rounds": {"practice": other["rounds"]["midterm"]}}))
        practice = CompetitionFolder(prepare_round("practice", params))
        practice.generate()
        assert len(set(server.asked)) == len(server.asked) == 12
        prepare_round("practice", params)  # the same seed again
        practice.generate()
        assert len(server.asked) == 12
    responses = [each.outputs()["m/alpha/A/alpha_A_1.txt"] for each in (competition, midterm, practice)]
    assert len(set(responses)) == 3


def test_a_round_with_the_finals_seed_shares_the_replies_of_the_models(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
        params = with_round(competition, "AC", seed=6280)
        competition.generate()
        assert len(server.asked) == 4
        midterm = CompetitionFolder(prepare_round("midterm", params))
        midterm.generate()
        assert len(server.asked) == 6  # two trials of the letter C
        prepare_round("midterm", params)  # refreshed
        for each in (competition, midterm):
            for path in each.folder.glob("data/raw/m/alpha/*/*.json"):
                path.unlink()
            each.generate()
        assert len(server.asked) == 6
    for name in ("A/alpha_A_1.txt", "A/alpha_A_2.json"):
        assert competition.outputs()[f"m/alpha/{name}"] == midterm.outputs()[f"m/alpha/{name}"]


def test_a_round_that_is_not_in_params_is_named(tmp_path: Path):
    params = with_round(competition_folder(tmp_path, "http://127.0.0.1:1", PROMPT), "A")
    with pytest.raises(ParamsError, match=r"no round 'finals'.*midterm"):
        prepare_round("finals", params)


@pytest.mark.parametrize("content", [None, "rounds: [\nx: y\n"])
def test_a_params_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None):
    if content:
        (tmp_path / "params.yaml").write_text(content)
    with pytest.raises(ParamsError, match=r"params\.yaml"):
        prepare_round("midterm", tmp_path / "params.yaml")


def test_a_folder_that_no_round_made_stays_as_it_is(tmp_path: Path):
    params = with_round(competition_folder(tmp_path, "http://127.0.0.1:1", PROMPT), "A")
    mine = params.parent / "rounds/midterm/data/submissions/notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(FileError, match="already exists"):
        prepare_round("midterm", params)
    assert mine.read_text() == "mine"
    assert not (params.parent / "rounds/midterm/params.yaml").exists()


def test_a_round_is_not_made_again_while_it_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with_round(competition_folder(tmp_path, "http://127.0.0.1:9", PROMPT, letters="AB", trials=2), "AB")
    monkeypatch.chdir(tmp_path)
    with lock_folder(ROUNDS / "midterm", STATE / f"round-{state_name(ROUNDS / 'midterm')}.lock"):
        assert main(["run", "--round", "midterm"]) == 2
    assert f"process {os.getpid()}" in capsys.readouterr().err
    with lock_folder(SUBMISSIONS, LOCK):  # as `pcgeval submit` holds it
        assert main(["run", "--round", "midterm"]) == 2
    assert not ROUNDS.exists()
