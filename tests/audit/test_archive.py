"""The ZIP file of a bundle: one form for one set of files, and nothing else is taken for it."""

import io
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from soak import SOAK

from pcgeval.audit import archive as archive_module
from pcgeval.audit.archive import ArchiveError, pack, unpack
from pcgeval.core.files import sha256_bytes

FILES = [
    ("a.txt", b"one\r\n"),
    ("b/c.json", b'{"a": 1}' * 3000),
    ("b/\u00e9 \u0416.bin", bytes(range(256))),
    ("empty", b""),
]
PACKED = pack(FILES)


def sealed(body: bytes) -> bytes:
    """Return bytes with a seal that fits them, as a forger would make it."""
    return body + sha256_bytes(body).encode()


def refused(archive: bytes) -> str:
    with pytest.raises(ArchiveError) as refusal:
        list(unpack(archive))
    return str(refusal.value)


def test_other_programs_read_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(PACKED)) as archive:
        assert archive.testzip() is None
        assert [(each.filename, archive.read(each)) for each in archive.infolist()] == FILES
        assert {each.date_time for each in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {each.external_attr >> 16 for each in archive.infolist()} == {0o100644}
    if shutil.which("unzip"):
        (tmp_path / "x.zip").write_bytes(PACKED)
        done = subprocess.run(["unzip", "-tqq", tmp_path / "x.zip"], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5})?\.x", fullmatch=True), st.binary(max_size=200), max_size=8)
)
def test_files_come_out_as_they_went_in(files: dict[str, bytes]) -> None:
    assert list(unpack(pack(files.items()))) == list(files.items())


def test_more_files_than_the_first_format_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "_MANY", 2)  # 65 535 take a minute
    packed = pack(FILES)
    assert list(unpack(packed)) == FILES
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert len(archive.infolist()) == len(FILES)
    assert packed != PACKED


@pytest.mark.parametrize("place", range(len(PACKED)) if SOAK else range(0, len(PACKED), 17))
def test_every_changed_byte_is_found(place: int) -> None:
    for flipped in (1, 0x80):
        changed = bytearray(PACKED)
        changed[place] ^= flipped
        refused(bytes(changed))


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (b"", "seal"),
        (b"params.yaml", "seal"),
        (PACKED[:-1], "seal"),
        (PACKED[1:], "was changed"),
        (PACKED + b"\n", "seal"),
        (b"#!/bin/sh\n" + PACKED, "was changed"),
        (sealed(b"#!/bin/sh\n" + PACKED[:-64]), "list of files"),
        (sealed(PACKED[:-71] + b"more" + b"sha256:"), "list of files"),
        (sealed(b"sha256:"), "list of files"),
    ],
)
def test_what_was_cut_off_or_added_to_is_refused(archive: bytes, reason: str) -> None:
    assert reason in refused(archive)


@given(st.data())
def test_a_resealed_change_gives_the_same_files_or_is_refused(data: st.DataObject) -> None:
    body = bytearray(PACKED[:-64])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = list(unpack(sealed(bytes(body))))
    except ArchiveError:
        return
    names = [name for name, _ in found]
    assert len(set(names)) == len(names) == len(FILES)  # a deflated stream or a stored checksum stays consistent


@pytest.mark.parametrize(
    "name",
    ["../a", "/etc/passwd", "a/../b", "a\\b", "C:/a", "a//b", "./a", "a\0b", "con", "a\nb", "-rf", "a.", "x" * 300, ""],
)
def test_a_name_that_leads_out_or_cannot_be_stored_is_neither_packed_nor_unpacked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArchiveError):
        pack([(name, b"attack")])
    with monkeypatch.context() as forger:
        forger.setattr(archive_module, "escape_fault", lambda _: None)
        forger.setattr(archive_module, "name_fault", lambda _: None)
        packed = pack([(name, b"attack")])
    refused(packed)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("a", "a/b"), ("e\u0301", "\u00e9")])
def test_two_files_that_are_one_on_some_disk_are_neither_packed_nor_unpacked(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [(name, b"") for name in names]
    with pytest.raises(ArchiveError):
        pack(files)
    with monkeypatch.context() as forger:
        forger.setattr(archive_module, "collisions", lambda _: iter(()))
        packed = pack(files)
    refused(packed)


def test_a_bomb_is_refused_before_it_unpacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "_RATIO_FROM", 1000)
    assert "times its size" in refused(pack([("bomb", bytes(10**6))]))


def test_a_size_that_lies_is_refused() -> None:
    packed = pack([("a", bytes(5000))])
    for size in (0, 4999, 5001, 2**32 - 1):
        body = packed[:-64].replace(struct.pack("<I", 5000), struct.pack("<I", size))
        assert "header" in refused(sealed(body))


def test_what_zipfile_writes_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", "text")
        archive.comment = b"sha256:" + b"0" * 64
    assert refused(sealed(buffer.getvalue()[:-64]))


def test_links_and_other_modes_are_refused() -> None:
    mode, link = struct.pack("<I", 0o100644 << 16), struct.pack("<I", 0o120777 << 16)
    assert mode in PACKED
    assert "list of files" in refused(sealed(PACKED[:-64].replace(mode, link)))


def test_more_bytes_than_a_bundle_holds_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "MAX_BYTES", 100)
    with pytest.raises(ArchiveError, match=r"b\.txt: .* 100 bytes"):
        pack([("a.txt", b"a"), ("b.txt", bytes(200))])
