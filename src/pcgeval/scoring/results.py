"""Reading the stability, similarity and diversity files of a team, in the official format and either layout.

Official layout: `<SOURCE>/<TEAM>/<STAGE>/<C>.json`; the pipeline's: `data/<STAGE>/<MODEL>/<TEAM>/<C>.json`. The folders
are untrusted: `stage_files` bounds sizes before reading and names every value that it refuses.
"""

import os
from collections.abc import Mapping
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
        folders = [path for path in source.iterdir() if path.is_dir()]
    except OSError as error:
        raise ScoringError(f"{source}: cannot be read ({error.strerror}). Name a folder of results.") from error
    results = {}
    for path in sorted(folders, key=lambda path: byte_order(path.name)):
        if path.name.startswith(".") or path.name in RESERVED_TEAMS:
            continue
        if not path.name.isprintable():
            raise ScoringError(f"{source}: the folder name {path.name!r} is no team name. Rename or remove it.")
        results[path.name] = read_team({name: path / name for name in STAGE_DIRS}, rules)
    if not results:
        raise ScoringError(
            f"{source}: has no team folders. Name the folder that holds <TEAM>/stability/<C>.json and so on."
        )
    if not any((source / team / stage).is_dir() for team in results for stage in STAGE_DIRS) and any(
        each.is_dir() for team in results for each in (source / team).iterdir()
    ):
        raise ScoringError(
            f"{source}: its folders hold no results of teams. Name the folder of one model, which holds "
            "<TEAM>/stability/<C>.json and so on."
        )
    return results


def read_team(folders: StageFolders, rules: ScoringRules) -> TeamResults:
    """Read what one team got with one model, by which engine and classifier; an absent file becomes None.

    Raises:
        FileError: A file is there but is not what the official tools write.
        ScoringError: An entry names no trial.
    """
    letters = {letter: read_letter(folders, letter, rules) for letter in rules.letters}
    done = sum(
        trial in stability and trial in similarity
        for each in letters.values()
        for stability, similarity in [(first_by_trial(each.stability), first_by_trial(each.similarity))]
        for trial in range(1, rules.trials + 1)
    )
    simulations = _if_there(SimulationsFile, folders["stability"] / SIMULATIONS_FILE)
    classifier = _if_there(ClassifierFile, folders["similarity"] / CLASSIFIER_FILE)
    provenance = Provenance(
        simulations.engine_line if simulations else UNKNOWN,
        f"{classifier.name} sha256:{classifier.sha256}" if classifier else UNKNOWN,
        frozenset(pair for each in (simulations, classifier) if each for pair in each.packages.items()),
    )
    return TeamResults(letters, len(rules.letters) * rules.trials - done, provenance)


def read_letter(folders: StageFolders, letter: str, rules: ScoringRules) -> LetterResults:
    """Read one letter's three files; see `read_team`."""
    stability_path, similarity_path = (
        letter_file(folders["stability"], letter),
        letter_file(folders["similarity"], letter),
    )
    stability = _if_there(StabilityFile, stability_path)
    similarity = _if_there(SimilarityFile, similarity_path)
    diversity = _if_there(DiversityFile, letter_file(folders["diversity"], letter))
    return LetterResults(
        tuple(_entry(stability_path, each.name, each.score, rules) for each in stability.levels) if stability else None,
        tuple(_entry(similarity_path, each.name, each.similarity, rules) for each in similarity.trials)
        if similarity
        else None,
        from_float(diversity.rate) if diversity else None,
    )


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
