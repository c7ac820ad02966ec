"""The inputs of scoring: the rules, and the measured values of every model, team and letter.

Official layout: `<SOURCE>/<TEAM>/<STAGE>/<C>.json`; the pipeline's: `data/<STAGE>/<MODEL>/<TEAM>/<C>.json`. A missing
file is None and a missing trial is left out; the formulas count both as 0, as the rules say.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from pcgeval.core.errors import PcgevalError
from pcgeval.core.text import listed
from pcgeval.formats.layout import (
    CLASSIFIER_FILE,
    LETTERS,
    SIMULATIONS_FILE,
    STAGE_DIRS,
    StageDir,
    Trial,
    letter_file,
    trial_number,
)
from pcgeval.formats.params import RESERVED_TEAMS
from pcgeval.formats.stages import (
    SLACK,
    ClassifierFile,
    DiversityFile,
    SimilarityFile,
    SimulationsFile,
    StabilityFile,
    StageFile,
    by_trial,
    is_recognised,
)

Kind = TypeVar("Kind", bound=StageFile)
_SLACK = Decimal(repr(SLACK))
LARGEST_SHARE = 1 + _SLACK
UNKNOWN = "unknown"  # the official tools name neither their engine nor their classifier


class ScoringError(PcgevalError):
    """The results cannot be scored or ranked."""


@dataclass(frozen=True)
class ScoringRules:
    """The rules of a competition about scores.

    Attributes:
        letters: The C letters, capitals from A to Z, each once.
        trials: The T trials per letter, 1 to 1000.
        official_quirks: Follow the official script where it departs from the rules.
        baseline: The team that a winner must beat, or None.
    """

    letters: str = LETTERS
    trials: int = 10
    official_quirks: bool = False
    baseline: str | None = None

    def __post_init__(self) -> None:
        """Raise ScoringError if the letters or the number of trials are invalid."""
        if not 0 < len(self.letters) == len(set(self.letters) & set(LETTERS)):
            raise ScoringError(f"letters {self.letters[:50]!r}: give capital letters A to Z, each once, such as ABC.")
        if not 1 <= self.trials <= 1000:
            raise ScoringError(f"trials {self.trials}: give a number of trials per letter from 1 to 1000.")


@dataclass(frozen=True)
class Entry:
    """One value of a stability or similarity file, 0 to 1; `trial` is None if its name ends in no number."""

    trial: int | None
    value: Decimal

    def __post_init__(self) -> None:
        """Raise ScoringError if the value is no such Decimal."""
        if not _is_measurement(self.value, LARGEST_SHARE):
            value = f"trial {self.trial}: {self.value!r:.100}"
            raise ScoringError(f"{value}: give a Decimal from 0 to 1, such as Decimal('0.5').")


@dataclass(frozen=True)
class LetterResults:
    """One letter of one team: entries in file order and the diversity, each None where its file is missing.

    `recognised` is a number of trials; None where the probabilities of the other letters are not known.
    """

    stability: tuple[Entry, ...] | None = None
    similarity: tuple[Entry, ...] | None = None
    diversity: Decimal | None = None
    recognised: int | None = None

    def __post_init__(self) -> None:
        """Raise ScoringError if the diversity is no Decimal of at least 0."""
        if self.diversity is not None and not _is_measurement(self.diversity):
            value = f"diversity {self.diversity!r:.100}"
            raise ScoringError(f"{value}: give a Decimal of at least 0, such as Decimal('0.5').")

    @property
    def complete(self) -> bool:
        """Whether all three files exist."""
        return self.stability is not None and self.similarity is not None and self.diversity is not None


@dataclass(frozen=True)
class Provenance:
    """The physics engine and the classifier that measured a team's levels; `unknown` where no file names them."""

    engine: str = UNKNOWN
    classifier: str = UNKNOWN
    packages: frozenset[tuple[str, str]] = frozenset()  # their packages and versions


