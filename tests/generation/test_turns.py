"""The trials of all teams with one model, in turn."""

from pathlib import Path

import pytest
from competition_folder import PROMPT, competition_folder
from slow_ollama import SlowOllama

from pcgeval.cli.main import main


def test_finished_trials_and_their_list_stay_as_they_are_without_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
        monkeypatch.chdir(tmp_path)
        competition.generate()
        before = {path: path.read_bytes() for path in Path("data/raw").rglob("*.*")}
        assert main(["generate"]) == 0
        assert {path: path.read_bytes() for path in Path("data/raw").rglob("*.*")} == before
        Path("data/raw/m/alpha/B/alpha_B_2.json").unlink()
        assert main(["generate"]) == 0
        assert len(server.asked) == 4
    assert main(["generate"]) == 0
