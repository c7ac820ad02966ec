"""Names of files: which are no part of a submission, and which cannot be stored on every disk.

What is filed goes into git and onto other people's disks, so a name must mean the same file on all of them.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from pcgeval.core.untrusted import printable_name
from pcgeval.submissions.findings import SubmissionFinding, error

MAX_NAME_BYTES = 255  # UTF-8, of one part of a path: what common file systems take
MAX_PATH_BYTES = 400  # UTF-8
MAX_DEPTH = 20  # folders in one another
VENV_FILE = "pyvenv.cfg"  # lies in every virtual environment
NOTES_FILE = "submission.yaml"
_FORBIDDEN = re.compile(r'[<>:"|?*\\]')  # on Windows
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(?:[ ]*\.|[ ]*$)")  # on Windows
_LEFT_OUT = {
    "version control": re.compile(r"\.git|\.svn|\.hg|\.gitignore|\.gitattributes|\.gitmodules"),
    # a pipeline of its own would run, or hide files from ours
    "DVC": re.compile(r"\.dvc|\.dvcignore|dvc\.yaml|dvc\.lock|.*\.dvc"),
    "the operating system": re.compile(r"__macosx|\.ds_store|\._.*|thumbs\.db|desktop\.ini|\.trashes|\.spotlight-v100"),
    "Python": re.compile(r"__pycache__|.*\.py[co]|.*\.egg-info|\.ipynb_checkpoints|\.(mypy|pytest|ruff)_cache|\.venv"),
    "the organiser": re.compile(r"requirements-lock\.txt"),
    "an editor": re.compile(r"\.idea|\.vscode|.*\.swp|\..*\.part"),
}


def left_out(name: str) -> tuple[str, str] | None:
    """Return the part of a path that is not filed, such as `src/__pycache__`, and whose it is; None if all is filed."""
    for path in with_parents(name):
        part = path.rpartition("/")[2].casefold()
        for owner, rule in _LEFT_OUT.items():
            if rule.fullmatch(part):
                return path, owner
    return None


def name_fault(name: str) -> str | None:
    """Return why a relative path cannot be stored everywhere, in words that follow it; None if it can."""
    if not all(each.isprintable() or unicodedata.category(each) == "Zs" for each in name):
        return "has unprintable characters; rename it"
    if len(name.encode()) > MAX_PATH_BYTES or name.count("/") > MAX_DEPTH:
        return f"is over {MAX_PATH_BYTES} bytes long or over {MAX_DEPTH} folders deep; shorten it"
    for part in name.split("/"):
        if len(part.encode()) > MAX_NAME_BYTES:
            return f"has a name over {MAX_NAME_BYTES} bytes; shorten it"
        if _FORBIDDEN.search(part) or part.endswith((".", " ")) or _RESERVED.match(part.lower()):
            return "has a name that Windows cannot store; rename it"
        if part.startswith(("-", " ")):
            return "has a name that begins with - or a space; rename it"
    return None


def collisions(names: Iterable[str]) -> Iterator[SubmissionFinding]:
    """Yield an error for each file that some disk takes for another one: by case, by Unicode form, or listed twice."""
    # all files and folders; the organiser's decisions are read from the notes, which no file may become on another disk
    spelt = {NOTES_FILE: NOTES_FILE}
    files: set[str] = set()
    folders: set[str] = set()
    for name in names:
        for path in with_parents(name):
            alike = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
            other = spelt.setdefault(alike, path)
            if other != path:
                text = f"has on some disks the same name as {printable_name(other)}; rename one of them"
                yield error(path, text, "same-name")
                break
            if path in files or (path == name and path in folders):
                text = "is listed twice, or as a file and as a folder; pack the submission again"
                yield error(path, text, "same-name")
                break
        else:
            files.add(name)
            folders.update(with_parents(name)[:-1])


def with_parents(name: str) -> list[str]:
    """Return `a`, `a/b`, `a/b/c` for `a/b/c`."""
    parts = name.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
