"""The audit: from each line of the ranking back to every input, and whether workspace, dvc.lock and cache agree."""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

from pcgeval.audit.asking import AskedCall
from pcgeval.audit.definition import check_definition, commands_run
from pcgeval.audit.differences import Difference
from pcgeval.audit.environment import Environment, check_loaded_source, check_versions, read_environment
from pcgeval.audit.history import Git, GitState
from pcgeval.audit.lineage import Input, Tracer, merge_inputs, owner_of
from pcgeval.audit.pipeline import AuditError, PipelineStage, read_pipeline, running_evaluation
from pcgeval.audit.recompute import Recomputation, Recomputed
from pcgeval.audit.status import AGAIN, AuditFinding, Checker, finding
from pcgeval.audit.workspace import Workspace, printable
from pcgeval.core.errors import FileError
from pcgeval.core.files import to_json
from pcgeval.core.layout import CLASSIFIER_FILE, RANKING_JSON, SIMULATIONS_FILE, SUBMISSIONS, stage_dir
from pcgeval.core.params import Params, load_params
from pcgeval.core.stage_files import RankedTeam, RankingFile, ResultHash, plain, read_stage_file
from pcgeval.core.trials import record_path
from pcgeval.generation.failed_trials import TRIAL_HISTORY, unknown_decisions
from pcgeval.generation.tasks import stale_records
from pcgeval.scoring.result_hash import deciding_files, result_hash
from pcgeval.similarity.source import Source
from pcgeval.submissions.load import SubmissionError, load_submission

CODE = ("src", "stages", "dvc.yaml", "params.yaml", ".dvcignore", "constraints.txt", "Makefile")
_AGREES = "The recomputation gives the same with what is here."
RANK = "rank"  # the stage that writes the ranking


@dataclass(frozen=True)
class ModelLine:
    """A team's result with one model; `flagged` is None where no records lie beside the responses."""

    model: str
    trials: int
    failed: int
    flagged: int | None
    score: Decimal
    normalised: Decimal


@dataclass(frozen=True)
class Line:
    """One line of the ranking with the inputs that are its team's own; numbers exact."""

    team: str
    status: str
    rank: int | None
    winner: bool
    total: Decimal | None
    normalised: Decimal | None
    models: tuple[ModelLine, ...]
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
    """The numbers of compared stages, files and cache objects."""

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
    environment: Environment
    git: GitState
    result: ResultHash | None  # as the ranking names it
    commands: dict[str, int]  # what stages run, and how many of them; MODEL and TEAM stand for names
    checked: Checked
    recomputed: Recomputed | None  # None where nothing was
    faults: tuple[AuditFinding, ...]
    notes: tuple[AuditFinding, ...]
    asked: tuple[AskedCall, ...] = ()  # calls that were asked again

    def to_json(self) -> str:
        """Return everything as JSON, control characters and undecodable bytes escaped."""
        return to_json(_printable(asdict(self) | {"result": self.result and self.result.model_dump()}))


