"""Read, hash and write files; a killed run leaves either the old file or the new one."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import translate
from pathlib import Path
from typing import Any

from pcgeval.core.errors import FileError
from pcgeval.core.text import well_formed
from pcgeval.core.untrusted import open_regular

# the rules of .dvcignore, which hide no file of a submission
DVC_IGNORED = ("__pycache__", "*.pyc", "*.egg-info", ".*.part", ".gitignore", ".DS_Store")
_IGNORED = re.compile("|".join(map(translate, DVC_IGNORED)))
_BLOCK = 2**20  # bytes
_rewritten: dict[Path, set[str]] = {}  # what this process has written since `rewritten_folder` of each folder began


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; one that has this content already stays untouched, so DVC does not hash it again."""
    mark_written([str(path)])
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # noqa: PTH101 - mkstemp makes 0600
        os.replace(temporary, path)  # noqa: PTH105
    finally:
        Path(temporary).unlink(missing_ok=True)


def mark_written(paths: Collection[str]) -> None:
    """Count files as written, so that `rewritten_folder` leaves them."""
    for written in tuple(_rewritten.values()):
        written.update(paths)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, line ends as given; lone surrogates become U+FFFD."""
    write_bytes(path, well_formed(text).encode("utf-8"))


def to_json(value: Any, *, indent: int | None = 1) -> str:
    """Return canonical JSON: sorted keys, no NaN, one form for one value."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=separators)


def write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    """Write canonical JSON with a final newline, atomically."""
    write_text(path, to_json(value, indent=indent) + "\n")


def shown_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted, without hidden ones."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


@contextmanager
def rewritten_folder(folder: Path, *, keep: Path) -> Iterator[None]:
    """Let a stage write its output folder from its input `keep`, then remove every file that it did not write.

    Any thread of this process may write; nothing is removed if the block raises an error.
    """
    if not keep.is_dir():
        raise FileError(f"{keep}: is missing. Run `dvc repro` to make it.")
    folder.mkdir(parents=True, exist_ok=True)
    _rewritten[folder] = set()
    try:
        yield
    finally:
        written = _rewritten.pop(folder)
    remove_others(folder, written)


def remove_others(folder: Path, wanted: Iterable[Path | str]) -> None:
    """Remove every file below a folder except the wanted ones, and the folders that are empty then."""
    kept = {*map(str, wanted)}  # and the folders that hold one of them
    for place, folders, names in os.walk(folder, topdown=False):
        for path in (os.path.join(place, name) for name in [*names, *folders]):  # noqa: PTH118 - of thousands
            if path in kept:
                kept.add(place)
            elif os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
                os.rmdir(path)  # noqa: PTH106
            else:
                os.unlink(path)  # noqa: PTH108


def file_states(paths: Iterable[Path]) -> dict[str, str]:
    """Return the size, time and inode of each file at or below some paths, as DVC compares; a missing path has none.

    The time is that of the content: DVC sets the rights of all outputs, and so their other time, before a stage runs.
    """
    states: dict[str, str] = {}
    waiting = [str(path) for path in paths]
    while waiting:
        path = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        states[entry.path] = _state(entry)
        except NotADirectoryError:
            states[path] = _state(Path(path))
        except FileNotFoundError:
            continue
    return states


def _state(file: "os.DirEntry[str] | Path") -> str:
    try:
        status = file.stat()
    except FileNotFoundError:  # a link that leads nowhere
        return "missing"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def tree_files(root: Path, path: Path | str = "", *, with_ignored: bool = False) -> Iterator[str]:
    """Yield the name below `root` of a file, or of all files below a folder but those that DVC ignores.

    A link to a file counts as the file; folders behind links are not entered. A missing path yields nothing.

    Raises:
        OSError: A folder cannot be read.
    """
    path = Path(path)
    if (root / path).is_file():
        yield path.as_posix()
    elif (root / path).is_dir():
        for place, folders, names in os.walk(root / path, onerror=_fail):
            folders[:] = [name for name in folders if with_ignored or not is_ignored(name)]
            above = path / Path(place).relative_to(root / path)
            start = "" if above == Path() else f"{above.as_posix()}/"
            for name in names:
                is_hidden = not with_ignored and is_ignored(name)
                if not is_hidden and os.path.isfile(os.path.join(place, name)):  # noqa: PTH113, PTH118 - of thousands
                    yield start + name


def _fail(error: OSError) -> None:
    raise error


def copy_files(
    source: Path, target: Path, names: Iterable[str], *, follow_link: bool = False, with_status: bool = False
) -> None:
    """Copy files of a folder, by their names in it, into another folder; `with_status` also copies rights and times.

    Raises:
        UntrustedFileError: A file cannot be read, or is a link and `follow_link` is not set.
    """
    for name in names:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as copy:  # outside of `open_regular`, so that a full disk is no fault of the source
            copy.writelines(_blocks(source / name, follow_link=follow_link))
        if with_status:
            shutil.copystat(source / name, place)


def _blocks(path: Path, *, follow_link: bool) -> Iterator[bytes]:
    with open_regular(path, follow_link=follow_link) as file:
        while block := file.read(_BLOCK):
            yield block


def tree_sha256(root: Path, names: Iterable[str]) -> str:
    """Return one SHA-256 over files, by their names below a folder.

    It is that of the canonical JSON of `[[name, SHA-256 of the file], ...]` in byte order of the names.

    Raises:
        FileError: A file or its folder cannot be read.
    """
    try:
        return sha256_json([[name, sha256_file(root / name)] for name in sorted(set(names), key=os.fsencode)])
    except OSError as error:
        raise FileError(f"{error.filename}: cannot be read ({error.strerror}). Make it readable.") from error


def sha256_bytes(content: bytes) -> str:
    """Return the hexadecimal SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def sha256_text(text: str) -> str:
    """Return the hexadecimal SHA-256 of a text in UTF-8; lone surrogates count as they are."""
    return sha256_bytes(text.encode("utf-8", errors="surrogatepass"))


def sha256_json(value: Any) -> str:
    """Return the hexadecimal SHA-256 of a value's canonical JSON."""
    return sha256_text(to_json(value, indent=None))


def sha256_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes, read in blocks."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cached(path: Path, made_from: object, make: Callable[[], bytes]) -> bytes:
    """Return what an earlier call put into a file, if it was made from the same; else make it and put it there.

    A hash over the `repr` of `made_from` and the content comes first in the file, so a damaged one counts as missing.
    On a disk that cannot be written, nothing is kept.
    """
    key = repr(made_from).encode("utf-8", errors="surrogatepass")
    if path.is_file():
        digest, _, content = path.read_bytes().partition(b"\n")
        if digest == sha256_bytes(key + content).encode():
            return content
    content = make()
    with suppress(OSError):
        write_bytes(path, sha256_bytes(key + content).encode() + b"\n" + content)
    return content


def derived_seed(*parts: object) -> int:
    """Return a seed in [0, 2**31): the first 31 bits of the SHA-256 of the parts' texts with `/` between them."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def is_ignored(name: str) -> bool:
    """Tell whether files and folders of this name are no part of an input or output, as in .dvcignore."""
    return _IGNORED.fullmatch(name) is not None
