"""Paths as dvc.lock writes them: relative to the competition's folder, with `/`; and whose they are."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from pcgeval.core.layout import (
    DATA,
    EVIDENCE,
    GRADES,
    JUDGE_RECORDINGS,
    JUDGEMENTS,
    OFFICIAL_RESULTS,
    RECORDINGS,
    STAGE_DIRS,
    SUBMISSIONS,
)
from pcgeval.core.untrusted import printable_name

# what the parts of a path after these folders name
_NAMED: dict[tuple[str, ...], tuple[str, ...]] = {
    **{(DATA.name, step): ("model", "team") for step in STAGE_DIRS},
    RECORDINGS.parts: ("model", "team"),
    JUDGE_RECORDINGS.parts: ("team",),
    JUDGEMENTS.parts: ("team",),
    EVIDENCE.parts: ("team", "model"),
    SUBMISSIONS.parts: ("team",),
    GRADES.parts: ("team",),
    OFFICIAL_RESULTS.parts: ("model",),
}


@dataclass(frozen=True)
class Owner:
    """The model and the team that a path belongs to; None where the path does not say so."""

    model: str | None = None
    team: str | None = None


def owner_of(path: str) -> Owner:
    """Return whose a path is, as the layout names folders and files."""
    parts = PurePosixPath(path).parts
    length = 3 if parts[:3] in _NAMED else 2
    named = dict(zip(_NAMED.get(parts[:length], ()), parts[length:], strict=False))
    return Owner(**{key: name.split(".", maxsplit=1)[0] for key, name in named.items()})


def is_below(path: str, folder: str) -> bool:
    """Tell whether a path is a folder itself or lies below it."""
    return path == folder or path.startswith(folder + "/")


def overlap(one: str, other: str) -> bool:
    """Tell whether one of two paths contains the other."""
    return is_below(one, other) or is_below(other, one)


def printable(text: str) -> str:
    """Return text with escapes for backslashes and for what cannot be printed, so that no other text looks the same."""
    return printable_name(text.replace("\\", r"\\"), max(1, 2 * len(text)))
