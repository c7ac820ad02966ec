"""Files, folders and texts of strangers: bounded, never through a link, and printable."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pcgeval.core.text import printable_line, printable_name, printable_text
from pcgeval.core.untrusted import (
    UntrustedFileError,
    files_below,
    open_regular,
    path_below,
    read_bytes,
    read_json,
    walk,
)

ANY_TEXT = st.text(st.characters(codec=None))  # lone surrogates too


def reason(path: Path, limit: int = 10, *, follow_link: bool = False) -> str:
    with pytest.raises(UntrustedFileError) as caught:
        read_bytes(path, limit, follow_link=follow_link)
    assert str(caught.value) == f"{printable_name(str(path), 1000)}: {caught.value.reason}. {caught.value.remedy}"
    return f"{caught.value.kind}: {caught.value.reason}"


def test_only_regular_files_are_read_up_to_a_limit_and_none_is_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "real").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    assert read_bytes(tmp_path / "real", 10) == b"0123456789"
    assert reason(tmp_path / "real", 9) == "too large: is larger than 9 bytes"
    assert read_bytes(tmp_path / "real", 3, cut=True) == b"012"
    with pytest.raises(UntrustedFileError, match=r"read \(a broken disk\)"), open_regular(tmp_path / "real"):
        raise OSError("a broken disk")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket"))
        for name in ("pipe", "folder", "socket"):
            assert reason(tmp_path / name) == "not regular: is not a regular file"
    assert reason(Path("/dev/zero")) == "not regular: is not a regular file"
    for name in ("link", "dangling", "loop"):
        assert reason(tmp_path / name) == "not regular: is a link"
    assert read_bytes(tmp_path / "link", 10, follow_link=True) == b"0123456789"
    for name in ("dangling", "loop"):  # they are not missing
        assert reason(tmp_path / name, follow_link=True) == "not regular: is a link"
    for name in ("missing", "real/below", "a\0b", "\ud800"):
        assert reason(tmp_path / name) == "missing: is missing"
    assert reason(tmp_path / ("x" * 300)) == "system: cannot be read (File name too long)"


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"1" * 10_000, b'"\xff"', b'"\xed\xa0\x80"', b'"\x00"'])
def test_json_is_json_in_utf8(tmp_path: Path, content: bytes):
    (tmp_path / "value").write_bytes(content)
    with pytest.raises(UntrustedFileError, match="value: is not"):
        read_json(tmp_path / "value", 10**6)


def test_a_mark_at_the_beginning_of_json_is_no_fault_and_utf16_is_named(tmp_path: Path):
    (tmp_path / "value").write_bytes(b"\xef\xbb\xbf[1]")
    assert read_json(tmp_path / "value", 100) == [1]
    (tmp_path / "value").write_text("[1]", "utf-16")
    with pytest.raises(UntrustedFileError, match=r"is UTF-16 text\. Save it"):
        read_json(tmp_path / "value", 100)


def tree(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return root


def test_no_path_leads_out_and_no_part_of_it_is_a_link(tmp_path: Path):
    tree(tmp_path, "a/b/file")
    (tmp_path / "link").symlink_to("a")
    assert path_below(tmp_path, "./a/b/file") == tmp_path / "a" / "b" / "file"
    for fragment, names in {
        "leads out": ("/etc/passwd", "../x", "a/../../x", "", "."),
        "is a link": ("link/b/file", "link"),
        "is missing": ("a/c", "a/b/file/x", "a\0", "\ud800"),
    }.items():
        for name in names:
            with pytest.raises(UntrustedFileError, match=fragment):
                path_below(tmp_path, name)


def test_a_walk_goes_level_by_level_in_byte_order_and_follows_no_link(tmp_path: Path):
    tree(tmp_path, "b", "a/c", "a.txt", "a/d/e", ".env", "B")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "a" / "pipe")
    entries = list(walk(tmp_path))
    assert [entry.name for entry in entries] == [".env", "B", "a.txt", "b", "loop", "a/c", "a/pipe", "a/d/e"]
    assert [entry.name for entry in entries if not entry.is_file] == ["loop", "a/pipe"]
    assert [entry.name for entry in walk(tmp_path, enter=lambda name: name != "a") if entry.is_folder] == ["a"]
    assert files_below(tmp_path) == [tmp_path / name for name in (".env", "B", "a.txt", "a/c", "a/d/e", "b")]
    for folder, fragment in ((tree(tmp_path, "/".join("d" * 42)), "deeper"), (tmp_path / "missing", "cannot be")):
        with pytest.raises(UntrustedFileError, match=fragment):
            files_below(folder)


@pytest.mark.parametrize(
    ("bound", "name", "fault"),
    [
        ({"limit": 3}, "a", "has more than 3 entries"),
        ({"limit": 4}, "", "has more than 4 files and folders"),
        ({"depth": 2}, "a/4/5", "lies deeper than 2 folders"),
    ],
)
def test_a_walk_is_bounded_in_entries_and_depth(tmp_path: Path, bound: dict[str, int], name: str, fault: str):
    tree(tmp_path, "a/1", "a/2", "a/3", "a/4/5/6")
    assert [(entry.name, entry.fault) for entry in walk(tmp_path, **bound) if entry.fault] == [(name, fault)]


@given(ANY_TEXT, st.integers(4, 40))
def test_every_text_can_be_shown(text: str, limit: int):
    line, name = printable_line(text, limit), printable_name(text)
    assert line.isprintable()
    assert len(line) <= limit
    assert name.isprintable()
    if text.isprintable() and len(text) <= 300:
        assert name == text
    printable_text(text).encode()


def test_a_text_of_several_lines_keeps_its_breaks_and_tabs():
    shown = printable_text("a\u202eb\x00c\ud800d\u2066e\x1bf\r\n\tg\rh\n\r\ni\r")
    assert shown == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\n\tg\nh\n\ni\n"
