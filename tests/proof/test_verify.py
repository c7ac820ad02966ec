"""The commands bundle and verify: a bundle is run again with the installed release, as hostile input."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes
from pcgeval.proof.bundle import MANIFEST


def repacked(bundle: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """Change files of a bundle and give it the manifest that goes with them."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    values = json.loads(files.pop(MANIFEST))
    change(files)
    values |= {"files": {name: sha256_bytes(content) for name, content in files.items()}}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (files | {MANIFEST: json.dumps(values).encode()}).items():
            archive.writestr(name, content)
    return packed.getvalue()


@pytest.fixture
def verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `pcgeval verify` on some bytes in an empty folder; return its exit code and all that it printed."""
    monkeypatch.chdir(tmp_path)

    def run(content: bytes, *words: str) -> tuple[int, str]:
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
    assert main(["bundle", "-o", str(tmp_path / "bundle.zip")]) == 0
    content = (tmp_path / "bundle.zip").read_bytes()
    assert sha256_bytes(content) in capsys.readouterr().out
    (tmp_path / "bundle.zip").unlink()
    monkeypatch.chdir(tmp_path)
    code, shown = verified(content)
    assert code == 0, shown
    assert "PASSED" in shown
    assert sha256_bytes(content) in shown


def test_a_forged_similarity_is_found(bundle: bytes, verified) -> None:
    def change(files: dict[str, bytes]) -> None:
        name = "data/similarity/small/beta/I.json"
        value = json.loads(files[name])
        value["trials"][0]["similarity"] = 1.0
        files[name] = json.dumps(value).encode()

    code, shown = verified(repacked(bundle, change))
    assert code == 1
    assert "FAILED" in shown
    assert "data/similarity/small/beta/I.json: trials[beta_I_" in shown
    assert "published 1.0, again 0." in shown


def test_other_code_than_the_release_s_is_named(bundle: bytes, verified) -> None:
    def change(files: dict[str, bytes]) -> None:
        files["src/pcgeval/scoring/formulas.py"] += b"# changed\n"

    code, shown = verified(repacked(bundle, change))
    assert code == 1
    assert "src/pcgeval/scoring/formulas.py" in shown


def test_the_same_bundle_with_json(bundle: bytes, verified) -> None:
    code, shown = verified(bundle, "--json")
    found = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    assert (code, found["passed"], found["sha256"]) == (0, True, sha256_bytes(bundle))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("params.yaml", b"a: &x [1]\nb: *x\n", "alias"),
        ("params.yaml", b"[" * 100_000, "params.yaml"),
        ("params.yaml", b"teams: 3\n", "params.yaml"),
        ("results/ranking.json", b"[" * 100_000, "ranking.json"),
        ("results/ranking.json", b"{}", "ranking.json"),
    ],
)
def test_files_that_do_harm_are_refused(bundle: bytes, verified, name: str, content: bytes, words: str) -> None:
    code, shown = verified(repacked(bundle, lambda files: files.update({name: content})))
    assert code == 2
    assert words in shown


def test_more_trials_than_files_are_refused(bundle: bytes, verified) -> None:
    def change(files: dict[str, bytes]) -> None:
        files["params.yaml"] = files["params.yaml"].replace(b"trials: 2\n  seed", b"trials: 1000\n  seed", 1)

    code, shown = verified(repacked(bundle, change))
    assert code == 2
    assert "trials" in shown


def test_a_bundle_asks_no_server(bundle: bytes, verified) -> None:
    def change(files: dict[str, bytes]) -> None:
        text = files["params.yaml"].decode()
        files["params.yaml"] = (text + "execution: {scheduler: 'tcp://127.0.0.1:9'}\n").encode()

    code, shown = verified(repacked(bundle, change))
    assert code == 0, shown
