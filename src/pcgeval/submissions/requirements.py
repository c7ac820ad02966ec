"""What a program's requirements.txt may ask for: packages of the index by name, with versions and markers."""

import codecs
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pcgeval.core.errors import PcgevalError
from pcgeval.submissions.entry_point import INTERFACE_PACKAGES

REQUIREMENTS = "requirements.txt"
ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".tlz")  # pip looks for such files
MOST_BYTES = 100_000
MOST_LINES = 500
MOST_CHARACTERS = 1_000  # of one requirement

_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"--hash=sha(256|384|512):[0-9a-f]{64,128}")
_ENCODINGS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class RequirementsError(PcgevalError):
    """A requirements.txt asks for what is not given, or its packages cannot be installed."""


@dataclass(frozen=True)
class _Line:
    """A logical line of the file: continued lines joined, the comment taken off, and where it began."""

    place: str
    text: str


def read_requirements(folder: Path) -> list[str]:
    """Return the packages that a program's folder asks for, the interface packages left out; [] without the file.

    Raises:
        RequirementsError: Lines ask for anything but a package of the index by its name; the message tells all of them.
    """
    path = folder / REQUIREMENTS
    try:
        text = _text(path)
    except FileNotFoundError:
        return []
    lines = [line for line in _lines(path, text) if line.text]
    if len(lines) > MOST_LINES:
        raise RequirementsError(f"{path}: asks for {len(lines)} packages; {MOST_LINES} are allowed. Name fewer.")
    requirements: list[str | None] = []
    refused: list[str] = []
    for line in lines:
        try:
            requirements.append(_requirement(line))
        except RequirementsError as fault:
            refused.append(str(fault))
    if refused:
        raise RequirementsError("\n".join(refused))
    return [requirement for requirement in requirements if requirement is not None]


def _text(path: Path) -> str:
    """Read the file itself, never what a link leads to."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RequirementsError(f"{path}: cannot be read ({error.strerror}); a link is not followed.") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RequirementsError(f"{path}: not a file. Put the packages' names into a text file.")
        content = os.read(descriptor, MOST_BYTES + 1)  # a disk gives all of so little at once
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise RequirementsError(f"{path}: larger than {MOST_BYTES} bytes. Name fewer packages.")
    encoding = next((encoding for mark, encoding in _ENCODINGS if content.startswith(mark)), "utf-8")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise RequirementsError(f"{path}: not UTF-8 text ({error.reason}). Save it as UTF-8.") from error


def _lines(path: Path, text: str) -> list[_Line]:
    lines = []
    begun = ""
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        first = first if begun else number
        uncommented = _COMMENT.sub("", line).rstrip()
        if uncommented.endswith("\\"):
            begun += uncommented[:-1] + " "
        else:
            lines.append(_Line(f"{path}:{first}", (begun + uncommented).strip()))
            begun = ""
    return lines


def _requirement(line: _Line) -> str | None:
    """Return a line in its usual form, None for an interface package."""
    if line.text.startswith("-"):
        raise RequirementsError(
            f"{line.place}: {_shown(line.text)} is an option for pip; where packages come from is the organiser's "
            "decision. Name packages of the package index only."
        )
    named, *options = line.text.split(" --")
    hashes = [f"--{option.strip()}" for option in options]
    if len(named) > MOST_CHARACTERS or not all(map(_HASH.fullmatch, hashes)):
        raise RequirementsError(f"{line.place}: {_shown(line.text)} is too long or has options. Name the package only.")
    requirement = _parsed(line, named)
    if canonicalize_name(requirement.name) in INTERFACE_PACKAGES:
        return None
    if requirement.url is not None:
        raise RequirementsError(
            f"{line.place}: {_shown(line.text)} comes from an address. Name the package by its version instead."
        )
    return " ".join([str(requirement), *hashes])


def _parsed(line: _Line, named: str) -> Requirement:
    try:
        requirement = Requirement(named)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
    else:
        if not requirement.name.endswith(ARCHIVES):
            return requirement
        reason = "the name of a file"
    raise RequirementsError(
        f"{line.place}: {_shown(line.text)} is no package of the package index, such as `numpy>=2` ({reason}). "
        "Files, folders and addresses are not installed."
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")
