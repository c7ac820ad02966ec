"""Scoring: seconds for a competition of 10 teams, 26 letters, 10 trials and 3 models."""

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from pcgeval.scoring.decimals import from_float
from pcgeval.scoring.formulas import score_competition
from pcgeval.scoring.inputs import CompetitionResults, Entry, LetterResults, ScoringRules, TeamResults
from pcgeval.scoring.official_files import official_files
from pcgeval.scoring.uncertainty import bootstrap
from pcgeval.similarity.diversity import diversity

RULES = ScoringRules()
Result = TypeVar("Result")


def main() -> None:
    """Print one figure a line."""
    results, vectors = _competition(), np.random.default_rng(1).normal(size=(780, 10, 768))
    seconds, scores = _timed(lambda: score_competition(results, RULES))
    print(f"scoring: 10 teams x 26 letters x 10 trials x 3 models in {seconds:.2f} s")
    seconds, _ = _timed(lambda: [official_files(each, RULES) for each in scores.models])
    print(f"scoring: official files of 3 models in {seconds:.2f} s")
    seconds, _ = _timed(lambda: bootstrap(results, RULES, 1000, 1))
    print(f"scoring: bootstrap of 1000 resamples in {seconds:.2f} s")
    seconds, _ = _timed(lambda: [diversity(each, 10) for each in vectors])
    print(f"diversity: 780 letters of 10 x 768 numbers in {seconds:.2f} s")


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _competition() -> CompetitionResults:
    generator = np.random.default_rng(0)

    def letter() -> LetterResults:
        stability, similarity = (
            tuple(Entry(trial, from_float(value)) for trial, value in enumerate(values, start=1))
            for values in generator.random((2, RULES.trials))
        )
        return LetterResults(stability, similarity, from_float(generator.random()))

    def team() -> TeamResults:
        return TeamResults({each: letter() for each in RULES.letters})

    return CompetitionResults(
        {f"model{model}": {f"team{number}": team() for number in range(10)} for model in range(3)}
    )


if __name__ == "__main__":
    main()
