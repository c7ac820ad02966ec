"""Unpack zip and tar files of strangers: submissions, attempts at papers, bundles."""

import gzip
import io
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, cast

from pcgeval.core.text import printable_line
from pcgeval.core.untrusted import UntrustedFileError

ZIP_START = b"PK"  # the first bytes of a zip file
MAX_NAME, MAX_PART, MAX_DEPTH = 1000, 255, 100  # characters of a path, bytes of a file's name, folders in one another
# bytes of a zip file's list and of a tar file's header, which state their own lengths. A file may have hundreds of
# headers, and tarfile keeps all of them in memory at once.
_MAX_LIST, _MAX_HEADER = 2**26, 2**18
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods can take any amount of memory
_ENCRYPTED = 0x1 | 0x40 | 0x2000  # bits of an entry's flags
_DOS_LINK = 0x400  # a reparse point, in the attributes of Windows
_OUTSIDE = re.compile(r"/|[A-Za-z]:|(.*/)?\.\.(/|$)|.*\0|$", re.DOTALL)
# of zipfile, the last three of a wrong size, an unknown method or a password
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RuntimeError)


def unpack(path: Path, folder: Path, *, max_files: int, max_bytes: int) -> None:
    """Unpack the regular files of a zip or tar file into a new folder, which appears only when all are unpacked.

    A zip file with links, pipes or devices is refused; those of a tar file, where programs put links, are left out.

    Raises:
        UntrustedFileError: The file is no archive, is damaged or holds too much, or a name leads out of the folder,
            stands twice or is that of a link.
    """
    if not path.is_file():
        raise UntrustedFileError(path, "missing", "does not exist or is no file", "Check the name.")
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with _BoundedReader(io.FileIO(path), _MAX_LIST) as file:
            unpack_files = _unpack_zip if file.peek(len(ZIP_START)).startswith(ZIP_START) else _unpack_tar
            unpack_files(path, file, partial, max_files, max_bytes)
        partial.rename(folder)
    except (*_DAMAGED, tarfile.TarError, gzip.BadGzipFile) as error:
        raise _fault(path, f"is no zip or tar file, or a damaged one ({printable_line(str(error))})") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        place = os.path.relpath(error.filename, partial)
        raise _fault(path, f"has a name twice, or as a file and a folder ({printable_line(place)})") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _unpack_zip(path: Path, file: io.BufferedReader, folder: Path, max_files: int, max_bytes: int) -> None:
    with zipfile.ZipFile(file, metadata_encoding="utf-8") as archive:
        for entry in archive.infolist():
            _check_name(path, entry.orig_filename)  # with what follows a NUL
            _check_name(path, entry.filename)  # newer versions of Python take another name from the entry's extra field
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        _check_amount(path, len(entries), sum(entry.file_size for entry in entries), max_files, max_bytes)
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG) or entry.external_attr & _DOS_LINK:
                raise _fault(path, f"has a link, a pipe or a device ({printable_line(entry.filename)})")
            if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _PLAIN:
                raise _fault(path, f"has a file that is encrypted or not deflated ({printable_line(entry.filename)})")
            place = _write(archive.open(entry), folder / entry.filename)
            if place.stat().st_size != entry.file_size:
                raise zipfile.BadZipFile(f"{entry.filename} has not the size that the zip file says")


def _unpack_tar(path: Path, file: io.BufferedReader, folder: Path, max_files: int, max_bytes: int) -> None:
    unpacked = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(b"\x1f\x8b") else io.FileIO(path)
    number = size = 0
    with _BoundedReader(unpacked, _MAX_HEADER) as headers, tarfile.open(fileobj=headers, mode="r:") as archive:
        while (entry := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # else all of them stay in memory
            number += 1
            size += max(entry.size, 0)
            _check_amount(path, number, size, max_files, max_bytes)
            _check_name(path, entry.name)
            if entry.isreg() and not entry.issparse():
                place = _write(cast("IO[bytes]", archive.extractfile(entry)), folder / entry.name)
                place.chmod(0o755 if entry.mode & stat.S_IXUSR else 0o644)
                os.utime(place, (entry.mtime, entry.mtime))


def _write(source: IO[bytes], place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    with source, place.open("xb") as target:
        shutil.copyfileobj(source, target)
    return place


class _BoundedReader(io.BufferedReader):
    """Reads at most `most` bytes at once."""

    def __init__(self, stream: io.RawIOBase | gzip.GzipFile, most: int) -> None:
        super().__init__(stream)
        self.most = most

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most `size` bytes; -1 and None stand for the most."""
        if size is not None and size > self.most:
            raise tarfile.ReadError(f"a header or the list of files has over {self.most} bytes")
        return super().read(self.most if size is None or size < 0 else size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place; a damaged list of files may name one before the beginning."""
        if whence == os.SEEK_SET and offset < 0:
            raise zipfile.BadZipFile("a file is said to begin before the archive")
        return super().seek(offset, whence)


def _check_amount(path: Path, files: int, size: int, max_files: int, max_bytes: int) -> None:
    if files > max_files or size > max_bytes:
        reason = f"unpacks to too much; {max_files} files and {max_bytes} bytes are allowed"
        raise UntrustedFileError(path, "too large", reason, "Pack less.")


def _check_name(path: Path, name: str) -> None:
    if "\\" in name:
        reason = f"has \\ in a name, where / stands between folders ({printable_line(name)})"
        raise _fault(path, reason, "Pack it with another program.")
    parts = name.split("/")
    is_long = len(name) > MAX_NAME or len(parts) > MAX_DEPTH
    if is_long or _OUTSIDE.match(name) or any(len(part.encode(errors="replace")) > MAX_PART for part in parts):
        raise _fault(path, f"names a place outside of its folder, or too deep in it ({printable_line(name)})")


def _fault(path: Path, reason: str, remedy: str = "Pack it again.") -> UntrustedFileError:
    return UntrustedFileError(path, "malformed", reason, remedy)
