"""Reading the stability, similarity and diversity files of a team, in the official format and either layout.

Official layout: `<SOURCE>/<TEAM>/<STAGE>/<C>.json`; the pipeline's: `data/<STAGE>/<MODEL>/<TEAM>/<C>.json`. The folders
are untrusted: `stage_files` bounds sizes before reading and names every value that it refuses.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pcgeval.core.layout import CLASSIFIER_FILE, SIMULATIONS_FILE, letter_file, stage_dir, trial_number
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


@dataclass(frozen=True)
class TeamFolders:
    """Where the three measurements of one team and one model lie."""

    stability: Path
    similarity: Path
    diversity: Path

    @classmethod
    def official(cls, team: Path) -> "TeamFolders":
        """Return the folders below `<SOURCE>/<TEAM>`."""
        return cls(team / "stability", team / "similarity", team / "diversity")

    @classmethod
    def pipeline(cls, model: str, team: str) -> "TeamFolders":
        """Return the folders below `data/`."""
        return cls(
            stage_dir("stability", model, team),
            stage_dir("similarity", model, team),
            stage_dir("diversity", model, team),
        )


def read_source(source: Path, rules: ScoringRules) -> dict[str, TeamResults]:
    """Read all teams of one model from the official layout, by team.

    A trial counts as failed if it has no stability or no similarity.

    Raises:
        FileError: A file is there but is not what the official tools write.
        ScoringError: The folder has no teams, or an entry names no trial.
    """
    results = {folder.name: read_team(TeamFolders.official(folder), rules) for folder in _team_folders(source)}
    if not results:
        raise ScoringError(
            f"{source}: has no team folders. Name the folder that holds <TEAM>/stability/<C>.json and so on."
        )
    return results


def _team_folders(source: Path) -> list[Path]:
    try:
        folders = [path for path in source.iterdir() if path.is_dir()]
    except OSError as error:
        raise ScoringError(f"{source}: cannot be read ({error.strerror}). Name a folder of results.") from error
    teams = [path for path in folders if not path.name.startswith(".") and path.name not in RESERVED_TEAMS]
    for path in teams:
        if not path.name.isprintable():
            raise ScoringError(f"{source}: the folder name {path.name!r} is no team name. Rename or remove it.")
    return sorted(teams, key=lambda path: byte_order(path.name))


def read_team(folders: TeamFolders, rules: ScoringRules) -> TeamResults:
    """Read what one team got with one model; an absent file becomes None.

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
    return TeamResults(letters, len(rules.letters) * rules.trials - done, read_provenance(folders))


def read_letter(folders: TeamFolders, letter: str, rules: ScoringRules) -> LetterResults:
    """Read one letter's three files; see `read_team`."""
    stability_path, similarity_path = letter_file(folders.stability, letter), letter_file(folders.similarity, letter)
    stability = _if_there(StabilityFile, stability_path)
    similarity = _if_there(SimilarityFile, similarity_path)
    diversity = _if_there(DiversityFile, letter_file(folders.diversity, letter))
    return LetterResults(
        tuple(_entry(stability_path, each.name, each.score, rules) for each in stability.levels) if stability else None,
        tuple(_entry(similarity_path, each.name, each.similarity, rules) for each in similarity.trials)
        if similarity
        else None,
        from_float(diversity.rate) if diversity else None,
    )


def read_provenance(folders: TeamFolders) -> Provenance:
    """Read which engine and classifier measured the team; `unknown` where the official tools did."""
    simulations = _if_there(SimulationsFile, folders.stability / SIMULATIONS_FILE)
    classifier = _if_there(ClassifierFile, folders.similarity / CLASSIFIER_FILE)
    return Provenance(
        simulations.engine_line if simulations else UNKNOWN,
        f"{classifier.name} sha256:{classifier.sha256}" if classifier else UNKNOWN,
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
