"""Zip and tar files as people and attackers pack them."""

import gzip
import io
import os
import re
import shutil
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from handed_in_for_tests import entry, write_zip
from hypothesis import given, settings, strategies as st

from pcgeval.core.archives import unpack
from pcgeval.core.untrusted import UntrustedFileError

PIECES = ["..", ".", "/", "\\", "C:", "a", "b", "\0", "é", "\u202e", "con", ".git", "x" * 300, " ", "-"]
LONG = ["a/" * 120, "x" * 300, f"{'x' * 200}/" * 6 + "x"]
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join) | st.text(max_size=20)
FILES = {"a.txt": b"one\r\n", "b/c.sh": bytes(range(256)) * 500, "empty": b"", "é": b"1"}
TAR_MODES = st.sampled_from(["w", "w:gz"])
LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"  # the signatures of a zip file's parts


def write_tar(path: Path, *entries: tuple[str, bytes | tuple[bytes, str]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.mtime, info.mode = 1_700_000_000, 0o755 if name.endswith(".sh") else 0o600
            if isinstance(content, bytes):
                info.size = len(content)
            else:
                info.type, info.linkname = content
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return path


def raw_zip(path: Path, *entries: tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return path


def patched(archive: Path, *changes: tuple[bytes, int, bytes]) -> Path:
    """Overwrite bytes of an archive, each some places after the start of a part."""
    content = bytearray(archive.read_bytes())
    for signature, offset, value in changes:
        start = content.rindex(signature) + offset
        content[start : start + len(value)] = value
    archive.write_bytes(content)
    return archive


def unpacked(archive: Path, **limits: int) -> dict[str, bytes]:
    into = archive.parent / "into"
    shutil.rmtree(into, ignore_errors=True)
    unpack(archive, into, **{"max_files": 100, "max_bytes": 10**7, **limits})
    return {path.relative_to(into).as_posix(): path.read_bytes() for path in into.rglob("*") if path.is_file()}


def refused(archive: Path, fragment: str, **limits: int) -> None:
    shutil.rmtree(archive.parent / "into", ignore_errors=True)
    before = sorted(archive.parent.iterdir())
    with pytest.raises(UntrustedFileError, match=fragment):
        unpacked(archive, **limits)
    assert sorted(archive.parent.iterdir()) == before  # nothing is left


def test_files_come_out_as_they_are_packed(tmp_path):
    for packing in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert unpacked(write_zip(tmp_path / "x.zip", FILES, packing)) == FILES
    for mode in ("w:gz", "w"):
        assert unpacked(write_tar(tmp_path / "x.tar", *FILES.items(), mode=mode)) == FILES
        assert (tmp_path / "into/a.txt").stat().st_mtime == 1_700_000_000
        assert (tmp_path / "into/b/c.sh").stat().st_mode & 0o100


def test_links_pipes_and_devices_are_left_out_of_a_tar_file_and_refused_in_a_zip_file(tmp_path):
    special = {
        "link": (tarfile.SYMTYPE, "/etc/passwd"),
        "hard": (tarfile.LNKTYPE, "main.py"),
        "pipe": (tarfile.FIFOTYPE, ""),
        "null": (tarfile.CHRTYPE, ""),
    }
    archive = write_tar(tmp_path / "x.tar", ("main.py", b"1"), *special.items(), ("link/a", b"2"))
    assert unpacked(archive) == {"main.py": b"1", "link/a": b"2"}  # in a folder, and not where the link would lead
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
        refused(raw_zip(tmp_path / "x.zip", (entry("x", kind | 0o777), b"/etc/passwd")), "link")
    windows_link = entry("x", 0)
    windows_link.external_attr = 0x400
    refused(raw_zip(tmp_path / "x.zip", (windows_link, b"C:\\")), "link")


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "C:/out", *LONG])
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    refused(raw_zip(tmp_path / "x.zip", (entry(name), b"1")), "outside")
    refused(write_tar(tmp_path / "x.tar", (name, b"1")), "outside")


@pytest.mark.parametrize("name", ["t\\README.md", "a\\..\\..\\out", "..\\out", "\\out"])
def test_a_name_with_the_backslashes_of_old_windows_programs_is_refused_as_that(tmp_path, name):
    words = re.escape(rf"has \ in a name, where / stands between folders ({name}). Pack it with another program.")
    refused(raw_zip(tmp_path / "x.zip", (entry(name), b"1")), words)
    refused(write_tar(tmp_path / "x.tar", (name, b"1")), words)


def test_hidden_names_of_an_entry_are_checked(tmp_path, monkeypatch):
    archive = write_zip(tmp_path / "x.zip", {"a.txt~.py": b"1"})
    archive.write_bytes(archive.read_bytes().replace(b"a.txt~.py", b"a.txt\0.py"))
    refused(archive, "outside")
    # newer versions of Python take the name that an entry's extra field may hold
    archive = write_zip(tmp_path / "x.zip", {"a.txt": b"1"})
    monkeypatch.setattr(zipfile.ZipInfo, "_decodeExtra", lambda info, *_: setattr(info, "filename", "../../out"))
    refused(archive, "outside")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=200, deadline=None)
