"""A ranking with pseudonyms, to publish before the teams are named.

A pseudonym follows from the team's name and a key that only the organiser has, so that it is the same in every table,
whatever other teams there are.
"""

import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from pcgeval.core.console import print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.layout import STATE, SUBMISSIONS
from pcgeval.core.stage_files import RankingFile
from pcgeval.submissions.load import load_submission

KEY_FILE = STATE / "pseudonyms.key"  # outside git; another key gives other pseudonyms
SHORTEST = 3  # characters of a name that is looked for in the texts of strangers: a team may be called `I`
_DIGITS = 8


def anonymous_ranking(ranking: RankingFile) -> RankingFile:
    """Return a ranking of the competition in the working directory with pseudonyms, and print who is who on stderr.

    Baselines keep their names. The result hash is left out, because it would confirm guessed names.

    Raises:
        FileError: The key cannot be read or, the first time, written.
        SubmissionError: A team's submission cannot be read.
    """
    key = _read_key(KEY_FILE)
    pseudonyms: dict[str, str] = {}
    hidden: dict[str, str] = {}  # names and titles in lower case
    print_stderr(f"do not publish these lines or {KEY_FILE}, which they follow from:")
    for row in ranking.teams:
        submission = load_submission(SUBMISSIONS / row.team)
        pseudonyms[row.team] = row.team
        if submission.notes.role == "participant":
            code = hmac.new(key, row.team.encode("utf-8"), "sha256").hexdigest()[:_DIGITS]
            pseudonyms[row.team] = f"team-{code}"
            print_stderr(f"  team-{code} is {row.team}")
        for name in (row.team, submission.title):
            hidden.setdefault(name.casefold(), pseudonyms[row.team])

    def hide(text: str, shortest: int) -> str:
        names = sorted((re.escape(name) for name in hidden if len(name) >= shortest), key=len, reverse=True)
        pattern = f"(?<![a-z0-9])(?:{'|'.join(names)})(?![a-z0-9])"
        return re.sub(pattern, lambda match: hidden.get(match[0].casefold(), match[0]), text, flags=re.IGNORECASE)

    rows = []
    for row in ranking.teams:
        reason = row.disqualified and hide(row.disqualified, SHORTEST)
        rows.append(row.model_copy(update={"team": pseudonyms[row.team], "disqualified": reason}))
    winners = tuple(pseudonyms[team] for team in ranking.winners)
    reason = hide(ranking.reason, 1)  # a sentence of ours
    return ranking.model_copy(update={"teams": tuple(rows), "winners": winners, "reason": reason, "result": None})


def _read_key(path: Path) -> bytes:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            suppress(FileExistsError),
            os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file,
        ):
            file.write(secrets.token_hex(32).encode())
        key = path.read_bytes().strip()
    except OSError as error:
        raise FileError(f"{path}: cannot be read or made ({error.strerror}). Check its permissions.") from error
    if not key:
        raise FileError(f"{path}: is empty, so anybody could undo the pseudonyms. Restore it, or remove it.")
    return key
