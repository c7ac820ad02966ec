"""Files: atomic, canonical, and clear about what is wrong with one."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from params_for_tests import contents, file_states

from pcgeval.core import files

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_comes_back_as_it_was(value):
    assert json.loads(files.to_json(value)) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_one_value_has_one_form(value):
    turned = dict(reversed(value.items()))
    assert files.to_json(turned) == files.to_json(value)
    assert files.sha256_json(turned) == files.sha256_json(value)


def test_no_number_that_json_lacks():
    with pytest.raises(ValueError, match="Out of range"):
        files.to_json(math.nan)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    files.write_bytes(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_lone_surrogates_become_replacement_characters(tmp_path: Path):
    files.write_text(tmp_path / "text", "a\ud800b\r\n")
    assert b"\r\n" in (tmp_path / "text").read_bytes()
    assert files.read_text(tmp_path / "text") == "a\ufffdb\r\n"


def test_a_file_with_the_same_content_is_not_written_again(tmp_path: Path):
    path = tmp_path / "folder" / "file"
    files.write_bytes(path, b"one")
    before = file_states(tmp_path)
    files.write_bytes(path, b"one")
    assert file_states(tmp_path) == before
    files.write_bytes(path, b"two")
    assert path.read_bytes() == b"two"
    assert file_states(tmp_path) != before


def test_a_rewritten_folder_holds_what_was_written_and_nothing_else(tmp_path: Path):
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name in ("same", "other", "stale", "deep/stale", "deep/er/stale"):
        files.write_text(output / name, "old")
    (output / "empty").mkdir()
    (output / "link").symlink_to(source)
    before = file_states(output)
    with files.rewritten_folder(output, keep=source):
        files.write_text(output / "same", "old")
        files.write_text(output / "other", "new")
        files.write_text(output / "new" / "file", "new")
    assert {path.relative_to(output).as_posix() for path in output.rglob("*")} == {"same", "other", "new", "new/file"}
    assert file_states(output)["same"] == before["same"]
    assert (output / "other").read_text() == "new"
    assert source.is_dir()


def test_folders_can_be_rewritten_together(tmp_path: Path):
    source, one, two = (tmp_path / name for name in ("in", "one", "two"))
    source.mkdir()
    for folder in (one, two):
        files.write_text(folder / "stale", "")
    with files.rewritten_folder(one, keep=source), files.rewritten_folder(two, keep=source):
        files.write_text(one / "a", "")
        files.write_text(two / "b", "")
    assert [sorted(contents(folder)) for folder in (one, two)] == [["a"], ["b"]]


def test_a_run_that_fails_removes_nothing(tmp_path: Path):
    files.write_text(tmp_path / "in" / "file", "")
    files.write_text(tmp_path / "out" / "old", "")

    def write_and_fail():
        with files.rewritten_folder(tmp_path / "out", keep=tmp_path / "in"):
            files.write_text(tmp_path / "out" / "new", "")
            raise files.FileError("the disk is full")

    with pytest.raises(files.FileError, match="full"):
        write_and_fail()
    assert sorted(contents(tmp_path / "out")) == ["new", "old"]


@pytest.mark.parametrize("output", ["out", "out/in", "link"])
def test_an_output_never_replaces_its_input(tmp_path: Path, output: str):
    source = tmp_path / "out" / "in"
    files.write_text(source / "file", "")
    (tmp_path / "link").symlink_to("out")
    with (
        pytest.raises(files.FileError, match="replace its own input"),
        files.rewritten_folder(tmp_path / output, keep=source),
    ):
        pass
    assert (source / "file").is_file()


def test_without_its_input_no_output_is_removed(tmp_path: Path):
    files.write_text(tmp_path / "out" / "old", "")
    with (
        pytest.raises(files.FileError, match="in: is missing"),
        files.rewritten_folder(tmp_path / "out", keep=tmp_path / "in"),
    ):
        pass
    assert sorted(contents(tmp_path / "out")) == ["old"]
