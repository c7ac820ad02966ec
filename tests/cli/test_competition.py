"""The commands for a whole competition, on the demo's inputs and on a small evaluated one."""

import json
import shutil
from pathlib import Path

import pytest

from pcgeval.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's params.yaml in a working directory of its own."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_export_copies_the_official_files_alone(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    official = {
        "raw/I/one-example_I_1.txt": "response",
        "levels/I/one-example_I_3.xml": "<Level/>",
        "stability/I.json": "{}",
    }
    for name, content in {**official, "raw/I/one-example_I_1.json": "{}", "stability/trials.json": "[]"}.items():
        stage, _, rest = name.partition("/")
        path = demo / "data" / stage / "smollm2-135m" / "one-example" / rest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert main(["export", "official", "out"]) == 0
    assert "wrote 3 files" in capsys.readouterr().err
    found = {path.relative_to(demo / "out").as_posix(): path for path in (demo / "out").rglob("*") if path.is_file()}
    assert {name: path.read_text() for name, path in found.items()} == {
        f"smollm2-135m/one-example/{name}": content for name, content in official.items()
    }
    assert main(["export", "official", "out"]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.usefixtures("demo")
def test_export_of_nothing_says_what_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "official", "out"]) == 2
    assert "make final-eval" in capsys.readouterr().err


@pytest.fixture
def evaluated(competition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the small competition with its ranking, as the working directory."""
    folder = shutil.copytree(competition, tmp_path / "evaluated")
    monkeypatch.chdir(folder)
    return folder


def test_ranking_prints_the_last_run(evaluated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranking", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values == json.loads((evaluated / "results/ranking.json").read_text())
    assert main(["ranking"]) == 0
    said = capsys.readouterr()
    assert [line.split()[1] for line in said.out.splitlines()[1:]] == [each["team"] for each in values["teams"]]
    assert f"result hash {values['result']['sha256']}" in said.err
    assert "index.html" in said.err
    assert "warning" not in said.err


RAW = "data/raw/small/alpha/I/alpha_I_1.txt"


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("params.yaml", "bootstrap: 20", "bootstrap: 21", "made from other params"),
        (
            "params.yaml",
            "- alpha\n- beta\n",
            "- alpha\n",
            "made from other measurements, params, recordings, submissions, trials",
        ),
        (
            "data/submissions/beta/submission.yaml",
            "title:",
            "disqualified: it was copied\ntitle:",
            "made from other submissions",
        ),
        ("data/recordings/small/beta/calls.jsonl", "", "\n", "made from other recordings"),
        (RAW, "", "Another answer. ", "made from other trials"),
        ("data/stability/small/beta/I.json", "", " ", "made from other measurements"),
        ("data/classifier/config.json", "", " ", "made from other classifier"),
        ("src/pcgeval/levels/grid.py", "", "# changed\n", "made from other source"),
        ("stages/extract.py", "", "# changed\n", "made from other source"),
        ("results/ranking.json", '"rank": 1', '"rank": 2', "altered after the stage rank wrote it"),
    ],
)
def test_ranking_names_what_changed_since(
    evaluated: Path, capsys: pytest.CaptureFixture[str], name: str, old: str, new: str, words: str
) -> None:
    file = evaluated / name
    before = file.read_text()
    assert old in before
    file.write_text(before.replace(old, new, 1))
    assert main(["ranking"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("rank ")
    assert f"warning: this may not be the ranking of what is here: it was {words}\n" in said.err
    file.write_text(before)
    assert main(["ranking"]) == 0


@pytest.mark.parametrize(
    "name", ["README.md", "dvc.lock", "data/grades/alpha/grade.json", "src/pcgeval/report/render.py"]
)
def test_what_decides_no_ranking_may_change(evaluated: Path, name: str) -> None:
    with (evaluated / name).open("a") as file:
        file.write("\n")
    assert main(["ranking"]) == 0


def test_places_of_servers_decide_no_ranking(evaluated: Path) -> None:
    params = (evaluated / "params.yaml").read_text()
    (evaluated / "params.yaml").write_text(params.replace("backend: recorded", "backend: recorded\n    concurrency: 3"))
    assert "concurrency: 3" in (evaluated / "params.yaml").read_text()
    assert main(["ranking"]) == 0
