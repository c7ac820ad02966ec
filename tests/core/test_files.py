"""Files: atomic, canonical, rewritten only if their content differs, and locked by one process at a time."""

import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, strategies as st
from params_for_tests import contents, file_states

from pcgeval.core import files, packages
from pcgeval.core.errors import FileError
from pcgeval.core.locks import lock_folder, lock_holder
from pcgeval.core.untrusted import UntrustedFileError, read_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.dictionaries(st.text(), st.integers(), min_size=2))
def test_json_keeps_every_value_in_one_form(value: object, mapping: dict[str, int]) -> None:
    assert json.loads(files.to_json(value)) == value
    assert files.to_json(dict(reversed(mapping.items()))) == files.to_json(mapping)
    with pytest.raises(ValueError, match="Out of range"):
        files.to_json(math.nan)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder" / "file"
    files.write_text(path, "a\ud800b\r\n")
    assert read_text(path) == "a\ufffdb\r\n"
    before = file_states(tmp_path)
    monkeypatch.setattr(files.os, "replace", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        files.write_bytes(path, b"new")
    assert file_states(tmp_path) == before


def test_rewritten_folders_hold_only_the_files_of_the_last_run_that_did_not_fail(tmp_path: Path) -> None:
    source, one, two = (tmp_path / name for name in ("in", "one", "two"))
    source.mkdir()
    for path in (one / "same", one / "other", one / "deep/er/stale", two / "stale"):
        files.write_text(path, "old")
    (one / "empty").mkdir()
    (one / "link").symlink_to(source)
    before = file_states(one)
    with files.rewritten_folder(one, keep=source), files.rewritten_folder(two, keep=source):
        files.write_text(one / "same", "old")
        files.write_text(one / "other", "new")
        files.write_text(one / "new" / "file", "new")
    assert contents(one) == {"same": b"old", "other": b"new", "new/file": b"new"}
    assert file_states(one)["same"] == before["same"]
    assert {path.name for path in tmp_path.rglob("*") if path.is_dir()} == {"in", "one", "two", "new"}
    assert not contents(two)
    with pytest.raises(FileError, match="full"), files.rewritten_folder(one, keep=source):
        raise FileError("the disk is full")
    assert contents(one).keys() == {"same", "other", "new/file"}


def test_a_rewritten_folder_keeps_what_another_thread_wrote(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with files.rewritten_folder(one, keep=tmp_path), ThreadPoolExecutor() as threads:
        with files.rewritten_folder(two, keep=tmp_path):
            threads.submit(files.write_text, two / "inner", "x").result()
        threads.submit(files.write_text, one / "outer", "x")
    assert (contents(one), contents(two)) == ({"outer": b"x"}, {"inner": b"x"})


def test_a_tree_is_copied_and_hashed_by_the_names_of_its_files(tmp_path: Path) -> None:
    names = ("b", "a/c", "a.txt", ".gitignore", "a/__pycache__/c.pyc")
    for name in names:
        files.write_text(tmp_path / "from" / name, name)
    (tmp_path / "from" / "b").chmod(0o755)
    assert sorted(files.tree_files(tmp_path / "from")) == ["a.txt", "a/c", "b"]
    assert list(files.tree_files(tmp_path, "from/a/c")) == ["from/a/c"]
    assert list(files.tree_files(tmp_path, "missing")) == []
    files.copy_files(tmp_path / "from", tmp_path / "to", files.tree_files(tmp_path / "from", with_ignored=True))
    assert contents(tmp_path / "to") == {name: name.encode() for name in names}
    files.copy_files(tmp_path / "from", tmp_path / "other", ["b"], with_status=True)
    assert [(tmp_path / place / "b").stat().st_mode & 0o111 for place in ("to", "other")] == [0, 0o111]
    value = [[name, sha256(name.encode()).hexdigest()] for name in ("a.txt", "a/c", "b")]
    text = json.dumps(value, separators=(",", ":"))
    assert files.tree_sha256(tmp_path / "from", ["b", "a/c", "a.txt", "b"]) == sha256(text.encode()).hexdigest()
    (tmp_path / "from" / "link").symlink_to("b")
    with pytest.raises(UntrustedFileError, match="is a link"):
        files.copy_files(tmp_path / "from", tmp_path / "to", ["link"])
    files.copy_files(tmp_path / "from", tmp_path / "to", ["link"], follow_link=True)
    with pytest.raises(FileError, match="gone: cannot be read"):
        files.tree_sha256(tmp_path, ["gone"])


def test_the_hash_of_the_code_changes_with_every_module_of_its_packages_alone(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(packages, "__file__", str(tmp_path / "core" / "packages.py"))
    hashes = []
    for name in ("levels/grid.py", "evaluator/deep/world.py", "levels/new.py", "core/packages.py"):
        files.write_text(tmp_path / name, "changed = 1\n")
        hashes.append(packages.source_sha256.__wrapped__("evaluator", "levels"))  # as in a new process
    assert len(set(hashes)) == 3
    assert hashes[-1] == hashes[-2]


def test_only_the_process_that_took_a_lock_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / "alpha.lock"
    with lock_folder(Path("a"), lock):
        process, _ = lock_holder(lock) or (None, None)
        assert process == os.getpid()
        os.utime(lock, (0, 0))  # the number of a killed process, which a younger one has now
        assert lock_holder(lock) is None
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    assert lock_holder(lock) is None
    with lock_folder(Path("a"), lock):  # a program that outlives its run does not inherit the lock
        child.communicate()