@given(is_zip=st.booleans(), names=st.lists(NAMES, min_size=1, max_size=4), data=st.data())
def test_no_name_and_no_damage_writes_elsewhere(tmp_path_factory, is_zip, names, data):
    folder = tmp_path_factory.mktemp("x") / "deep" / "deeper"
    folder.mkdir(parents=True)
    if is_zip:
        archive = raw_zip(folder / "x", *((entry(name), b"1" * 50) for name in names))
    else:
        archive = write_tar(folder / "x", *((name, b"1" * 50) for name in names), mode=data.draw(TAR_MODES))
    content = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(0, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    archive.write_bytes(content[: data.draw(st.just(None) | st.integers(0, len(content)))])
    try:
        unpack(archive, folder / "into", max_files=100, max_bytes=1000)
    except UntrustedFileError:
        assert not (folder / "into").exists()
    outside = [path for path in folder.parents[1].rglob("*") if not path.is_relative_to(folder / "into")]
    assert sorted(outside) == sorted([folder.parent, folder, archive])
    assert not any(path.is_symlink() for path in folder.rglob("*"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_stands_twice_and_more_than_the_limits_are_refused(tmp_path):
    for files in ((("a", b"1"), ("a", b"2")), (("a", b"1"), ("a/b", b"2"))):
        refused(raw_zip(tmp_path / "x.zip", *((entry(name), content) for name, content in files)), "twice")
        refused(write_tar(tmp_path / "x.tar", *files), "twice")
    zipped = write_zip(tmp_path / "x.zip", {"a": bytes(900), "b": bytes(900)})
    for archive in (zipped, write_tar(tmp_path / "x.tar", ("a", bytes(900)), ("b", bytes(900)))):
        refused(archive, "too much", max_bytes=1000)
        refused(archive, "too much", max_files=1)
    with zipfile.ZipFile(tmp_path / "overlapping", "w", zipfile.ZIP_DEFLATED) as overlapping:
        overlapping.writestr("a", bytes(2**20))
        overlapping.filelist *= 2000  # the list names the same megabyte two thousand times
    refused(tmp_path / "overlapping", "too much", max_files=10_000, max_bytes=2**30)


def test_a_huge_list_of_files_is_not_read(tmp_path):
    archive = patched(write_zip(tmp_path / "x.zip", FILES), (END, 12, struct.pack("<I", 2**27)))
    content = archive.read_bytes()
    archive.write_bytes(content[:4] + bytes(2**27) + content)
    refused(archive, "damaged")


BOMB = tarfile.TarInfo("bomb")
BOMB.type, BOMB.size = tarfile.XHDTYPE, 2**33
NAMES_BOMB = tarfile.TarInfo("bomb")  # a file may have hundreds of these headers, of which the last one counts
NAMES_BOMB.type, NAMES_BOMB.size = tarfile.GNUTYPE_LONGNAME, 2**20
NO_ARCHIVES = {
    "empty": b"",
    "text": b"no archive",
    "end of a zip": END + b"\xff" * 18,
    "packed text": gzip.compress(b"no tar" * 200),
    "header bomb": gzip.compress(BOMB.tobuf() + bytes(2**16)),
    "many long names": gzip.compress((NAMES_BOMB.tobuf() + b"x" * 2**20) * 3 + tarfile.TarInfo("a").tobuf()),
}


@pytest.mark.parametrize("content", NO_ARCHIVES.values(), ids=NO_ARCHIVES)
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "x.zip").write_bytes(content)
    refused(tmp_path / "x.zip", "damaged")


def test_encrypted_oddly_packed_wrongly_sized_and_flipped_entries_are_refused(tmp_path):
    path, encrypted = tmp_path / "x.zip", struct.pack("<H", 1)
    refused(patched(write_zip(path, {"a": b"1"}), (LOCAL, 6, encrypted), (CENTRAL, 8, encrypted)), "encrypted")
    for packing in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # they can take any amount of memory
        refused(write_zip(path, {"a": b"1"}, packing), "not deflated")
    for size in (struct.pack("<I", 10), struct.pack("<I", 2**20)):
        refused(patched(write_zip(path, {"a": b"1" * 1000}), (LOCAL, 22, size), (CENTRAL, 24, size)), "damaged")
    write_zip(path, {"a": os.urandom(1000)}, zipfile.ZIP_STORED)
    refused(patched(path, (LOCAL, 500, bytes([path.read_bytes()[500] ^ 1]))), "CRC")
