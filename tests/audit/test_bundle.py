"""Making a bundle: the same competition gives the same bytes, with a manifest and a description that others read."""

import json
import os
import random
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from mini_competition import run

from pcgeval.audit.archive import ArchiveError, unpack
from pcgeval.audit.bundle import BundleError, make_bundle
from pcgeval.audit.manifest import CRATE, MANIFEST
from pcgeval.cli.main import main
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes


def copied_in_another_order(source: Path, target: Path) -> Path:
    """Copy a folder file by file in a random order, with other times and modes."""
    files = [each for each in source.rglob("*") if each.is_file()]
    random.Random(1).shuffle(files)
    for number, file in enumerate(files):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        copy.chmod(0o600)
        os.utime(copy, (number, number))
    return target


def test_the_same_files_give_the_same_bytes(competition: Path, bundle: bytes, tmp_path: Path) -> None:
    assert make_bundle(copied_in_another_order(competition, tmp_path / "copy")) == bundle


def test_it_holds_each_file_that_the_ranking_follows_from(competition: Path, bundle: bytes) -> None:
    files = dict(unpack(bundle))
    listed = {name for name in files if name.startswith(("data/", "results/"))}
    there = {path.relative_to(competition).as_posix() for path in competition.rglob("*") if path.is_file()}
    left_out = ("data/images/", "data/replays/", "data/classifier/", "results/report/")
    assert listed == {
        name for name in there if name.startswith(("data/", "results/")) and not name.startswith(left_out)
    }
    assert {"params.yaml", "dvc.yaml", "src/pcgeval/core/params.py", "stages/rank.py"} <= set(files)
    assert all((competition / name).read_bytes() == files[name] for name in listed)


def test_the_manifest_is_a_statement_of_in_toto(competition: Path, bundle: bytes) -> None:
    files = dict(unpack(bundle))
    manifest = json.loads(files[MANIFEST])
    ranking = json.loads((competition / "results/ranking.json").read_text())
    assert manifest["_type"] == "https://in-toto.io/Statement/v1"
    assert manifest["predicateType"] == "urn:pcgeval:bundle:1"
    assert {each["name"]: each["digest"] for each in manifest["subject"]} == {
        name: {"sha256": sha256_bytes(content)} for name, content in files.items() if name != MANIFEST
    }
    predicate = manifest["predicate"]
    assert predicate["result"] == ranking["result"]
    assert {key: predicate[key] for key in ("engine", "classifier", "packages")} == {
        key: ranking[key] for key in ("engine", "classifier", "packages")
    }
    assert "pymunk" in predicate["packages"]
    assert predicate["source"] == {"commit": None, "date": None, "uncommitted": []}


def test_the_commit_and_what_differs_from_it_are_named(competition: Path, tmp_path: Path) -> None:
    folder = copied_in_another_order(competition, tmp_path / "copy")
    run(folder, "git", "init", "--quiet")
    (folder / ".gitignore").write_text("/data/raw/\n/data/levels/\n")
    run(folder, "git", "add", "--all")
    run(folder, "git", "commit", "--quiet", "--message", "evaluated", "--date", "2026-01-02T03:04:05Z")
    commit = run(folder, "git", "rev-parse", "HEAD").strip()
    with (folder / "params.yaml").open("a") as params:
        params.write("# a remark\n")
    (folder / "unrelated.txt").touch()
    files = dict(unpack(make_bundle(folder)))
    source = json.loads(files[MANIFEST])["predicate"]["source"]
    assert source["commit"] == commit
    assert source["uncommitted"] == ["params.yaml"]
    assert json.loads(files[CRATE])["@graph"][1]["datePublished"] == source["date"]


def test_the_crate_is_read_by_the_package_for_crates(bundle: bytes, tmp_path: Path) -> None:
    rocrate = pytest.importorskip("rocrate.rocrate")
    with zipfile.ZipFile(_written(tmp_path / "bundle.zip", bundle)) as archive:
        archive.extractall(tmp_path / "crate")
    crate = rocrate.ROCrate(tmp_path / "crate")
    assert crate.name == "test 1 final: submissions, trials and ranking"
    assert {"params.yaml", "results/ranking.csv", "data/raw/", "data/submissions/"} <= {
        each.id for each in crate.data_entities
    }
    assert all((tmp_path / "crate" / each.id).exists() for each in crate.data_entities)
    (evaluation,) = crate.get_by_type("CreateAction")
    assert [each.id for each in evaluation["result"]] == ["results/ranking.json", "results/ranking.csv"]
    assert {each["name"] for each in evaluation["instrument"]} == {"pcgeval", "small:1b", "large:1b"}


def test_a_ranking_of_other_files_is_not_bundled(competition: Path, tmp_path: Path) -> None:
    folder = copied_in_another_order(competition, tmp_path / "copy")
    path = next((folder / "data/raw").rglob("*.txt"))
    path.write_text("another response")
    with pytest.raises(BundleError, match="make final-eval"):
        make_bundle(folder)


def test_a_competition_that_was_not_evaluated_is_not_bundled(competition: Path, tmp_path: Path) -> None:
    shutil.copy(competition / "params.yaml", tmp_path)
    with pytest.raises(PcgevalError, match=r"ranking\.json"):
        make_bundle(tmp_path)


def test_a_name_that_not_every_disk_takes_is_not_bundled(competition: Path, tmp_path: Path) -> None:
    folder = copied_in_another_order(competition, tmp_path / "copy")
    (folder / "data/grades/alpha/a:b").touch()
    with pytest.raises(ArchiveError, match="a:b"):
        make_bundle(folder)


def test_params_with_an_alias_are_not_bundled(competition: Path, tmp_path: Path) -> None:
    folder = copied_in_another_order(competition, tmp_path / "copy")
    path = folder / "params.yaml"
    path.write_text(path.read_text().replace("seed: 1", "seed: &one 1", 1).replace("seed: 1", "seed: *one", 1))
    with pytest.raises(BundleError, match="alias"):
        make_bundle(folder)


def test_the_command_writes_the_file_and_says_its_hashes(
    competition: Path,
    bundle: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(competition)
    out = tmp_path / "new" / "bundle.zip"
    assert main(["bundle", "-o", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert out.read_bytes() == bundle
    assert printed["sha256"] == sha256_bytes(bundle)
    assert printed["result"] == json.loads((competition / "results/ranking.json").read_text())["result"]["sha256"]


def test_a_doubtful_ranking_is_named_and_nothing_written(
    competition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied_in_another_order(competition, tmp_path / "copy")
    monkeypatch.chdir(folder)
    prompt = folder / "data/submissions/beta/prompt.txt"
    prompt.write_text(prompt.read_text() + "!")
    assert main(["bundle", "-o", str(tmp_path / "bundle.zip")]) == 1
    assert "another submission" in capsys.readouterr().err
    assert not (tmp_path / "bundle.zip").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_keys_of_openssl_sign_a_bundle(
    competition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.chdir(competition)
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True, capture_output=True)
    for name in ("one", "two"):
        assert main(["bundle", "-o", str(tmp_path / name), "--sign", str(key)]) == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "one"), "--key", str(public), "--recompute", "0"]) == 0
    assert "by the key that was given" in capsys.readouterr().out
    assert main(["bundle", "-o", str(tmp_path / "three"), "--sign", str(public)]) == 2


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
