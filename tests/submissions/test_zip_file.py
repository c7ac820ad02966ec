"""Zip files that are damaged, or made to do damage."""

import io
import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from handed_in_for_tests import PROMPT_FILES, README, entry, texts, write_zip
from hypothesis import given, settings
from hypothesis import strategies as st

from pcgeval.submissions import hand_in as hand_in_module
from pcgeval.submissions import zip_file
from pcgeval.submissions.hand_in import HandInError, HandInListing, copy_files, select
from pcgeval.submissions.validate import validate
from pcgeval.submissions.zip_file import list_zip

# names as an attacker would choose them, and pieces that make more of them
PIECES = st.sampled_from(
    ["..", ".", "/", "\\", "C:", "a", "b", "\0", "é", "\u202e", "con", ".git", "x" * 300, " ", "-"]
)
NAMES = st.lists(PIECES, min_size=1, max_size=6).map("".join) | st.text(max_size=20)


def listing(path: Path) -> HandInListing:
    with list_zip(path) as found:
        return found


def unpack(path: Path, target: Path) -> list[str]:
    with list_zip(path) as found:
        return texts(copy_files(select(found), target))


def raw_zip(path: Path, entries: list[tuple[zipfile.ZipInfo, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return path


def test_usual_files_come_out_as_they_are(tmp_path: Path):
    files = {"a.txt": b"one\r\n", "b/c.txt": bytes(range(256)) * 5000, "empty": b""}
    for packing in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        archive = write_zip(tmp_path / f"{packing}.zip", files, packing)
        target = tmp_path / str(packing)
        target.mkdir()
        assert unpack(archive, target) == []
        assert {
            str(each.relative_to(target)): each.read_bytes() for each in target.rglob("*") if each.is_file()
        } == files


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=200, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=4))
def test_no_name_leads_out_of_the_folder(tmp_path_factory: pytest.TempPathFactory, names: list[str]):
    outside = tmp_path_factory.mktemp("outside")
    target = outside / "deep" / "target"
    target.mkdir(parents=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            try:
                archive.writestr(entry(name), b"attack")
            except (UnicodeEncodeError, struct.error):
                return  # a name that no zip file can hold
    (outside / "x.zip").write_bytes(buffer.getvalue())
    unpack(outside / "x.zip", target)
    written = [each for each in outside.rglob("*") if each.is_file() and each.name != "x.zip"]
    assert all(each.is_relative_to(target) for each in written)
    assert not any(each.is_symlink() for each in outside.rglob("*"))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_raises(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    """Bytes anywhere in a zip file are changed, cut off or put in."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**PROMPT_FILES, "é.txt": "é" * 100}.items():
            archive.writestr(name, content)
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["change", "cut", "insert"]))
        if kind == "change":
            content[place] = data.draw(st.sampled_from([0, 1, 8, 0x7F, 0x80, 0xFF]))
        elif kind == "cut":
            del content[place : place + data.draw(st.integers(1, 30))]
        else:
            content[place:place] = data.draw(st.binary(min_size=1, max_size=8))
        if not content:
            break
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "x.zip").write_bytes(content)
    found = validate(folder / "x.zip")
    assert all(finding.text for finding in found.findings)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", b"\x1f\x8b" + bytes(50), b"PK\x05\x06" + b"\xff" * 18])
def test_what_is_no_zip_file_is_told(tmp_path: Path, content: bytes):
    (tmp_path / "x.zip").write_bytes(content)
    found = listing(tmp_path / "x.zip")
    assert not found.is_readable
    assert "not a zip file" in texts(found.findings)[0]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (stat.S_IFLNK | 0o777, "is a link"),
        (stat.S_IFIFO | 0o644, "is a pipe, a socket or a device"),
        (stat.S_IFCHR | 0o644, "is a pipe, a socket or a device"),
        (stat.S_IFBLK | 0o644, "is a pipe, a socket or a device"),
        (stat.S_IFSOCK | 0o644, "is a pipe, a socket or a device"),
    ],
)
def test_only_regular_files_are_taken(tmp_path: Path, mode: int, words: str):
    archive = raw_zip(tmp_path / "x.zip", [(entry("evil", mode), b"/etc/shadow"), (entry("README.md"), b"x")])
    found = listing(archive)
    assert words in texts(found.findings)[0]
    assert [item.name for item in found.files] == ["README.md"]
    unpack(archive, tmp_path)
    assert not (tmp_path / "evil").exists()


def test_a_link_as_windows_packs_it(tmp_path: Path):
    info = entry("evil", 0)
    info.create_system, info.external_attr = 0, 0x400
    assert "is a link" in texts(listing(raw_zip(tmp_path / "x.zip", [(info, b"x")])).findings)[0]


def test_encrypted_files_are_told(tmp_path: Path):
    archive = write_zip(tmp_path / "x.zip", PROMPT_FILES)
    content = bytearray(archive.read_bytes())
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = 0
        while (start := content.find(signature, start)) >= 0:
            content[start + place] |= 1
            start += 4
    archive.write_bytes(content)
    found = validate(archive)
    assert [line for line in texts(found.findings) if "is encrypted" in line] == [
        f"{name}: is encrypted; pack it without a password" for name in PROMPT_FILES
    ]


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_that_can_take_any_memory_are_refused(tmp_path: Path, packing: int):
    archive = write_zip(tmp_path / "x.zip", {"README.md": README * 1000}, packing)
    assert f"is packed by method {packing}" in texts(listing(archive).findings)[0]


def test_a_bomb_is_not_unpacked(tmp_path: Path):
    """A small file of zeros that unpacks to a thousand times its size."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for number in range(6):
            archive.writestr(f"{number}.txt", bytes(10 * 2**20))
    assert (tmp_path / "x.zip").stat().st_size < 70_000
    found = validate(tmp_path / "x.zip")
    assert any("unpacks to 62914560 bytes" in line for line in texts(found.findings))
    assert found.kind is None


def test_zips_in_zips_are_files_like_any_other(tmp_path: Path):
    """The classic bomb holds zip files that hold zip files: nothing opens the inner ones."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", bytes(10 * 2**20))
    for _ in range(3):
        outer = io.BytesIO()
        with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(16):
                archive.writestr(f"{number}.zip", inner.getvalue())
        inner = outer
    write_zip(tmp_path / "x.zip", {**PROMPT_FILES, "bomb.zip": inner.getvalue()})
    assert validate(tmp_path / "x.zip").passed


def with_size(archive: Path, name: str, size: int) -> None:
    """Let the zip file's list, and the file's own header, say another size."""
    content = bytearray(archive.read_bytes())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = content.find(signature)
        while name.encode() not in content[start : start + 46 + len(name)]:
            start = content.find(signature, start + 4)
        content[start + place : start + place + 4] = struct.pack("<I", size)
    archive.write_bytes(content)


@pytest.mark.parametrize(("size", "words"), [(10, "is damaged in the zip file"), (2**20, "and not 1048576")])
def test_sizes_that_lie_are_found_out(tmp_path: Path, size: int, words: str):
    archive = write_zip(tmp_path / "x.zip", {"data.txt": b"7" * 1000})
    with_size(archive, "data.txt", size)
    target = tmp_path / "target"
    target.mkdir()
    (line,) = unpack(archive, target)
    assert words in line
    assert (target / "data.txt").stat().st_size <= size


def test_more_bytes_than_are_allowed_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hand_in_module, "MAX_BYTES", 1500)
    archive = write_zip(tmp_path / "x.zip", {"a": b"7" * 1000, "b": b"8" * 1000})
    found = validate(archive)
    (line,) = texts(found.findings)
    assert "2000 bytes in all" in line
    target = tmp_path / "target"
    target.mkdir()
    assert "more bytes than listed" in unpack(archive, target)[0]
    assert sum(each.stat().st_size for each in target.iterdir()) <= 1500


def test_the_whole_file_may_not_be_larger_than_a_submission(tmp_path: Path):
    with (tmp_path / "x.zip").open("wb") as file:
        file.truncate(2**31)
    assert texts(listing(tmp_path / "x.zip").findings) == [": has 2147483648 bytes; 1073741824 are allowed"]


def test_a_list_of_files_that_says_it_is_huge_is_not_read(tmp_path: Path):
    archive = write_zip(tmp_path / "x.zip", PROMPT_FILES)
    content = bytearray(archive.read_bytes())
    end = content.rfind(b"PK\x05\x06")
    content[end + 12 : end + 20] = struct.pack("<II", 5 * 2**20, 0)
    padding = bytes(6 * 2**20)
    archive.write_bytes(padding + content)
    assert "list of files has over 4194304 bytes" in texts(listing(archive).findings)[0]


def test_as_many_files_as_a_list_can_hold_are_counted(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for number in range(10_001):
            archive.writestr(entry(f"{number}"), b"")
    (line,) = texts(validate(tmp_path / "x.zip").findings)
    assert "10001 files; 10000 are allowed" in line


def test_files_that_share_their_bytes_are_counted_each(tmp_path: Path):
    """Overlapping entries: a list of a thousand files that are all the same megabytes."""
    kernel = zlib.compressobj(9, wbits=-15)
    body = kernel.compress(bytes(2**20)) + kernel.flush()
    crc = zlib.crc32(bytes(2**20))
    fields = struct.pack("<HHHHHIIIH", 20, 0, 8, 0, 33, crc, len(body), 2**20, 1)
    local = b"PK\x03\x04" + fields + b"\0\0" + b"a" + body
    entries = (b"PK\x01\x02\x14\x03" + fields + struct.pack("<HHHHII", 0, 0, 0, 0, 0, 0) + b"a") * 2000
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 2000, 2000, len(entries), len(local), 0)
    (tmp_path / "x.zip").write_bytes(local + entries + end)
    found = validate(tmp_path / "x.zip")
    assert any("2097152000 bytes in all" in line for line in texts(found.findings))
    assert any("unpacks to 2097152000 bytes" in line for line in texts(found.findings))


@pytest.mark.parametrize(
    ("name", "raw", "guessed"),
    [("b.txt", b"b.txt", False), ("é.txt", "é.txt".encode(), True), ("Ç.txt", b"\x80.txt", True)],
)
def test_names_without_a_mark_are_utf8_if_they_can_be(tmp_path: Path, name: str, raw: bytes, guessed: bool):
    placeholder = "x" * len(raw)
    archive = write_zip(tmp_path / "x.zip", {placeholder: b"1"})
    archive.write_bytes(archive.read_bytes().replace(placeholder.encode(), raw))
    found = listing(archive)
    assert [item.name for item in found.files] == [name]
    assert bool(texts(found.findings, "warning")) == guessed
    assert unpack(archive, tmp_path) == []
    assert (tmp_path / name).read_bytes() == b"1"


def test_a_name_after_a_nul_is_seen(tmp_path: Path):
    archive = write_zip(tmp_path / "x.zip", {"a.txt~.py": b"1"})
    archive.write_bytes(archive.read_bytes().replace(b"a.txt~.py", b"a.txt\0.py"))
    assert [item.name for item in listing(archive).files] == ["a.txt\0.py"]
    assert "unprintable" in texts(validate(archive).findings)[0]


def test_folders_in_the_list_are_no_files(tmp_path: Path):
    archive = raw_zip(tmp_path / "x.zip", [(entry("a/", stat.S_IFDIR | 0o755), b""), (entry("a/b"), b"1")])
    assert [item.name for item in listing(archive).files] == ["a/b"]


def test_an_unreadable_file_is_a_finding(tmp_path: Path):
    archive = write_zip(tmp_path / "x.zip", {"a": os.urandom(1000)}, zipfile.ZIP_STORED)
    content = bytearray(archive.read_bytes())
    content[500] ^= 1
    archive.write_bytes(content)
    with list_zip(archive) as found, pytest.raises(HandInError, match=r"Bad CRC-32.*pack it again"):
        list(found.files[0].chunks())


def test_the_limits_are_what_the_rules_say():
    assert hand_in_module.MAX_BYTES == zip_file.MAX_BYTES == 2**30
