"""Papers to be reproduced, each in a folder as PaperBench lays it out.

`rubric.json` and `paper.md` must be there. `config.yaml` has the id and the title, `addendum.md` what the paper leaves
open, `judge.addendum.md` what the judge alone is told, `blacklist.txt` addresses that nobody may have used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from pcgeval.core.errors import FileError, PcgevalError, listed
from pcgeval.core.untrusted import UntrustedFileError, printable_line, read_bounded_text
from pcgeval.rubric.loading import load_rubric
from pcgeval.rubric.tree import RubricError, TaskNode

RUBRIC_FILE = "rubric.json"
MAX_TEXT_BYTES = 10_000_000
MAX_CONFIG_BYTES = 4_000  # PyYAML takes long for what is made to take long
MAX_NAME = 200  # characters of an id or a title
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LFS_POINTER = "version https://git-lfs.github.com/spec/"


class PaperError(PcgevalError):
    """A paper that cannot be used; `faults` has all that is wrong with its folder."""

    def __init__(self, folder: Path, faults: Sequence[str]) -> None:
        """Compose the message from the first two hundred faults."""
        super().__init__(listed(folder, faults))
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Paper:
    """One paper: what those who reproduce it are given, and what those who judge them are given besides.

    Attributes:
        id: The folder's name.
        folder: Where all of it lies.
        rubric: The criteria for a reproduction.
        paper: The paper itself as Markdown.
        addendum: What the paper leaves open; empty if nothing.
        judge_addendum: What only the judge may know; empty if nothing.
        title: The paper's title; its id where none is given.
        blacklist: Addresses that a reproduction must not have used, such as that of the authors' own code.
    """

    id: str
    folder: Path
    rubric: TaskNode
    paper: str
    addendum: str
    judge_addendum: str
    title: str
    blacklist: tuple[str, ...]


def list_papers(papers_dir: Path) -> tuple[str, ...]:
    """Return the ids of all papers in a folder, in byte order; none if there is no such folder."""
    names = (path.parent.name for path in papers_dir.glob(f"*/{RUBRIC_FILE}"))
    return tuple(sorted(name for name in names if _ID.fullmatch(name)))


def load_paper(papers_dir: Path, paper_id: str) -> Paper:
    """Read and check a paper.

    Raises:
        PaperError: There is no such paper, or its folder is faulty; the message lists every fault.
    """
    folder = papers_dir / paper_id
    if not _ID.fullmatch(paper_id) or not folder.is_dir():
        known = ", ".join(list_papers(papers_dir)) or "none"
        raise PaperError(papers_dir, [f"no paper {paper_id[:MAX_NAME]!r}. There: {known}."])
    reader = _PaperReader(folder)
    rubric, paper = reader.rubric(), reader.text("paper.md", required=True)
    addendum, judge_addendum = reader.text("addendum.md"), reader.text("judge.addendum.md")
    title, blacklist = reader.title(paper_id), reader.blacklist()
    if rubric is None or reader.faults:
        raise PaperError(folder, reader.faults)
    return Paper(paper_id, folder, rubric, paper, addendum, judge_addendum, title, blacklist)


class _PaperReader:
    """Reads the files of a folder and collects what is wrong with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.faults: list[str] = []

    def rubric(self) -> TaskNode | None:
        try:
            return load_rubric(self._folder / RUBRIC_FILE)
        except (RubricError, FileError) as error:
            self.faults.append(str(error))
            return None

    def text(self, name: str, *, required: bool = False, most: int = MAX_TEXT_BYTES) -> str:
        """Return a file's text; an empty one for a file that need not be there, or that is faulty."""
        try:
            text = read_bounded_text(self._folder / name, most, follow_link=True).removeprefix("\ufeff")
        except UntrustedFileError as error:
            if required or error.kind != "missing":
                self.faults.append(str(error))
            return ""
        if text.startswith(_LFS_POINTER):
            self.faults.append(f"{name} is only a pointer to Git LFS. Fetch the file: `git lfs pull`.")
        elif required and not text.strip():
            self.faults.append(f"{name} is empty. Put the paper's text into it.")
        return text

    def title(self, paper_id: str) -> str:
        """Return the title in config.yaml, whose id must be the folder's name."""
        try:
            config = yaml.safe_load(self.text("config.yaml", most=MAX_CONFIG_BYTES))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            self.faults.append(f"config.yaml is no YAML: {printable_line(str(error))}. Correct it.")
            return paper_id
        config = {} if config is None else config
        if not isinstance(config, dict):
            self.faults.append(f"config.yaml must be a mapping with id and title, not {type(config).__name__}.")
            return paper_id
        found, title = config.get("id", paper_id), config.get("title", paper_id)
        if found != paper_id:
            self.faults.append(f"config.yaml gives the id {_quote(found)}, but the folder is named {paper_id!r}.")
        if not isinstance(title, str) or not title.strip() or len(title) > MAX_NAME or not title.isprintable():
            shown = _quote(title)
            self.faults.append(f"config.yaml: the title is {shown}. Give one line of 1 to {MAX_NAME} characters.")
            return paper_id
        return title

    def blacklist(self) -> tuple[str, ...]:
        """Return the lines of blacklist.txt; the word `none` alone and comments stand for no address."""
        lines = (line.strip() for line in self.text("blacklist.txt").splitlines())
        return tuple(line for line in lines if line and not line.startswith("#") and line.casefold() != "none")


def _quote(value: object) -> str:
    """Show a value in a message; of what is neither text nor a number, only the type, for it may be endless."""
    return ascii(value)[:80] if isinstance(value, str | int | float) else f"a {type(value).__name__}"
