"""`pcgeval check --seal`: it seals what decides a ranking before the run; later checks name every change since."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from pcgeval.cli.main import main
from pcgeval.core.layout import SEAL, SUBMISSIONS
from pcgeval.core.params import load_params
from pcgeval.scoring.seal import seal_differences
from pcgeval.submissions.load import submission_sha256

MODEL = {"backend": "recorded", "name": "small:1b", "digest": "a" * 64}


@pytest.fixture(autouse=True)
def folder(competition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a copy of the small competition."""
    shutil.copytree(competition, tmp_path / "copy", ignore=shutil.ignore_patterns("src", "images", "stability"))
    monkeypatch.chdir(tmp_path / "copy")


def change_params(**sections: Any) -> None:
    """Replace sections of params.yaml, or change their values."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    for name, value in sections.items():
        params[name] = params[name] | value if isinstance(value, dict) else value
    Path("params.yaml").write_text(yaml.safe_dump(params))


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit code, and the severity and text of each finding about the seal."""
    capsys.readouterr()
    code = main(["check", "--json", *words])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return code, [(finding["severity"], finding["text"]) for finding in findings if finding["group"] == "seal"]


def test_a_seal_is_written_once_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert seal["params"]["competition"]["seed"] == 1
    sealed = {"params": seal["params"], "submissions": seal["submissions"]}
    assert seal["sha256"] == sha256(json.dumps(sealed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    assert main(["check", "--seal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seal"] == seal["sha256"]
    assert SEAL.read_bytes() == content


def test_settings_that_are_changed_afterwards_are_named_and_no_other_seal_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "--seal"]) == 0
    content, params = SEAL.read_bytes(), Path("params.yaml").read_bytes()
    options = {"small": {**MODEL, "options": {"temperature": 1}}}
    for sections, sentence in (
        ({"competition": {"characters": "I"}}, 'competition.characters is "I", and "IT" was sealed.'),
        ({"scoring": {"baseline": None}}, 'scoring.baseline is null, and "alpha" was sealed.'),
        ({"teams": ["beta", "alpha"]}, 'teams is ["beta","alpha"], and ["alpha","beta"] was sealed.'),
        ({"models": options}, "models.small.options.temperature is 1, and null was sealed."),
        ({"competition": {"seed": 7}}, "competition.seed is 7, and 1 was sealed."),
    ):
        Path("params.yaml").write_bytes(params)
        change_params(**sections)
        assert seal_differences(load_params()) == [sentence]
    assert check(capsys) == (0, [("warning", sentence)])
    code, findings = check(capsys, "--seal")
    assert (code, findings[0], SEAL.read_bytes()) == (2, ("error", sentence), content)
    SEAL.unlink()
    assert check(capsys, "--seal") == check(capsys) == (0, [])


def test_other_teams_and_submissions_are_named_and_other_places_and_a_replay_are_not() -> None:
    change_params(models={"large": {"backend": "recorded", "name": "hosted", "digest": "unpinned:" + "b" * 64}})
    assert main(["check", "--seal"]) == 0
    served = {"backend": "openai", "name": "hosted", "base_url": "http://127.0.0.1:9/v1"}
    live = {**MODEL, "backend": "ollama", "host": "127.0.0.1:9", "concurrency": 2}
    change_params(models={"small": live, "large": served}, similarity={"batch": 1})
    sealed = [submission_sha256(SUBMISSIONS / team) for team in ("alpha", "beta")]
    for before, after in (("alpha", "other"), ("beta", "alpha"), ("other", "beta")):
        (SUBMISSIONS / before).rename(SUBMISSIONS / after)
    assert seal_differences(load_params()) == [
        f"Team alpha has another submission: its SHA-256 is {sealed[1]}, and {sealed[0]} was sealed.",
        f"Team beta has another submission: its SHA-256 is {sealed[0]}, and {sealed[1]} was sealed.",
    ]
    (SUBMISSIONS / "beta").rename(SUBMISSIONS / "gamma")
    change_params(teams=["alpha", "gamma"])
    assert seal_differences(load_params())[-2:] == [
        "Team gamma is not in the seal; it was added afterwards.",
        "Team beta is in the seal; it was removed afterwards.",
    ]


def test_a_forged_seal_is_named_on_printable_lines() -> None:
    assert main(["check", "--seal"]) == 0
    seal = json.loads(SEAL.read_text())
    change_params(competition={"seed": 7})
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
def test_a_file_that_is_no_seal_is_named(capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    SEAL.write_bytes(content)
    code, ((severity, sentence),) = check(capsys)
    assert (code, severity, sentence.startswith("results/seal.json: ")) == (0, "warning", True)
    assert check(capsys, "--seal")[0] == 2
    assert SEAL.read_bytes() == content
