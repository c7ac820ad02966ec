"""Checks on an attempt to reproduce a paper: its files, the run of its reproduce.sh, and the figures of that run.

The folder is untrusted: links are not followed, and sizes are bounded. A missing or malformed file is its author's
fault and fails the criterion. A criterion that needs a run of reproduce.sh is undecided until somebody has run it.
"""

import csv
import json
import math
import re
from typing import Any, NamedTuple

from pcgeval.checks.evidence import (
    CheckResult,
    Count,
    InnerPath,
    NotMet,
    Number,
    PaperEvidence,
    Text,
    Undecided,
    yes_or_no,
)
from pcgeval.core.text import printable_name
from pcgeval.core.untrusted import UntrustedFileError, path_below, read_bytes, walk
from pcgeval.submissions.load import REPRODUCE_SCRIPT

MAX_FILE_BYTES = 4_000_000
MAX_READ_BYTES = 64_000_000  # of all files together
MAX_FILES = 20_000
LEAST, MOST = -math.inf, math.inf


def file_exists(evidence: PaperEvidence, *, path: InnerPath) -> CheckResult:
    """The submission has such a file, and it is not empty."""
    size = len(_content(evidence, path))
    return yes_or_no(size > 0, f"{path} has {size} bytes")


def file_words(evidence: PaperEvidence, *, path: InnerPath, at_least: Count) -> CheckResult:
    """A text of the submission has at least so many words."""
    words = len(_content(evidence, path).split())
    return yes_or_no(words >= at_least, f"{path} has {words} words; {at_least} are asked for")


def without_blacklisted(evidence: PaperEvidence) -> CheckResult:
    """No file of the submission names an address that is on the paper's blacklist, with or without its `https://`."""
    short = {re.sub("^[a-z]+://|/+$", "", address.lower()): address for address in evidence.blacklist}
    sought = {name.removeprefix("www.").removesuffix(".git").encode(): address for name, address in short.items()}
    sought.pop(b"", None)
    left = MAX_READ_BYTES
    unseen: list[str] = []  # an address in another file still counts
    for entry in walk(evidence.folder, limit=MAX_FILES, depth=MAX_FILES):
        name = printable_name(entry.name, 200)
        if entry.fault:
            unseen.append(f"{name or 'the submission'} {entry.fault}")
        if not entry.is_file:
            continue
        try:
            content = read_bytes(evidence.folder / entry.name, left).lower()
        except UntrustedFileError as error:
            much = f"more than {MAX_READ_BYTES} bytes to look through"
            unseen.append(much if error.kind == "too large" else f"{name} {error.reason}")
            continue
        left -= len(content)
        if addresses := [address for short_name, address in sought.items() if _names(content, short_name)]:
            return CheckResult(0.0, f"{name!r} names {printable_name(addresses[0])}")
    if unseen:
        raise Undecided(unseen[0])
    return CheckResult(1.0, f"none of {len(sought)} blacklisted addresses is named")


def _names(content: bytes, address: bytes) -> bool:
    """Tell whether a text names an address, and not one that goes on with another word."""
    return address in content and re.search(re.escape(address) + rb"(?:(?<![\w-])|(?![\w-]))", content) is not None


def reproduce_succeeded(evidence: PaperEvidence) -> CheckResult:
    """reproduce.sh ran to its end and ended with exit code 0."""
    if evidence.exit_code is not None:
        why = f" ({evidence.reason})" if evidence.reason else ""
        return yes_or_no(evidence.exit_code == 0, f"reproduce.sh ended with exit code {evidence.exit_code}{why}")
    if evidence.reason is not None:
        return CheckResult(0.0, f"reproduce.sh: {evidence.reason}")
    raise _not_run(evidence)


def log_matches(evidence: PaperEvidence, *, pattern: Text) -> CheckResult:
    """A line that reproduce.sh printed contains a text, in upper or lower case; `*` matches any characters."""
    if evidence.log is None:
        raise _not_run(evidence)
    # atomic groups, so that many gaps take linear time
    words = re.compile("".join(f"(?>.*?{re.escape(part)})" for part in pattern.casefold().split("*")))
    line = next((line for line in evidence.log.splitlines() if words.match(line.casefold())), None)
    return yes_or_no(line is not None, f"no line has {pattern!r}" if line is None else f"printed: {line:.200}")


