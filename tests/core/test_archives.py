"""Zip and tar files as people and attackers pack them."""

import gzip
import io
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from handed_in_for_tests import entry, write_zip
from hypothesis import given, settings
from hypothesis import strategies as st

from pcgeval.core.archives import unpack
from pcgeval.core.untrusted import UntrustedFileError

# names as an attacker would choose them, and pieces that make more of them
PIECES = st.sampled_from(
    ["..", ".", "/", "\\", "C:", "a", "b", "\0", "é", "\u202e", "con", ".git", "x" * 300, " ", "-"]
)
NAMES = st.lists(PIECES, min_size=1, max_size=6).map("".join) | st.text(max_size=20)
FILES = {"a.txt": b"one\r\n", "b/c.sh": bytes(range(256)) * 500, "empty": b"", "é": b"1"}


def write_tar(path: Path, *entries: tuple[str, bytes | tuple[bytes, str]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.mtime, info.mode = 1_700_000_000, 0o755 if name.endswith(".sh") else 0o600
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                archive.addfile(info)
    return path


def raw_zip(path: Path, *entries: tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return path


def unpacked(archive: Path, **limits: int) -> dict[str, bytes]:
    into = archive.parent / "into"
    shutil.rmtree(into, ignore_errors=True)
    unpack(archive, into, **{"max_files": 100, "max_bytes": 10**7, **limits})
    return {path.relative_to(into).as_posix(): path.read_bytes() for path in into.rglob("*") if path.is_file()}


def refused(archive: Path, words: str, **limits: int) -> None:
    before = sorted(archive.parent.iterdir())
    with pytest.raises(UntrustedFileError, match=words):
        unpacked(archive, **limits)
    assert sorted(archive.parent.iterdir()) == before  # nothing is left of it


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_file_comes_out_as_it_is(tmp_path, packing):
    assert unpacked(write_zip(tmp_path / "x.zip", FILES, packing)) == FILES


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_a_tar_file_comes_out_with_times_and_rights(tmp_path, mode):
    assert unpacked(write_tar(tmp_path / "x.tar", *FILES.items(), mode=mode)) == FILES
    assert (tmp_path / "into/a.txt").stat().st_mtime == 1_700_000_000
    assert (tmp_path / "into/b/c.sh").stat().st_mode & 0o100


def test_zips_in_zips_are_files_like_any_other(tmp_path):
    inner = write_zip(tmp_path / "inner.zip", FILES).read_bytes()
    assert unpacked(write_zip(tmp_path / "x.zip", {"inner.zip": inner})) == {"inner.zip": inner}
    assert "inner.zip" in unpacked(write_tar(tmp_path / "y.tar", ("inner.zip", inner), mode="w"))


def test_a_tar_files_links_pipes_and_devices_are_left_out(tmp_path):
    special = [("link", tarfile.SYMTYPE, "/etc/passwd"), ("hard", tarfile.LNKTYPE, "main.py")]
    special += [("pipe", tarfile.FIFOTYPE, ""), ("null", tarfile.CHRTYPE, "")]
    entries = [(name, (kind, target)) for name, kind, target in special]
    assert unpacked(write_tar(tmp_path / "x.tar", ("main.py", b"1"), *entries, ("link/a", b"2"))) == {
        "main.py": b"1",
        "link/a": b"2",  # in a folder, and not where the link would lead
    }


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_a_zip_file_with_links_or_devices_is_refused(tmp_path, kind):
    refused(raw_zip(tmp_path / "x.zip", (entry("x", kind | 0o777), b"/etc/passwd")), "link")


def test_a_link_as_windows_packs_it_is_refused(tmp_path):
    info = entry("x", 0)
    info.external_attr = 0x400
    refused(raw_zip(tmp_path / "x.zip", (info, b"C:\\")), "link")


@pytest.mark.parametrize(
    "name", ["../out", "/out", "a/../../out", "C:/out", "a\\..\\out", "a/" * 1800 + "b", "x" * 2000]
)
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    refused(raw_zip(tmp_path / "x.zip", (entry(name), b"1")), "outside")
    refused(write_tar(tmp_path / "x.tar", (name, b"1")), "outside")


def test_a_name_after_a_nul_is_seen(tmp_path):
    archive = write_zip(tmp_path / "x.zip", {"a.txt~.py": b"1"})
    archive.write_bytes(archive.read_bytes().replace(b"a.txt~.py", b"a.txt\0.py"))
    refused(archive, "outside")


def test_a_second_name_of_an_entry_leads_nowhere(tmp_path, monkeypatch):
    """Newer versions of Python take the name that an entry's extra field may hold beside the usual one."""
    archive = write_zip(tmp_path / "x.zip", {"a.txt": b"1"})
    monkeypatch.setattr(zipfile.ZipInfo, "_decodeExtra", lambda info, *_: setattr(info, "filename", "../../out"))
    refused(archive, "outside")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=200, deadline=None)
@given(names=st.lists(NAMES, min_size=1, max_size=4))
def test_whatever_the_names_nothing_is_written_elsewhere(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("x") / "deep" / "deeper"
    folder.mkdir(parents=True)
    archive = raw_zip(folder / "x.zip", *((entry(name), b"1") for name in names))
    try:
        unpack(archive, folder / "into", max_files=100, max_bytes=1000)
    except UntrustedFileError:
        assert not (folder / "into").exists()
    outside = [path for path in folder.parents[1].rglob("*") if not path.is_relative_to(folder / "into")]
    assert sorted(outside) == sorted([folder.parent, folder, archive])
    assert not any(path.is_symlink() for path in folder.rglob("*"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_stands_twice_is_refused(tmp_path):
    for files in ((("a", b"1"), ("a", b"2")), (("a", b"1"), ("a/b", b"2"))):
        refused(raw_zip(tmp_path / "x.zip", *((entry(name), content) for name, content in files)), "twice")
        refused(write_tar(tmp_path / "x.tar", *files), "twice")


def test_more_than_is_allowed_is_not_unpacked(tmp_path):
    zipped = write_zip(tmp_path / "x.zip", {"a": bytes(900), "b": bytes(900)})
    packed = write_tar(tmp_path / "x.tar", ("a", bytes(900)), ("b", bytes(900)))
    for archive in (zipped, packed):
        refused(archive, "too much", max_bytes=1000)
        refused(archive, "too much", max_files=1)


def test_files_that_share_their_bytes_are_counted_each(tmp_path):
    """Overlapping entries: a list of a thousand files that are all the same megabytes."""
    kernel = zlib.compressobj(9, wbits=-15)
    body = kernel.compress(bytes(2**20)) + kernel.flush()
    crc = zlib.crc32(bytes(2**20))
    fields = struct.pack("<HHHHHIIIH", 20, 0, 8, 0, 33, crc, len(body), 2**20, 1)
    local = b"PK\x03\x04" + fields + b"\0\0" + b"a" + body
    entries = (b"PK\x01\x02\x14\x03" + fields + struct.pack("<HHHHII", 0, 0, 0, 0, 0, 0) + b"a") * 2000
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 2000, 2000, len(entries), len(local), 0)
    (tmp_path / "x.zip").write_bytes(local + entries + end)
    refused(tmp_path / "x.zip", "too much", max_files=10_000, max_bytes=2**30)


@pytest.mark.parametrize("size", [10, 2**20])
def test_a_size_that_lies_is_found_out(tmp_path, size):
    archive = write_zip(tmp_path / "x.zip", {"a": b"1" * 1000})
    content = bytearray(archive.read_bytes())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = content.index(signature) + place
        content[start : start + 4] = struct.pack("<I", size)
    archive.write_bytes(content)
    refused(archive, "damaged")


def test_a_list_of_files_that_says_it_is_huge_is_not_read(tmp_path):
    archive = write_zip(tmp_path / "x.zip", FILES)
    content = bytearray(archive.read_bytes())
    end = content.rindex(b"PK\x05\x06")
    content[end + 12 : end + 16] = struct.pack("<I", 2**27)
    archive.write_bytes(bytes(content[:4]) + bytes(2**27) + bytes(content))
    refused(archive, "damaged")


def header_bomb() -> bytes:
    info = tarfile.TarInfo("bomb")
    info.type, info.size = tarfile.XHDTYPE, 2**33
    return gzip.compress(info.tobuf() + bytes(2**16))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"no archive",
        b"PK\x05\x06" + b"\xff" * 18,
        gzip.compress(b"no tar" * 200),
        header_bomb(),
        b"\x1f\x8b\x08",
    ],
    ids=["empty", "start", "text", "end of a zip", "packed text", "header bomb", "cut"],
)
def test_what_is_no_archive_is_told(tmp_path, content):
    (tmp_path / "x.zip").write_bytes(content)
    refused(tmp_path / "x.zip", "no zip or tar file, or a damaged one")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damage_is_refused_or_does_nothing(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("x")
    kind = data.draw(st.sampled_from(["zip", "tar"]))
    archive = folder / "x"
    (write_zip(archive, FILES) if kind == "zip" else write_tar(archive, *FILES.items()))
    content = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    archive.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        unpack(archive, folder / "into", max_files=100, max_bytes=10**6)
    except UntrustedFileError:
        assert not (folder / "into").exists()


def test_encrypted_and_oddly_packed_files_are_refused(tmp_path):
    archive = write_zip(tmp_path / "x.zip", {"a": b"1"})
    content = bytearray(archive.read_bytes())
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + place] |= 0x1
    archive.write_bytes(content)
    refused(archive, "encrypted")
    for packing in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # they can ask for any amount of memory
        refused(write_zip(tmp_path / "x.zip", {"a": b"1"}, packing), "method")


def test_a_byte_that_flipped_is_seen(tmp_path):
    archive = write_zip(tmp_path / "x.zip", {"a": os.urandom(1000)}, zipfile.ZIP_STORED)
    content = bytearray(archive.read_bytes())
    content[500] ^= 1
    archive.write_bytes(content)
    refused(archive, "CRC")