@dataclass(frozen=True)
class TeamResults:
    """All results of one team with one model; a letter that is not in `letters` has no files."""

    letters: Mapping[str, LetterResults]
    failed_trials: int = 0  # without a stability or a similarity
    provenance: Provenance = Provenance()

    @property
    def recognised(self) -> int | None:
        """The number of recognised trials of all letters; None if that of a letter is not known."""
        return known_sum(letter.recognised for letter in self.letters.values())

    @property
    def likeness(self) -> dict[Trial, Decimal]:
        """Stability times similarity of each trial that has both, without the weight, which differs between models."""
        products: dict[Trial, Decimal] = {}
        for letter, results in self.letters.items():
            similarity = first_by_trial(results.similarity)
            for number, stability in first_by_trial(results.stability).items():
                if number in similarity:
                    products[Trial(letter, number)] = stability * similarity[number]
        return products


@dataclass(frozen=True)
class CompetitionResults:
    """Results by model and team; every team has results with every model, and disqualified teams are left out."""

    models: Mapping[str, Mapping[str, TeamResults]]

    def of(self, names: Collection[str]) -> "CompetitionResults":
        """Return the results of the teams with these names."""
        return CompetitionResults(
            {
                model: {name: results for name, results in teams.items() if name in names}
                for model, teams in self.models.items()
            }
        )


def _is_measurement(value: object, most: Decimal = Decimal("inf")) -> bool:
    return isinstance(value, Decimal) and value.is_finite() and -_SLACK <= value <= most


