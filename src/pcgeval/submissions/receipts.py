"""Receipts: what a team is told about a submission that it handed in.

They lie outside git, `.pcgeval/receipts/<team>/<time>.md` to send and `.json` to read, and depend on nothing but the
submission, the competition's limits and the organiser's decisions.
"""

from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pcgeval.core.files import read_text, write_json, write_text
from pcgeval.core.layout import STATE
from pcgeval.core.stage_files import refusal
from pcgeval.core.untrusted import printable_name
from pcgeval.submissions.findings import SubmissionFinding, printable_findings

RECEIPTS = STATE / "receipts"


class Receipt(BaseModel):
    """The outcome of handing in a submission, as its team is told.

    Attributes:
        team: The team.
        received: When it was handed in, UTC.
        file: The name of the file or folder.
        file_sha256: Of the file as it was handed in; None for a folder.
        result: Only one that is filed counts.
        reason: Why it does not count.
        tree_sha256: Of the submission that was filed, see `load.submission_sha256`.
        findings: Of the check, if it got that far.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    team: str
    received: datetime
    file: str
    file_sha256: str | None
    result: Literal["filed", "refused", "late", "superseded"]
    reason: str | None = None
    tree_sha256: str | None = None
    findings: tuple[SubmissionFinding, ...] = ()

    @property
    def path(self) -> Path:
        """Where its text lies."""
        return RECEIPTS / self.team / f"{show_time(self.received).replace(':', '')}.md"

    def write(self) -> None:
        """Write it as Markdown and as JSON."""
        write_text(self.path, self.to_markdown())
        write_json(self.path.with_suffix(".json"), self.model_dump(mode="json"))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, with where it lies and without the findings, to stand beside these."""
        return {**self.model_dump(mode="json", exclude={"findings"}), "path": str(self.path)}

    def to_markdown(self) -> str:
        """Return it in a form to send back."""
        lines = [
            f"# Submission of {self.team}",
            "",
            f"- Received: {show_time(self.received)}",
            f"- File: {printable_name(self.file)}",
            *([f"- SHA-256 of the file: `{self.file_sha256}`"] if self.file_sha256 else []),
            f"- Result: {self.result}{f', {self.reason}' if self.reason else ''}",
            *([f"- SHA-256 of the submission: `{self.tree_sha256}`"] if self.tree_sha256 else []),
        ]
        if self.findings:
            lines += ["", "## Findings", "", *(f"- {line}" for line in printable_findings(self.findings))]
        return "\n".join(lines) + "\n"


def last_filed(team: str, tree_sha256: str) -> Receipt | None:
    """Return the last receipt for files of a team that are filed now; None if they were filed otherwise.

    Raises:
        FileError: A receipt is damaged.
    """
    receipts = []
    for path in sorted((RECEIPTS / team).glob("*.json")):
        try:
            receipts.append(Receipt.model_validate_json(read_text(path)))
        except ValidationError as error:
            raise refusal(path, error, "Remove it, and submit again.") from error
    filed = [each for each in receipts if each.result == "filed" and each.tree_sha256 == tree_sha256]
    return max(filed, key=lambda each: each.received, default=None)


def show_time(time: datetime) -> str:
    """Return a time in UTC in ISO 8601, such as 2026-08-01T23:59:59Z."""
    return time.isoformat().replace("+00:00", "Z")
