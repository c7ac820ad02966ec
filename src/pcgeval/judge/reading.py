"""Reading one file of a submission as text: in bounded memory, never through a link, and never waiting for a pipe."""

import codecs
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

MAX_HEAD = 300_000  # bytes
MAX_TAIL = 100_000
_SNIFFED = 4096
_CONTINUATION = bytes(range(0x80, 0xC0))  # the later bytes of a character in UTF-8
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# a tab and a line's end are the only control characters that say anything; an escape begins a colour or a movement
_CONTROLS = re.compile(r"\x1b\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class FileText:
    """A file's text, and what is to be said about it: it was cut, or its encoding is broken; or why there is none."""

    text: str
    note: str = ""


def looks_binary(path: Path) -> bool:
    """Whether a file's beginning has a NUL byte and is not UTF-16.

    Raises:
        OSError: It cannot be read.
    """
    start, _, _ = _ends(path, _SNIFFED, 0)
    return b"\0" in start and not start.startswith(_UTF16)


def read_file(path: Path) -> FileText:
    """Read a file's text, of a huge one the beginning and the end; of a notebook, what its cells hold."""
    try:
        head, tail, left_out = _ends(path, MAX_HEAD, MAX_TAIL)
    except OSError as error:
        return FileText("", f"cannot be read ({error.strerror})")
    text, encoding = _decoded(head, tail, left_out)
    notes = [f"{left_out} bytes in the middle left out"] if left_out else []
    if broken := text.count("\ufffd"):
        notes.append(f"{broken} characters are not {encoding}")
    if path.suffix.casefold() == ".ipynb" and not left_out:
        text = _notebook(text)
    return FileText(clean(text), "; ".join(notes))


def clean(text: str) -> str:
    """Return text with one kind of line end and without control characters and terminal colours."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _ends(path: Path, head: int, tail: int) -> tuple[bytes, bytes, int]:
    """Return at most so many bytes of a regular file's beginning and end, and how many lie between."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not S_ISREG(status.st_mode):
            raise OSError(0, "no regular file")
        if status.st_size <= head + tail:
            return file.read(head + tail), b"", 0
        start = file.read(head)
        file.seek(status.st_size - tail)
        return start, file.read(tail), status.st_size - head - tail


def _decoded(head: bytes, tail: bytes, left_out: int) -> tuple[str, str]:
    """Return the text and its encoding's name; what a cut split is no fault of the file."""
    encoding = "utf-16" if head.startswith(_UTF16) else "utf-8-sig"
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head, final=not left_out)
    if left_out:
        # the end of a UTF-16 file cannot be told without its byte order
        end = tail.lstrip(_CONTINUATION).decode("utf-8", "replace") if encoding == "utf-8-sig" else ""
        text += f"\n[... {left_out} bytes left out ...]\n{end}"
    return text, encoding.removesuffix("-sig").upper()


def _notebook(text: str) -> str:
    """Return the sources of a notebook's cells; the text as it is if it is none."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return text
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return text
    return "\n\n".join(_joined(cell.get("source")) for cell in cells if isinstance(cell, dict))


def _joined(lines: object) -> str:
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""
