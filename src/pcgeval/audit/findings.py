"""What an audit finds: one statement each, with the file it is about and what to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pcgeval.audit.paths import printable

AGAIN = "run `make final-eval`"
Kind = Literal[
    "changed",  # a file is not what dvc.lock says
    "missing",
    "stray",  # a file that no stage made
    "link",  # a link, a pipe or an unreadable file
    "params",  # params.yaml has other values than a stage ran with
    "stage",  # a stage never ran, or its definition or an input of it changed since
    "cache",
    "result",  # the ranking cannot be read
    "left over",
    "packages",
]


@dataclass(frozen=True)
class Finding:
    """One statement; `path` is None if it is not about one file."""

    kind: Kind
    path: str | None
    message: str


def finding(kind: Kind, path: str | None, message: str) -> Finding:
    """Return a finding whose message starts with its path, made printable."""
    return Finding(kind, path, f"{printable(path)}: {message}" if path is not None else message)


def named(stages: Iterable[str]) -> str:
    """Return the first of some stages' names and how many more there are."""
    first, *more = stages
    return f"stage {printable(first)}" + (f" (and {len(more)} more)" if more else "")
