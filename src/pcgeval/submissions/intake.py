"""File the submissions that a CSV file lists, such as the answers to a form: `pcgeval submit FOLDER --csv FILE`.

Of several submissions by a team, the last one received by the deadline that passes the check counts, in whatever order
the rows and files come.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import read_text, write_text
from pcgeval.core.layout import STATE, SUBMISSIONS
from pcgeval.core.params import parse_time, team_name_fault
from pcgeval.core.untrusted import UntrustedFileError, path_below, printable_line, printable_name, read_bounded_text
from pcgeval.submissions.filing import (
    FiledSubmission,
    SubmitOptions,
    check_team,
    deadline_of_params,
    filed_at,
    git_output,
    hand_in_sha256,
    submit,
)
from pcgeval.submissions.hand_in import HandInError
from pcgeval.submissions.names import name_fault
from pcgeval.submissions.receipts import Receipt, show_time
from pcgeval.submissions.team_names import is_one_of, possible, team_in_listing, team_in_readme
from pcgeval.submissions.validate import opened

CONTACTS = STATE / "contacts.csv"  # outside git
MAX_CSV_BYTES = 16 * 2**20
_COLUMNS = ("team", "file", "received", "contact")


class IntakeError(PcgevalError):
    """A CSV file of submissions cannot be read; nothing was filed."""


class IntakeRow(BaseModel):
    """A row of the CSV file: a submission of a team.

    Attributes:
        line: The line where it begins, from 1.
        team: The team's name.
        file: The folder or zip file, below the folder of all submissions.
        received: When it was handed in, UTC.
        has_zone: Whether the row gives the time zone.
        contact: An address, perhaps empty.
        readme_team: The team's name as the README in the file gives it.
    """

    model_config = ConfigDict(frozen=True)

    line: int
    team: str
    file: str
    received: datetime
    has_zone: bool
    contact: str
    readme_team: str | None


@dataclass(frozen=True)
class IntakeResult:
    """The outcome of one row.

    Attributes:
        line: The line of the CSV file where it begins.
        row: The row; None if it is faulty.
        result: `filed` also where the same files were there already; `faulty` if nothing could be done with it.
        reason: Why it does not count.
        filed: What was done with one that was filed or checked.
        receipt: What the team is told; None if the fault is not the team's.
        has_other_contact: Whether submissions of the team came from several contacts.
    """

    line: int
    row: IntakeRow | None
    result: Literal["filed", "refused", "late", "superseded", "faulty"]
    reason: str | None = None
    filed: FiledSubmission | None = None
    receipt: Receipt | None = None
    has_other_contact: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values, without the contact."""
        row = self.row.model_dump(mode="json", include={"team", "file", "received"}) if self.row else {}
        values = {"line": self.line, **row, "result": self.result, "reason": self.reason}
        if self.filed is not None:
            return {**values, **self.filed.to_json()}
        return {**values, "receipt": self.receipt and self.receipt.to_json()}


def submit_many(folder: Path, csv_file: Path, options: SubmitOptions) -> list[IntakeResult]:
    """Check every row, then file what counts; return what became of each row, in their order.

    Args:
        folder: The folder that holds the files.
        csv_file: UTF-8 with `,` or `;`: the columns team, file, received (ISO 8601), contact; others are ignored.
        options: What the organiser decides, for all.

    Raises:
        IntakeError: The CSV file is malformed or lacks a column; there is no such folder; git would keep the contacts.
        UntrustedFileError: It cannot be read.
        ParamsError: params.yaml is faulty.
    """
    if not folder.is_dir():
        raise IntakeError(f"{folder}: is not a folder. With --csv, name the folder that holds the files.")
    deadline = deadline_of_params()
    rows, results = _read_rows(csv_file, folder)
    results += _ambiguous(rows)
    faulty = {each.line for each in results}
    rows = [row for row in rows if row.line not in faulty]
    several = _keep_contacts(rows)
    rows.sort(key=lambda row: (row.team, row.received))
    for _, of_team in groupby(rows, key=lambda row: row.team):
        results += _file_last(list(of_team), folder, deadline, options)
    results = [replace(each, has_other_contact=each.row is not None and each.row.team in several) for each in results]
    return sorted(results, key=lambda each: each.line)


