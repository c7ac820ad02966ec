"""Read and show the files of teams, models and strangers: bounded files, bounded folders, printable text.

No function follows a link unless `follow_link` is set, waits for a pipe, or reads more than its limit.
"""

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, BinaryIO, Literal

from pcgeval.core.errors import FileError

FaultKind = Literal["missing", "not regular", "too large", "malformed", "system"]
MAX_ENTRIES = 100_000  # files and folders in a tree
MAX_DEPTH = 40  # folders in one another
MAX_LINE = 300  # characters of a name or a message that is shown
_MAX_DIGITS = 100  # of a number in YAML
_SURROGATE = re.compile("[\ud800-\udfff]")
# control characters other than tab and line end, invisible characters, and those that change the direction of text
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


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
    """Open a regular file; an OSError inside the block counts as one of reading it.

    Args:
        path: The file.
        follow_link: Whether `path` may be a link to the file; DVC may link its cache.

    Raises:
        UntrustedFileError: The file is missing, unreadable, a link, a pipe, a device or a folder.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_link else os.O_NOFOLLOW)  # NONBLOCK: for pipes
    try:
        descriptor = os.open(path, flags)
        if not S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _not_regular(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # a NUL or a lone surrogate in the name
        raise _missing(path) from error
    try:
        with os.fdopen(descriptor, "rb") as file:
            yield file
    except OSError as error:
        raise _unreadable(path, error) from error


def read_bounded(path: Path, limit: int, *, follow_link: bool = False) -> bytes:
    """Return a regular file's bytes; raise UntrustedFileError if it has more than `limit` or cannot be read."""
    with open_regular(path, follow_link=follow_link) as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > limit else file.read(size + 1)  # a buffer of the limit would cost more
        if len(content) > size:  # the file grew
            content += file.read(limit + 1 - len(content))
    if max(size, len(content)) > limit:
        raise UntrustedFileError(path, "too large", f"is larger than {limit} bytes", "Shorten it.")
    return content


def read_start(path: Path, size: int, *, follow_link: bool = False) -> bytes:
    """Return at most the first `size` bytes of a regular file."""
    with open_regular(path, follow_link=follow_link) as file:
        return file.read(min(size, os.fstat(file.fileno()).st_size))


def read_bounded_text(path: Path, limit: int, *, follow_link: bool = False) -> str:
    """Return a regular file's UTF-8 text, line ends as they are; raise UntrustedFileError if there is none."""
    return _decoded(read_bounded(path, limit, follow_link=follow_link), path)


def read_stdin(limit: int) -> str:
    """Return the UTF-8 text of standard input; raise UntrustedFileError if it is none or has over `limit` bytes."""
    content, name = sys.stdin.buffer.read(limit + 1), Path("standard input")
    if len(content) > limit:
        raise UntrustedFileError(name, "too large", f"is larger than {limit} bytes", "Shorten it.")
    return _decoded(content, name)


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text ({error.reason} at byte {error.start})"
        raise UntrustedFileError(path, "malformed", reason, "Save it as UTF-8.") from error


def read_bounded_json(path: Path, limit: int, *, follow_link: bool = False) -> Any:
    """Return the value of a JSON file; raise UntrustedFileError if it holds none or has more than `limit` bytes."""
    try:
        return json.loads(read_bounded_text(path, limit, follow_link=follow_link))
    except (ValueError, RecursionError) as error:
        reason = f"is not JSON ({printable_line(str(error))})"
        raise UntrustedFileError(path, "malformed", reason, "Correct it.") from error


def parse_yaml(text: str, *, allow_aliases: bool = False) -> Any:
    """Return the value of a YAML document; None for an empty one.

    Args:
        text: The document.
        allow_aliases: Whether `*name` may stand for a value. A few aliases can stand for more text than there is
            memory, so a stranger's document has none.

    Raises:
        ValueError: The document is malformed, repeats a key or has a huge number; the message names the line.
    """
    import yaml  # noqa: PLC0415 - only a few commands read any

    try:
        return yaml.load(text, _yaml_loader(allow_aliases=allow_aliases))  # noqa: S506 - a safe loader
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(str(error)) from error
    except (LookupError, AttributeError, TypeError) as error:  # PyYAML's own, of a value such as `!!bool x`
        raise ValueError("a value is not what its tag (`!!type`) says") from error


def _yaml_loader(*, allow_aliases: bool) -> Any:
    """Return a safe loader with the refusals of `parse_yaml`."""
    import yaml  # noqa: PLC0415 - as above

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            if not allow_aliases and self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("an alias (`*name`) is not read; write it out")
            return super().compose_node(parent, index)

        def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            lines: dict[str, int] = {}
            for key, _ in node.value:
                name, line = str(key.value)[:200], key.start_mark.line + 1
                if name in lines:
                    raise yaml.YAMLError(f"line {line}: {name!r} stands twice, first in line {lines[name]}; keep one")
                lines[name] = line
            return node

        def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
            node = super().compose_scalar_node(anchor)
            if node.tag.endswith(":int") and len(node.value) > _MAX_DIGITS:
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a number has over {_MAX_DIGITS} digits")
            return node

    return Loader


