"""Trace a line of the ranking to its inputs: from an output to the stage that made it, and on to what that read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from pcgeval.audit.pipeline import Artifact, Pipeline, PipelineStage
from pcgeval.audit.workspace import FileHash, Workspace, is_below, overlap
from pcgeval.core.files import sha256_json
from pcgeval.core.layout import (
    DATA,
    EVIDENCE,
    GRADES,
    JUDGE_RECORDINGS,
    JUDGEMENTS,
    OFFICIAL_RESULTS,
    RANKING_JSON,
    RECORDINGS,
    REPLAYS,
    RUBRICS,
    STAGE_DIRS,
    SUBMISSIONS,
    TRIALS_FILE,
)
from pcgeval.core.params import Params

RAW = (DATA / "raw").as_posix()
_LIST = "/" + TRIALS_FILE
_BLOCK = 1 << 20
InputKind = Literal["submission", "exchanges", "classifier", "rubric", "script", "source", "file"]


# the names that follow these folders in a path
_NAMED: dict[tuple[str, ...], tuple[str, ...]] = {
    **{(DATA.name, name): ("model", "team") for name in STAGE_DIRS},
    RECORDINGS.parts: ("model", "team"),
    JUDGE_RECORDINGS.parts: ("team",),
    JUDGEMENTS.parts: ("team",),
    REPLAYS.parts: ("model", "team"),
    EVIDENCE.parts: ("team", "model"),
    SUBMISSIONS.parts: ("team",),
    GRADES.parts: ("team",),
    OFFICIAL_RESULTS.parts: ("model",),
}


@dataclass(frozen=True)
class Owner:
    """The model and the team that a path belongs to; None where the path names none."""

    model: str | None = None
    team: str | None = None


def owner_of(path: str) -> Owner:
    """Return the model and the team that a path belongs to."""
    parts = PurePosixPath(path).parts
    length = 3 if parts[:3] in _NAMED else 2
    named = dict(zip(_NAMED.get(parts[:length], ()), parts[length:], strict=False))
    return Owner(**{key: name.split(".", maxsplit=1)[0] for key, name in named.items()})


@dataclass(frozen=True, order=True)
class Locked:
    """An entry of dvc.lock that covers an input: the file itself or a folder above it, and DVC's hash of that."""

    path: str
    md5: str


@dataclass(frozen=True)
class Input:
    """One file that a result depends on; `locked` are the entries that stages recorded, the closest folder first."""

    kind: InputKind
    path: str
    sha256: str | None  # of the file as it is now; None: not there or not readable
    md5: str | None
    locked: tuple[Locked, ...]
    exchanges: int | None = None  # recorded calls of a model in the file


