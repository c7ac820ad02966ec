"""Pseudonyms of teams, for results that are published before the teams are named.

A pseudonym follows from the team's name and a key that only the organiser has, so that it stays the same in every
letter and table, whatever other teams there are.
"""

import hmac
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from pcgeval.core.console import print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.layout import STATE, SUBMISSIONS
from pcgeval.core.stage_files import RankingFile
from pcgeval.submissions.load import Submission, load_submission

KEY_FILE = STATE / "pseudonyms.key"  # outside git; with another key all pseudonyms are others
SHORTEST = 3  # characters of a name that is looked for in the texts of strangers: a team may be called `I`
_DIGITS = 8


class Pseudonyms:
    """The pseudonyms of all participants; baselines keep their names."""

    def __init__(self, submissions: Iterable[Submission], key: bytes) -> None:
        """Derive them; a team's title stands for the same pseudonym as its name."""
        self.of_team: dict[str, str] = {}
        self._hidden: dict[str, str] = {}
        for submission in submissions:
            code = hmac.new(key, submission.team.encode("utf-8"), "sha256").hexdigest()[:_DIGITS]
            self.of_team[submission.team] = (
                f"team-{code}" if submission.notes.role == "participant" else submission.team
            )
            for name in (submission.team, submission.title):
                self._hidden.setdefault(name.casefold(), self.of_team[submission.team])
        names = sorted(map(re.escape, filter(None, self._hidden)), key=len, reverse=True)
        self._names = re.compile(f"(?<![a-z0-9])(?:{'|'.join(names)})(?![a-z0-9])", re.IGNORECASE)

    def hide(self, text: str, shortest: int = SHORTEST) -> str:
        """Return a text with pseudonyms for the teams' names and titles in it that are not shorter than `shortest`."""

        def pseudonym(found: re.Match[str]) -> str:
            is_name = len(found[0]) >= shortest
            return self._hidden.get(found[0].casefold(), found[0]) if is_name else found[0]

        return self._names.sub(pseudonym, text)

    def print_mapping(self) -> None:
        """Print on stderr who is who, for the organiser alone."""
        print_stderr(f"do not publish these lines, nor {KEY_FILE}, from which they follow:")
        for team, pseudonym in self.of_team.items():
            if pseudonym != team:  # a baseline keeps its name
                print_stderr(f"  {pseudonym} is {team}")


def read_pseudonyms(teams: Iterable[str]) -> Pseudonyms:
    """Return the pseudonyms of the competition in the working directory; their key is made if there is none yet.

    Raises:
        FileError: The key cannot be read or made.
        SubmissionError: A team's submission cannot be read.
    """
    return Pseudonyms([load_submission(SUBMISSIONS / team) for team in teams], read_key())


def anonymous_ranking(ranking: RankingFile, names: Pseudonyms) -> RankingFile:
    """Return a ranking with the teams' pseudonyms, without its result hash, by which guessed names could be tried."""
    rows = [
        team.model_copy(
            update={
                "team": names.of_team[team.team],
                "disqualified": team.disqualified and names.hide(team.disqualified),
            }
        )
        for team in ranking.teams
    ]
    winners = tuple(names.of_team[team] for team in ranking.winners)
    reason = names.hide(ranking.reason, shortest=1)  # a sentence of ours
    return ranking.model_copy(update={"teams": tuple(rows), "winners": winners, "reason": reason, "result": None})


def read_key(path: Path = KEY_FILE) -> bytes:
    """Return the key of the pseudonyms; it is made if there is none yet.

    Raises:
        FileError: It cannot be read or made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(secrets.token_hex(32).encode())
        except FileExistsError:
            pass
        key = path.read_bytes().strip()
    except OSError as error:
        raise FileError(f"{path}: cannot be read or made ({error.strerror}). Check its permissions.") from error
    if not key:
        raise FileError(f"{path}: is empty, so anybody could undo the pseudonyms. Restore it, or remove it.")
    return key
