"""Read a submission that is handed in as a zip file, which may be damaged or made to do damage."""

import io
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from pcgeval.submissions.findings import SubmissionFinding, error, warning
from pcgeval.submissions.hand_in import CHUNK, MAX_BYTES, HandInError, HandInFile, HandInListing

_DIRECTORY_BYTES = 4 * 2**20  # of a zip's list of files: many times what MAX_FILES ordinary names take
_RATIO = 100  # a text packs to a tenth or twentieth
_RATIO_FROM = 50 * 2**20  # bytes; smaller ones do no harm
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others can ask for any amount of memory
_ENCRYPTED, _UTF8, _PATCHED, _STRONG, _HIDDEN = 0x1, 0x800, 0x20, 0x40, 0x2000  # bits of an entry's flags
_DOS_LINK = 0x400  # a reparse point, in the attributes of Windows
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, lzma.LZMAError),
    *(EOFError, OSError, ValueError, RuntimeError, OverflowError, NotImplementedError),
)


class ZipHandIn:
    """A submission's zip file."""

    def __init__(self, path: Path) -> None:
        """Open a file; whether it is a zip file shows when it is listed."""
        self._size = path.stat().st_size
        self._file = _BoundedReader(io.FileIO(path))
        self._zip: zipfile.ZipFile | None = None
        self._entries: dict[HandInFile, zipfile.ZipInfo] = {}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def listing(self) -> HandInListing:
        """List the files in the order of the zip file."""
        if self._size > MAX_BYTES + _DIRECTORY_BYTES:
            excess = error("", f"has {self._size} bytes; {MAX_BYTES} are allowed")
            return HandInListing((), (excess,), is_readable=False)
        try:
            self._zip = zipfile.ZipFile(self._file)
        except _DAMAGED as fault:
            reason = f"is not a zip file, or a damaged one ({fault}); pack the submission again"
            return HandInListing((), (error("", reason),), is_readable=False)
        files: list[HandInFile] = []
        findings: list[SubmissionFinding] = []
        for entry in self._zip.infolist():
            name = _name(entry)
            if (refusal := _entry_fault(entry)) is not None:
                findings.append(error(name, refusal))
            elif not name.endswith("/"):
                file = HandInFile(name, entry.file_size)
                files.append(file)
                self._entries[file] = entry
                if not (entry.flag_bits & _UTF8 or name.isascii()):
                    findings.append(warning(name, "was guessed, as it is not marked as UTF-8; rename it in ASCII"))
        unpacked = sum(file.size for file in files)
        is_bomb = unpacked > max(_RATIO_FROM, _RATIO * self._size)
        if is_bomb:
            ratio = unpacked // self._size
            findings.append(error("", f"unpacks to {unpacked} bytes, {ratio} times its size, which no submission does"))
        return HandInListing(tuple(files), tuple(findings), is_readable=not is_bomb)

    def chunks(self, file: HandInFile) -> Iterator[bytes]:
        """Yield the bytes of a listed file, no more than the zip file says; its checksum is checked at the end."""
        assert self._zip is not None  # noqa: S101 - it has been listed
        count = 0
        try:
            with self._zip.open(self._entries[file]) as opened:
                while chunk := opened.read(CHUNK):
                    count += len(chunk)
                    yield chunk
        except _DAMAGED as fault:
            raise HandInError(f"is damaged in the zip file ({fault}); pack the submission again") from fault
        if count != file.size:
            raise HandInError(f"has {count} bytes and not {file.size}, as the zip file says; pack the submission again")


class _BoundedReader(io.BufferedReader):
    """Never reads more at once than the longest list of files; a zip file says itself how long its list is."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its list of files has over {_DIRECTORY_BYTES} bytes")
        return super().read(_DIRECTORY_BYTES if size is None or size < 0 else size)


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
