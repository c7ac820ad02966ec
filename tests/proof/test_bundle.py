"""Bundles: the same files give the same bytes, and what was changed, added or made to do harm is refused by name."""

import io
import os
import random
import shutil
import zipfile
from pathlib import Path

import pytest
from bundles import contents, packed
from handed_in_for_tests import write_zip
from hypothesis import given, strategies as st

from pcgeval.cli.main import main
from pcgeval.core.errors import PcgevalError
from pcgeval.proof.bundle import MANIFEST, BundleError, make_bundle, unpack_bundle

FILES = {"params.yaml": b"a: 1\n", "data/raw/m/t/x.txt": b"text " * 400, "results/ranking.json": b"{}"}
PACKED = packed(FILES)


def unpacked(content: bytes, place: Path) -> dict[str, bytes]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "bundle.zip").write_bytes(content)
    unpack_bundle(place / "bundle.zip", place / "files")
    files = [path for path in (place / "files").rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(place / "files").as_posix(): path.read_bytes() for path in files}


def refused(content: bytes, tmp_path: Path) -> str:
    with pytest.raises(BundleError) as error:
        unpacked(content, tmp_path / "place")
    assert str(error.value).startswith(str(tmp_path / "place" / "bundle.zip"))
    assert not (tmp_path / "x").exists()
    return str(error.value)


def copied_in_another_order(source: Path, target: Path) -> Path:
    """Copy a folder file by file in a random order, with other times and modes."""
    files = [path for path in source.rglob("*") if path.is_file()]
    random.Random(1).shuffle(files)
    for number, file in enumerate(files):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        copy.chmod(0o600)
        os.utime(copy, (number, number))
    return target


def test_the_same_files_give_the_same_bytes_before_and_after(competition, bundle, tmp_path):
    assert make_bundle(copied_in_another_order(competition, tmp_path / "copy")) == bundle
    files = unpacked(bundle, tmp_path / "place")
    assert files == contents(bundle)
    folder = tmp_path / "place" / "files"
    shutil.copytree(competition / "data/classifier", folder / "data/classifier")  # not bundled: it is shipped
    assert make_bundle(folder) == bundle
    names = {path.relative_to(competition).as_posix() for path in competition.rglob("*") if path.is_file()}
    left_out = ("data/images/", "data/replays/", "data/classifier/", ".pcgeval/", ".cache/", ".dvc/", "data/examples/")
    expected = {name for name in names if not name.startswith(left_out) and "__pycache__" not in name}
    assert files == {name: (competition / name).read_bytes() for name in expected}
    entries = zipfile.ZipFile(io.BytesIO(bundle)).infolist()
    assert [entry.filename for entry in entries] == [*sorted(expected, key=os.fsencode), MANIFEST]


def test_a_bundle_replaces_no_other_file(competition, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(competition)
    bundle = tmp_path / "bundle.zip"
    (text := tmp_path / "other.txt").write_text("mine")
    for other in (text, write_zip(tmp_path / "other.zip", {"prompt.txt": "<OBJECT>"})):
        content = other.read_bytes()
        assert main(["bundle", "-o", str(other)]) == 2
        assert "is no bundle" in capsys.readouterr().err
        assert other.read_bytes() == content
    for _ in range(2):
        assert main(["bundle", "-o", str(bundle)]) == 0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("results/ranking.json", None, "ranking.json: is missing"),
        ("data/submissions/beta/prompt.txt", "another prompt", "make final-eval"),
        ("data/grades/alpha/a:b", "", "a:b"),
        ("params.yaml", "competition: &one {}\nteams: *one\n", "alias"),
    ],
)
def test_a_competition_that_nobody_could_verify_is_not_bundled(competition, tmp_path, name, content, words):
    folder = copied_in_another_order(competition, tmp_path / "copy")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(PcgevalError, match=words):
        make_bundle(folder)


def test_a_link_in_a_submission_is_not_followed_and_one_to_a_cache_is(competition, bundle, tmp_path):
    folder = copied_in_another_order(competition, tmp_path / "copy")
    for name in ("data/levels", "data/submissions"):
        linked = next(path for path in sorted((folder / name).rglob("*")) if path.is_file())
        linked.rename(tmp_path / linked.name)
        linked.symlink_to(tmp_path / linked.name)
        if name == "data/levels":
            assert make_bundle(folder) == bundle
    with pytest.raises(PcgevalError, match="link"):
        make_bundle(folder)


@given(place=st.integers(0, len(PACKED) - 1), bit=st.integers(0, 7))
def test_a_bit_that_flipped_changes_no_file_unseen(tmp_path_factory, place, bit):
    content = bytearray(PACKED)
    content[place] ^= 1 << bit
    try:
        files = unpacked(bytes(content), tmp_path_factory.mktemp("flipped") / "place")
    except BundleError:
        return
    assert files == FILES


def test_files_must_be_those_of_the_manifest(tmp_path):
    assert "outside" in refused(packed({**FILES, "../x": b"x"}), tmp_path)
    fewer = {name: FILES[name] for name in FILES if name != "params.yaml"}
    assert "params.yaml: was changed" in refused(packed({**FILES, "params.yaml": b"a: 2\n"}, FILES), tmp_path)
    assert "params.yaml: is missing" in refused(packed(fewer, FILES), tmp_path)
    assert "params.yaml: was added" in refused(packed(FILES, fewer), tmp_path)
    assert f"{MANIFEST}: is missing" in refused(packed(FILES, {**FILES, MANIFEST: b""}), tmp_path)


@pytest.mark.parametrize("manifest", [b"\xff", b'{"files": {"x": "0"}}', b'{"files":' * 100_000], ids=len)
def test_a_malformed_manifest_is_refused(manifest, tmp_path):
    words = refused(packed(FILES, manifest=manifest), tmp_path)
    assert MANIFEST in words
    assert "dvc repro" not in words
