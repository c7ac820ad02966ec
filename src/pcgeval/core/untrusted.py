"""Read the files of teams, models and strangers: bounded files and folders, JSON and YAML without traps.

No function waits for a pipe or reads more than its limit; `read_json` alone follows a link without `follow_link`.
"""

import codecs
import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, BinaryIO, Literal

from pcgeval.core.errors import FileError
from pcgeval.core.text import printable_line, printable_name

FaultKind = Literal["missing", "not regular", "too large", "malformed", "system"]
MAX_BYTES = 2**30  # of a file that is read as a whole
MAX_ENTRIES = 100_000  # files and folders in a tree
MAX_DEPTH = 40  # folders in one another
_MAX_DIGITS = 100  # of a number in YAML
_PUT_FILE = "Put the file itself there."


class UntrustedFileError(FileError):
    """A file or folder is missing, of the wrong kind, too large or malformed, or the system cannot read it."""

    def __init__(self, path: Path, kind: FaultKind, reason: str, remedy: str) -> None:
        """Name the file, the reason in words that follow its name, and a remedy in a sentence.

        The kind `system` is no fault of the file's author.
        """
        super().__init__(f"{printable_name(str(path), 1000)}: {reason}. {remedy}")
        self.kind, self.reason, self.remedy = kind, reason, remedy


