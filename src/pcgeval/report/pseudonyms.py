"""A ranking with pseudonyms, to publish before the teams are named.

A pseudonym follows from the team's name and a key that only the organiser has, so that it is the same in every table,
whatever other teams there are.
"""

import hmac
import secrets

from pcgeval.core.console import print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.layout import STATE
from pcgeval.core.stage_files import RankingFile

KEY_FILE = STATE / "pseudonyms.key"  # outside git; another key gives other pseudonyms
_DIGITS = 8


def anonymous_ranking(ranking: RankingFile) -> RankingFile:
    """Return a ranking of the competition in the working directory with pseudonyms, and print who is who on stderr.

    Baselines keep their names. What could name a team is left out: the reasons of disqualifications, and the result
    hash, which would confirm guessed names.
    """
    if not KEY_FILE.exists():
        KEY_FILE.parent.mkdir(parents=True, exist_ok=True)
        KEY_FILE.touch(mode=0o600)
        KEY_FILE.write_text(secrets.token_hex(32), encoding="ascii")
    key = KEY_FILE.read_bytes().strip()
    if not key:
        raise FileError(f"{KEY_FILE}: is empty, so anybody could undo the pseudonyms. Restore it, or remove it.")
    print_stderr(f"do not publish these lines or {KEY_FILE}, which they follow from:")
    teams, pseudonyms = [], {}
    for row in ranking.teams:
        pseudonyms[row.team] = row.team
        if row.status != "baseline":
            pseudonyms[row.team] = f"team-{hmac.new(key, row.team.encode('utf-8'), 'sha256').hexdigest()[:_DIGITS]}"
            print_stderr(f"  {pseudonyms[row.team]} is {row.team}")
        reason = None if row.disqualified is None else "left out of this table"
        teams.append(row.model_copy(update={"team": pseudonyms[row.team], "disqualified": reason}))
    winners = tuple(pseudonyms[team] for team in ranking.winners)
    changes = {"teams": tuple(teams), "winners": winners, "reason": f"Winners: {', '.join(winners) or 'none'}."}
    return ranking.model_copy(update=changes | {"result": None})
