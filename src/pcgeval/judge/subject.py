"""What is judged: an attempt to reproduce a paper, or an entry in the competition."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Subject:
    """A submission and all that a judge is told about its task.

    Attributes:
        folder: Where the submission lies; nothing outside is ever read.
        kind: Whether it reproduces a paper or takes part in the competition.
        paper: The paper's text; for the competition, its rules in words.
        addendum: What the authors of the rubric told the submitters besides.
        judge_addendum: What they tell the judge alone.
        reproduce_log: What running reproduce.sh printed; None if it did not run.
        log_written: When that run began, in seconds since 1970: result files from then on are fresh. None where no
            time can be trusted, as in a fresh checkout; then every result file counts as fresh.
        code_only: Whether only the code is judged, so that reproduce.sh and its log play no part.
    """

    folder: Path
    kind: Literal["paper", "competition"]
    paper: str
    addendum: str
    judge_addendum: str
    reproduce_log: str | None
    log_written: float | None
    code_only: bool = False