def known_sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is not known."""
    values = list(counts)
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def byte_order(name: str) -> bytes:
    """Return the key that sorts names as the official tools list folders: by their bytes."""
    return name.encode("utf-8", errors="surrogatepass")


def first_by_trial(entries: tuple[Entry, ...] | None) -> dict[int, Decimal]:
    """Return the value of each trial; of several entries of one trial the first counts, as in the official script."""
    values: dict[int, Decimal] = {}
    for entry in entries or ():
        if entry.trial is not None:
            values.setdefault(entry.trial, entry.value)
    return values


def check_results(results: CompetitionResults, rules: ScoringRules) -> None:
    """Check that one ranking can hold these results.

    Raises:
        ScoringError: There is no team, a model lacks a team, the official script would stop at the number of files,
            or engines or classifiers differ.
    """
    names = sorted({team for teams in results.models.values() for team in teams}, key=byte_order)
    if not names:
        raise ScoringError("there are no teams to score. Add a model with a team that is not disqualified.")
    users: dict[str, dict[str, list[str]]] = {"engine": {}, "classifier": {}}
    for model, teams in results.models.items():
        for name in names:
            if name not in teams:
                raise ScoringError(
                    f"model {model!r} has no results of team {name!r}, another model has. "
                    "Run the missing trials, or leave the team out everywhere."
                )
            for kind, users_of in users.items():
                users_of.setdefault(getattr(teams[name].provenance, kind), []).append(f"{name} ({model})")
            if rules.official_quirks:
                _check_file_counts(f"model {model!r}, team {name!r}", teams[name])
    for kind, users_of in users.items():
        if len(users_of) > 1:
            named = "; ".join(f"{name}: {listed(sorted(users_of[name]))}" for name in sorted(users_of))
            raise ScoringError(
                f"results of different {kind}s do not belong in one ranking: {named}. "
                f"Evaluate all teams and models with the same {kind}."
            )


def _check_file_counts(place: str, team: TeamResults) -> None:
    """Refuse results for which the official script ends without results and without a message."""
    kinds = ("stability", "similarity", "diversity")
    counts = [sum(getattr(letter, kind) is not None for letter in team.letters.values()) for kind in kinds]
    if len(set(counts)) > 1:
        raise ScoringError(
            f"{place}: {counts[0]} stability, {counts[1]} similarity and {counts[2]} diversity files. The official "
            "script gives no results then: make the missing files, or set official_quirks to false."
        )


def read_source(source: Path, rules: ScoringRules) -> dict[str, TeamResults]:
    """Read all teams of one model from the official layout, by team.

    Raises:
        FileError: A file is not in the format of the official tools.
        ScoringError: The folder has no teams, or an entry names no trial.
    """
    try:
        teams = [
            path.name
            for path in source.iterdir()
            if path.is_dir() and not path.name.startswith(".") and path.name not in RESERVED_TEAMS
        ]
    except OSError as error:
        raise ScoringError(f"{source}: cannot be read ({error.strerror}). Name a folder of results.") from error
    if not any((source / team / stage).is_dir() for team in teams for stage in STAGE_DIRS):
        raise ScoringError(
            f"{source}: has no team folders with results. Name the folder of one model, which holds "
            "<TEAM>/stability/<C>.json and so on."
        )
    return {
        team: read_team({name: source / team / name for name in STAGE_DIRS}, rules)
        for team in sorted(teams, key=byte_order)
    }


def read_team(folders: Mapping[StageDir, Path], rules: ScoringRules) -> TeamResults:
    """Read the results of one team with one model from its folders of stages; raises as `read_source` does."""
    letters = {letter: _read_letter(folders, letter, rules) for letter in rules.letters}
    done = [
        trial
        for letter in letters.values()
        for trial in first_by_trial(letter.stability).keys() & first_by_trial(letter.similarity).keys()
        if 1 <= trial <= rules.trials
    ]
    simulations = _read_if_present(SimulationsFile, folders["stability"] / SIMULATIONS_FILE)
    classifier = _read_if_present(ClassifierFile, folders["similarity"] / CLASSIFIER_FILE)
    provenance = Provenance(
        simulations.engine_line if simulations else UNKNOWN,
        f"{classifier.name} sha256:{classifier.sha256}" if classifier else UNKNOWN,
        frozenset(pair for file in (simulations, classifier) if file for pair in file.packages.items()),
    )
    return TeamResults(letters, len(rules.letters) * rules.trials - len(done), provenance)


def _read_letter(folders: Mapping[StageDir, Path], letter: str, rules: ScoringRules) -> LetterResults:
    stability_path, similarity_path = (letter_file(folders[name], letter) for name in ("stability", "similarity"))
    stability = _read_if_present(StabilityFile, stability_path)
    similarity = _read_if_present(SimilarityFile, similarity_path)
    diversity = _read_if_present(DiversityFile, letter_file(folders["diversity"], letter))
    scores = ((level.name, level.score) for level in (stability.levels if stability else ()))
    probabilities = ((trial.name, trial.similarity) for trial in (similarity.trials if similarity else ()))
    return LetterResults(
        _entries(stability_path, scores, rules) if stability else None,
        _entries(similarity_path, probabilities, rules) if similarity else None,
        from_float(diversity.rate) if diversity else None,
        _recognised(stability, similarity, rules) if stability and similarity else 0,
    )


def _recognised(stability: StabilityFile, similarity: SimilarityFile, rules: ScoringRules) -> int | None:
    """Count the recognised trials of a letter; None if a picture lacks the probabilities of all letters."""
    levels, predictions = by_trial(stability.levels), by_trial(similarity.predictions)
    recognised = 0
    for number, entry in by_trial(similarity.trials).items():
        if number in levels and 1 <= number <= rules.trials:
            if number not in predictions:
                return None
            probabilities = [one.probability for one in predictions[number].probabilities]
            recognised += is_recognised(levels[number].score, entry.similarity, probabilities)
    return recognised


def _read_if_present(kind: type[Kind], path: Path) -> Kind | None:
    return kind.read(path) if os.path.lexists(path) else None


def _entries(path: Path, values: Iterable[tuple[str, float]], rules: ScoringRules) -> tuple[Entry, ...]:
    entries = []
    for name, value in values:
        trial = trial_number(name)
        if trial is None and not rules.official_quirks:
            raise ScoringError(
                f"{path}: {name[:100]!r} does not end in a trial number such as team_A_1. "
                "Make the file again with the stage that wrote it, or remove it."
            )
        entries.append(Entry(trial, from_float(value)))
    return tuple(entries)


def from_float(value: float) -> Decimal:
    """Return the decimal that a float is written as, such as 0.1 for 0.1, as JavaScript and JSON do."""
    return Decimal(repr(float(value)))
