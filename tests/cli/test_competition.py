"""The commands for a whole competition, on the demo's inputs and results."""

import json
import shutil
from pathlib import Path

import pytest

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes
from pcgeval.core.layout import Trial
from pcgeval.core.trials import TrialRecord, write_trial

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


def test_ranking_warns_of_trials_of_another_submission(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "data" / "submissions", demo / "data" / "submissions")
    (demo / "results").mkdir()
    shutil.copy(ROOT / "results" / "ranking.json", demo / "results")
    assert main(["ranking"]) == 0
    record = TrialRecord("0" * 64, 1, "m", "d" * 64, (), sha256_bytes(b""), reason="no reply")
    write_trial(demo / "data/raw/smollm2-135m/one-example", "one-example", Trial("A", 1), "", record)
    capsys.readouterr()
    assert main(["ranking"]) == 1
    assert "1 trials of one-example with smollm2-135m were made from another" in capsys.readouterr().err


def test_ranking_warns_of_rules_and_decisions_after_it(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "data" / "submissions", demo / "data" / "submissions")
    (demo / "results").mkdir()
    shutil.copy(ROOT / "results" / "ranking.json", demo / "results")
    params = (demo / "params.yaml").read_text()
    (demo / "params.yaml").write_text(params.replace("official_quirks: false", "official_quirks: true"))
    assert main(["ranking"]) == 1
    assert "official_quirks" in capsys.readouterr().err
    (demo / "params.yaml").write_text(params)
    (demo / "data/submissions/one-example/submission.yaml").write_text("disqualified: it was copied\n")
    assert main(["ranking"]) == 1
    assert "one-example is ranked in it" in capsys.readouterr().err


def test_ranking_prints_the_last_run(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (demo / "results").mkdir()
    shutil.copy(ROOT / "results" / "ranking.json", demo / "results")
    assert main(["ranking", "--json"]) == 0
    teams = json.loads(capsys.readouterr().out)["teams"]
    assert main(["ranking"]) == 0
    said = capsys.readouterr()
    assert [line.split()[1] for line in said.out.splitlines()[1:]] == [each["team"] for each in teams]
    assert "index.html" in said.err


def test_a_ranking_of_an_earlier_run_says_so(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "results", demo / "results", ignore=shutil.ignore_patterns("report"))
    assert main(["ranking"]) == 0
    (demo / ".pcgeval").mkdir()
    (demo / ".pcgeval/evaluating").touch()  # as `make final-eval` does until it has come to its end
    (demo / "data/raw/smollm2-135m/one-example").mkdir(parents=True)
    params = (demo / "params.yaml").read_text().replace("one-example, ", "")
    (demo / "params.yaml").write_text(params)
    capsys.readouterr()
    assert main(["ranking", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["teams"]
    assert [line.split(": ")[2][:20] for line in said.err.splitlines() if "warning" in line] == [
        "an evaluation was be",
        "params.yaml has othe",
    ]
    (demo / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    assert main(["ranking"]) == 1
    assert "one-example with smollm2-135m" in capsys.readouterr().err


def test_a_decision_needs_no_name_of_the_user(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started with `--user 12345`."""

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert main(["retry"]) == 0
    assert not (demo / "data/trial_history.jsonl").exists()