def _read_rows(csv_file: Path, folder: Path) -> tuple[list[IntakeRow], list[IntakeResult]]:
    """Return the good rows, and a result for each faulty one."""
    text = read_bounded_text(csv_file, MAX_CSV_BYTES, follow_link=True).removeprefix("\ufeff")
    try:
        tables = [next(_records(text, delimiter, strict=False), (1, [])) for delimiter in ",;"]
        columns = [[name.casefold() for name in names] for _, names in tables]
        delimiter, header = max(zip(",;", columns, strict=True), key=lambda each: len({*each[1]} & {*_COLUMNS}))
        if missing := [name for name in _COLUMNS[:3] if header.count(name) != 1]:
            raise IntakeError(
                f"{csv_file}: its first line names the column {missing[0]!r} {header.count(missing[0])} times. Name "
                f"{', '.join(_COLUMNS)} once each, with , or ; between them."
            )
        records = list(_records(text, delimiter, strict=True))[1:]
    except csv.Error as error:
        raise IntakeError(f"{csv_file}: is not CSV ({error}). Save it again as CSV.") from error
    rows, results = [], []
    for line, values in records:
        try:
            if any(values[len(header) :]):
                raise IntakeError(f"has {len(values)} values, but there are {len(header)} columns. Quote the values.")
            rows.append(_checked_row(line, dict(zip(header, values, strict=False)), folder))
        except PcgevalError as error:
            results.append(IntakeResult(line, None, "faulty", str(error)))
    return rows, results