class Tracer:
    """Walks back through the pipeline, keeping to one team where a path belongs to a team."""

    def __init__(self, pipeline: Pipeline, workspace: Workspace, params: Params) -> None:
        """Trace in a pipeline; files are hashed as they are in the workspace."""
        self._stages = pipeline.stages
        self._outputs = [(out.path, owner_of(out.path), stage) for stage in self._stages for out in stage.outs]
        self._made = frozenset(
            dep.path
            for stage in self._stages
            for dep in stage.deps
            if any(overlap(path, dep.path) for path, _, _ in self._outputs)
        )
        self._workspace = workspace
        self._params = params

    def trace(self, team: str) -> tuple[tuple[str, ...], tuple[Input, ...]]:
        """Return the stages and inputs behind the team's line of the ranking and its grades.

        The names of the stages stand in the pipeline's order, the inputs in that of kinds and paths.
        """
        visited: set[str] = set()
        inputs: list[Input] = []
        waiting = [RANKING_JSON.as_posix(), (GRADES / team).as_posix()]
        while waiting:
            path = waiting.pop()
            for out, owner, stage in self._outputs:
                if stage.name not in visited and overlap(out, path) and self._concerns(owner, team):
                    visited.add(stage.name)
                    waiting += [dep.path for dep in stage.deps]
                    inputs += [*self._given(stage, team), *self._asked(stage)]
        return tuple(stage.name for stage in self._stages if stage.name in visited), merge_inputs(inputs)

    def _concerns(self, owner: Owner, team: str) -> bool:
        return owner.team in (None, team) and (owner.model is None or owner.model in self._params.models)

    def _given(self, stage: PipelineStage, team: str) -> Iterator[Input]:
        """Yield the files that a stage reads and that no stage makes."""
        for dep in stage.deps:
            if dep.path not in self._made:
                for file in self._workspace.listing(dep.path).files:
                    if self._concerns(owner_of(file.path), team) and self._is_read(file.path):
                        yield self._input(dep, file)
                if not self._workspace.listing(dep.path).exists:
                    yield Input(self._kind(dep.path), dep.path, None, None, _locked(dep))

    def _is_read(self, path: str) -> bool:
        """Return whether a recording is replayed; that of a model asked for real, or that does not judge, is not."""
        if is_below(path, JUDGE_RECORDINGS.as_posix()):
            return self._judge_is("recorded")
        model = owner_of(path).model
        return model is None or not is_below(path, RECORDINGS.as_posix()) or self._is_recorded(model)

    def _is_recorded(self, model: str) -> bool:
        return self._params.models[model].backend == "recorded"

    def _judge_is(self, *backends: str) -> bool:
        """Return whether a model behind one of these backends judges."""
        rubric = self._params.rubric
        return rubric.judge == "simple" and rubric.model is not None and rubric.model.backend in backends

    def _asked(self, stage: PipelineStage) -> Iterator[Input]:
        """Yield the replies of a model that was asked for real: no other file holds them, so they are an input."""
        for out in stage.outs:
            if is_below(out.path, JUDGEMENTS.as_posix()) and self._judge_is("ollama", "openai", "llamacpp"):
                for file in self._workspace.listing(out.path).files:
                    yield self._input(out, file)
            model = owner_of(out.path).model
            if is_below(out.path, RAW) and model is not None and not self._is_recorded(model):
                now = self._workspace.listing(out.path)
                tree = sha256_json([[each.path.removeprefix(out.path + "/"), each.sha256] for each in now.files])
                records = sum(each.path.endswith(".json") and not each.path.endswith(_LIST) for each in now.files)
                yield Input("exchanges", out.path, tree if now.exists else None, now.md5, _locked(out), records)

    def _input(self, dep: Artifact, file: FileHash) -> Input:
        kind = self._kind(file.path)
        exchanges = count_lines(self._workspace.root / file.path) if kind == "exchanges" else None
        return Input(kind, file.path, file.sha256, file.md5, _locked(dep), exchanges)

    def _kind(self, path: str) -> InputKind:
        kinds: tuple[tuple[str, InputKind], ...] = (
            (SUBMISSIONS.as_posix(), "submission"),
            (RECORDINGS.as_posix(), "exchanges"),
            (JUDGEMENTS.as_posix(), "exchanges"),
            (self._params.similarity.model, "classifier"),
            ("data/classifier", "classifier"),
            (RUBRICS.as_posix(), "rubric"),
            ("stages", "script"),
            ("src", "source"),
        )
        return next((kind for folder, kind in kinds if is_below(path, folder)), "file")


def merge_inputs(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Return each file once, in the order of kinds and paths, with every entry of dvc.lock that covers it."""
    merged: dict[str, Input] = {}
    for each in inputs:
        known = set(merged[each.path].locked) if each.path in merged else set()
        closest_first = sorted(known | set(each.locked), key=lambda locked: (-len(locked.path), locked))
        merged[each.path] = replace(each, locked=tuple(closest_first))
    return tuple(sorted(merged.values(), key=lambda each: (get_args(InputKind).index(each.kind), each.path)))


def _locked(artifact: Artifact) -> tuple[Locked, ...]:
    return () if artifact.md5 is None else (Locked(artifact.path, artifact.md5),)


def count_lines(place: Path) -> int:
    """Return how many lines, of a recording exchanges, a file has; read in blocks because a line may be long."""
    lines, last = 0, b"\n"
    with place.open("rb") as file:
        while block := file.read(_BLOCK):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n")