def result_value(
    evidence: PaperEvidence, *, path: InnerPath, key: Text, at_least: Number = LEAST, at_most: Number = MOST
) -> CheckResult:
    """A figure in a file that reproduce.sh wrote lies within bounds; for `key` see `result_order`."""
    value = _figure(path, _results(evidence, path), key)
    bounds = [f"at least {at_least:g}"] * (at_least > LEAST) + [f"at most {at_most:g}"] * (at_most < MOST)
    asked = f"; asked for: {' and '.join(bounds)}" if bounds else ""
    return yes_or_no(at_least <= value <= at_most, f"{path}: {key} is {value:g}{asked}")


def result_order(evidence: PaperEvidence, *, path: InnerPath, larger: Text, smaller: Text) -> CheckResult:
    """Of two figures in a file that reproduce.sh wrote, the first is larger.

    A figure's key is in JSON the way to it, as in `rates/A` or `runs/0/loss`. In .csv and .tsv it is the row's name in
    the first column and the column's heading, as in `A/rate`, or where there is one row, the column's heading.
    """
    results = _results(evidence, path)
    first, second = _figure(path, results, larger), _figure(path, results, smaller)
    return yes_or_no(first > second, f"{path}: {larger} is {first:g}, {smaller} is {second:g}")


def result_entries(evidence: PaperEvidence, *, path: InnerPath, key: Text, at_least: Count) -> CheckResult:
    """A file that reproduce.sh wrote has so many figures under a key; see `result_order`, or a column of a table."""
    value = _value(path, _results(evidence, path), key)
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    count = sum(map(_is_figure, below))
    return yes_or_no(count >= at_least, f"{path}: {count} figures under {key}; {at_least} are asked for")


class _Table(NamedTuple):
    """A .csv or .tsv file."""

    headings: list[str]
    rows: list[list[str]]


def _figure(path: str, results: Any, key: str) -> float:
    value = _value(path, results, key)
    if _is_figure(value):
        return float(value)
    shown = f"a {type(value).__name__}" if isinstance(value, list | dict) else ascii(value)[:60]
    raise NotMet(f"{path} has not a number at {key}, but {shown}")


def _is_figure(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _value(path: str, value: Any, key: str) -> Any:
    """Return the value at a key: a JSON value, a cell of a table, or the cells of several rows."""
    if isinstance(value, _Table):
        name, slash, column = ("", "", key) if key in value.headings else key.rpartition("/")
        if column not in value.headings:
            raise NotMet(f"{path} has not the column {column}")
        place = value.headings.index(column)
        rows = [row for row in value.rows if row[0] == name or not slash]
        cells = [_cell(row[place]) if place < len(row) else "" for row in rows]
        return cells[0] if len(cells) == 1 else cells
    for part in key.split("/"):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and len(part) < 9 and int(part) < len(value):
            value = value[int(part)]
        else:
            raise NotMet(f"{path} has not the key {key}")
    return value


def _cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _results(evidence: PaperEvidence, path: str) -> Any:
    """Read a file that must have been written by the run: the value of a JSON file, or a table."""
    if evidence.log is None:
        raise _not_run(evidence)
    content = _content(evidence, path)
    if (evidence.folder / path).lstat().st_mtime < evidence.started_at:
        raise NotMet(f"{path} is older than the run of reproduce.sh, which did not write it")
    text, ending = content.decode("utf-8-sig", errors="replace"), path.lower()
    try:
        if not ending.endswith((".csv", ".tsv")):
            return json.loads(text, parse_int=float)  # a whole number may have too many digits for int
        lines = csv.reader(text.splitlines(), delimiter="\t" if ending.endswith(".tsv") else ",")
        rows = [[cell.strip() for cell in line] for line in lines if line]
    except (ValueError, RecursionError, csv.Error) as error:
        raise NotMet(f"{path} cannot be read: {error}") from error
    return _Table(rows[0] if rows else [], rows[1:])


def _content(evidence: PaperEvidence, path: str) -> bytes:
    """Read a file of the submission without following links."""
    try:
        return read_bytes(path_below(evidence.folder, path), MAX_FILE_BYTES)
    except UntrustedFileError as error:
        if error.kind == "system":
            raise Undecided(f"{path} {error.reason}") from error
        raise NotMet(f"{path} {error.reason}") from error


def _not_run(evidence: PaperEvidence) -> Undecided:
    """Return the error that there was no run; raises NotMet if there is nothing to run."""
    _content(evidence, REPRODUCE_SCRIPT)
    return Undecided("reproduce.sh was not run")
