"""`pcgeval check`: every problem of a competition that can be known before its run, on real servers and programs."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from competition_folder import PROGRAM, PROMPT, CompetitionFolder, competition_folder
from sandbox_here import why_no_sandbox
from slow_ollama import SlowOllama
from wheels_for_tests import write_wheel

from pcgeval.cli.main import main
from pcgeval.submissions.requirements import LOCK

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = {"main.py": "import numpy\n" + PROGRAM["main.py"]}


@pytest.fixture
def server() -> Any:
    with SlowOllama(0.002) as server:
        yield server


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache, empty at first, with the environment of programs that require nothing soon after."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def competition(tmp_path: Path, server: SlowOllama, cache: Path, monkeypatch: pytest.MonkeyPatch) -> CompetitionFolder:
    """A program and a prompt with one live model, and an index without packages."""
    for name, value in {
        "PCGEVAL_CACHE": cache,
        "PCGEVAL_TRUST_PROGRAMS": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": tmp_path,
    }.items():
        monkeypatch.setenv(name, str(value))
    made = competition_folder(tmp_path / "c", server.address, PROGRAM, letters="AB", trials=2)
    monkeypatch.chdir(made.folder)
    shutil.copytree(ROOT / "data/rubrics", "data/rubrics")
    Path("data/recordings").mkdir()
    change(similarity={"model": str(ROOT / "data/classifier")})
    add_team("beta", PROMPT)
    return made


def change(**sections: object) -> None:
    """Change sections of params.yaml."""
    values = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(values | sections))


def change_model(**values: object) -> None:
    models = yaml.safe_load(Path("params.yaml").read_text())["models"]
    change(models={"m": models["m"] | values})


def add_team(team: str, files: dict[str, str] | None) -> None:
    """Add a team to params.yaml, and its submission if it has files."""
    change(teams=[*yaml.safe_load(Path("params.yaml").read_text())["teams"], team])
    for name, text in {"README.md": f"# {team}\n", **files}.items() if files else ():
        path = Path("data/submissions", team, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Return the exit code, and the group, severity and text of each finding, but not that no sandbox starts here."""
    capsys.readouterr()
    code = main(["check", "--json", *words])
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] == (code == 0)
    findings = [(each["group"], each["severity"], each["text"]) for each in found["findings"]]
    if why_no_sandbox():  # of which check warns
        findings = [finding for finding in findings if finding[0] != "sandbox"]
    return code, findings


def test_a_replay_is_checked_without_starting_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["check"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "pcgeval demo 2026, final: 4 submissions x 3 models x 26 letters x 3 trials"
    ]