def _records(text: str, delimiter: str, *, strict: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the values of each record that has any."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)
    line = 1
    for record in reader:
        values = [value.strip() for value in record]
        if any(values):
            yield line, values
        line = reader.line_num + 1


def _checked_row(line: int, values: dict[str, str], folder: Path) -> IntakeRow:
    """Return a row that names a possible team and a file in the folder that can be handed in.

    Raises:
        PcgevalError: It does not; all faults.
    """
    faults = []
    team, file, received = (values.get(name, "") for name in _COLUMNS[:3])
    try:
        if fault := team_name_fault(team) or name_fault(team):
            raise IntakeError(f"team {printable_name(team, 80)!r}: {fault}. Write it as {possible(team)}, perhaps.")
        check_team(team)
    except PcgevalError as error:
        faults.append(str(error))
    try:
        with opened(path_below(folder, file)) as listing:
            named = team_in_listing(listing)
    except UntrustedFileError as error:
        faults.append(f"file {printable_name(file, 200)!r} {error.reason}. {error.remedy}")
    except HandInError as error:
        faults.append(str(error))
    try:
        time = parse_time(received)
    except ValueError as error:
        faults.append(f"received {printable_name(received, 80)!r}: {error}.")
    if faults:
        raise IntakeError(" ".join(faults))
    has_zone = datetime.fromisoformat(received).tzinfo is not None
    contact = values.get("contact", "")
    return IntakeRow(
        line=line, team=team, file=file, received=time, has_zone=has_zone, contact=contact, readme_team=named
    )


def _ambiguous(rows: list[IntakeRow]) -> Iterator[IntakeResult]:
    """Yield a result for each row whose team or time could be taken for that of another row."""
    spellings: dict[str, set[str]] = defaultdict(set)
    times: dict[tuple[str, datetime], list[IntakeRow]] = defaultdict(list)
    for row in rows:
        spellings[row.team.casefold()].add(row.team)
        times[row.team, row.received].append(row)
    for row in rows:
        names = sorted(spellings[row.team.casefold()])
        same = times[row.team, row.received]
        if len(names) > 1:
            reason = f"the teams {' and '.join(names)} have the same name on some disks. Correct one of them."
            yield IntakeResult(row.line, row, "faulty", reason)
        elif len({each.file for each in same}) > 1:
            lines = " and ".join(str(each.line) for each in same)
            reason = f"lines {lines}: several submissions of {row.team} at the same time. Say which is the later one."
            yield IntakeResult(row.line, row, "faulty", reason)
        elif row is not same[0]:
            yield IntakeResult(row.line, row, "faulty", f"repeats line {same[0].line}. Remove one of them.")


def _keep_contacts(rows: list[IntakeRow]) -> set[str]:
    """Add the rows' contacts to those of earlier runs, for nobody else to read; return the teams with several."""
    contacts: dict[tuple[str, str], str] = {}
    if CONTACTS.exists():
        for line, values in list(_records(read_text(CONTACTS), ",", strict=False))[1:]:
            if len(values) != 3:
                raise IntakeError(f"{CONTACTS}:{line}: is not a team, a time and a contact. Correct it.")
            contacts[values[0], values[1]] = values[2]
    contacts |= {(row.team, show_time(row.received)): row.contact for row in rows if row.contact}
    table = io.StringIO(newline="")
    csv.writer(table).writerows([("team", "received", "contact"), *((*key, contacts[key]) for key in sorted(contacts))])
    write_text(CONTACTS, table.getvalue())
    CONTACTS.chmod(0o600)
    if git_output("status", "--porcelain", "--untracked-files=all", "--", str(CONTACTS)):
        raise IntakeError(f"{CONTACTS}: git does not ignore it. Add the line `/{STATE}/` to .gitignore.")
    of_team: dict[str, set[str]] = defaultdict(set)
    for (team, _), contact in contacts.items():
        of_team[team].add(contact.casefold())
    return {team for team, several in of_team.items() if len(several) > 1}


def _file_last(
    rows: list[IntakeRow], folder: Path, deadline: datetime | None, options: SubmitOptions
) -> Iterator[IntakeResult]:
    """File the last row of a team, given in order of time, that is in time, of that team, and passes the check."""
    team = rows[0].team
    try:
        old = team_in_readme(SUBMISSIONS / team) if (SUBMISSIONS / team).is_dir() else None
        counted = filed_at(team)
    except PcgevalError as error:
        for row in rows:
            yield IntakeResult(row.line, row, "faulty", printable_line(str(error), 1000))
        return
    first = next((name for name in (old, *(row.readme_team for row in rows)) if name is not None), None)
    blocked: int | None = None  # the line of a row that counts and could not be filed
    for row in reversed(rows):
        named = row.readme_team
        if deadline is not None and row.received > deadline:
            yield _not_filed(row, folder, "late", f"the deadline was {show_time(deadline)}")
        elif named is not None and not options.replace and not is_one_of(named, team, first):
            reason = f"the README names the team {printable_name(named)!r}; file it as that one, or use --replace."
            yield IntakeResult(row.line, row, "faulty", reason)
        elif blocked is not None:
            yield IntakeResult(row.line, row, "faulty", f"line {blocked} is later and could not be filed.")
        elif counted is not None and row.received < counted and (deadline is None or counted <= deadline):
            yield _not_filed(row, folder, "superseded", f"the one received {show_time(counted)} counts")
        else:
            try:
                filed = submit(path_below(folder, row.file), team, replace(options, received=row.received))
            except PcgevalError as error:
                blocked = row.line
                yield IntakeResult(row.line, row, "faulty", printable_line(str(error), 1000))
                continue
            if filed.folder is None:
                yield IntakeResult(row.line, row, "refused", "it has errors", filed, filed.receipt)
            else:
                counted = row.received
                yield IntakeResult(row.line, row, "filed", None, filed, filed.receipt)


def _not_filed(row: IntakeRow, folder: Path, result: Literal["late", "superseded"], reason: str) -> IntakeResult:
    """Write the receipt of a submission that is not looked at."""
    path = path_below(folder, row.file)
    receipt = Receipt(
        team=row.team,
        received=row.received,
        file=path.name,
        file_sha256=hand_in_sha256(path),
        result=result,
        reason=reason,
    )
    receipt.write()
    return IntakeResult(row.line, row, result, reason, None, receipt)
