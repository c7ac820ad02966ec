"""Read a zip file that somebody hands in, such as a submission: it may be damaged, or made to do damage."""

import io
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pcgeval.submissions.findings import SubmissionFinding, error, warning
from pcgeval.submissions.hand_in import CHUNK, MAX_BYTES, HandInError, HandInFile, HandInListing

_MAX_LIST = 4 * 2**20  # bytes of a zip's list of files: many times what MAX_FILES ordinary names take
_RATIO = 100  # a text packs to a tenth or twentieth
_RATIO_FROM = 50 * 2**20  # bytes; smaller ones do no harm
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others can ask for any amount of memory
_ENCRYPTED, _UTF8, _PATCHED, _STRONG, _HIDDEN = 0x1, 0x800, 0x20, 0x40, 0x2000  # bits of an entry's flags
_DOS_LINK = 0x400  # a reparse point, in the attributes of Windows
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, lzma.LZMAError),
    *(EOFError, OSError, ValueError, RuntimeError, OverflowError, NotImplementedError),
)


@contextmanager
def list_zip(path: Path, max_list: int = _MAX_LIST) -> Iterator[HandInListing]:
    """List the files of a zip file in its order; they can be read until the end of the block.

    Args:
        path: The zip file.
        max_list: The most bytes that its list of files may have.
    """
    size = path.stat().st_size
    with _BoundedReader(path, max_list) as file:
        if size > MAX_BYTES + max_list:
            text = f"has {size} bytes; {MAX_BYTES} are allowed"
            yield HandInListing((), (error("", text, "too-large"),), is_readable=False)
            return
        try:
            archive = zipfile.ZipFile(file)
        except _DAMAGED as fault:
            reason = f"is not a zip file, or a damaged one ({fault}); pack it again"
            yield HandInListing((), (error("", reason, "damaged-zip"),), is_readable=False)
            return
        files: list[HandInFile] = []
        findings: list[SubmissionFinding] = []
        for entry in archive.infolist():
            name = _name(entry)
            if (refusal := _entry_fault(entry)) is not None:
                findings.append(error(name, refusal, "zip-entry"))
            elif not name.endswith("/"):
                files.append(HandInFile(name, entry.file_size, partial(_chunks, archive, entry)))
                if not (entry.flag_bits & _UTF8 or name.isascii()):
                    findings.append(warning(name, "was guessed, as it is not marked as UTF-8; rename it in ASCII"))
        unpacked = sum(each.size for each in files)
        is_bomb = unpacked > max(_RATIO_FROM, _RATIO * size)
        if is_bomb:
            times = unpacked // size
            text = f"unpacks to {unpacked} bytes, {times} times its size, which no text does"
            findings.append(error("", text, "zip-bomb"))
        yield HandInListing(tuple(files), tuple(findings), is_readable=not is_bomb)


def _chunks(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the bytes of a listed file, no more than the zip file says; its checksum is checked at the end."""
    count = 0
    try:
        with archive.open(entry) as opened:
            while chunk := opened.read(CHUNK):
                count += len(chunk)
                yield chunk
    except _DAMAGED as fault:
        raise HandInError(f"is damaged in the zip file ({fault}); pack it again") from fault
    if count != entry.file_size:
        raise HandInError(f"has {count} bytes and not {entry.file_size}, as the zip file says; pack it again")


class _BoundedReader(io.BufferedReader):
    """Never reads more at once than the longest list of files; a zip file says itself how long its list is."""

    def __init__(self, path: Path, max_list: int) -> None:
        super().__init__(io.FileIO(path))
        self._max_list = max_list

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most so many bytes; -1 or None for all means as many as a list of files may have."""
        if size is not None and size > self._max_list:
            raise zipfile.BadZipFile(f"its list of files has over {self._max_list} bytes")
        return super().read(self._max_list if size is None or size < 0 else size)


def _name(entry: zipfile.ZipInfo) -> str:
    """Return a file's name; one that is not marked as UTF-8 is UTF-8 all the same if it can be, else code page 437."""
    name = entry.orig_filename  # whole, also after a NUL
    if entry.flag_bits & _UTF8 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        return name


def _entry_fault(entry: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK or entry.external_attr & _DOS_LINK:
        return "is a link; put the file itself there"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a pipe, a socket or a device; remove it"
    if entry.flag_bits & (_ENCRYPTED | _STRONG | _HIDDEN):
        return "is encrypted; pack it without a password"
    if entry.compress_type not in _PLAIN or entry.flag_bits & _PATCHED:
        return f"is packed by method {entry.compress_type}; pack it by the usual one, deflate"
    return None
