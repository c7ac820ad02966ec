"""The team's name as a README gives it, to see that nobody files a submission as another team."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from pcgeval.core.untrusted import printable_name, read_bounded_text
from pcgeval.submissions.findings import SubmissionFinding, warning
from pcgeval.submissions.sources import find_readme
from pcgeval.submissions.validate import MAX_README_BYTES

# a line such as `Team: Penguins` or `**Team name:** Penguins`
_TEAM_LINE = re.compile(r"[\s#>*_-]*team(?:[ _-]*name)?[\s*_]*[:\uff1a][\s*_`]*(\w.*)", re.IGNORECASE)


def team_in_readme(folder: Path) -> str | None:
    """Return the team's name as the README of a submission gives it, whose files have been checked."""
    readme = find_readme(folder)
    return None if readme is None else _team_in_text(read_bounded_text(readme, MAX_README_BYTES))


def possible(name: str) -> str:
    """Return a name like this one that a team can have."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("_-")[:64] or "NAME"


def is_one_of(name: str, *others: str | None) -> bool:
    """Return whether a name differs from one of others in no more than case, accents, signs and the word team."""

    def bare(each: str) -> str:
        plain = unicodedata.normalize("NFKD", each).casefold()
        return "".join(character for character in plain if character.isalnum()).removeprefix("team")

    return bare(name) in {bare(each) for each in others if each is not None}


def name_findings(folder: Path, team: str) -> Iterator[SubmissionFinding]:
    """Yield a warning if the README names another team."""
    named = team_in_readme(folder)
    if named is not None and not is_one_of(named, team):
        yield warning("", f"the README names the team {printable_name(named)!r}, and it is filed as {team!r}")


def _team_in_text(text: str) -> str | None:
    found = (_TEAM_LINE.match(line[:300]) for line in text.splitlines())
    return next((match[1].strip(" \t*_`.") for match in found if match), None)
