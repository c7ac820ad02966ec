"""The grades of a person, read from a YAML file.

Each entry has `path`, `score` (0 to 1, or `none` where the person could not tell), `author` and `reason`, and perhaps
`date`. A later entry for the same path replaces an earlier one; git has the history.
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
_Entry = tuple[int, dict[str, str]]  # the line where an entry begins, and its texts by their keys
HumanGrades = Mapping[str, Verdict]  # by the leaf's path


class HumanGradesError(FaultsError):
    """An invalid file of grades; each fault names its line."""


def human_verdict(grades: HumanGrades, leaf: TaskNode) -> Verdict:
    """Return the person's grade of a leaf; a leaf that nobody graded has no grade."""
    return grades.get(leaf.path, Verdict(None, "nobody graded this leaf"))


def read_human_grades(path: Path, leaves: Sequence[str]) -> HumanGrades:
    """Read a file of grades of these leaves: YAML, a list of entries.

    Raises:
        HumanGradesError: Every error in the file, with its line.
        FileError: It cannot be read.
    """
    text = read_bounded_text(path, MAX_BYTES, follow_link=True).removeprefix("\ufeff")
    faults: list[str] = []
    known = frozenset(leaves)
    grades: dict[str, Verdict] = {}
    for line, entry in _entries(text, faults):
        found = [f"unknown key {key!r:.60}. Known: {', '.join(KEYS)}." for key in entry if key not in KEYS]
        found += [f"{key!r} is missing. Add it." for key in REQUIRED if not entry.get(key)]
        if entry.get("path") and entry["path"] not in known:
            found.append(f"path {entry['path']!r:.200} is no leaf of the rubric. Copy it from `pcgeval rubric leaves`.")
        given, score = entry.get("score", ""), None
        if given and given.lower() not in NO_GRADE:
            try:
                score = float(given)
            except ValueError:
                score = math.nan
            if not 0 <= score <= 1:
                found.append(f"score {given!r:.60} is no number from 0 to 1, nor `none`. Correct it.")
        faults += [f"line {line}: {fault}" for fault in found]
        if not found:
            record = JudgeRecord(author=entry["author"], date=entry.get("date") or None)
            grades[entry["path"]] = Verdict(score, entry["reason"], record)
    if faults:
        raise HumanGradesError(path, faults)
    return grades


def _entries(text: str, faults: list[str]) -> Iterator[_Entry]:
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
        yield line, texts