def audit(
    root: Path,
    team: str | None = None,
    recomputing: Callable[[Path, Params], Recomputation] | None = None,
    *,
    strict: bool = False,
) -> Audit:
    """Audit a competition's folder; nothing in it is changed.

    Args:
        root: The folder of params.yaml and dvc.yaml.
        team: Show only this team's line; everything is checked all the same.
        recomputing: Recomputes the folder, as `recompute` does; without it files are only compared with their hashes.
        strict: Count code and params that are not committed, and code that is loaded from elsewhere, as faults.

    Raises:
        AuditError: There is no such team, nothing was evaluated yet, an evaluation is under way, or dvc.yaml or
            dvc.lock cannot be understood.
        ParamsError: params.yaml cannot be used.
    """
    root = root.resolve()
    params = load_params(root / "params.yaml")
    _refuse_while_running(root)
    pipeline, git = read_pipeline(root), Git(root)
    workspace = Workspace(root, pipeline.walk)
    checker = Checker(pipeline, workspace, git, params)
    checker.check()
    environment, package_notes = read_environment(root)
    faults = [*checker.faults, *check_definition(root, pipeline), *_check_records(root, params)]
    notes = [*checker.notes, *package_notes]
    (faults if strict else notes).extend([*_check_commit(git), *check_loaded_source(root)])
    ranked: tuple[RankedTeam, ...] = ()
    trials, result = 0, None
    versions: list[AuditFinding] = []
    try:
        ranking = RankingFile.read(root / RANKING_JSON)
        ranked, trials = ranking.teams, len(ranking.rules.letters) * ranking.rules.trials
        result = ranking.result
        faults += _check_result(root, params, result)
        versions = list(check_versions(ranking, params))
    except FileError:
        message = f"cannot be read as a ranking, so no line of it is shown. Delete it and {AGAIN}."
        faults = [finding("result", RANKING_JSON.as_posix(), message), *faults]
    if team is not None:
        ranked = _line_of(team, ranked, params)
    recomputation = recomputing(root, params) if recomputing else None
    more = _recomputed(recomputation, versions)
    faults, notes = [*faults, *more.faults], [*notes, *more.notes]
    if faults:
        _refuse_while_running(root)  # one that began meanwhile
    tracer = Tracer(pipeline, workspace, params)
    traces = {each.team: tracer.trace(each.team) for each in ranked}
    used = {name for names, _ in traces.values() for name in names}
    values = _params_used(stage for stage in pipeline.stages if stage.name in used)
    settings = [each for each in values if each.name.startswith("models.")]
    others = [each for each in values if not each.name.startswith("models.")]
    return Audit(
        competition=f"{params.competition.name} {params.competition.edition}, {params.competition.round}",
        lines=tuple(_line(each, trials, *traces[each.team]) for each in ranked),
        shared=merge_inputs(given for _, inputs in traces.values() for given in inputs if _owner(given) is None),
        models=tuple(
            ModelUsed(model, tuple(found)) for model, found in groupby(settings, lambda each: each.name.split(".")[1])
        ),
        seeds=tuple(each for each in others if each.name.rpartition(".")[2] == "seed"),
        params=tuple(each for each in others if each.name.rpartition(".")[2] != "seed"),
        environment=environment,
        git=git.state(),
        result=result,
        commands=commands_run(pipeline, params),
        checked=Checked(len(pipeline.stages), workspace.hashed, checker.cache_objects),
        recomputed=recomputation.recomputed if recomputation else None,
        faults=tuple(faults),
        notes=tuple(notes),
    )


def _line(team: RankedTeam, trials: int, stages: tuple[str, ...], inputs: tuple[Input, ...]) -> Line:
    """Return a team's line; inputs that belong to no team stand with what all lines share."""
    models = tuple(
        ModelLine(model, trials, found.failed_trials, found.flagged_trials, found.score, found.normalised)
        for model, found in team.models.items()
    )
    own = tuple(given for given in inputs if _owner(given) is not None)
    return Line(team.team, team.status, team.rank, team.winner, team.total, team.normalised, models, stages, own)


def _owner(given: Input) -> str | None:
    return owner_of(given.path).team


def _refuse_while_running(root: Path) -> None:
    if process := running_evaluation(root):
        raise AuditError(
            f"{process} is at work in this folder, so that its files do not agree yet. Audit when it has ended."
        )


def _check_commit(git: Git) -> Iterator[AuditFinding]:
    """Yield the files with code and params that are not as in the last commit."""
    state = git.state()
    if state.commit is None:
        yield finding(
            "uncommitted", None, f"{state.reason}: nothing says which code and params these are. Commit them."
        )
    for path, what in git.uncommitted(CODE):
        yield finding("uncommitted", path, f"{what}. Commit it, or put back what is committed.")


