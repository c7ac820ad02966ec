"""`pcgeval check`: every problem of a competition that can be known before its run, on real servers and programs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from competition_folder import PROGRAM, PROMPT, CompetitionFolder, competition_folder
from sandbox_here import why_no_sandbox
from slow_ollama import SlowOllama
from wheels_for_tests import write_wheel

from pcgeval.cli.main import main
from pcgeval.submissions.packages import LOCK

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = {"main.py": "import numpy\n" + PROGRAM["main.py"]}
GREEDY = {**PROGRAM, "requirements.txt": "no-such-package>=9\n"}
RECORDED = {"backend": "recorded", "name": "r:1", "digest": "b" * 64}
NO_SERVER = {"backend": "ollama", "name": "judge:1", "host": "http://127.0.0.1:9"}
CLASSIFIER = str(ROOT / "data/classifier")


@pytest.fixture
def server() -> Iterator[SlowOllama]:
    with SlowOllama(0.002) as running:
        yield running


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache, empty at first, with the environment of programs that require nothing soon after."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def competition(tmp_path: Path, server: SlowOllama, cache: Path, monkeypatch: pytest.MonkeyPatch) -> CompetitionFolder:
    """A program and a prompt with one live model, and an index without packages; the working directory."""
    for name, value in {
        "PCGEVAL_CACHE": cache,
        "PCGEVAL_TRUST_PROGRAMS": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": tmp_path,
    }.items():
        monkeypatch.setenv(name, str(value))
    competition = competition_folder(tmp_path / "c", server.address, PROGRAM, letters="AB", trials=2)
    monkeypatch.chdir(competition.folder)
    shutil.copytree(ROOT / "data/rubrics", "data/rubrics")
    Path("data/recordings").mkdir()
    change(similarity={"model": CLASSIFIER})
    competition.add_team("beta", PROMPT)
    return competition


def params() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(Path("params.yaml").read_text())
    return values


def change(**sections: object) -> None:
    """Replace sections of params.yaml."""
    Path("params.yaml").write_text(yaml.safe_dump(params() | sections))


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Return the exit code, and the group, severity and text of each finding, but not that no sandbox starts here."""
    capsys.readouterr()
    code = main(["check", "--json", *words])
    values = json.loads(capsys.readouterr().out)
    assert values["passed"] == (code == 0)
    findings = [(finding["group"], finding["severity"], finding["text"]) for finding in values["findings"]]
    return code, [finding for finding in findings if finding[0] != "sandbox" or not why_no_sandbox()]


def test_a_replay_is_checked_without_starting_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["check"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "submissions x 3 models x 26 letters x 3 trials" in line


@pytest.mark.usefixtures("competition")
def test_a_competition_that_can_begin_has_no_findings(
    server: SlowOllama, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(capsys) == (0, [])
    assert not server.asked
    assert not Path("data/raw").exists()
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    assert main(["check"]) == 0
    shown = capsys.readouterr().err
    assert "starting alpha: a program has 60 s to call the model" in shown
    assert "warning: no sandbox for alpha. Trusted programs run as you" in shown
    monkeypatch.delenv("PCGEVAL_TRUST_PROGRAMS")
    assert main(["check"]) == 2
    assert "error: The sandbox is switched off." in capsys.readouterr().err


@pytest.mark.usefixtures("competition")
def test_a_disk_without_room_for_the_trials_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage(".")._replace(free=3_999_999)  # 8 trials of 25 000 tokens may need 4 MB
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    code, [(group, severity, text)] = check(capsys)
    assert (code, group, severity) == (0, "disk", "warning")
    assert "Make room" in text


@pytest.mark.needs_sandbox
def test_all_problems_are_found_at_once(
    competition: CompetitionFolder, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    server.__exit__()
    competition.add_team("broken", NOT_INSTALLED)
    competition.add_team("greedy", GREEDY)
    model = params()["models"]["m"]
    Path("data/recordings").rmdir()
    change(
        teams=["absent", *params()["teams"]],
        models={"m": model, "other": model, "r": RECORDED},
        rubric={"id": "nonesuch"},
        similarity={"model": "no/body", "revision": "main"},
    )
    code, findings = check(capsys)
    assert code == 2
    expected = [
        ("submissions", "error", ["absent"]),
        ("recordings", "error", ["data/recordings: is missing"]),
        *[("recordings", "error", ["no such recording"])] * 4,
        ("rubric", "error", ["nonesuch"]),
        ("models", "error", ["ollama serve"]),  # of both models, which is said once
        ("classifier", "error", ["pin"]),
        ("packages", "failing team", ["no-such-package"]),
        ("programs", "failing team", ["broken", "numpy"]),
    ]
    assert [finding[:2] for finding in findings] == [finding[:2] for finding in expected]
    for (_, _, text), (_, _, words) in zip(findings, expected, strict=True):
        assert all(word in text for word in words), text


def test_a_team_that_fails_alone_stops_nobody(
    competition: CompetitionFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    competition.add_team("greedy", GREEDY)
    code, findings = check(capsys)
    assert (code, [finding[:2] for finding in findings]) == (0, [("packages", "failing team")])
    assert not Path("data/submissions/greedy", LOCK).exists()


def test_versions_are_locked_before_the_run(
    competition: CompetitionFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_wheel(tmp_path, {"example.py": ""})
    folder = competition.folder / "data/submissions/alpha"
    (folder / "requirements.txt").write_text("example\n")
    assert main(["check"]) == 0
    assert LOCK in capsys.readouterr().err
    locked = (folder / LOCK).read_bytes()
    write_wheel(tmp_path, {"example.py": ""}, version="2.0")
    assert main(["check"]) == 0
    assert LOCK not in capsys.readouterr().err
    assert (folder / LOCK).read_bytes() == locked


@pytest.mark.usefixtures("competition")
@pytest.mark.parametrize(
    ("sections", "expected", "word"),
    [
        pytest.param({"models": {"digest": "c" * 64}}, ["models: error"], "c" * 64, id="digest"),
        pytest.param(
            {"rubric": {"judge": "simple", "model": NO_SERVER}}, ["models: error"], "127.0.0.1:9", id="judge-away"
        ),
        pytest.param(  # without a temperature all votes are one
            {"rubric": {"judge": "simple", "model": RECORDED, "votes": 3}}, ["rubric: error"], "votes", id="votes"
        ),
        pytest.param({"similarity": {"model": "torn"}}, ["classifier: error"], "torn", id="classifier-torn"),
    ],
)
def test_an_input_that_a_run_could_not_use_is_named(
    sections: dict[str, Any], expected: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(CLASSIFIER, "torn")
    Path("torn/model.safetensors").write_bytes(b"torn")
    if "models" in sections:
        sections = {"models": {"m": params()["models"]["m"] | sections["models"]}}
    change(**sections)
    code, findings = check(capsys)
    assert code == 2
    assert [f"{group}: {severity}" for group, severity, _ in findings] == expected
    assert word in findings[0][2]


def test_a_server_may_be_away_once_its_trials_are_done_with_this_submission(
    competition: CompetitionFolder, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    competition.generate()
    server.__exit__()
    assert [finding[:2] for finding in check(capsys)[1]] == [("models", "warning")]
    Path("data/submissions/beta/prompt.txt").write_text("Another <OBJECT>.")
    assert [finding[:2] for finding in check(capsys)[1]] == [("models", "error")]


def test_a_faulty_params_file_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("teams: [a]\nteams: [b]\n")
    code, [(group, severity, text)] = check(capsys, "--seal")
    assert (code, group, severity) == (2, "params.yaml", "error")
    assert "line 2: 'teams' stands twice, first in line 1" in text
