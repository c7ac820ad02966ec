"""The grades of a person, read from a YAML file.

Each entry has `path`, `score` (0 to 1, or `none` where the person could not tell), `author` and `reason`, and perhaps
`date`. A later entry for the same path replaces the earlier one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from pcgeval.core.errors import FaultsError
from pcgeval.core.untrusted import printable_line, read_bounded_text
from pcgeval.rubric.grades import Verdict
from pcgeval.rubric.record import JudgeRecord
from pcgeval.rubric.tree import TaskNode

REQUIRED = ("path", "score", "author", "reason")
KEYS = (*REQUIRED, "date")
MAX_BYTES = 16 * 2**20
NO_GRADE = frozenset({"none", "null", "~"})
HumanGrades = Mapping[str, Verdict]  # by the leaf's path


class HumanGradesError(FaultsError):
    """An invalid file of grades; each fault names its line."""


def human_verdict(grades: HumanGrades, leaf: TaskNode) -> Verdict:
    """Return the entry about a leaf; a leaf that nobody graded has no grade."""
    return grades.get(leaf.path, Verdict(None, "nobody graded this leaf"))


def read_human_grades(path: Path, leaves: Sequence[str]) -> HumanGrades:
    """Read a file of grades of these leaves, a list of entries in YAML.

    Raises:
        HumanGradesError: Every error in the file, with its line.
        FileError: It cannot be read.
    """
    text = read_bounded_text(path, MAX_BYTES, follow_link=True).removeprefix("\ufeff")
    faults: list[str] = []
    grades: dict[str, Verdict] = {}
    for line, entry in _entries(text, faults):
        wrong = [f"unknown key {key!r:.60}. Known: {', '.join(KEYS)}." for key in entry if key not in KEYS]
        wrong += [f"{key!r} is missing. Add it." for key in REQUIRED if not entry.get(key)]
        if entry.get("path") and entry["path"] not in leaves:
            wrong.append(f"path {entry['path']!r:.200} is no leaf of the rubric. Copy it from `pcgeval rubric leaves`.")
        given = entry.get("score", "")
        score = None if given.lower() in {"", *NO_GRADE} else _number(given)
        if score is not None and not 0 <= score <= 1:
            wrong.append(f"score {given!r:.60} is no number from 0 to 1, nor `none`. Correct it.")
        faults += [f"line {line}: {fault}" for fault in wrong]
        if not wrong:
            record = JudgeRecord(author=entry["author"], date=entry.get("date") or None)
            grades[entry["path"]] = Verdict(score, entry["reason"], record)
    if faults:
        raise HumanGradesError(path, faults)
    return grades


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _entries(text: str, faults: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each entry with the line where it begins; what is no entry is a fault."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        faults.append(f"not valid YAML: {printable_line(str(error))}. Fix that line.")
        return
    if not isinstance(root, yaml.SequenceNode):
        faults.append(f"must be a list of entries with {', '.join(REQUIRED)}.")
        return
    for node in root.value:
        line = node.start_mark.line + 1
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        if not all(isinstance(part, yaml.ScalarNode) for pair in pairs for part in pair) or not pairs:
            faults.append(f"line {line}: must be an entry with {', '.join(REQUIRED)}, each a plain text.")
            continue
        entry = {key.value: value.value.strip() for key, value in pairs}
        if len(entry) < len(pairs):
            faults.append(f"line {line}: a key stands twice. Keep one.")
        yield line, entry
