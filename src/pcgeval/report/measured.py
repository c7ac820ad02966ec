"""What the stages measured of one team with one model: what became of each trial, and its level."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pcgeval.core.layout import SIMULATIONS_FILE, TRIALS_FILE, Trial, letter_file, stage_dir, trial_number
from pcgeval.core.stage_files import TrialOutcome
from pcgeval.report.formats import shortened
from pcgeval.report.reading import (
    Probabilities,
    ReportError,
    SimilarityFile,
    SimulatedTrial,
    Simulations,
    StabilityFile,
    read_json_as,
)
from pcgeval.report.results import FAILURE_WORDS, DrawnBlock, Failure, Seen

LONGEST_REASON = 240  # characters
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Measured:
    """By trial; a trial that failed is absent from what it did not reach."""

    failures: Mapping[Trial, Failure]
    blocks: Mapping[Trial, tuple[DrawnBlock, ...]]
    stability: Mapping[Trial, float]
    similarity: Mapping[Trial, float]
    seen: Mapping[Trial, Seen]


def read_measured(root: Path, model: str, team: str, trials: Iterable[Trial]) -> Measured:
    """Read the stability and similarity files of a team and model, and the reasons of failures in all steps.

    Raises:
        ReportError: A file is missing or broken, or a trial that did not fail lacks a result.
    """
    wanted = list(trials)
    letters = sorted({trial.letter for trial in wanted})
    stability_folder, similarity_folder = (root / stage_dir(step, model, team) for step in ("stability", "similarity"))
    stabilities = [(each, read_json_as(letter_file(stability_folder, each), StabilityFile)) for each in letters]
    similarities = [(each, read_json_as(letter_file(similarity_folder, each), SimilarityFile)) for each in letters]
    measured = Measured(
        failures=_failures(similarity_folder, wanted),
        blocks=_blocks(stability_folder / SIMULATIONS_FILE),
        stability=_by_trial((letter, each.tag, each.score) for letter, file in stabilities for each in file.raws),
        similarity=_by_trial(
            (letter, each.id, each.similarity) for letter, file in similarities for each in file.trials
        ),
        seen=_by_trial((letter, each.id, _seen(each)) for letter, file in similarities for each in file.similarities),
    )
    _check_complete(measured, wanted, f"{similarity_folder}, {stability_folder}")
    return measured


def _failures(folder: Path, wanted: list[Trial]) -> dict[Trial, Failure]:
    path = folder / TRIALS_FILE
    outcomes = {each.key: each for each in read_json_as(path, tuple[TrialOutcome, ...])}
    if missing := [trial for trial in wanted if trial not in outcomes]:
        raise ReportError(
            f"{path}: has nothing about letter {missing[0].letter}, trial {missing[0].number}. "
            "Run `dvc repro` to make it again."
        )
    return {trial: failure(outcomes[trial]) for trial in wanted if outcomes[trial].failed_stage is not None}


def failure(outcome: TrialOutcome) -> Failure:
    """Return where and why a trial failed; the reason does not repeat the page's words for the stage."""
    stage = outcome.failed_stage or ""
    reason = (outcome.reason or "no reason was recorded").removeprefix(f"{FAILURE_WORDS.get(stage, stage)}: ")
    return Failure(stage, shortened(reason, LONGEST_REASON))


def _blocks(path: Path) -> dict[Trial, tuple[DrawnBlock, ...]]:
    return {Trial(each.letter, each.trial): _drawn(path, each) for each in read_json_as(path, Simulations).trials}


def _drawn(path: Path, level: SimulatedTrial) -> tuple[DrawnBlock, ...]:
    if len({len(level.types), len(level.positions), len(level.moved), len(level.dead)}) > 1:
        raise ReportError(
            f"{path}: letter {level.letter}, trial {level.trial} has types, positions, moved and dead of different "
            "lengths. Run `dvc repro` to make it again."
        )
    blocks = zip(level.types, level.positions, level.moved, level.dead, strict=True)
    return tuple(DrawnBlock(kind, *place, moved, dead) for kind, place, moved, dead in blocks)


def _seen(probabilities: Probabilities) -> Seen:
    best = max(probabilities.raws, key=lambda each: (each.probability, each.label))
    return Seen(best.label, best.probability)


def _by_trial(entries: Iterable[tuple[str, str, _Value]]) -> dict[Trial, _Value]:
    """Return the values of (letter, file name, value) by trial; the first of several counts, as in the scores."""
    values: dict[Trial, _Value] = {}
    for letter, name, value in entries:
        if (number := trial_number(name)) is not None:
            values.setdefault(Trial(letter, number), value)
    return values


def _check_complete(measured: Measured, wanted: list[Trial], folders: str) -> None:
    reached = (measured.blocks, measured.stability, measured.similarity, measured.seen)
    for trial in wanted:
        if trial not in measured.failures and not all(trial in each for each in reached):
            raise ReportError(
                f"{folders}: letter {trial.letter}, trial {trial.number} did not fail, but it lacks its simulation, "
                "stability or similarity. Run `dvc repro` to make them."
            )
