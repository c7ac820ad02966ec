"""Reading the stability, similarity and diversity files of a team, in the official format and either layout.

Official layout: `<SOURCE>/<TEAM>/<STAGE>/<C>.json`; the pipeline's: `data/<STAGE>/<MODEL>/<TEAM>/<C>.json`. The folders
are untrusted: `stage_files` bounds sizes before reading and names every value that it refuses.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pcgeval.core.layout import CLASSIFIER_FILE, SIMULATIONS_FILE, STAGE_DIRS, StageDir, letter_file, trial_number
from pcgeval.core.params import RESERVED_TEAMS
from pcgeval.core.stage_files import (
    ClassifierFile,
    DiversityFile,
    SimilarityFile,
    SimulationsFile,
    StabilityFile,
    StageFile,
)
from pcgeval.scoring.decimals import from_float
from pcgeval.scoring.inputs import (
    UNKNOWN,
    Entry,
    LetterResults,
    Provenance,
    ScoringError,
    ScoringRules,
    TeamResults,
    byte_order,
    first_by_trial,
)

Kind = TypeVar("Kind", bound=StageFile)
StageFolders = Mapping[StageDir, Path]  # a team's folders with one model: stability, similarity, diversity and others


def read_source(source: Path, rules: ScoringRules) -> dict[str, TeamResults]:
    """Read all teams of one model from the official layout, by team.

    A trial counts as failed if it has no stability or no similarity.

    Raises:
        FileError: A file is there but is not what the official tools write.
        ScoringError: The folder has no teams, or an entry names no trial.
    """
    try:
        folders = {
            path.name: path
            for path in sorted(source.iterdir(), key=lambda path: byte_order(path.name))
            if path.is_dir() and not path.name.startswith(".") and path.name not in RESERVED_TEAMS
        }
    except OSError as error:
        raise ScoringError(f"{source}: cannot be read ({error.strerror}). Name a folder of results.") from error
    if unprintable := next((name for name in folders if not name.isprintable()), None):
        raise ScoringError(f"{source}: the folder name {unprintable!r} is no team name. Rename or remove it.")
    has_stages = any((path / stage).is_dir() for path in folders.values() for stage in STAGE_DIRS)
    has_folders = any(each.is_dir() for path in folders.values() for each in path.iterdir())
    if not folders or (has_folders and not has_stages):
        raise ScoringError(
            f"{source}: has no team folders with results. Name the folder of one model, which holds "
            "<TEAM>/stability/<C>.json and so on."
        )
    return {team: read_team({name: path / name for name in STAGE_DIRS}, rules) for team, path in folders.items()}


def read_team(folders: StageFolders, rules: ScoringRules) -> TeamResults:
    """Read what one team got with one model, by which engine and classifier; an absent file becomes None.

    Raises:
        FileError: A file is there but is not what the official tools write.
        ScoringError: An entry names no trial.
    """
    letters = {letter: _read_letter(folders, letter, rules) for letter in rules.letters}
    done = [
        trial
        for each in letters.values()
        for trial in first_by_trial(each.stability).keys() & first_by_trial(each.similarity).keys()
        if 1 <= trial <= rules.trials
    ]
    simulations = _if_there(SimulationsFile, folders["stability"] / SIMULATIONS_FILE)
    classifier = _if_there(ClassifierFile, folders["similarity"] / CLASSIFIER_FILE)
    provenance = Provenance(
        simulations.engine_line if simulations else UNKNOWN,
        f"{classifier.name} sha256:{classifier.sha256}" if classifier else UNKNOWN,
        frozenset(pair for each in (simulations, classifier) if each for pair in each.packages.items()),
    )
    return TeamResults(letters, len(rules.letters) * rules.trials - len(done), provenance)


def _read_letter(folders: StageFolders, letter: str, rules: ScoringRules) -> LetterResults:
    paths = {name: letter_file(folder, letter) for name, folder in folders.items()}
    stability = _if_there(StabilityFile, paths["stability"])
    similarity = _if_there(SimilarityFile, paths["similarity"])
    diversity = _if_there(DiversityFile, paths["diversity"])

    def entries(path: Path, values: Iterable[tuple[str, float]]) -> tuple[Entry, ...]:
        return tuple(_entry(path, tag, value, rules) for tag, value in values)

    results = LetterResults(diversity=from_float(diversity.rate) if diversity else None)
    if stability:
        values = entries(paths["stability"], ((each.name, each.score) for each in stability.levels))
        results = replace(results, stability=values)
    if similarity:
        values = entries(paths["similarity"], ((each.name, each.similarity) for each in similarity.trials))
        results = replace(results, similarity=values)
    return results


def _if_there(kind: type[Kind], path: Path) -> Kind | None:
    return kind.read(path) if os.path.lexists(path) else None


def _entry(path: Path, name: str, value: float, rules: ScoringRules) -> Entry:
    trial = trial_number(name)
    if trial is None and not rules.official_quirks:
        raise ScoringError(
            f"{path}: {name[:100]!r} does not end in a trial number such as team_A_1. "
            "Make the file again with the stage that wrote it, or remove it."
        )
    return Entry(trial, from_float(value))
