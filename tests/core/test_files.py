"""Files: atomic, canonical, and clear about what is wrong with one."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_what_is_no_json_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "value.json"
    path.write_bytes(content)
    with pytest.raises(files.FileError, match=r"value\.json"):
        files.read_json(path)


def test_an_output_never_replaces_its_input(tmp_path: Path):
    source = tmp_path / "out" / "in"
    source.mkdir(parents=True)
    with pytest.raises(files.FileError, match="replace its own input"):
        files.empty_folder(tmp_path / "out", keep=source)
    assert source.is_dir()
