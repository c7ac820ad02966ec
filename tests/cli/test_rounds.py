"""A round has a workspace and a seed apart from the final's; what a model was asked is not asked again."""

import os
import subprocess
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


def with_rounds(competition: CompetitionFolder, **rounds: dict[str, object]) -> Path:
    """Add rounds and the inputs that the stage generate has no need of; return params.yaml."""
    path = competition.folder / "params.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "rounds": rounds}))
    for name in (*INPUTS, "src"):
        if not (competition.folder / name).exists():
            (competition.folder / name).mkdir(parents=True)
    return path


def test_an_earlier_round_shows_nothing_of_the_final(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
        rounds = {name: {"characters": "AB", "trials": 2} for name in ("midterm", "practice")}
        params = with_rounds(competition, **rounds)
        folders = [CompetitionFolder(prepare_round(name, params)) for name in ("midterm", "practice")]
        for folder in (competition, *folders):
            folder.generate()
        assert len(set(server.asked)) == len(server.asked) == 12
        prepare_round("practice", params)  # the same seed again
        folders[1].generate()
        assert len(server.asked) == 12
    assert len({folder.outputs()["m/alpha/A/alpha_A_1.txt"] for folder in (competition, *folders)}) == 3


def test_a_round_with_the_finals_seed_shares_the_replies_of_the_models(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
        params = with_rounds(competition, midterm={"characters": "AC", "trials": 2, "seed": 6280})
        competition.generate()
        assert len(server.asked) == 4
        midterm = CompetitionFolder(prepare_round("midterm", params))
        midterm.generate()
        assert len(server.asked) == 6  # two trials of the letter C
        prepare_round("midterm", params)  # refreshed
        for folder in (competition, midterm):
            for path in folder.folder.glob("data/raw/m/alpha/*/*.json"):
                path.unlink()
            folder.generate()
        assert len(server.asked) == 6
    for name in ("A/alpha_A_1.txt", "A/alpha_A_2.json"):
        assert competition.outputs()[f"m/alpha/{name}"] == midterm.outputs()[f"m/alpha/{name}"]


@pytest.fixture
def params(tmp_path: Path) -> Path:
    competition = competition_folder(tmp_path, "http://127.0.0.1:9", PROMPT)
    return with_rounds(competition, midterm={"characters": "A", "trials": 2})


def test_a_round_that_is_not_in_params_is_named(params: Path):
    with pytest.raises(ParamsError, match=r"no round 'finals'.*midterm"):
        prepare_round("finals", params)


@pytest.mark.parametrize(("inner", "code"), [(0, 0), (1, 1), (2, 2), (-9, 1)])
def test_the_exit_code_is_that_of_the_run_in_the_round(
    params: Path, monkeypatch: pytest.MonkeyPatch, inner: int, code: int
):
    monkeypatch.chdir(params.parent)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], inner))
    assert main(["run", "--round", "midterm"]) == code


def test_a_folder_that_no_round_made_stays_as_it_is(params: Path):
    notes = params.parent / "rounds/midterm/data/submissions/notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    with pytest.raises(FileError, match="already exists"):
        prepare_round("midterm", params)
    assert notes.read_text() == "mine"
    assert not (params.parent / "rounds/midterm/params.yaml").exists()


def test_a_round_is_not_made_again_while_it_is_evaluated_or_a_submission_is_filed(
    params: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(params.parent)
    with lock_folder(ROUNDS / "midterm", STATE / f"round-{state_name(ROUNDS / 'midterm')}.lock"):
        assert main(["run", "--round", "midterm"]) == 2
    assert f"process {os.getpid()}" in capsys.readouterr().err
    with lock_folder(SUBMISSIONS, LOCK):  # as `pcgeval submit` holds it
        assert main(["run", "--round", "midterm"]) == 2
    assert not ROUNDS.exists()
