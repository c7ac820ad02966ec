"""Compare two evaluated states of a competition: a revision of git, a folder, or a bundle."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from pcgeval.core.archives import unpack
from pcgeval.core.errors import PcgevalError
from pcgeval.core.text import plain, printable_line
from pcgeval.formats.layout import OFFICIAL_RESULTS, RANKING_JSON, RESULTS, SUBMISSIONS
from pcgeval.formats.params import load_params
from pcgeval.formats.results import LetterRow, RankingFile, read_csv
from pcgeval.formats.stages import other_remedy
from pcgeval.proof.bundle import MAX_BYTES, MAX_FILES, unpack_bundle
from pcgeval.proof.commitment import CommitmentError, git
from pcgeval.scoring.stages import CHARACTER_SCORES
from pcgeval.submissions.load import submission_sha256

SCORES = frozenset({"normalised", "score", "letter"})  # the kinds of values that are exact numbers
_SHOWN_UNCHANGED = frozenset({"state", "result hash", "winners", "rank", "status", "normalised", "recognised", "score"})
# parts of the result hash, of which a ranking has no more than the hash
_PARTS = {
    "locks": "packages",
    "recordings": "replies",
    "trials": "trials",
    "measurements": "measurements",
    "source": "code",
}


class CompareError(PcgevalError):
    """A state is missing, holds no results, or is damaged."""


class Label(NamedTuple):
    """The name of a value: its kind, such as `params` or `letter`, and its setting or letter, team and model."""

    kind: str
    name: str = ""
    team: str = ""
    model: str = ""


def compare_states(before: str, after: str | None, root: Path) -> list[tuple[Label, Any, Any]]:
    """Return all inputs and letters that differ between two states, and both rankings, with both values.

    A value is None in a state that has none. Exact numbers are texts, and files are their SHA-256.

    Args:
        before: A revision of git, the folder of an evaluated competition, or a bundle.
        after: Another one; None is the competition in `root`.
        root: The folder of a competition, which other folders and bundles are relative to.
    """
    one, other = _read_state(before, root), _read_state(after, root)
    values = [(label, one.get(label), other.get(label)) for label in {**other, **one}]
    return [value for value in values if value[1] != value[2] or value[0].kind in _SHOWN_UNCHANGED]


def _read_state(place: str | None, root: Path) -> dict[Label, Any]:
    folder, name = root / (place or ""), place or "the present folder"
    with tempfile.TemporaryDirectory(prefix="pcgeval-compare-") as temporary:
        try:
            if folder.is_file():
                unpack_bundle(folder, Path(temporary, "bundle"))
                folder = Path(temporary, "bundle")
            elif place and not (folder / RANKING_JSON).is_file():
                folder = Path(temporary, "state")
                _export(place, root, folder)
            with other_remedy("Name another state.") if place else nullcontext():
                return {Label("state"): name, **dict(_values(folder))}
        except PcgevalError as error:
            reason = printable_line(str(error).replace(f"{folder}/", ""), 1000)
            raise CompareError(f"{name}: {reason}") from error


def _export(revision: str, root: Path, folder: Path) -> None:
    archive = folder.with_suffix(".zip")
    try:
        git(root, "archive", f"--output={archive}", revision, "--", "params.yaml", str(RESULTS), str(SUBMISSIONS))
    except CommitmentError as error:
        raise CompareError(
            f"is no bundle and no folder with {RANKING_JSON}, and git reads no such revision ({error}). "
            f"Name a revision with results, such as `git log --oneline {RANKING_JSON}` lists, a folder or a bundle."
        ) from error
    unpack(archive, folder, max_files=MAX_FILES, max_bytes=MAX_BYTES)


def _values(folder: Path) -> Iterator[tuple[Label, Any]]:
    """Yield all that is compared of a state: its result, then its inputs, then the teams in order."""
    if not (folder / RANKING_JSON).is_file():
        raise CompareError(f"has no {RANKING_JSON}. Run `make final-eval` first, or name another state.")
    params, ranking = load_params(folder / "params.yaml", allow_aliases=False), RankingFile.read(folder / RANKING_JSON)
    yield Label("result hash"), ranking.result and ranking.result.sha256
    yield Label("winners"), list(ranking.winners)
    for team in params.teams:
        submission = folder / SUBMISSIONS / team
        yield Label("submission", team), submission_sha256(submission) if submission.is_dir() else None
    for part, kind in _PARTS.items():
        yield Label(kind), ranking.result and ranking.result.parts.get(part)
    yield Label("classifier"), ranking.classifier
    yield Label("engine"), ranking.engine
    settings = params.model_dump(mode="json")
    for name, value in _dotted(settings.pop("models")):
        yield Label("model", name), value
    for name, value in _dotted(settings):
        yield Label("params", name), value
    for line in ranking.teams:
        yield Label("rank", team=line.team), line.rank
        yield Label("status", team=line.team), line.status
        yield Label("normalised", team=line.team), None if line.normalised is None else plain(line.normalised)
        yield Label("recognised", team=line.team), line.counted.recognised_words
        for model, result in line.models.items():
            yield Label("score", team=line.team, model=model), plain(result.score)
    for model in params.models:
        for row in read_csv(LetterRow, folder / OFFICIAL_RESULTS / model / CHARACTER_SCORES):
            yield Label("letter", row.letter, row.team, model), plain(row.score)


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