def path_below(root: Path, name: str) -> Path:
    """Return the path of a file below a folder.

    Raises:
        UntrustedFileError: The name leads out of the folder, or a part of it is a link or missing.
    """
    parts = PurePosixPath(name).parts
    path = root.joinpath(*parts)
    if not parts or parts[0] == "/" or ".." in parts:
        raise UntrustedFileError(path, "malformed", "leads out of the folder", "Give a path relative to the folder.")
    step = root
    for part in parts:
        step /= part
        try:
            is_link = S_ISLNK(step.lstat().st_mode)
        except OSError as error:
            raise _unreadable(path, error) from error
        except ValueError as error:  # a NUL or a lone surrogate in the name
            raise _missing(path) from error
        if is_link:
            raise UntrustedFileError(path, "not regular", "is a link, or lies behind one", "Put the file itself there.")
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

    Folders are yielded only if they are not entered. An entry with a fault stands for what a bound leaves out.

    Args:
        root: The folder.
        limit: The most entries of a folder, and of the tree.
        depth: The most folders in one another.
        enter: Tells whether to enter the folder of a relative name.
    """
    level, left = [""], limit
    for _ in range(depth + 1):
        deeper: list[str] = []
        for folder in level:
            try:
                with os.scandir(root / folder) as scan:
                    names = [entry.name for entry in islice(scan, limit + 1)]
            except OSError as error:
                yield FolderEntry(folder, None, f"cannot be read ({error.strerror})")
                continue
            if len(names) > limit:
                yield FolderEntry(folder, None, f"has more than {limit} entries")
                continue
            for name in sorted(names, key=os.fsencode):
                left -= 1
                if left < 0:
                    yield FolderEntry("", None, f"has more than {limit} files and folders")
                    return
                path = f"{folder}/{name}" if folder else name
                try:
                    status = (root / path).lstat()
                except OSError as error:
                    yield FolderEntry(path, None, f"cannot be read ({error.strerror})")
                    continue
                if S_ISDIR(status.st_mode) and enter(path):
                    deeper.append(path)
                else:
                    yield FolderEntry(path, status)
        level = deeper
    for folder in level:
        yield FolderEntry(folder, None, f"lies deeper than {depth} folders")


def files_below(folder: Path) -> list[Path]:
    """Return all regular files below a folder in byte order of their relative paths, links left out.

    Raises:
        UntrustedFileError: A folder cannot be read or is too deep, or there are too many files.
    """
    names = []
    for entry in walk(folder):
        if entry.fault:
            raise UntrustedFileError(folder / entry.name, "system", entry.fault, "Remove it.")
        if entry.is_file:
            names.append(entry.name)
    return [folder / name for name in sorted(names, key=os.fsencode)]


def well_formed(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate, which UTF-8 cannot hold."""
    return _SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return the text on one line, with a space for each character that cannot be printed."""
    return "".join(character if character.isprintable() else " " for character in text)


def printable_line(text: str, limit: int = MAX_LINE) -> str:
    """Return prose on one line of at most `limit` characters, without unprintable characters."""
    line = " ".join(one_line(text[: 4 * limit]).split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 3]}..."


def printable_name(text: str, limit: int = MAX_LINE) -> str:
    """Return a name or a quotation on one line of `limit` characters, with escapes for unprintable characters."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:limit]
    )
    return f"{shown}..." if len(text) > limit else shown


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names and the number of others: `a, b and 3 more`."""
    shown = ", ".join(map(printable_name, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def printable_text(text: str) -> str:
    """Return text of several lines with U+FFFD for control characters and those that change its direction."""
    return _INVISIBLE.sub("\ufffd", text)


def _missing(path: Path) -> UntrustedFileError:
    return UntrustedFileError(path, "missing", "is missing", "Check the name.")


def _not_regular(path: Path) -> UntrustedFileError:
    return UntrustedFileError(path, "not regular", "is not a regular file", "Put the file itself there.")


def _unreadable(path: Path, error: OSError) -> UntrustedFileError:
    if error.errno == errno.ELOOP or os.path.islink(path):  # noqa: PTH114 - never raises; it leads to no file
        return UntrustedFileError(path, "not regular", "is a link", "Put the file itself there.")
    if error.errno == errno.ENXIO:  # a socket
        return _not_regular(path)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _missing(path)
    return UntrustedFileError(path, "system", f"cannot be read ({error.strerror})", "Make it readable.")
