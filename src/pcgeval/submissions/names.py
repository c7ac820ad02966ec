"""Names of files: which are left out of a submission, and which cannot be stored everywhere as they are.

What is filed goes into git and onto other people's disks, so a name must mean the same file on all of them.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pcgeval.submissions.findings import Finding, error, is_plain, shown

LONGEST_NAME = 255  # bytes of UTF-8 in one part of a path: what common file systems take
LONGEST_PATH = 400  # bytes of UTF-8 in a whole path
DEEPEST = 20  # folders in one another
_BEYOND_LONGEST, _BEYOND_DEEPEST = 1000, 100  # also for what is left out; else a path costs too much to look at
VENV_FILE = "pyvenv.cfg"  # lies in every virtual environment
_FORBIDDEN = re.compile(r'[<>:"|?*]')  # on Windows
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(?:[ ]*\.|[ ]*$)")  # on Windows
_DRIVE = re.compile(r"[A-Za-z]:")
_LEFT_OUT = {
    "version control": re.compile(r"\.git|\.svn|\.hg|\.gitignore|\.gitattributes|\.gitmodules"),
    # a pipeline of its own would run, or hide files from ours
    "DVC": re.compile(r"\.dvc|\.dvcignore|dvc\.yaml|dvc\.lock|.*\.dvc"),
    "the operating system": re.compile(r"__macosx|\.ds_store|\._.*|thumbs\.db|desktop\.ini|\.trashes|\.spotlight-v100"),
    "Python": re.compile(r"__pycache__|.*\.py[co]|.*\.egg-info|\.ipynb_checkpoints|\.(mypy|pytest|ruff)_cache|\.venv"),
    "an editor": re.compile(r"\.idea|\.vscode|.*\.swp|\..*\.part"),
}


@dataclass(frozen=True)
class LeftOut:
    """A file or folder that is no part of a submission, and whose it is."""

    path: str
    whose: str


def left_out(name: str) -> LeftOut | None:
    """Return the part of a path that is not filed, such as `.git` or `src/__pycache__`; None if all of it is."""
    for path in with_parents(name):
        part = path.rpartition("/")[2].lower()
        for whose, rule in _LEFT_OUT.items():
            if rule.fullmatch(part):
                return LeftOut(path, whose)
    return None


def escape_fault(name: str) -> str | None:
    """Return why a path could lead out of the submission's folder, in words that follow it; None if it does not."""
    if len(name) > _BEYOND_LONGEST or name.count("/") > _BEYOND_DEEPEST:
        return f"is over {_BEYOND_LONGEST} characters long or {_BEYOND_DEEPEST} folders deep; take it out"
    if name.startswith("/") or _DRIVE.match(name):
        return "is an absolute path; pack the submission's folder with relative paths"
    if "\\" in name:
        return "has a backslash; pack it with a program that writes / between folders"
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return "leads through '..', '.' or an empty name; pack the submission's folder again"
    return None


def name_fault(name: str) -> str | None:
    """Return why a relative path cannot be stored everywhere, in words that follow it; None if it can."""
    if not all(map(is_plain, name)):
        return "has characters that cannot be seen or decoded; rename it"
    if len(name.encode()) > LONGEST_PATH or name.count("/") > DEEPEST:
        return f"is over {LONGEST_PATH} bytes long or over {DEEPEST} folders deep; shorten it"
    for part in name.split("/"):
        if len(part.encode()) > LONGEST_NAME:
            return f"has a name over {LONGEST_NAME} bytes; shorten it"
        if _FORBIDDEN.search(part) or part.endswith((".", " ")) or _RESERVED.match(part.lower()):
            return "has a name that Windows cannot store; rename it"
        if part.startswith(("-", " ")):
            return "has a name that begins with - or a space; rename it"
    return None


def collisions(names: Iterable[str]) -> Iterator[Finding]:
    """Yield an error for each file that some disk would take for another one: by case, by Unicode form, or twice."""
    spelt: dict[str, str] = {}  # of all files and folders
    files: set[str] = set()
    folders: set[str] = set()
    for name in names:
        for path in with_parents(name):
            other = spelt.setdefault(_alike(path), path)
            if other != path:
                yield error(path, f"has on some disks the same name as {shown(other)}; rename one of them")
                break
            if path in files or (path == name and path in folders):
                yield error(path, "is there twice, or as a file and as a folder; pack the submission again")
                break
        else:
            files.add(name)
            folders.update(with_parents(name)[:-1])


def with_parents(name: str) -> list[str]:
    """Return `a`, `a/b`, `a/b/c` for `a/b/c`."""
    parts = name.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _alike(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
