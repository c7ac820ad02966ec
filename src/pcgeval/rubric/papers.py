"""Papers to be reproduced, each in a folder as PaperBench lays it out.

`rubric.json` and `paper.md` must be there. `config.yaml` has the title, `addendum.md` what the paper leaves open,
`judge.addendum.md` what the judge alone is told, `blacklist.txt` addresses that nobody may have used, `checks.yaml`
checks for leaves of the rubric. `submissions/reproduces` may have a submission that reproduces the whole paper.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.errors import FaultsError, FileError
from pcgeval.core.text import printable_line
from pcgeval.core.untrusted import UntrustedFileError, parse_yaml, read_bytes, read_text
from pcgeval.formats.layout import PAPERS, own_or_packaged
from pcgeval.rubric.tree import RubricError, TaskNode, load_rubric_with_checks

RUBRIC_FILE, PAPER_FILE = "rubric.json", "paper.md"
GOLD = Path("submissions/reproduces")  # in a paper's folder: a submission that reproduces all of it
MAX_TEXT_BYTES = 10_000_000
MAX_CONFIG_BYTES = 4_000  # hostile YAML can take PyYAML very long
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# a checkout of PaperBench excludes its data by default, so that `git lfs pull` fetches nothing
LFS_ADVICE = '`git lfs fetch --include "project/paperbench/data/**" --exclude ""`, then `git lfs checkout`'
_LFS_POINTER = "version https://git-lfs.github.com/spec/"


class PaperError(FaultsError):
    """A paper that cannot be used; `faults` has all faults of its folder."""


@dataclass(frozen=True)
class Paper:
    """One paper: the texts for those who reproduce it, and those for their judges."""

    id: str  # the folder's name
    folder: Path
    rubric: TaskNode
    paper: str  # Markdown
    addendum: str  # clarifications for those who reproduce it; empty where there are none
    judge_addendum: str  # clarifications for the judge alone
    title: str  # the id without a title in config.yaml
    blacklist: tuple[str, ...]  # addresses that a reproduction must not use, such as that of the authors' code
    checks_sha256: str | None = None  # of the file that gives leaves of the rubric their checks, if there is one


def list_papers(papers_dir: Path = PAPERS) -> tuple[str, ...]:
    """Return the ids of all papers in a folder, in byte order; without data/papers, those of the package."""
    names = (path.parent.name for path in own_or_packaged(papers_dir).glob(f"*/{RUBRIC_FILE}"))
    return tuple(sorted(name for name in names if _ID.fullmatch(name)))


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is only a pointer to Git LFS, whose content was not fetched."""
    return read_bytes(path, len(_LFS_POINTER), follow_link=True, cut=True) == _LFS_POINTER.encode()


def load_paper(papers_dir: Path, paper_id: str, *, needs_text: bool = True, checks_file: Path | None = None) -> Paper:
    """Read and check a paper; raise PaperError with every fault of its folder.

    `needs_text` tells whether the paper and the addenda, which only a model reads, must be there; `checks_file` is used
    instead of the folder's checks.yaml.
    """
    papers_dir = own_or_packaged(papers_dir)
    folder = papers_dir / paper_id
    if not _ID.fullmatch(paper_id) or not folder.is_dir():
        known = ", ".join(list_papers(papers_dir)) or "none"
        fault = f"no paper {paper_id!r:.200}. Known: {known}. Set rubric.papers_dir for other papers."
        raise PaperError(papers_dir, [fault])
    faults: list[str] = []

    def text(name: str, most: int = MAX_TEXT_BYTES, *, is_needed: bool = True) -> str:
        """Return a file's text, or an empty text without the file, and note its faults."""
        try:
            content = read_text(folder / name, most, follow_link=True).removeprefix("\ufeff")
        except UntrustedFileError as error:
            faults.extend([str(error)] if error.kind != "missing" else [])
            return ""
        if not content.startswith(_LFS_POINTER):
            return content
        faults.extend([f"{name} is only a pointer to Git LFS. Fetch the file: {LFS_ADVICE}."] if is_needed else [])
        return ""

    try:
        rubric, checks_sha256 = load_rubric_with_checks(folder / RUBRIC_FILE, checks_file)
    except (RubricError, FileError) as error:
        faults.append(str(error))
    paper = text(PAPER_FILE, is_needed=needs_text)
    if needs_text and not paper.strip() and not any(PAPER_FILE in fault for fault in faults):
        faults.append(f"{folder / PAPER_FILE}: is missing or empty. Put the paper's text into it.")
    addendum, judge_addendum = (text(name, is_needed=needs_text) for name in ("addendum.md", "judge.addendum.md"))
    try:
        config = parse_yaml(text("config.yaml", MAX_CONFIG_BYTES)) or {}
        title = printable_line(str(config.get("title") or paper_id))
    except (ValueError, AttributeError) as error:
        faults.append(f"config.yaml: {printable_line(str(error))}. Give a mapping with a title, as YAML.")
    lines = [line.strip() for line in text("blacklist.txt").splitlines()]
    # the word `none` alone and comments stand for no address
    blacklist = tuple(line for line in lines if line and not line.startswith("#") and line.casefold() != "none")
    if faults:
        raise PaperError(folder, faults)
    return Paper(paper_id, folder, rubric, paper, addendum, judge_addendum, title, blacklist, checks_sha256)
