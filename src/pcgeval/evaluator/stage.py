"""The stage simulate: from the levels of one model and team to stability files, pictures and replays."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pymunk

from pcgeval.core.files import empty_folder, write_bytes
from pcgeval.core.layout import SIMULATIONS_FILE, Trial, letter_file, trial_file
from pcgeval.core.packages import installed_version, installed_versions
from pcgeval.core.params import PhysicsParams
from pcgeval.core.spread import spread
from pcgeval.core.stage_files import (
    ReplayedTrial,
    ReplaysFile,
    SimulatedTrial,
    SimulationsFile,
    TrialOutcome,
    failed,
    read_outcomes,
    succeeded,
    write_outcomes,
)
from pcgeval.core.untrusted import UntrustedFileError, read_bounded
from pcgeval.evaluator.image import level_png
from pcgeval.evaluator.physics import ENGINE_PACKAGES, SimulationError, simulate
from pcgeval.evaluator.stability import Stability, stability_file
from pcgeval.levels.errors import LevelError

MAX_BYTES = 8 * 2**20  # of one level file; a full grid needs 40 kB
CRASHED = "the physics engine crashed on this level"
LEVELS_PER_PROCESS = 50  # starting a process costs about as much as simulating so many


@dataclass(frozen=True)
class _Evaluation:
    stability: Stability
    png: bytes


def simulate_stage(
    levels: Path,
    stability: Path,
    images: Path,
    team: str,
    trials: Iterable[Trial],
    *,
    physics: PhysicsParams | None = None,
    replays: Path | None = None,
    processes: int | None = None,
    scheduler: str | None = None,
) -> list[TrialOutcome]:
    """Simulate each level of a team once; write stability files, pictures, replays and the outcome of each trial.

    Both output folders are emptied first and get `trials.json`. The stability folder gets the official `<letter>.json`
    for every letter of `trials`, and `simulations.json` with the engine, the physics and the end of every block.

    Args:
        levels: The folder of one model and team with the levels and their `trials.json`.
        stability: The folder for the stability files.
        images: The folder for the pictures, `<letter>/<team>_<letter>_<trial>.png`.
        team: The team's name, part of the file names.
        trials: The trials to go through; a trial that failed before is carried on.
        physics: How to simulate.
        replays: The file for the replays of the levels in which something moved; None writes none.
        processes: How many processes share the work; None chooses by the number of levels and cores. The files do not
            depend on it.
        scheduler: The address of a Dask cluster that does the work instead.

    Raises:
        FileError: `trials.json` or a level that is there cannot be read, or an output folder cannot be emptied.
    """
    physics = physics or PhysicsParams()
    previous = read_outcomes(levels)
    for folder in (stability, images):
        empty_folder(folder, keep=levels)
    outcomes = {
        trial: previous.get(trial, failed(trial, "simulate", "the levels folder lists no such trial"))
        for trial in trials
    }
    contents = {
        trial: _read(trial_file(levels, "levels", team, trial))
        for trial, outcome in sorted(outcomes.items())
        if outcome.reason is None
    }
    simulated: dict[Trial, Stability] = {}
    evaluations = _evaluate_all(list(contents.values()), physics, processes, scheduler)
    for trial, evaluation in zip(contents, evaluations, strict=True):
        if isinstance(evaluation, _Evaluation):
            outcomes[trial], simulated[trial] = succeeded(trial), evaluation.stability
            write_bytes(trial_file(images, "images", team, trial), evaluation.png)
        else:
            outcomes[trial] = failed(trial, "simulate", evaluation)
    for letter in sorted({trial.letter for trial in outcomes}):
        stability_file(team, letter, simulated).write(letter_file(stability, letter))
    _simulations_file(simulated, physics).write(stability / SIMULATIONS_FILE)
    if replays is not None:
        _replays_file(simulated).write(replays)
    for folder in (stability, images):
        write_outcomes(folder, outcomes.values())
    return [outcomes[trial] for trial in sorted(outcomes)]


def _read(path: Path) -> bytes | str:
    """Read a level file; return why there is no level where its author may have caused it."""
    try:
        return read_bounded(path, MAX_BYTES, follow_link=True)  # DVC may link its cache
    except UntrustedFileError as error:
        if error.kind in {"missing", "too large"}:
            return f"the level file {error.reason}"
        raise


def _evaluate_all(
    levels: Sequence[bytes | str], physics: PhysicsParams, processes: int | None, scheduler: str | None
) -> Iterator[_Evaluation | str]:
    """Yield the evaluation, or the reason why there is none, of each level in order."""
    workers = processes or min(os.cpu_count() or 1, 1 + len(levels) // LEVELS_PER_PROCESS)
    work = partial(_evaluate, physics=physics)
    for (evaluation,) in spread(work, ([level] for level in levels), workers, scheduler):
        yield evaluation or CRASHED


def _evaluate(levels: Sequence[bytes | str], physics: PhysicsParams) -> list[_Evaluation | str]:
    return [_evaluate_one(level, physics) for level in levels]


def _evaluate_one(level: bytes | str, physics: PhysicsParams) -> _Evaluation | str:
    if isinstance(level, str):
        return level
    try:
        stability = simulate(level, physics)
    except LevelError as error:
        return error.reason
    except SimulationError as error:
        return str(error)
    return _Evaluation(stability, level_png(stability))


def _simulations_file(simulated: dict[Trial, Stability], physics: PhysicsParams) -> SimulationsFile:
    return SimulationsFile(
        engine=installed_engine(physics),
        packages=installed_packages(physics),
        physics=physics.model_dump(mode="json"),
        trials=tuple(
            SimulatedTrial(
                letter=trial.letter,
                trial=trial.number,
                best_of=result.trial,
                types=result.types,
                positions=tuple((x, y, angle) for x, y, angle in result.positions.tolist()),
                moved=result.moved,
                dead=result.dead,
                starts=result.starts,
            )
            for trial, result in sorted(simulated.items())
        ),
    )


def _replays_file(simulated: dict[Trial, Stability]) -> ReplaysFile:
    return ReplaysFile(
        trials=tuple(
            ReplayedTrial(letter=trial.letter, trial=trial.number, paths=result.paths)
            for trial, result in sorted(simulated.items())
            if result.paths
        )
    )


def installed_engine(physics: PhysicsParams) -> dict[str, str]:
    """Return the name and the version of the physics engine that simulates here, and those of its parts."""
    version = {"name": physics.engine, "version": installed_version(ENGINE_PACKAGES[physics.engine]) or "not installed"}
    return version | ({"chipmunk": pymunk.chipmunk_version} if physics.engine == "pymunk" else {})


def installed_packages(physics: PhysicsParams) -> dict[str, str]:
    """Return the versions of the packages that simulate and draw here."""
    return installed_versions("numpy", "pillow", ENGINE_PACKAGES[physics.engine])
