"""Folders as people and attackers hand them in."""

import os
import socket
from pathlib import Path

import pytest
from handed_in_for_tests import PROGRAM_FILES, PROMPT_FILES, texts, write_folder

from pcgeval.core.untrusted import UntrustedFileError
from pcgeval.submissions import hand_in as hand_in_module
from pcgeval.submissions.hand_in import copy_files, select
from pcgeval.submissions.validate import validate


def names(folder: Path) -> list[str]:
    return list(select(folder).sizes)


def test_all_files_in_the_order_of_their_names(tmp_path: Path):
    write_folder(tmp_path, dict.fromkeys(["b", "a/c", "B2", "a.txt", ".env"], "x"))
    (tmp_path / "empty").mkdir()
    assert names(tmp_path) == [".env", "B2", "a.txt", "a/c", "b"]


def test_links_are_told_and_not_followed(tmp_path: Path):
    secret = write_folder(tmp_path / "elsewhere", {"secret": "s"})
    folder = write_folder(tmp_path / "team", PROMPT_FILES)
    (folder / "to_file").symlink_to(secret / "secret")
    (folder / "to_folder").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    (folder / "dangling").symlink_to("nowhere")
    found = texts(select(folder).findings)
    assert [line.partition(": is a link")[0] for line in found] == ["dangling", "loop", "to_file", "to_folder"]
    assert names(folder) == ["README.md", "prompt.txt"]


def test_a_hard_link_to_a_file_outside_is_told(tmp_path: Path):
    folder = write_folder(tmp_path / "team", {"a": "x", "b": "y"})
    (folder / "a2").hardlink_to(folder / "a")
    assert select(folder).findings == ()
    (tmp_path / "outside").hardlink_to(folder / "b")
    (line,) = texts(select(folder).findings)
    assert line.startswith("b: is a hard link")


def test_pipes_and_sockets_are_told_and_not_opened(tmp_path: Path):
    folder = write_folder(tmp_path / "team", PROMPT_FILES)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        found = sorted(texts(validate(folder).findings))
    assert [line.partition(": is a pipe, a socket")[0] for line in found] == ["pipe", "socket"]


def test_folders_that_are_left_out_are_not_entered(tmp_path: Path):
    folder = write_folder(tmp_path, {".git/objects/aa/bb": "x", "env/pyvenv.cfg": "x", "env/lib/x.py": "x", "a": "x"})
    (folder / "env" / "python").symlink_to("/usr/bin/python3")
    (folder / ".git" / "link").symlink_to("/etc")
    found = select(folder)
    assert list(found.sizes) == ["a"]
    left_out = [line.partition(" was left out")[0] for line in texts(found.findings, "note")]
    assert left_out == [".git:", "env:"]


def test_too_many_entries_end_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hand_in_module, "_MAX_ENTRIES", 10)
    write_folder(tmp_path, {f"{number}": "x" for number in range(11)})
    assert "more than 10" in texts(select(tmp_path).findings)[0]
    assert names(tmp_path) == []


def test_folders_in_folders_end_somewhere(tmp_path: Path):
    deep = tmp_path.joinpath(*["d"] * 30)
    deep.mkdir(parents=True)
    (deep / "x").write_text("x")
    assert "deeper than 20 folders" in texts(select(tmp_path).findings)[0]


def test_a_huge_file_is_not_read(tmp_path: Path):
    write_folder(tmp_path, PROGRAM_FILES)
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(2**40)
    found = validate(tmp_path)
    assert any("(1 GB) are allowed with all data" in line for line in texts(found.findings))


@pytest.mark.parametrize("becomes", ["nothing", "a link", "a pipe"])
def test_a_file_that_became_something_else_is_not_followed(tmp_path: Path, becomes: str):
    folder = write_folder(tmp_path / "team", {"a": "x"})
    selected = select(folder)
    (folder / "a").unlink()
    if becomes == "a link":
        (folder / "a").symlink_to("/etc/passwd")
    elif becomes == "a pipe":
        os.mkfifo(folder / "a")
    with pytest.raises(UntrustedFileError):
        copy_files(selected, tmp_path / "target")
    assert not any(path.is_file() for path in (tmp_path / "target").rglob("*"))


def test_names_that_cannot_be_decoded_are_told(tmp_path: Path):
    folder = write_folder(tmp_path / "team", PROMPT_FILES)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("x")
    (folder / "line\nbreak").write_text("x")
    found = texts(validate(folder).findings)
    assert sum("unprintable" in line for line in found) == 2
