"""Compare files with those that were recomputed, value by value: each difference has its place and both values."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_bytes
from pcgeval.core.stage_files import read_stage_file
from pcgeval.core.trials import MAX_RECORD_BYTES
from pcgeval.core.untrusted import UntrustedFileError, printable_name, read_bounded_json, walk

MOST = 20  # differences of one file that are named; a count follows
_SHOWN = 70  # characters of a value
_BEFORE = 20  # characters before the first difference of two long texts
_ABSENT = "absent"
# what names an element of a list, the first ones first
_NAMES = ("tag", "team", "teamName", "model", "character", "letter", "trial", "id", "label", "pair")


@dataclass(frozen=True)
class Difference:
    """A value that is not the one that was recomputed.

    Attributes:
        path: The file below the competition's folder.
        place: Which value of it, such as `teams[aa].models.m1.score`; empty for the whole file.
        found: The value that is there, as text; long ones are cut.
        recomputed: The value that it should be.
        stage: The stage of dvc.yaml that writes the file, such as `score@m1`; empty if none does.
    """

    path: str
    place: str
    found: str
    recomputed: str
    stage: str = ""

    def __str__(self) -> str:
        """Return the difference as the end of a sentence that names its path."""
        return f"{self.place} is {self.found}, recomputed {self.recomputed}".lstrip()


def compare_folders(
    found: Path, made: Path, path: str, stage: str, slack: Mapping[str, float] | None = None
) -> Iterator[Difference]:
    """Yield how a folder differs from one that was made again, file by file.

    Args:
        found: The folder.
        made: The folder that was made again.
        path: The folder's path below the competition's folder.
        stage: The stage of dvc.yaml that writes the folder.
        slack: See `compare_values`.
    """
    names = {each.name for folder in (found, made) for each in walk(folder) if not each.is_folder}
    for name in sorted(names):
        yield from compare_files(found / name, made / name, f"{path}/{name}" if name else path, stage, slack)


def compare_files(
    found: Path, made: Path, path: str, stage: str, slack: Mapping[str, float] | None = None
) -> Iterator[Difference]:
    """Yield how a file differs from the one that was made again, the first twenty differences; see `compare_folders`.

    Values that are equal and were written in another way are a difference too: every stage writes one form.
    """
    if not made.is_file():
        yield Difference(path, "", "there", _ABSENT, stage)
        return
    try:
        content = read_stage_file(found, MAX_RECORD_BYTES)
    except FileError as error:
        reason = error.__cause__.reason if isinstance(error.__cause__, UntrustedFileError) else str(error)
        is_missing = isinstance(error.__cause__, UntrustedFileError) and error.__cause__.kind == "missing"
        yield Difference(path, "", _ABSENT if is_missing else f"unreadable ({reason})", "there", stage)
        return
    should = made.read_bytes()
    if content == should:
        return
    differences = _differences(found, content, made, should, slack or {})
    shown = list(islice(differences, MOST))
    if not shown and not slack:
        shown = [("", "the same values written in another way", f"sha256 {sha256_bytes(should)[:12]}")]
    yield from (Difference(path, *each, stage) for each in shown)
    if more := sum(1 for _ in differences):
        yield Difference(path, f"and {more} more values: the last of them", "another", "not that", stage)


def _differences(
    found: Path, content: bytes, made: Path, should: bytes, slack: Mapping[str, float]
) -> Iterator[tuple[str, str, str]]:
    match made.suffix:
        case ".json":
            try:
                value = read_bounded_json(found, MAX_RECORD_BYTES, follow_link=True)
            except UntrustedFileError as error:
                yield "", f"no JSON ({error.reason})", "JSON"
                return
            yield from compare_values(value, read_bounded_json(made, MAX_RECORD_BYTES), slack)
        case ".csv":
            yield from compare_values(_rows(content), _rows(should), slack, "row")
        case ".txt" | ".xml":
            yield from compare_values(_lines(content), _lines(should), slack)
        case _:
            yield "", f"another file (sha256 {sha256_bytes(content)[:12]})", f"sha256 {sha256_bytes(should)[:12]}"


def compare_values(
    found: Any, made: Any, slack: Mapping[str, float] | None = None, place: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yield the place, the value there and the recomputed one of each difference of two JSON values.

    Elements of a list are compared by what names them (a team, a letter, a trial ...) where all have different names,
    else by their position.

    Args:
        found: The value that is there.
        made: The value that was recomputed.
        slack: How much numbers may differ, by the last key on the way to them; by nothing if it is not named.
        place: The way to both values.
    """
    slack = slack or {}
    if isinstance(found, dict) and isinstance(made, dict):
        for key in dict.fromkeys([*made, *found]):
            way = f"{place}.{printable_name(key, _SHOWN)}" if place else printable_name(key, _SHOWN)
            if key not in found or key not in made:
                yield way, *_shown(found.get(key, _MISSING), made.get(key, _MISSING))
            else:
                yield from compare_values(found[key], made[key], slack, way)
    elif isinstance(found, list) and isinstance(made, list):
        theirs, ours = _named(found), _named(made)
        if theirs is None or ours is None:
            theirs, ours = (dict(enumerate(each)) for each in (found, made))
        for name in dict.fromkeys([*ours, *theirs]):
            way = f"{place}[{name}]" if "/" not in str(name) else str(name)  # the path of a rubric's leaf says enough
            if name not in theirs or name not in ours:
                yield way, *_shown(theirs.get(name, _MISSING), ours.get(name, _MISSING))
            else:
                yield from compare_values(theirs[name], ours[name], slack, way)
        if [*theirs] != [*ours] and set(theirs) == set(ours):
            yield f"the order of {place}", *_shown([*theirs], [*ours])
    elif not _equal(found, made, slack.get(place.rpartition(".")[2].partition("[")[0], 0.0)):
        yield place, *_shown(found, made)