def summary(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the last line that the command prints for people."""
    main(["check"])
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("competition")
def test_a_competition_that_can_begin_has_no_findings(server: SlowOllama, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(capsys) == (0, [])
    assert not server.asked
    assert not Path("data/raw").exists()
    assert not list(Path("data/recordings").iterdir())


@pytest.mark.usefixtures("competition")
def test_a_folder_that_stages_depend_on_is_missed_before_dvc_misses_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data/recordings").rmdir()
    code, [(group, severity, text)] = check(capsys)
    assert (code, group, severity) == (2, "recordings", "error")
    assert text.startswith("data/recordings: is missing, and stages depend on it.")


@pytest.mark.usefixtures("competition")
def test_programs_without_a_sandbox_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    assert main(["check"]) == 0
    assert "warning: there is none for alpha. Trusted programs run as you" in capsys.readouterr().err
    monkeypatch.delenv("PCGEVAL_TRUST_PROGRAMS")
    assert main(["check"]) == 2
    assert "error: The sandbox is switched off." in capsys.readouterr().err


@pytest.mark.needs_sandbox
@pytest.mark.usefixtures("competition")
def test_all_problems_are_found_at_once(server: SlowOllama, capsys: pytest.CaptureFixture[str]) -> None:
    server.__exit__()
    add_team("absent", None)
    add_team("broken", NOT_INSTALLED)
    add_team("greedy", {**PROGRAM, "requirements.txt": "no-such-package>=9\n"})
    recorded = {"backend": "recorded", "name": "r:1", "digest": "b" * 64}
    models = yaml.safe_load(Path("params.yaml").read_text())["models"]
    change(
        models={**models, "r": recorded}, rubric={"id": "nonesuch"}, similarity={"model": "no/body", "revision": "main"}
    )
    code, found = check(capsys)
    assert code == 2
    assert [(group, severity) for group, severity, _ in found] == [
        ("submissions", "error"),
        *[("recordings", "error")] * 4,
        ("rubric", "error"),
        ("models", "error"),
        ("classifier", "error"),
        ("packages", "failing team"),
        ("programs", "failing team"),
    ]
    for words, (_, _, text) in zip(
        ["absent", *["no such recording"] * 4, "nonesuch", "ollama serve", "pin", "no-such-package", "broken.*numpy"],
        found,
        strict=True,
    ):
        assert all(word in text for word in words.split(".*")), text
    assert not Path("data/recordings/r/absent").exists()
    assert main(["check"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        f"{group}:" for group in ("submissions", "recordings", "rubric", "models", "classifier", "packages", "programs")
    ]
    assert sum(line.startswith(("  error: ", "  failing team: ")) for line in lines) == len(found)


@pytest.mark.usefixtures("competition")
def test_one_fault_of_several_models_and_teams_is_said_once(
    server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    server.__exit__()
    models = yaml.safe_load(Path("params.yaml").read_text())["models"]
    change(
        models={**models, "other": models["m"]},
        rubric={"judge": "simple", "model": {"backend": "recorded", "name": "r:1", "digest": "b" * 64}},
    )
    _, found = check(capsys)
    assert [(group, severity) for group, severity, _ in found] == [("recordings", "warning"), ("models", "error")]
    assert all(team in found[0][2] for team in ("alpha", "beta"))


@pytest.mark.usefixtures("competition")
def test_a_team_that_fails_alone_need_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    add_team("broken", NOT_INSTALLED)
    add_team("greedy", {**PROGRAM, "requirements.txt": "no-such-package>=9\n"})
    code, found = check(capsys)
    assert code == 0
    assert {severity for _, severity, _ in found} == {"failing team"}
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
def test_another_model_than_the_pinned_one_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    change_model(digest="c" * 64)
    code, [(group, severity, text)] = check(capsys)
    assert (code, group, severity) == (2, "models", "error")
    assert "c" * 64 in text


@pytest.mark.usefixtures("competition")
def test_the_judges_server_is_asked_too(capsys: pytest.CaptureFixture[str]) -> None:
    model = {"backend": "ollama", "name": "judge:1", "host": "http://127.0.0.1:9"}
    change(rubric={"judge": "simple", "model": model})
    code, found = check(capsys)
    assert code == 2
    assert [(group, severity) for group, severity, _ in found] == [("models", "error")]


def test_a_server_may_be_away_once_its_trials_are_done(
    competition: CompetitionFolder, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    change(teams=["alpha"])
    competition.generate()
    server.__exit__()
    code, [(group, severity, _)] = check(capsys)
    assert (code, group, severity) == (0, "models", "warning")


def test_a_server_is_needed_for_trials_that_are_done_again(
    competition: CompetitionFolder, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    change(teams=["alpha"])
    competition.generate()
    server.__exit__()
    with Path("data/submissions/alpha/main.py").open("a") as program:
        program.write("# another program\n")
    _, found = check(capsys)
    assert [severity for group, severity, _ in found if group == "models"] == ["error"]


@pytest.mark.usefixtures("competition")
def test_a_judge_that_could_not_begin_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = {"backend": "recorded", "name": "j:1", "digest": "c" * 64}
    change(rubric={"judge": "simple", "model": recorded, "votes": 3})  # without a temperature all votes are one
    code, found = check(capsys)
    assert code == 2
    assert [group for group, severity, _ in found if severity == "error"] == ["rubric"]


@pytest.mark.usefixtures("competition")
def test_a_classifier_that_cannot_be_loaded_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "data/classifier", tmp_path / "classifier")
    (tmp_path / "classifier/model.safetensors").write_bytes(b"torn")
    for settings, word in (
        ({"model": str(tmp_path / "classifier")}, "classifier: is no"),
        ({"model": str(ROOT / "data/classifier"), "device": "cuda:99"}, "similarity.device"),
    ):
        change(similarity=settings)
        code, [(group, severity, text)] = check(capsys)
        assert (code, group, severity) == (2, "classifier", "error")
        assert word in text


@pytest.mark.usefixtures("competition")
def test_a_disk_that_is_clearly_too_small_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for free, severity, code in ((1_000, "error", 2), (1_000_000, "warning", 0)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        found = check(capsys)
        assert (found[0], [(group, found_severity) for group, found_severity, _ in found[1]]) == (
            code,
            [("disk", severity)],
        )


@pytest.mark.parametrize("text", ["teams: [", "teams: [a]\nnonsense: 1\n", ""])
def test_a_faulty_params_file_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    code, found = check(capsys)
    assert code == 2
    assert {(group, severity) for group, severity, _ in found} == {("params.yaml", "error")}


@pytest.mark.usefixtures("competition")
def test_a_key_that_is_given_twice_is_named_before_dvc_meets_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(f"{text}teams: [alpha]\n")
    line, first_line = text.count("\n") + 1, text[: text.index("\nteams:")].count("\n") + 2
    words = f"line {line}: 'teams' is given twice, first in line {first_line}. Remove one of them."
    assert check(capsys) == (2, [("params.yaml", "error", f"params.yaml: {words}")])
