"""What an audit says, for programs (JSON) and for people (text)."""

from dataclasses import asdict, dataclass
from typing import Any

from pcgeval.audit.findings import Finding
from pcgeval.audit.git import GitState
from pcgeval.audit.lineage import Input
from pcgeval.audit.paths import printable
from pcgeval.audit.surroundings import Surroundings
from pcgeval.core.files import to_json


@dataclass(frozen=True)
class Line:
    """One line of the ranking with the inputs that are its team's own; numbers as ranking.json writes them."""

    team: str
    status: str
    rank: int | None
    winner: bool
    total: str | None
    normalised: str | None
    stages: tuple[str, ...]
    inputs: tuple[Input, ...]


@dataclass(frozen=True)
class ModelUsed:
    """A language model as the generate stages ran it; `settings` is its part of params.yaml by dotted name."""

    model: str
    settings: tuple["ParamUsed", ...]


@dataclass(frozen=True)
class ParamUsed:
    """A value that stages ran with, as dvc.lock holds it."""

    name: str
    value: Any
    stages: tuple[str, ...]


@dataclass(frozen=True)
class Checked:
    """How much was compared."""

    stages: int
    files: int
    cache_objects: int


@dataclass(frozen=True)
class Audit:
    """Everything that an audit found out; nothing altered and nothing stale if there are no faults."""

    competition: str
    lines: tuple[Line, ...]
    shared: tuple[Input, ...]  # the inputs of all lines
    models: tuple[ModelUsed, ...]
    seeds: tuple[ParamUsed, ...]
    params: tuple[ParamUsed, ...]
    surroundings: Surroundings
    git: GitState
    checked: Checked
    faults: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    def to_json(self) -> str:
        """Return everything as JSON; paths with control characters or undecodable bytes are escaped."""
        return to_json(_printable(asdict(self)))

    def to_text(self) -> str:
        """Return what a person reads: lines, shared inputs, verdict."""
        from pcgeval.audit.text import audit_text  # noqa: PLC0415 - the text is written from this class

        return audit_text(self)


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {printable(key): _printable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(each) for each in value]
    return printable(value) if isinstance(value, str) else value
