"""What is looked at in the texts of a submission: its README, the length of its prompts, and secrets left in it."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from pcgeval.submissions.entry_point import STARTED_WITH_PYTHON, find_readme
from pcgeval.submissions.findings import Finding, error, warning
from pcgeval.submissions.load import Program, Prompt

README_BYTES = 1_000_000  # what a rubric reads of it
_SCANNED_BYTES = 256 * 2**10  # of each text, for secrets
_SCANNED_BYTES_IN_ALL = 16 * 2**20
_TEXTS = {".py", ".txt", ".md", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".sh", ".ipynb", ".env", ""}
_CHARACTERS_PER_TOKEN = 4  # of English, roughly
_SECRET = re.compile(
    rb"\b(?:sk-[\w-]{20}|hf_[A-Za-z0-9]{20}|gh[pousr]_[A-Za-z0-9]{30}|github_pat_\w{30}|AIza[\w-]{30}|AKIA[A-Z0-9]{16}"
    rb"|xox[abp]-[\w-]{10})|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"
)
_SETTING = re.compile(
    rb"^[ \t]*(?:export[ \t]+)?[A-Z_]{0,40}(?:KEY|TOKEN|SECRET|PASSWORD)[A-Z_]{0,40}[ \t]*=[ \t]*[\"']?[^\s\"'<]{8}",
    re.MULTILINE | re.IGNORECASE,
)
_PUBLIC = "looks like a secret; submissions are made public, so take it out and withdraw it"


def readme_findings(folder: Path, work: Prompt | Program | None) -> Iterator[Finding]:
    """Yield what is wrong with the README: the rules ask for one that describes the approach and how to run it."""
    readme = find_readme(folder)
    if readme is None:
        yield error("", "has no README.md; describe the team, the approach and how to run it")
        return
    if readme.name != "README.md":
        yield warning(readme.name, "is not called README.md, where it is looked for; rename it")
    content = _start(readme, README_BYTES + 1)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as fault:
        yield error(readme.name, f"is not UTF-8 text ({fault.reason} at byte {fault.start}); save it as UTF-8")
        return
    if len(content) > README_BYTES:
        yield error(readme.name, f"has over {README_BYTES} bytes; shorten it")
    if not text.strip("\ufeff \t\r\n"):
        yield error(readme.name, "is empty; describe the team, the approach and how to run it")
    elif isinstance(work, Program) and not STARTED_WITH_PYTHON.search(text):
        yield warning(readme.name, f"does not say how to run the program, such as `python {work.entry}`")


def prompt_text_findings(folder: Path, names: Iterable[str], tokens: int) -> Iterator[Finding]:
    """Yield the texts in folders called prompts that alone use up the tokens of a trial."""
    for name in names:
        path = PurePosixPath(name)
        if path.suffix in {".txt", ".md"} and "prompts" in path.parts[:-1]:
            size = (folder / name).stat().st_size
            if size > tokens * _CHARACTERS_PER_TOKEN:
                yield warning(name, f"has about {size // _CHARACTERS_PER_TOKEN} tokens; a trial has {tokens} in all")


def secret_findings(folder: Path, names: Iterable[str]) -> Iterator[Finding]:
    """Yield the places of what looks like a key or a password, never the thing itself."""
    left = _SCANNED_BYTES_IN_ALL
    for name in names:
        path = PurePosixPath(name)
        is_settings = path.name.startswith(".env")
        if left <= 0 or (path.suffix not in _TEXTS and not is_settings):
            continue
        content = _start(folder / name, _SCANNED_BYTES)
        left -= len(content)
        found = _SECRET.search(content) or (_SETTING.search(content) if is_settings else None)
        if found:
            line = content.count(b"\n", 0, found.end()) + 1
            yield warning(f"{name}:{line}", _PUBLIC)


def _start(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)