@contextmanager
def open_regular(path: Path, *, follow_link: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file, also behind a link with `follow_link`: DVC may link its cache.

    Raises:
        UntrustedFileError: The file is missing, unreadable, a link, a pipe, a device or a folder, or an OSError comes
            from inside the block.
    """
    extra = os.O_NONBLOCK | (0 if follow_link else os.O_NOFOLLOW)  # O_NONBLOCK: not to wait for a pipe
    try:
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | extra))  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    try:
        with file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UntrustedFileError(path, "not regular", "is not a regular file", _PUT_FILE)
            yield file
    except OSError as error:
        raise _unreadable(path, error) from error


def read_bytes(path: Path, limit: int = MAX_BYTES, *, follow_link: bool = False, cut: bool = False) -> bytes:
    """Return a regular file's bytes; with `cut`, those of a larger file up to `limit`.

    Raises:
        UntrustedFileError: It has more than `limit` bytes, or cannot be read; see `open_regular`.
    """
    with open_regular(path, follow_link=follow_link) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit and not cut:
            raise UntrustedFileError(path, "too large", f"is larger than {limit} bytes", "Shorten it.")
        return file.read(min(size, limit))


def read_text(path: Path, limit: int = MAX_BYTES, *, follow_link: bool = False) -> str:
    """Return a regular file's UTF-8 text, line ends as they are; raise UntrustedFileError if there is none."""
    return decoded(read_bytes(path, limit, follow_link=follow_link), path)


def read_json(path: Path, limit: int = MAX_BYTES) -> Any:
    """Return the value of a JSON file, also behind a link; raise UntrustedFileError if it holds none."""
    try:
        return json.loads(read_text(path, limit, follow_link=True).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        reason = f"is not JSON ({printable_line(str(error))})"
        raise UntrustedFileError(path, "malformed", reason, "Correct it.") from error


def decoded(content: bytes, path: Path, *, may_be_utf16: bool = False) -> str:
    """Return the text that bytes of a file are in UTF-8, or in UTF-16 with its mark; raise UntrustedFileError if none.

    People's editors write UTF-16; programs do not.
    """
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if is_utf16 and may_be_utf16 else "utf-8")
    except UnicodeDecodeError as error:
        reason = "is UTF-16 text" if is_utf16 else f"is not UTF-8 text ({error.reason} at byte {error.start})"
        raise UntrustedFileError(path, "malformed", reason, "Save it as UTF-8.") from error


def parse_yaml(text: str, *, allow_aliases: bool = False) -> Any:
    """Return the value of a YAML document; None for an empty one.

    A few aliases (`*name`) can stand for more text than there is memory, so a stranger's document has none.

    Raises:
        ValueError: The document is malformed, repeats a key or has a huge number; the message names the line.
    """
    import yaml  # noqa: PLC0415 - only a few commands read any

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            if not allow_aliases and self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("an alias (`*name`) is not read; write it out")
            node = super().compose_node(parent, index)
            line = 0 if node is None else node.start_mark.line + 1
            if isinstance(node, yaml.MappingNode):
                _check_keys([(str(key.value)[:200], key.start_mark.line + 1) for key, _ in node.value])
            elif isinstance(node, yaml.ScalarNode) and node.tag.endswith(":int") and len(node.value) > _MAX_DIGITS:
                raise yaml.YAMLError(f"line {line}: a number has over {_MAX_DIGITS} digits")
            return node

    try:
        return yaml.load(text, Loader)  # noqa: S506 - a safe loader
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(str(error)) from error
    except (LookupError, AttributeError, TypeError) as error:  # PyYAML's own, of a value such as `!!bool x`
        raise ValueError("a value is not what its tag (`!!type`) says") from error


def _check_keys(keys: Sequence[tuple[str, int]]) -> None:
    first: dict[str, int] = {}
    for name, line in keys:
        if name in first:
            raise ValueError(f"line {line}: {name!r} stands twice, first in line {first[name]}; keep one")
        first[name] = line


def path_below(root: Path, name: str) -> Path:
    """Return the path of a file below a folder; raise UntrustedFileError if it leads out, over a link or nowhere."""
    parts = PurePosixPath(name).parts
    path = root.joinpath(*parts)
    if not parts or parts[0] == "/" or ".." in parts:
        raise UntrustedFileError(path, "malformed", "leads out of the folder", "Give a path relative to the folder.")
    try:
        if any(S_ISLNK(root.joinpath(*parts[:end]).lstat().st_mode) for end in range(1, len(parts) + 1)):
            raise UntrustedFileError(path, "not regular", "is a link, or lies behind one", _PUT_FILE)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return path


@dataclass(frozen=True)
class FolderEntry:
    """One file or folder of a tree."""

    name: str  # relative to the root, with forward slashes; empty for the root itself
    status: os.stat_result | None  # of a link itself; None if there is a fault
    fault: str = ""  # why the entry cannot be read, in words that follow the name

    @property
    def is_file(self) -> bool:
        """Whether the entry is a regular file."""
        return self.status is not None and S_ISREG(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        """Whether the entry is a folder; `walk` has not entered it."""
        return self.status is not None and S_ISDIR(self.status.st_mode)


def walk(
    root: Path, *, limit: int = MAX_ENTRIES, depth: int = MAX_DEPTH, enter: Callable[[str], bool] = lambda _: True
) -> Iterator[FolderEntry]:
    """Yield the entries of a tree level by level, each level in byte order; links are yielded and not followed.

    Folders are yielded only if `enter` refuses their relative names. An entry with a fault stands for what a bound
    leaves out: `limit` is the most entries of a folder, and of the tree, `depth` the most folders in one another.
    """
    level, left = [""], limit
    for _ in range(depth + 1):
        deeper: list[str] = []
        for folder in level:
            try:
                with os.scandir(root / folder) as scan:
                    entries = {entry.name: entry.stat(follow_symlinks=False) for entry in islice(scan, limit + 1)}
            except OSError as error:
                yield FolderEntry(folder, None, f"cannot be read ({error.strerror})")
                continue
            if len(entries) > limit:
                yield FolderEntry(folder, None, f"has more than {limit} entries")
                continue
            for name in sorted(entries, key=os.fsencode):
                left -= 1
                if left < 0:
                    yield FolderEntry("", None, f"has more than {limit} files and folders")
                    return
                path = f"{folder}/{name}" if folder else name
                if S_ISDIR(entries[name].st_mode) and enter(path):
                    deeper.append(path)
                else:
                    yield FolderEntry(path, entries[name])
        level = deeper
    for folder in level:
        yield FolderEntry(folder, None, f"lies deeper than {depth} folders")


def files_below(folder: Path, *, with_links: bool = False) -> list[Path]:
    """Return all regular files below a folder in byte order of their relative paths, with links or without.

    A folder that cannot be read, is too deep or has too many files raises UntrustedFileError.
    """
    names = []
    for entry in walk(folder):
        if entry.fault:
            raise UntrustedFileError(folder / entry.name, "system", entry.fault, "Remove it.")
        if entry.is_file or (with_links and entry.status and S_ISLNK(entry.status.st_mode)):
            names.append(entry.name)
    return [folder / name for name in sorted(names, key=os.fsencode)]


def _unreadable(path: Path, error: OSError | ValueError) -> UntrustedFileError:
    number = error.errno if isinstance(error, OSError) else errno.ENOENT  # a NUL or a lone surrogate in the name
    if number == errno.ELOOP or os.path.islink(path):  # noqa: PTH114 - never raises; it leads to no file
        return UntrustedFileError(path, "not regular", "is a link", _PUT_FILE)
    if number in {errno.ENXIO, errno.EISDIR}:  # the first: a socket
        return UntrustedFileError(path, "not regular", "is not a regular file", _PUT_FILE)
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return UntrustedFileError(path, "missing", "is missing", "Check the name.")
    reason = os.strerror(number) if number else printable_line(str(error))  # another package's error has no number
    return UntrustedFileError(path, "system", f"cannot be read ({reason})", "Make it readable.")
