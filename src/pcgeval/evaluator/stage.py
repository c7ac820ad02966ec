"""The stage simulate: from the levels of all models and teams to stability files, pictures and replays.

Equal levels are simulated once. `.cache` keeps simulations by the hashes of the level, the engine, the physics and the
code, so a run simulates only new levels. You may delete the folder.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from pcgeval.core.console import Progress
from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_bytes, sha256_json, write_bytes
from pcgeval.core.packages import installed_version, installed_versions, source_sha256
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import DATA, SIMULATIONS_FILE, Trial, letter_file, replays_file, stage_dir, tag, trial_file
from pcgeval.formats.params import Params, PhysicsParams
from pcgeval.formats.stages import (
    BlockPath,
    ReplayedTrial,
    ReplaysFile,
    SimulatedLevel,
    SimulatedTrial,
    SimulationsFile,
    StabilityEntry,
    StabilityFile,
    StageFile,
    TrialOutcome,
    changed_teams,
    failed,
    rate,
    read_failures,
    trial_contents,
    write_outcomes,
)
from pcgeval.parallel.processes import chosen_scheduler, map_batches

CACHE = Path(".cache", "simulations")
ENGINE_PACKAGES = {"pymunk": "pymunk", "box2d": "Box2D"}  # the package of each engine
LEVELS_PER_PROCESS = 50  # starting a process takes as long as simulating 50 levels
LEAST_BATCHES, MOST_LEVELS = 200, 8  # of batches, so that all cores are busy to the end; of levels in each


class KeptSimulation(StageFile):
    """A cached simulation: the end of a level and the paths of its blocks, or why it failed."""

    failure: Failure | None = None
    level: SimulatedLevel | None = None
    paths: tuple[BlockPath, ...] = ()


def simulate_stage(params: Params, root: Path = Path(), *, processes: int | None = None) -> None:
    """Simulate each level once; write stability files, pictures, replays and the outcome of each trial.

    `data/stability/<model>/<team>` gets the official `<letter>.json`, `simulations.json` with the engine, the physics
    and the end of every block, and `trials.json` with the failures up to here. Other processes simulate the levels, so
    a level that crashes the engine fails alone; `processes` is their number, by default that of levels and cores.
    """
    physics = params.physics
    with changed_teams(
        params,
        root,
        [DATA / "stability", DATA / "images", DATA / "replays"],
        DATA / "levels",
        reads=lambda *place: [stage_dir("levels", *place)],
        writes=lambda *place: [stage_dir("stability", *place), stage_dir("images", *place), replays_file(*place)],
        made_from=lambda *_: [params.competition, physics, installed_packages(physics)],
    ) as changed:
        levels = trial_contents(params, root, "levels", changed)
        files = _simulate_new(params, levels.values(), root / CACHE, processes)
        for model, team in tuple(changed):
            team_trials = {key[2]: files[level] for key, level in levels.items() if key[:2] == (model, team)}
            _write_team(params, root, model, team, team_trials)
            if None in team_trials.values():
                changed.remove((model, team))


def _simulate_new(
    params: Params, levels: Collection[bytes], cache: Path, processes: int | None
) -> dict[bytes, Path | None]:
    """Simulate new levels, equal ones once; return the file of each simulation, beside its picture.

    A level that crashed the engine has no file, so the next run tries it again.
    """
    if not levels:
        return {}  # without loading the engine for its version
    physics, code = params.physics, source_sha256("evaluator", "levels")
    cache_key = [installed_engine(physics), installed_packages(physics), physics.model_dump(mode="json"), code]
    folder = cache / sha256_json(cache_key)
    files: dict[bytes, Path | None] = {}
    new: dict[bytes, Path] = {}
    for level in dict.fromkeys(levels):
        name = sha256_bytes(level)
        file = files[level] = folder / name[:2] / f"{name}.json"
        try:
            KeptSimulation.read(file)
            file.with_suffix(".png").stat()
        except (FileError, FileNotFoundError):  # one of both is missing, or damaged
            new[level] = file
    if not new:
        return files  # no cluster is needed
    processes = processes or min(os.cpu_count() or 1, 1 + len(new) // LEVELS_PER_PROCESS)
    size = max(1, min(MOST_LEVELS, len(new) // LEAST_BATCHES))
    ordered = list(new)
    batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    work = partial(_simulate, physics=physics)
    results = map_batches(work, batches, processes, chosen_scheduler(default=params.execution.scheduler))
    with Progress("simulate", len(new)) as progress:
        for (level, file), result in zip(new.items(), chain.from_iterable(results), strict=True):
            progress.step()
            if result is None:
                files[level] = None
                continue
            simulation, picture = result
            write_bytes(file.with_suffix(".png"), picture)
            simulation.write(file)  # last: it vouches for the picture
    return files


def _simulate(levels: Sequence[bytes], physics: PhysicsParams) -> list[tuple[KeptSimulation, bytes]]:
    """Return the simulation of each level, and its picture in PNG."""
    from pcgeval.evaluator.image import level_png  # noqa: PLC0415 - both load numpy, and most runs have nothing new
    from pcgeval.evaluator.physics import simulate_or_reason  # noqa: PLC0415

    simulations = []
    for end in (simulate_or_reason(level, physics) for level in levels):
        if isinstance(end, Failure):
            simulations.append((KeptSimulation(failure=replace(end, detail="")), b""))
            continue
        level = SimulatedLevel(
            best_of=end.trial,
            types=end.types,
            positions=tuple((x, y, angle) for x, y, angle in end.positions.tolist()),
            moved=end.moved,
            dead=end.dead,
            starts=end.starts,
        )
        simulations.append((KeptSimulation(level=level, paths=end.paths), level_png(end)))
    return simulations


def _write_team(params: Params, root: Path, model: str, team: str, files: Mapping[Trial, Path | None]) -> None:
    levels, stability, images = (root / stage_dir(name, model, team) for name in ("levels", "stability", "images"))
    failures = read_failures(levels)
    simulated: dict[Trial, SimulatedLevel] = {}
    replayed: list[ReplayedTrial] = []
    outcomes: list[TrialOutcome] = []
    for trial in params.trials():
        if trial not in files:
            outcomes.append(failed(trial, failures.get(trial) or failure("level-missing")))
            continue
        file = files[trial]
        simulation = KeptSimulation.read(file) if file else KeptSimulation()
        if file is None or simulation.level is None:
            outcomes.append(failed(trial, simulation.failure or failure("simulation-crashed")))
            continue
        picture = file.with_suffix(".png").read_bytes()
        simulated[trial] = simulation.level
        if simulation.paths:
            replayed.append(ReplayedTrial(letter=trial.letter, trial=trial.number, paths=simulation.paths))
        outcomes.append(TrialOutcome(letter=trial.letter, trial=trial.number, picture_sha256=sha256_bytes(picture)))
        write_bytes(trial_file(images, "images", team, trial), picture)
    for letter in params.competition.characters:
        moved = {trial: level.moved for trial, level in simulated.items() if trial.letter == letter}
        _stability_file(team, moved).write(letter_file(stability, letter))
    SimulationsFile(
        engine=installed_engine(params.physics),
        packages=installed_packages(params.physics),
        physics=params.physics.model_dump(mode="json"),
        trials=tuple(
            SimulatedTrial(letter=trial.letter, trial=trial.number, **dict(level)) for trial, level in simulated.items()
        ),
    ).write(stability / SIMULATIONS_FILE)
    ReplaysFile(trials=tuple(replayed)).write(root / replays_file(model, team))
    write_outcomes(stability, outcomes)


def _stability_file(team: str, moved: Mapping[Trial, Sequence[bool]]) -> StabilityFile:
    """Return a letter's official file from `moved` of each level, in the order of the trials.

    The official tag is the full path of the level file; ours starts at the team's folder, the same on every machine.
    """
    levels = tuple(
        StabilityEntry(
            name=f"{team}/levels/{trial.letter}/{tag(team, trial)}.xml",
            score=(len(of_level) - sum(of_level)) / len(of_level) if of_level else 0.0,  # officially NaN
            total_blocks=len(of_level),
            moving_blocks=sum(of_level),
        )
        for trial, of_level in moved.items()
    )
    return StabilityFile(count=len(levels), rate=rate([level.score for level in levels]), levels=levels)


def installed_engine(physics: PhysicsParams) -> dict[str, str]:
    """Return the name and the version of the physics engine, and the versions of its parts."""
    version = {"name": physics.engine, "version": installed_version(ENGINE_PACKAGES[physics.engine]) or "not installed"}
    if physics.engine != "pymunk":
        return version
    from pymunk import chipmunk_version  # noqa: PLC0415 - as above

    return version | {"chipmunk": chipmunk_version}


def installed_packages(physics: PhysicsParams) -> dict[str, str]:
    """Return the versions of the packages that simulate and draw."""
    return installed_versions("numpy", "pillow", ENGINE_PACKAGES[physics.engine])
