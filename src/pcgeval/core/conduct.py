"""How the response of a trial came about, as far as an inspector and the rules care: read from its record.

The record is the JSON file that the generate step lays beside each response. A submission cannot write it, but what a
flag quotes in it is a stranger's text.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from pcgeval.core.files import FileError
from pcgeval.core.layout import Trial, trial_file

FlagKind = Literal["altered-answer", "invented-reply", "other-host", "unseeded-random"]
FLAG_KINDS: tuple[FlagKind, ...] = get_args(FlagKind)
MOST_DETAILS = 3  # of one kind in one trial: enough to see what the others are like
LONGEST_DETAIL = 300  # characters


@dataclass(frozen=True)
class Flag:
    """Something that an inspector should look at; what follows from it is the organiser's decision."""

    kind: FlagKind
    detail: str


@dataclass(frozen=True)
class Conduct:
    """What a trial cost, and what was noticed in it.

    Attributes:
        calls: How often the model was asked and replied.
        tokens: Prompt and output tokens of all these calls.
        flags: The first few of each kind, in the order in which they were noticed.
        contained: False if a program ran without a sandbox, so that it could have done what nobody noticed.
    """

    calls: int
    tokens: int
    flags: tuple[Flag, ...] = ()
    contained: bool = True

    def flag(self, kind: FlagKind) -> Flag | None:
        """Return the first flag of a kind, or None."""
        return next((each for each in self.flags if each.kind == kind), None)


@dataclass(frozen=True)
class _Reply:
    prompt_tokens: Annotated[int, Field(ge=0)]
    output_tokens: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class _Exchange:
    reply: _Reply


@dataclass(frozen=True)
class _Record:
    """What is read of a record; flags and `contained` are left out of most."""

    exchanges: tuple[_Exchange, ...]
    flags: tuple[Flag, ...] = ()
    contained: bool = True


_RECORD = TypeAdapter(_Record)


def read_conduct(folder: Path, team: str, trial: Trial) -> Conduct | None:
    """Read what the record of a trial says; None if it has none, as a response that was made elsewhere.

    Args:
        folder: The raw folder of the model and team.
        team: The team.
        trial: The trial.

    Raises:
        FileError: The record is unreadable or no record.
    """
    path = trial_file(folder, "raw", team, trial).with_suffix(".json")
    try:
        record = _RECORD.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}). Make it a readable file.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        fault = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:400]
        raise FileError(f"{path}: not the record of a trial ({fault}). Delete it and run `dvc repro`.") from error
    return Conduct(
        calls=len(record.exchanges),
        tokens=sum(each.reply.prompt_tokens + each.reply.output_tokens for each in record.exchanges),
        flags=_first_of_each_kind(record.flags),
        contained=record.contained,
    )


def _first_of_each_kind(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    kept: list[Flag] = []
    seen: Counter[FlagKind] = Counter()
    for flag in flags:
        seen[flag.kind] += 1
        if seen[flag.kind] <= MOST_DETAILS:
            kept.append(Flag(flag.kind, flag.detail[:LONGEST_DETAIL]))
    return tuple(kept)
