"""`pcgeval check`: every problem of a competition that can be known before its run, on real servers and programs."""

import json
import shutil
from pathlib import Path

import pytest
from handed_in_for_tests import write_folder, write_wheel
from model_servers import DIGEST, SlowOllama
from this_machine import why_no_sandbox
from workspace import PROGRAM, PROMPT, competition_folder, git

from pcgeval.cli.main import main

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = {"main.py": "import numpy\n" + PROGRAM["main.py"]}
GREEDY = {**PROGRAM, "requirements.txt": "no-such-package>=9\n"}
RECORDED = {"backend": "recorded", "name": "r:1", "digest": "b" * 64}
NO_SERVER = {"backend": "ollama", "name": "judge:1", "host": "http://127.0.0.1:9"}
CLASSIFIER = ROOT / "data/classifier"


@pytest.fixture
def server():
    with SlowOllama(0.002) as running:
        yield running


@pytest.fixture
def competition(tmp_path, tmp_path_factory, server, monkeypatch):
    """A program and a prompt with one live model, and an index without packages; the working directory."""
    monkeypatch.setenv("PCGEVAL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))  # of all tests
    monkeypatch.setenv("PCGEVAL_TRUST_PROGRAMS", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    competition = competition_folder(tmp_path / "c", server.address, PROGRAM, letters="AB", trials=2)
    monkeypatch.chdir(competition.folder)
    shutil.copytree(ROOT / "data/rubrics", "data/rubrics")
    Path("data/recordings").mkdir()
    Path("data/classifier").symlink_to(CLASSIFIER)
    competition.add_team("beta", PROMPT)
    return competition


@pytest.fixture
def check(capsys):
    """Return the exit code, and the group, severity and text of each finding.

    That no sandbox starts here, and that the folder is in no git repository, are left out.
    """

    def run(*words):
        capsys.readouterr()
        code = main(["check", "--json", *words])
        values = json.loads(capsys.readouterr().out)
        assert values["passed"] == (code == 0)
        findings = [(finding["group"], finding["severity"], finding["text"]) for finding in values["findings"]]
        hidden = {"commit", "sandbox"} if why_no_sandbox() else {"commit"}
        return code, [finding for finding in findings if finding[0] not in hidden]

    return run


def test_a_replay_is_checked_without_starting_anything(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["check"]) == 0
    *others, line = capsys.readouterr().err.splitlines()
    assert all("committed" in other or "git" in other for other in others)
    assert "submissions x 3 models x 26 letters x 3 trials" in line


@pytest.mark.usefixtures("competition")
def test_a_competition_that_can_begin_has_no_findings(server, check, monkeypatch, capsys):
    assert check() == (0, [])
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


def test_grades_by_hand_that_are_missing_are_found_before_the_run(competition, check):
    competition.change("rubric", {"id": "competition", "judge": "human"})
    code, findings = check()
    assert code == 2
    assert ("rubric", "error") in [finding[:2] for finding in findings]
    assert any("human/alpha.yaml: is missing" in text for *_, text in findings)


@pytest.mark.needs_sandbox
def test_all_problems_are_found_at_once(competition, server, check):
    server.__exit__()
    competition.add_team("broken", NOT_INSTALLED)
    competition.add_team("greedy", GREEDY)
    Path("data/recordings").rmdir()
    competition.change("teams", {"absent": {}, **competition.params()["teams"]})
    competition.change_params("models", other=competition.params()["models"]["m"], r=RECORDED)
    competition.change("rubric", {"id": "nonesuch", "judge": "simple", "model": NO_SERVER, "votes": 3})
    Path("data/classifier").unlink()
    shutil.copytree(CLASSIFIER, "data/classifier")
    Path("data/classifier/model.safetensors").write_bytes(b"torn")
    code, findings = check()
    assert code == 2
    expected = [
        ("submissions", "error", "absent"),
        ("recordings", "error", "data/recordings: is missing"),
        *[("recordings", "error", "no such recording")] * 4,
        ("rubric", "error", "nonesuch"),
        ("rubric", "error", "at temperature 0 all votes are the same"),
        ("models", "error", "ollama serve"),  # of both models, which is said once
        ("models", "error", "127.0.0.1:9"),  # of the judge
        ("classifier", "error", "data/classifier"),
        ("packages", "failing team", "no-such-package"),
        ("programs", "failing team", "broken: "),
    ]
    assert [finding[:2] for finding in findings] == [finding[:2] for finding in expected]
    for (_, _, text), (_, _, words) in zip(findings, expected, strict=True):
        assert words in text


def test_versions_are_locked_and_a_team_that_fails_alone_stops_nobody(competition, tmp_path, check):
    write_wheel(tmp_path, {"example.py": ""})
    competition.add_team("careful", {**PROGRAM, "requirements.txt": "example\n"})
    competition.add_team("greedy", GREEDY)
    code, findings = check()
    assert (code, [finding[:2] for finding in findings]) == (0, [("packages", "failing team")])
    assert [path.name for path in Path("data/locks").iterdir()] == ["careful.txt"]


def test_server_and_sandbox_may_be_missing_once_the_trials_are_done(competition, server, check, monkeypatch):
    server.digest = "c" * 64
    assert [finding[:2] for finding in check()[1]] == [("models", "error")]
    server.digest = DIGEST
    competition.generate()
    server.__exit__()
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    monkeypatch.delenv("PCGEVAL_TRUST_PROGRAMS")
    assert check()[0] == 0
    assert [finding[:2] for finding in check()[1]] == [("models", "warning")]
    Path("data/submissions/beta/prompt.txt").write_text("Another <OBJECT>.")
    assert [finding[:2] for finding in check()[1]] == [("models", "error")]


def test_a_digest_of_null_is_named_with_the_one_to_write(competition, server, check):
    competition.change_params("models", m={**competition.params()["models"]["m"], "digest": None})
    [(_, severity, text)] = check()[1]
    assert severity == "warning"
    assert f"models.m.digest is null, so another model could answer in its place. Write {DIGEST}" in text
    judge = {"backend": "ollama", "name": "m:1", "host": server.address}
    competition.change("rubric", {"judge": "simple", "model": judge})
    assert "rubric.model.digest is null" in check()[1][-1][2]
    competition.change("rubric", {"judge": "simple", "model": {"backend": "recorded", "name": "m:1"}})
    assert ("recordings", "error") in [finding[:2] for finding in check()[1]]
    competition.change("rubric", {})
    Path("data/recordings/m").mkdir()
    for team in ("alpha", "beta"):
        write_folder(Path("data/recordings/m") / team, {"calls.jsonl": ""})
    competition.change_params("models", m={"backend": "recorded", "name": "m:1"})
    assert [finding[:2] for finding in check()[1]] == [("recordings", "error")]


def test_a_faulty_params_file_is_a_finding(tmp_path, monkeypatch, check):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("teams: [a]\nteams: [b]\n")
    code, [(group, severity, text)] = check()
    assert (code, group, severity) == (2, "params.yaml", "error")
    assert "line 2: 'teams' stands twice, first in line 1" in text


@pytest.mark.usefixtures("competition")
def test_the_commit_to_publish_and_the_answer_of_each_live_model_are_printed(capsys):
    def printed():
        assert main(["check", "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
        return values, [finding["text"] for finding in values["findings"] if finding["group"] == "commit"]

    values, (warning,) = printed()
    assert values["commit"] is None
    assert "no git repository" in warning
    (answer,) = values["answers"]
    assert answer.startswith("model m answered as ")
    assert answer not in values["summary"]
    git(Path(), "init", "--quiet")
    git(Path(), "add", "--all")
    (warning,) = printed()[1]
    assert "not committed: data/classifier, data/rubrics/" in warning
    git(Path(), "commit", "-qm", "all")
    values, warnings = printed()
    head = git(Path(), "rev-parse", "HEAD")
    assert (values["commit"], warnings) == (head, [])
    assert main(["check"]) == 0
    out, err = capsys.readouterr()
    assert out == f"commit to publish: {head}\n"
    assert err.index(answer[:30]) < err.index(values["summary"][:30])
