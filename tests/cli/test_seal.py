"""`pcgeval check --seal`: it seals what decides a ranking before the run; later checks name every change since."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from competition_folder import CompetitionFolder

from pcgeval.cli.main import main
from pcgeval.core.layout import SEAL, SUBMISSIONS
from pcgeval.core.params import load_params
from pcgeval.scoring.seal import seal_differences
from pcgeval.submissions.load import submission_sha256

MODEL = {"backend": "recorded", "name": "small:1b", "digest": "a" * 64}


@pytest.fixture(autouse=True)
def folder(competition, tmp_path, monkeypatch):
    """A copy of the small competition, as the working directory."""
    shutil.copytree(competition, tmp_path / "copy", ignore=shutil.ignore_patterns("src", "images", "stability"))
    monkeypatch.chdir(tmp_path / "copy")
    return CompetitionFolder(Path())


@pytest.fixture
def check(capsys):
    """Return the exit code, and the severity and text of each finding about the seal."""

    def run(*words):
        capsys.readouterr()
        code = main(["check", "--json", *words])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return code, [(finding["severity"], finding["text"]) for finding in findings if finding["group"] == "seal"]

    return run


def test_a_seal_is_written_once_where_it_is_asked_for(capsys):
    prompt = SUBMISSIONS / "beta" / "prompt.txt"
    text = prompt.read_text()
    for content, words, code in (("", ["--seal"], 2), (text, [], 0)):
        prompt.write_text(content)
        assert main(["check", *words]) == code
        assert not SEAL.exists()
    assert main(["check", "--seal"]) == 0
    content, printed = SEAL.read_bytes(), capsys.readouterr().out
    seal = json.loads(content)
    assert printed == f"{seal['sha256']}\n"
    assert seal["submissions"] == {team: submission_sha256(SUBMISSIONS / team) for team in ("alpha", "beta")}
    sealed = {"params": seal["params"], "submissions": seal["submissions"]}
    assert seal["sha256"] == sha256(json.dumps(sealed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    assert main(["check", "--seal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seal"] == seal["sha256"]
    assert SEAL.read_bytes() == content


def test_settings_that_are_changed_afterwards_are_named_and_no_other_seal_is_written(folder, check):
    assert main(["check", "--seal"]) == 0
    content = SEAL.read_bytes()
    folder.change_params("models", small={**MODEL, "options": {"temperature": 1}})
    folder.change_params("scoring", baseline=None)
    folder.change("teams", {"beta": {}, "alpha": {}})
    changes = [
        "models.small.options.temperature is 1, and null was sealed.",
        'scoring.baseline is null, and "alpha" was sealed.',
        'teams is ["beta","alpha"], and ["alpha","beta"] was sealed.',
    ]
    assert check() == (0, [("warning", change) for change in changes])
    code, findings = check("--seal")
    assert (code, findings[:-1]) == (2, [("error", change) for change in changes])
    assert SEAL.read_bytes() == content


def test_other_teams_and_submissions_are_named_and_other_places_and_a_replay_are_not(folder):
    folder.change_params("models", large={"backend": "recorded", "name": "hosted", "digest": f"unpinned:{64 * 'b'}"})
    assert main(["check", "--seal"]) == 0
    served = {"backend": "openai", "name": "hosted", "base_url": "http://127.0.0.1:9/v1"}
    live = {**MODEL, "backend": "ollama", "host": "127.0.0.1:9", "concurrency": 2}
    folder.change_params("models", small=live, large=served)
    folder.change_params("similarity", batch=1)
    sealed = submission_sha256(SUBMISSIONS / "alpha")
    shutil.copytree(SUBMISSIONS / "alpha", SUBMISSIONS / "gamma")
    (SUBMISSIONS / "alpha/prompt.txt").write_text("Another <OBJECT>.")
    folder.change("teams", {"alpha": {}, "gamma": {}})
    present = submission_sha256(SUBMISSIONS / "alpha")
    params, *submissions = seal_differences(load_params())
    assert params.startswith("teams is ")
    assert submissions == [
        f"Team alpha has another submission: its SHA-256 is {present}, and {sealed} was sealed.",
        "Team gamma is not in the seal; it was added afterwards.",
        "Team beta is in the seal; it was removed afterwards.",
    ]


def test_a_forged_seal_is_named_on_printable_lines(folder):
    assert main(["check", "--seal"]) == 0
    seal = json.loads(SEAL.read_text())
    folder.change_params("competition", seed=7)
    seal["params"]["competition"]["seed"] = 7
    SEAL.write_text(json.dumps(seal))
    (sentence,) = seal_differences(load_params())
    assert "altered" in sentence
    assert seal["sha256"] in sentence
    seal["submissions"]["\x1b[2J\n" * 200] = "a" * 64
    seal["params"] = {"x\n\x1b": ["y" * 10_000]}
    SEAL.write_text(json.dumps(seal))
    shown = seal_differences(load_params())
    assert len(shown) > 3
    assert all(sentence.isprintable() and len(sentence) <= 600 for sentence in shown)


NAN = b'{"sha256": "' + b"a" * 64 + b'", "params": {"a": NaN}, "submissions": {}}'


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 10_000, NAN], ids=["empty", "no-utf8", "deep", "nan"])
def test_a_file_that_is_no_seal_is_named(check, content):
    SEAL.write_bytes(content)
    code, ((severity, sentence),) = check()
    assert (code, severity, sentence.startswith("results/seal.json: ")) == (0, "warning", True)
    assert check("--seal")[0] == 2
    assert SEAL.read_bytes() == content
