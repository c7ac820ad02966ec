"""A ranking with pseudonyms, to publish before the teams are named.

A pseudonym follows from the team's name and a key that only the organiser has, so that it is the same in every table,
whatever other teams there are.
"""

import hmac
import re
import secrets
from collections.abc import Mapping
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
    """
    key = _read_key(KEY_FILE)
    pseudonyms: dict[str, str] = {}
    titles: dict[str, str] = {}
    print_stderr(f"do not publish these lines or {KEY_FILE}, which they follow from:")
    for row in ranking.teams:
        submission = load_submission(SUBMISSIONS / row.team)
        pseudonyms[row.team] = row.team
        if submission.notes.role == "participant":
            code = hmac.new(key, row.team.encode("utf-8"), "sha256").hexdigest()[:_DIGITS]
            pseudonyms[row.team] = f"team-{code}"
            print_stderr(f"  team-{code} is {row.team}")
        titles.setdefault(submission.title, pseudonyms[row.team])
    names_and_titles = {name: team for name, team in (titles | pseudonyms).items() if len(name) >= SHORTEST}
    rows = []
    for row in ranking.teams:
        reason = row.disqualified and _hide(row.disqualified, names_and_titles)
        rows.append(row.model_copy(update={"team": pseudonyms[row.team], "disqualified": reason}))
    winners = tuple(pseudonyms[team] for team in ranking.winners)
    reason = _hide(ranking.reason, pseudonyms)  # a sentence of ours, without titles
    return ranking.model_copy(update={"teams": tuple(rows), "winners": winners, "reason": reason, "result": None})


def _hide(text: str, pseudonyms: Mapping[str, str]) -> str:
    """Replace names in a text, upper and lower case alike."""
    hidden = {name.casefold(): pseudonym for name, pseudonym in pseudonyms.items()}
    names = "|".join(sorted(map(re.escape, pseudonyms), key=len, reverse=True))
    pattern = f"(?<![a-z0-9])(?:{names})(?![a-z0-9])"
    return re.sub(pattern, lambda match: hidden.get(match[0].casefold(), match[0]), text, flags=re.IGNORECASE)


def _read_key(path: Path) -> bytes:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32), encoding="ascii")
    key = path.read_bytes().strip()
    if not key:
        raise FileError(f"{path}: is empty, so anybody could undo the pseudonyms. Restore it, or remove it.")
    return key
