"""Python source of strangers, read into a syntax tree without running any of it.

A tree takes up to a thousand times the space of its source, so sources are bounded. They are decoded here, because
some of the encodings that a source may declare take quadratic time.
"""

import ast
import codecs
import io
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

SOURCE_BYTES = 256 * 2**10
_PLAIN_ENCODINGS = {
    codecs.lookup(name).name
    for name in (
        *("ascii", "utf-8", "utf-8-sig", "latin-1", "iso8859-2", "iso8859-15", "cp1250", "cp1251", "cp1252", "koi8-r"),
        *("shift_jis", "cp932", "euc_jp", "euc_kr", "cp949", "gb2312", "gbk", "gb18030", "big5", "tis-620"),
    )
}


@dataclass(frozen=True)
class SourceFault:
    """Why a source has no tree, in words that follow the file's name; `line` is None if it has none."""

    reason: str
    line: int | None = None


def read_source(path: Path) -> bytes | SourceFault:
    """Read a source file whole, at most SOURCE_BYTES; links are not followed."""
    try:
        status = path.lstat()
        if not S_ISREG(status.st_mode):
            return SourceFault("is no regular file")
        if status.st_size > SOURCE_BYTES:
            return SourceFault(f"has {status.st_size} bytes; sources of up to {SOURCE_BYTES} are looked into")
        return path.read_bytes()
    except OSError as error:
        return SourceFault(f"cannot be read ({error.strerror})")


def parse_source(content: bytes) -> ast.Module | SourceFault:
    """Return the syntax tree of a source as this interpreter reads it, or why there is none."""
    text = _decoded(content)
    if isinstance(text, SourceFault):
        return text
    try:
        with warnings.catch_warnings():  # such as that of an invalid escape; the author is not here to read it
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        return SourceFault(f"is not valid Python ({error.msg[:200]})", error.lineno)
    except ValueError as error:
        return SourceFault(f"is not valid Python ({str(error)[:200]})")
    except (RecursionError, MemoryError):
        return SourceFault("is nested too deeply to be run")


def _decoded(content: bytes) -> str | SourceFault:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return SourceFault("is UTF-16 text, which Python does not run; save it as UTF-8")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if codecs.lookup(encoding).name not in _PLAIN_ENCODINGS:
            return SourceFault(f"declares the encoding {encoding[:40]!r}; save it as UTF-8")
        return content.decode(encoding)
    except SyntaxError as error:
        return SourceFault(f"cannot be decoded ({error.msg[:200]}); save it as UTF-8")
    except UnicodeDecodeError as error:
        return SourceFault(f"is not {error.encoding} text (byte {error.start}); save it as UTF-8")
