"""Read requirements.txt, and the lock beside it: packages of the index by name, with versions, and nothing else."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pcgeval.core.errors import PcgevalError
from pcgeval.core.untrusted import UntrustedFileError, printable_name, read_bounded
from pcgeval.submissions.sources import INTERFACE_PACKAGES

REQUIREMENTS = "requirements.txt"
LOCK = "requirements-lock.txt"  # beside it: what it was resolved to, written by the organiser's `pcgeval check`
MAX_LOCK_BYTES = 1_000_000
MAX_BYTES = 100_000
MAX_LINES = 500
MAX_LINE_CHARACTERS = 1_000
_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".tlz")  # pip looks for such files
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"hash=sha(256|384|512):[0-9a-f]{64,128}\s*")
_LOCK = re.compile(  # a header, then lines as uv writes them
    r"# [0-9a-f]{64}, .*\n(?:[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n)+"
)
_ENCODINGS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class RequirementsError(PcgevalError):
    """A requirements.txt asks for what is not allowed, or for packages that cannot be installed: the team's fault."""


def read_lock(folder: Path, header: str) -> str | None:
    """Return the lines of the lock beside a requirements.txt; None without one, or with one of other requirements.

    Args:
        folder: The program's folder.
        header: The first line of a lock of what requirements.txt asks for now. A lock of the same requirements for
            another Python or machine counts: its wheels may be there for this one, too.

    Raises:
        RequirementsError: The file is no lock.
    """
    path = folder / LOCK
    try:
        text = read_bounded(path, MAX_LOCK_BYTES).decode("utf-8", errors="replace")
    except UntrustedFileError as fault:
        if fault.kind == "missing":
            return None
        raise RequirementsError(str(fault)) from fault
    if not _LOCK.fullmatch(text):
        raise RequirementsError(
            f"{path}: is no lock of packages. Remove it and run `pcgeval check`, which resolves the versions again."
        )
    first, _, lines = text.partition("\n")
    return lines if first.partition(",")[0] == header.partition(",")[0] else None


def read_requirements(folder: Path, shown: Path | None = None) -> list[str]:
    """Return the packages that a program's folder asks for, the interface packages left out; [] without the file.

    Args:
        folder: The program's folder.
        shown: The path that messages give the file, if the folder is a copy.

    Raises:
        RequirementsError: Lines ask for anything but a package of the index by its name; each is listed.
    """
    path = shown or folder / REQUIREMENTS
    try:
        content = read_bounded(folder / REQUIREMENTS, MAX_BYTES)
        encoding = next((encoding for mark, encoding in _ENCODINGS if content.startswith(mark)), "utf-8")
        lines = [(number, line) for number, line in _logical_lines(content.decode(encoding)) if line]
    except UntrustedFileError as fault:
        if fault.kind == "missing":
            return []
        raise RequirementsError(str(fault)) from fault
    except UnicodeDecodeError as fault:
        raise RequirementsError(f"{path}: not UTF-8 text ({fault.reason}). Save it as UTF-8.") from fault
    if len(lines) > MAX_LINES:
        raise RequirementsError(f"{path}: asks for {len(lines)} packages; {MAX_LINES} are allowed. Name fewer.")
    requirements: list[str] = []
    refused: list[str] = []
    for number, line in lines:
        try:
            if (requirement := _parsed(line)) is not None:
                requirements.append(requirement)
        except ValueError as fault:
            refused.append(f"{path}:{number}: {printable_name(line, 80)!r} {fault}")
    if refused:
        raise RequirementsError("\n".join(refused))
    return requirements


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, continued lines joined and comments removed."""
    begun, first = "", 1
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        first = first if begun else number
        uncommented = _COMMENT.sub("", line).rstrip()
        if uncommented.endswith("\\"):
            begun += uncommented[:-1] + " "
        else:
            yield first, (begun + uncommented).strip()
            begun = ""


def _parsed(line: str) -> str | None:
    """Return a line in its usual form, None for an interface package; raise ValueError with the reason otherwise."""
    named, *options = line.split(" --")
    if len(named) > MAX_LINE_CHARACTERS:
        raise ValueError("is too long. Name the package only.")
    fault = None
    try:
        requirement = Requirement(named)
        if canonicalize_name(requirement.name) in INTERFACE_PACKAGES:
            return None
        if requirement.url is not None:
            fault = "it has an address"
        elif requirement.name.endswith(_ARCHIVES):
            fault = "the name of a file"
        elif "${" in named:  # uv would put the organiser's environment there, and its messages are told to the team
            fault = "a variable of the environment"
        elif not all(map(_HASH.fullmatch, options)):
            fault = "it has options"
    except InvalidRequirement as invalid:
        fault = printable_name(str(invalid).splitlines()[0])
    if fault is not None:
        raise ValueError(
            f"is no package of the package index, such as `numpy>=2` ({fault}). "
            "Files, folders, addresses and options are not read. Name the package only."
        )
    return " ".join([str(requirement), *(f"--{option.strip()}" for option in options)])
