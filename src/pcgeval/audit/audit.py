"""The audit: from each line of the ranking back to every input, and whether workspace, dvc.lock and cache agree."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pcgeval.audit.agreement import Checker
from pcgeval.audit.cache import check_cache
from pcgeval.audit.errors import AuditError
from pcgeval.audit.findings import AGAIN, Finding, finding
from pcgeval.audit.git import Git
from pcgeval.audit.history import History
from pcgeval.audit.lineage import Input, Tracer, merge_inputs
from pcgeval.audit.paths import printable
from pcgeval.audit.pipeline import Pipeline, Stage, read_pipeline
from pcgeval.audit.result import Audit, Checked, Line, ModelUsed, ParamUsed
from pcgeval.audit.strays import find_strays
from pcgeval.audit.surroundings import read_surroundings
from pcgeval.audit.workspace import Workspace
from pcgeval.core.files import FileError, read_json
from pcgeval.core.layout import RANKING_JSON
from pcgeval.core.params import Params, load_params

__all__ = ["Audit", "AuditError", "audit"]

RANKING_BYTES = 64 * 2**20  # far above any ranking; a larger file is not read


def audit(root: Path, team: str | None = None) -> Audit:
    """Audit a competition's folder; nothing in it is changed.

    Args:
        root: The folder of params.yaml and dvc.yaml.
        team: Show only this team's line; everything is checked all the same.

    Raises:
        AuditError: There is no such team, nothing was evaluated yet, or dvc.yaml or dvc.lock cannot be understood.
        ParamsError: params.yaml cannot be used.
    """
    root = root.resolve()
    params = load_params(root / "params.yaml")
    pipeline, git = read_pipeline(root), Git(root)
    workspace = Workspace(root, pipeline.walk)
    strays = find_strays(pipeline.stages, workspace, params)
    checked = Checker(pipeline, workspace, History(pipeline, git), git, strays.paths).check()
    cache = check_cache(pipeline, root)
    surroundings, package_notes = read_surroundings(root)
    ranked, unreadable = _read_ranking(root)
    traced = _trace_lines(_wanted(ranked, params, team), Tracer(pipeline, workspace, params), pipeline)
    used = _params_used(traced.stages)
    return Audit(
        competition=f"{params.competition.name} {params.competition.edition}, {params.competition.round}",
        lines=traced.lines,
        shared=traced.shared,
        models=_models_used(used),
        seeds=tuple(each for each in used if _is_seed(each.name)),
        params=tuple(each for each in used if not _is_seed(each.name) and not _is_model(each.name)),
        surroundings=surroundings,
        git=git.state(),
        checked=Checked(len(pipeline.stages), workspace.hashed, cache.objects),
        faults=(*unreadable, *checked, *strays.faults, *cache.faults),
        notes=(*strays.notes, *cache.notes, *package_notes),
    )


_Exact = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$")]  # a decimal, as ranking.json writes it


class _RankedTeam(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    team: str
    status: str
    rank: int | None
    winner: bool
    total: _Exact | None
    normalised: _Exact | None


class _RankingFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    teams: list[_RankedTeam]


def _read_ranking(root: Path) -> tuple[list[_RankedTeam], tuple[Finding, ...]]:
    path = root / RANKING_JSON
    try:
        if not path.is_file() or path.stat().st_size <= RANKING_BYTES:
            return _RankingFile.model_validate(read_json(path)).teams, ()
    except (FileError, ValidationError):
        pass
    message = f"cannot be read as a ranking, so no line of it is shown. Delete it and {AGAIN}."
    return [], (finding("result", RANKING_JSON.as_posix(), message),)


def _wanted(ranked: list[_RankedTeam], params: Params, team: str | None) -> list[_RankedTeam]:
    if team is None:
        return ranked
    known = sorted({each.team for each in ranked} | set(params.teams))
    if team not in known:
        close = difflib.get_close_matches(team, known, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Teams: {', '.join(known)}."
        raise AuditError(f"the ranking has no team {printable(team)!r}. {hint}")
    return [each for each in ranked if each.team == team]


@dataclass(frozen=True)
class _Traced:
    lines: tuple[Line, ...]
    shared: tuple[Input, ...]
    stages: tuple[Stage, ...]


def _trace_lines(ranked: Iterable[_RankedTeam], tracer: Tracer, pipeline: Pipeline) -> _Traced:
    """Trace each line; an input that belongs to a team stays with its line, all others are shared."""
    lines: list[Line] = []
    shared: list[Input] = []
    visited: set[str] = set()
    for each in ranked:
        lineage = tracer.trace(each.team)
        own = tuple(given for given in lineage.inputs if tracer.is_own(given.path))
        shared += [given for given in lineage.inputs if not tracer.is_own(given.path)]
        names = tuple(stage.name for stage in lineage.stages)
        visited |= set(names)
        lines.append(Line(**each.model_dump(), stages=names, inputs=own))
    stages = tuple(stage for stage in pipeline.stages if stage.name in visited)
    return _Traced(tuple(lines), merge_inputs(shared), stages)


def _params_used(stages: Iterable[Stage]) -> tuple[ParamUsed, ...]:
    used: dict[str, dict[str, ParamUsed]] = {}
    for stage in stages:
        for param in stage.locked_params:
            values = used.setdefault(param.name, {})
            before = values.get(repr(param.value))
            names = (*before.stages, stage.name) if before else (stage.name,)
            values[repr(param.value)] = ParamUsed(param.name, param.value, names)
    return tuple(used[name][value] for name in sorted(used) for value in sorted(used[name]))


def _models_used(used: Iterable[ParamUsed]) -> tuple[ModelUsed, ...]:
    settings = [each for each in used if _is_model(each.name)]
    names = sorted({each.name.split(".")[1] for each in settings})
    return tuple(ModelUsed(name, tuple(each for each in settings if each.name.split(".")[1] == name)) for name in names)


def _is_model(name: str) -> bool:
    return name.startswith("models.")


def _is_seed(name: str) -> bool:
    return not _is_model(name) and name.rpartition(".")[2] == "seed"
