"""A round has a workspace and a seed apart from the final's; what a model was asked is not asked again."""

import os
import shutil
from pathlib import Path

import pytest
import yaml
from competition_folder import PROMPT, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama

from pcgeval.cli.main import main
from pcgeval.cli.rounds import INPUTS, ROUNDS, prepare_round
from pcgeval.core.layout import SUBMISSIONS
from pcgeval.core.locks import lock_folder
from pcgeval.submissions.filing import LOCK

ROUND = {"characters": "AB", "trials": 2}


def with_rounds(folder: Path, host: str = "http://127.0.0.1:9", **rounds: dict[str, object]) -> CompetitionFolder:
    """Lay out a competition with rounds, and the inputs that the stage generate has no need of."""
    competition = competition_folder(folder, host, PROMPT, letters="AB", trials=2)
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "rounds": rounds}))
    for name in (*INPUTS, "src"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return competition


def test_an_earlier_round_shows_nothing_of_the_final(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = with_rounds(tmp_path, server.address, midterm=ROUND, practice=ROUND)
        folders = [CompetitionFolder(prepare_round(name, tmp_path)) for name in ("midterm", "practice")]
        for folder in (competition, *folders):
            folder.generate()
        assert len(set(server.asked)) == len(server.asked) == 12
        prepare_round("practice", tmp_path)  # the same seed again
        folders[1].generate()
        assert len(server.asked) == 12
    assert len({folder.outputs()["m/alpha/A/alpha_A_1.txt"] for folder in (competition, *folders)}) == 3


def test_a_round_with_the_finals_seed_shares_the_replies_of_the_models(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = with_rounds(tmp_path, server.address, midterm={**ROUND, "characters": "AC", "seed": 6280})
        competition.generate()
        midterm = CompetitionFolder(prepare_round("midterm", tmp_path))
        midterm.generate()
        assert len(server.asked) == 4 + 2  # two trials of the letter C
        for path in midterm.folder.glob("data/raw/m/alpha/*/*.json"):
            path.unlink()
        midterm.generate()
        assert len(server.asked) == 6
    for name in ("A/alpha_A_1.txt", "A/alpha_A_2.json"):
        assert competition.outputs()[f"m/alpha/{name}"] == midterm.outputs()[f"m/alpha/{name}"]


def test_what_is_no_round_or_is_used_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(with_rounds(tmp_path, midterm=ROUND).folder)

    def refusal(name: str = "midterm") -> str:
        assert main(["run", "--round", name]) == 2
        return capsys.readouterr().err

    assert "no round 'finals'" in refusal("finals")
    with lock_folder(SUBMISSIONS, LOCK):  # as `pcgeval submit` holds it
        assert f"data/submissions: process {os.getpid()}" in refusal()
    assert not ROUNDS.exists()
    notes = Path("rounds/midterm/data/submissions/notes.txt")
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    assert "already exists" in refusal()
    assert [path for path in ROUNDS.rglob("*") if path.is_file()] == [notes]
    shutil.rmtree("rounds")
    Path("data/rubrics").rmdir()
    assert "data/rubrics: is missing" in refusal()