def _line_of(team: str, ranked: tuple[RankedTeam, ...], params: Params) -> tuple[RankedTeam, ...]:
    known = sorted({each.team for each in ranked} | set(params.teams))
    if team not in known:
        close = difflib.get_close_matches(team, known, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Teams: {', '.join(known)}."
        raise AuditError(f"the ranking has no team {printable(team)!r}. {hint}")
    return tuple(each for each in ranked if each.team == team)


class _Findings(NamedTuple):
    faults: list[AuditFinding]
    notes: list[AuditFinding]


def _recomputed(recomputation: Recomputation | None, versions: list[AuditFinding]) -> _Findings:
    """Return what a recomputation found.

    That the levels were measured with other `versions` than are here is a fault, unless both gave the same.
    """
    if recomputation is None:
        return _Findings(versions, [])
    differences = [each for each in recomputation.differences if not (versions and _is_version(each))]
    faults = [AuditFinding("recomputed", each.path, f"{each}. {each.remedy}") for each in differences]
    faults += [AuditFinding("recomputed", None, printable(each)) for each in recomputation.faults]
    notes = [AuditFinding("recomputed", None, printable(each)) for each in recomputation.notes]
    done = recomputation.recomputed
    if done.simulations and done.classifications and not faults:
        return _Findings(faults, [*notes, *(replace(each, message=f"{each.message} {_AGREES}") for each in versions)])
    return _Findings([*faults, *versions], notes)


def _is_version(difference: Difference) -> bool:
    """Tell whether only the name of a version differs, of which `check_versions` tells."""
    path, place = Path(difference.path), difference.place
    return path.name in {SIMULATIONS_FILE, CLASSIFIER_FILE} and place.split(".")[0] in {"packages", "engine"}


def _check_records(root: Path, params: Params) -> Iterator[AuditFinding]:
    """Recompute each trial's fingerprint from the submission and params as they are now, whatever DVC recorded.

    A failure that counts by decision must have that in the history.
    """
    for model, team in product(params.models, params.teams):
        folder = stage_dir("raw", model, team)
        try:
            stale = stale_records(params, model, load_submission(root / SUBMISSIONS / team), root / folder)
            unknown = unknown_decisions(params, model, team, root / folder, root / TRIAL_HISTORY)
        except SubmissionError:  # it is not what was evaluated: the comparison with dvc.lock says so
            continue
        except FileError as error:
            yield finding("record", None, printable(str(error).removeprefix(f"{root}/")))
            continue
        for trial in stale:
            message = "was made from another submission, model, seed or limits than are there now"
            path = record_path(folder, team, trial).as_posix()
            yield finding("record", path, f"{message}. {AGAIN.capitalize()} to do the trial again.")
        for trial in unknown:
            message = f"its failure counts by a decision that {TRIAL_HISTORY} does not hold. Restore that file from git"
            path = record_path(folder, team, trial).as_posix()
            yield finding("record", path, f"{message}, or delete the record and {AGAIN}.")


def _check_result(root: Path, params: Params, recorded: ResultHash | None) -> Iterator[AuditFinding]:
    """Derive the result hash from what is there, and name the parts in which that of the ranking differs."""
    path = RANKING_JSON.as_posix()
    # without --force, DVC would bring back what an altered lock says that these inputs give
    redo = f"rank what is there now with `dvc repro --force --single-item {RANK}`, then {AGAIN}"
    if recorded is None:
        yield finding("hash", path, f"has no result hash, so the stage {RANK} did not write it: {redo}.")
        return
    ranking = json.loads(read_stage_file(root / RANKING_JSON))
    name, classifier = params.similarity.model, ranking["classifier"]
    if (root / name).is_dir():  # else it came from a hub
        try:
            classifier = f"{name} sha256:{Source(name, None, root / name).sha256}"
        except OSError:
            classifier = f"{name} sha256:incomplete"
    try:
        now = result_hash(params, ranking, deciding_files(params, root), classifier)
    except FileError as error:
        yield finding("hash", path, f"its result hash cannot be derived: {printable(str(error))}")
        return
    parts = [part for part in sorted(now.parts | recorded.parts) if now.parts.get(part) != recorded.parts.get(part)]
    if parts:
        message = f"its result hash is of another state of: {', '.join(map(printable, parts))}"
        yield finding("hash", path, f"{message}. Put back what was changed, or {redo}.")
    elif now != recorded:
        yield finding("hash", path, f"its result hash is not that of its parts: {redo}.")


def _params_used(stages: Iterable[PipelineStage]) -> tuple[ParamUsed, ...]:
    """Return every value that stages ran with, by name; a name has several where stages ran with different ones."""
    used: dict[tuple[str, str], ParamUsed] = {}
    for stage in stages:
        for name, value in stage.locked_params.items():
            before = used.get((name, repr(value)), ParamUsed(name, value, ()))
            used[name, repr(value)] = replace(before, stages=(*before.stages, stage.name))
    return tuple(used[key] for key in sorted(used))


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {printable(key): _printable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(each) for each in value]
    if isinstance(value, Decimal):
        return plain(value)
    return printable(value) if isinstance(value, str) else value
