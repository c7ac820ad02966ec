"""The grades of a person, read from a YAML file.

Each entry has `path`, `score` (0 to 1, or `none` where the person could not tell), `author` and `reason`, and perhaps
`date`. A later entry for the same path replaces the earlier one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pcgeval.core.errors import FaultsError
from pcgeval.core.untrusted import parse_yaml, printable_line, read_bounded_text
from pcgeval.rubric.grades import Verdict
from pcgeval.rubric.record import JudgeRecord
from pcgeval.rubric.tree import TaskNode

MAX_BYTES = 16 * 2**20
HumanGrades = Mapping[str, Verdict]  # by the leaf's path
_Text = Annotated[str, Field(min_length=1)]
_Score = Annotated[float, Field(ge=0, le=1)] | None


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, str_strip_whitespace=True)

    path: _Text
    score: Annotated[_Score, BeforeValidator(lambda score: None if score == "none" else score)]
    author: _Text
    reason: _Text
    date: Annotated[str, BeforeValidator(str)] | None = None  # YAML reads 2026-03-01 as a date


class HumanGradesError(FaultsError):
    """An invalid file of grades; each fault names its line."""


def human_verdict(grades: HumanGrades, leaf: TaskNode) -> Verdict:
    """Return the entry about a leaf; a leaf that nobody graded has no grade."""
    return grades.get(leaf.path, Verdict(None, "nobody graded this leaf"))


def read_human_grades(path: Path, leaves: Sequence[str]) -> HumanGrades:
    """Read a file of grades of these leaves; raises HumanGradesError with all its errors, FileError if unreadable."""
    text = read_bounded_text(path, MAX_BYTES, follow_link=True).removeprefix("\ufeff")
    try:
        values = parse_yaml(text)
    except ValueError as error:
        raise HumanGradesError(path, [f"not valid YAML: {printable_line(str(error))}. Fix that line."]) from error
    if not isinstance(values, list):
        raise HumanGradesError(path, [f"must be a list of entries with {', '.join(_Entry.model_fields)}."])
    nodes: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = [node.start_mark.line + 1 for node in nodes.value]
    faults: list[str] = []
    grades: dict[str, Verdict] = {}
    for line, value in zip(lines, values, strict=True):
        try:
            entry = _Entry.model_validate(value)
        except ValidationError as error:
            wrong = [(".".join(map(str, fault["loc"])), fault) for fault in error.errors(include_url=False)]
            faults += [f"line {line}: {key}: {fault['msg']}, not {fault['input']!r:.60}" for key, fault in wrong]
            continue
        if entry.path not in leaves:
            faults.append(f"line {line}: {entry.path!r:.200} is no leaf. Copy a path from `pcgeval rubric leaves`.")
        record = JudgeRecord(author=entry.author, date=entry.date)
        grades[entry.path] = Verdict(entry.score, entry.reason, record)
    if faults:
        raise HumanGradesError(path, faults)
    return grades
