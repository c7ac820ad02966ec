"""The grades of a person, read from a YAML or CSV file.

Each entry has `path`, `score` (0 to 1, or `none` where the person could not tell), `author` and `reason`, and perhaps
`date`. A later entry for the same path corrects the earlier ones, which stay in the grade's history.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from pcgeval.core.errors import PcgevalError, listed
from pcgeval.core.files import read_text
from pcgeval.rubric.grades import Verdict
from pcgeval.rubric.record import Correction, JudgeRecord
from pcgeval.rubric.tree import TaskNode

REQUIRED = ("path", "score", "author", "reason")
KEYS = (*REQUIRED, "date")
MAX_BYTES = 16 * 2**20
NO_GRADE = frozenset({"none", "null", "~"})


class HumanGradesError(PcgevalError):
    """A file of grades that cannot be used; `faults` has all that is wrong with it, each with its line."""

    def __init__(self, path: Path, faults: Sequence[str]) -> None:
        """Compose the message from the first two hundred faults."""
        super().__init__(listed(path, faults))
        self.faults = tuple(faults)


@dataclass(frozen=True)
class HumanGrade:
    """One entry: a person's score of one leaf, None where they could not tell, and why."""

    path: str
    score: float | None
    author: str
    reason: str
    date: str | None = None


@dataclass(frozen=True)
class HumanJudge:
    """Says what a person said; `grades` maps the paths of leaves to all entries about them, the last one counts."""

    grades: Mapping[str, tuple[HumanGrade, ...]]
    judge_type: str = "human"

    def verdict(self, leaf: TaskNode) -> Verdict:
        """Return the last entry; a leaf that nobody graded has no grade."""
        entries = self.grades.get(leaf.path)
        if not entries:
            return Verdict(None, "nobody graded this leaf")
        *earlier, last = entries
        history = tuple(
            Correction(score=each.score, author=each.author, date=each.date, reason=each.reason) for each in earlier
        )
        return Verdict(last.score, last.reason, JudgeRecord(author=last.author, date=last.date, history=history))


@dataclass(frozen=True)
class _Entry:
    """The texts of one entry by their keys, as they stand in the file, and its line."""

    line: int
    texts: Mapping[str, str]


def read_human_grades(path: Path, leaves: Sequence[str]) -> HumanJudge:
    """Read a file of grades: `.csv` with a header, anything else as YAML, a list of entries.

    Args:
        path: The file.
        leaves: The paths that may be graded.

    Raises:
        HumanGradesError: All that is wrong with it, each with its line.
        FileError: It cannot be read.
    """
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise HumanGradesError(path, [f"has more than {MAX_BYTES // 2**20} MB. Shorten it."])
    text = read_text(path).removeprefix("\ufeff")
    faults: list[str] = []
    known = frozenset(leaves)
    grades: dict[str, tuple[HumanGrade, ...]] = {}
    for entry in (_csv_entries if path.suffix.lower() == ".csv" else _yaml_entries)(text, faults):
        found = _entry_faults(entry, known)
        faults += [f"line {entry.line}: {fault}" for fault in found]
        if not found:
            grade = _grade(entry)
            grades[grade.path] = (*grades.get(grade.path, ()), grade)
    if faults:
        raise HumanGradesError(path, faults)
    return HumanJudge(grades)


def _csv_entries(text: str, faults: list[str]) -> Iterator[_Entry]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        header = [name.strip() for name in next(rows, [])]
        if wrong := [name for name in header if name not in KEYS] or [name for name in REQUIRED if name not in header]:
            faults.append(
                f"line 1: the header must be {','.join(REQUIRED)} and perhaps date; look at {wrong[0]!r:.60}."
            )
            return
        line = rows.line_num + 1
        for row in rows:
            if row and len(row) != len(header):
                faults.append(f"line {line}: {len(row)} values under {len(header)} headings. Quote texts with commas.")
            elif row:
                yield _Entry(line, dict(zip(header, (value.strip() for value in row), strict=True)))
            line = rows.line_num + 1
    except csv.Error as error:
        faults.append(f"line {line}: not valid CSV: {error}. Mend it; what follows was not read.")


def _yaml_entries(text: str, faults: list[str]) -> Iterator[_Entry]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        faults.append(f"not valid YAML: {' '.join(str(error).split())[:300]}. Mend that line.")
        return
    if not isinstance(root, yaml.SequenceNode):
        faults.append(f"must be a list of entries with {', '.join(REQUIRED)}.")
        return
    for node in root.value:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            faults.append(f"line {line}: must be an entry with {', '.join(REQUIRED)}.")
            continue
        texts: dict[str, str] = {}
        for key, value in node.value:
            if not (isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)):
                faults.append(f"line {key.start_mark.line + 1}: a key and its value must be plain texts.")
            elif key.value in texts:
                faults.append(f"line {key.start_mark.line + 1}: {key.value!r:.60} stands twice. Keep one.")
            else:
                texts[key.value] = value.value.strip()
        yield _Entry(line, texts)


def _entry_faults(entry: _Entry, known: frozenset[str]) -> list[str]:
    texts = entry.texts
    faults = [f"unknown key {key!r:.60}. Known: {', '.join(KEYS)}." for key in texts if key not in KEYS]
    faults += [f"{key!r} is missing. Add it." for key in REQUIRED if not texts.get(key)]
    if texts.get("path") and texts["path"] not in known:
        faults.append(f"path {texts['path']!r:.200} is no leaf of the rubric. Copy it from `pcgeval rubric show`.")
    if texts.get("score") and not _is_score(texts["score"]):
        faults.append(f"score {texts['score']!r:.60} is no number from 0 to 1, nor `none`. Correct it.")
    return faults


def _is_score(text: str) -> bool:
    if text.lower() in NO_GRADE:
        return True
    try:
        return len(text) < 40 and not math.isnan(float(text)) and 0 <= float(text) <= 1
    except ValueError:
        return False


def _grade(entry: _Entry) -> HumanGrade:
    texts = entry.texts
    score = None if texts["score"].lower() in NO_GRADE else float(texts["score"])
    return HumanGrade(texts["path"], score, texts["author"], texts["reason"], texts.get("date") or None)
