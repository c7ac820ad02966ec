"""Files below the outputs' folders that are part of no output."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from pcgeval.audit.findings import Finding, finding
from pcgeval.audit.paths import owner_of
from pcgeval.audit.pipeline import Stage
from pcgeval.audit.workspace import Workspace
from pcgeval.core.layout import DATA, EVIDENCE
from pcgeval.core.params import Params


@dataclass(frozen=True)
class Strays:
    """What no stage of dvc.yaml made: `paths` all such files; folders of former teams or models are only noted."""

    paths: frozenset[str]
    faults: tuple[Finding, ...]
    notes: tuple[Finding, ...]


def find_strays(stages: Iterable[Stage], workspace: Workspace, params: Params) -> Strays:
    """Look through the folders that outputs lie in, such as data/levels and results."""
    outputs = frozenset(out.path for stage in stages for out in stage.outs)
    paths = [path for area in sorted({_area(out) for out in outputs}) for path in _unowned(area, outputs, workspace)]
    left_over = {path: place for path in paths if (place := _former_place(path, params)) is not None}
    message = "no stage made it. Delete it or move it away."
    faults = tuple(finding("stray", path, message) for path in paths if path not in left_over)
    reason = "left over from a team or model that is not in params.yaml; it counts for nothing and may be deleted."
    notes = tuple(finding("left over", place, reason) for place in sorted(set(left_over.values())))
    return Strays(frozenset(paths), faults, notes)


def _area(output: str) -> str:
    """Return the folder in which an output's siblings lie: `data/<step>`, or the first folder of the path."""
    parts = PurePosixPath(output).parts
    return "/".join(parts[:2] if parts[0] == DATA.name else parts[:1])


def _unowned(area: str, outputs: frozenset[str], workspace: Workspace) -> Iterator[str]:
    for path in sorted(workspace.names(area)):
        if path not in outputs and not any(str(parent) in outputs for parent in PurePosixPath(path).parents):
            yield path


def _former_place(path: str, params: Params) -> str | None:
    """Return the folder (of evidence: the file) of a former team or model that a file is part of, None if of none."""
    parts = PurePosixPath(path).parts
    is_evidence = parts[:2] == EVIDENCE.parts and len(parts) == 4
    for place in ("/".join(parts[:depth]) for depth in range(3, len(parts) + is_evidence)):
        owner = owner_of(place)
        if owner.model not in (None, *params.models) or owner.team not in (None, *params.teams):
            return place
    return None
