"""The commands for the results of a competition, on a small evaluated one."""

import json
import shutil
import webbrowser
from pathlib import Path

import pytest

from pcgeval.cli.main import main
from pcgeval.formats.layout import STAGE_DIRS


@pytest.fixture(autouse=True)
def evaluated(competition, tmp_path, monkeypatch):
    """A copy of the small competition with its ranking, as the working directory."""
    monkeypatch.chdir(shutil.copytree(competition, tmp_path / "evaluated"))


def test_export_copies_the_official_files_alone(capsys):
    assert main(["export", "official", "out"]) == 0
    names = {path.name for path in Path("out/small/alpha").rglob("*.*")}
    assert names >= {"I.json", "alpha_I_1.txt", "alpha_T_2.txt"}
    assert not names & {"alpha_I_1.json", "failures.json", "trials.json", "simulations.json", "classifier.json"}
    assert {path.name for path in Path("out/large/beta").iterdir()} == {*STAGE_DIRS}
    assert main(["export", "official", "out"]) == 2
    assert "not empty" in capsys.readouterr().err
    shutil.rmtree("data")
    assert main(["export", "official", "other"]) == 2
    assert "make final-eval" in capsys.readouterr().err


def test_ranking_prints_the_last_run_and_opens_its_report(monkeypatch, capsys):
    assert main(["ranking", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values == json.loads(Path("results/ranking.json").read_text())
    assert main(["ranking", "--open"]) == 2
    assert "make report" in capsys.readouterr().err
    index = Path("results/report/index.html").absolute()
    index.parent.mkdir()
    index.touch()
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)  # which returns None, as where no browser starts
    assert main(["ranking", "--open"]) == 0
    assert opened == [index.as_uri()]
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines()[1:]] == [team["team"] for team in values["teams"]]
    assert "no browser" in printed.err
    assert values["result"]["sha256"] in printed.err


def test_ranking_warns_of_what_changed_since(capsys):
    for name in ("README.md", "dvc.lock", "data/grades/alpha/grade.json", "src/pcgeval/report/render.py"):
        with Path(name).open("a") as file:
            file.write("\n")
    assert main(["ranking"]) == 0  # none of these decides it
    Path("data/classifier/config.json").write_text("{}")
    capsys.readouterr()
    assert main(["ranking"]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("rank ")
    (warning,) = [line for line in printed.err.splitlines() if line.startswith("warning: ")]
    assert warning.endswith("other classifier")
