"""The seal: settings and submissions that decide a ranking, fixed before the run so that pcgeval can name every change.

A seal does not prove its date; the commit that published it does.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import field_validator

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_json, to_json
from pcgeval.core.layout import SEAL, SUBMISSIONS
from pcgeval.core.params import Params
from pcgeval.core.stage_files import Sha256, StageFile, other_remedy
from pcgeval.core.untrusted import printable_line
from pcgeval.scoring.result_hash import deciding_params
from pcgeval.submissions.load import submission_sha256

_LONGEST_VALUE = 100  # characters
_LONGEST_SENTENCE = 600
_UNPINNED = "unpinned:"  # before the hash of a recorded model's name, in place of a digest


class Seal(StageFile):
    """The deciding params and the SHA-256 of each submission; `sha256` is the hash of both as canonical JSON.

    The params lack the values that differ between a run and its replay: `backend`, and a missing digest.
    """

    indent: ClassVar[int | None] = 1

    sha256: Sha256
    params: dict[str, Any]
    submissions: dict[str, Sha256]

    @field_validator("params")
    @classmethod
    def _has_canonical_json(cls, params: dict[str, Any]) -> dict[str, Any]:
        to_json(params)  # NaN and infinity, which pydantic reads, have none
        return params

    @property
    def content_sha256(self) -> str:
        """The hash of params and submissions as they are."""
        return sha256_json({"params": self.params, "submissions": self.submissions})


def make_seal(params: Params, root: Path = Path()) -> Seal:
    """Return the seal of these params and submissions; raise FileError if a submission cannot be read."""
    sealed = deciding_params(params)
    for model in sealed["models"].values():
        del model["backend"]
        if (model["digest"] or "").startswith(_UNPINNED):
            model["digest"] = None
    submissions = {team: submission_sha256(root / SUBMISSIONS / team) for team in params.teams}
    seal = Seal(sha256="0" * 64, params=sealed, submissions=submissions)
    return seal.model_copy(update={"sha256": seal.content_sha256})


def seal_differences(params: Params, root: Path = Path()) -> list[str]:
    """Compare the params and submissions with the seal, if there is one; return a sentence for each difference.

    Raises:
        FileError: A submission cannot be read.
    """
    path = root / SEAL
    if not path.exists():
        return []
    try:
        with other_remedy("Restore it from git."):
            seal = Seal.read(path)
    except FileError as error:
        sentences = [str(error)]
    else:
        sentences = list(_differences(seal, make_seal(params, root)))
    return [printable_line(sentence, _LONGEST_SENTENCE) for sentence in sentences]


def _differences(seal: Seal, present: Seal) -> Iterator[str]:
    if seal.content_sha256 != seal.sha256:
        yield f"{SEAL} was altered: its content has the SHA-256 {seal.content_sha256}, and it says {seal.sha256}."
    yield from _param_differences("", seal.params, present.params)
    for team, digest in present.submissions.items():
        sealed_digest = seal.submissions.get(team)
        if sealed_digest is None:
            yield f"Team {team} is not in the seal; it was added afterwards."
        elif sealed_digest != digest:
            yield f"Team {team} has another submission: its SHA-256 is {digest}, and {sealed_digest} was sealed."
    for team in sorted(seal.submissions.keys() - present.submissions.keys()):
        yield f"Team {team} is in the seal; it was removed afterwards."


def _param_differences(place: str, sealed: Any, present: Any) -> Iterator[str]:
    if isinstance(sealed, dict) and isinstance(present, dict):
        for name in sorted(sealed.keys() | present.keys()):
            yield from _param_differences(f"{place}.{name}".lstrip("."), sealed.get(name), present.get(name))
    elif to_json(sealed) != to_json(present):  # True == 1 in Python, but not in JSON
        values = [printable_line(to_json(value, indent=None), _LONGEST_VALUE) for value in (present, sealed)]
        yield f"{place} is {values[0]}, and {values[1]} was sealed."