_MISSING = object()


def _equal(found: Any, made: Any, slack: float) -> bool:
    if isinstance(found, bool) or isinstance(made, bool):
        return found is made
    if slack and isinstance(found, int | float) and isinstance(made, int | float):
        return abs(found - made) <= slack
    return type(found) is type(made) and bool(found == made)


def _named(elements: list[Any]) -> dict[Any, Any] | None:
    """Return the elements by their names; None if one has no name or two have the same."""
    named: dict[Any, Any] = {}
    for each in elements:
        if not isinstance(each, dict):
            return None
        names = ("path",) if isinstance(each.get("path"), str) else _NAMES
        values = [
            value if not isinstance(value, dict) else " ".join(map(str, value.values()))
            for key in names
            if isinstance(value := each.get(key), str | int | dict)
        ]
        name = printable_name(" ".join(map(str, values)))
        if not values or name in named:
            return None
        named[name] = each
    return named


def _rows(content: bytes) -> list[dict[str, Any]] | dict[str, str]:
    """Return a table's rows by their columns, or its lines if it is none."""
    try:
        text = io.StringIO(content.decode("utf-8"), newline="")
        return [{str(key): value for key, value in row.items()} for row in csv.DictReader(text, strict=True)]
    except (UnicodeDecodeError, csv.Error):
        return _lines(content)


def _lines(content: bytes) -> dict[str, str]:
    lines = content.decode("utf-8", errors="backslashreplace").split("\n")
    return {f"line {number}": line for number, line in enumerate(lines, start=1)}


def _shown(found: Any, made: Any) -> tuple[str, str]:
    """Return both values as text; of long texts the part in which they differ first."""
    if isinstance(found, str) and isinstance(made, str) and max(len(found), len(made)) > _SHOWN:
        pairs = enumerate(zip(found, made, strict=False))
        first = next((at for at, (one, other) in pairs if one != other), min(len(found), len(made)))
        start = max(0, first - _BEFORE)
        return _cut(found, start), _cut(made, start)
    return _text(found), _text(made)


def _cut(text: str, start: int) -> str:
    return f"{'...' if start else ''}{printable_name(repr(text[start : start + 2 * _SHOWN]), _SHOWN)}"


def _text(value: Any) -> str:
    return _ABSENT if value is _MISSING else printable_name(repr(value), _SHOWN)
