"""The commands bundle and verify: a bundle is run again with the installed release, as hostile input."""

import json
from pathlib import Path

import pytest
from bundles import contents, packed

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes


@pytest.fixture
def verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `pcgeval verify` on some bytes in an empty folder; return its exit code and all that it printed."""

    def run(content: bytes, *words: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "b.zip").write_bytes(content)
        code = main(["verify", "b.zip", *words])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        assert [path.name for path in tmp_path.iterdir()] == ["b.zip"]
        return code, shown.out + shown.err

    return run


def test_a_bundle_holds_what_the_evaluation_needs(
    competition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verified
) -> None:
    monkeypatch.chdir(competition)
    assert main(["bundle", "-o", str(tmp_path / "b.zip")]) == 0
    content = (tmp_path / "b.zip").read_bytes()
    assert sha256_bytes(content) in capsys.readouterr().out
    code, shown = verified(content)
    assert code == 0, shown
    assert "PASSED" in shown
    assert sha256_bytes(content) in shown


def test_a_forged_similarity_and_other_code_than_the_release_s_are_named(bundle: bytes, verified) -> None:
    files, name = contents(bundle), "data/similarity/small/beta/I.json"
    value = json.loads(files[name])
    value["trials"][0]["similarity"] = 1.0
    files[name] = json.dumps(value).encode()
    files["src/pcgeval/scoring/formulas.py"] += b"# changed\n"
    code, shown = verified(packed(files))
    assert code == 1
    assert "FAILED" in shown
    assert f"{name}: trials[beta_I_" in shown
    assert "published 1.0, again 0." in shown
    assert "src/pcgeval/scoring/formulas.py" in shown


def test_a_bundle_asks_no_server(bundle: bytes, verified) -> None:
    files = contents(bundle)
    files["params.yaml"] += b"execution: {scheduler: 'tcp://127.0.0.1:9'}\n"
    content = packed(files)
    code, shown = verified(content, "--json")
    values = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    assert (code, values["passed"], values["sha256"]) == (0, True, sha256_bytes(content))


def test_a_call_log_that_its_maker_adds_is_refused(bundle: bytes, verified) -> None:
    code, shown = verified(packed(contents(bundle) | {".pcgeval/calls/a.jsonl": b""}))
    assert code == 2
    assert "b.zip: .pcgeval: is in no bundle" in shown


def test_more_trials_than_files_are_refused(bundle: bytes, verified) -> None:
    files = contents(bundle)
    files["params.yaml"] = files["params.yaml"].replace(b"trials: 2\n  seed", b"trials: 1000\n  seed", 1)
    code, shown = verified(packed(files))
    assert code == 2
    assert "trials, for which there are only" in shown
