"""The normalised totals as they would be otherwise: without a model or the weights, or with a team a little better.

Everything is scored again by the formulas, so that what one team gains also changes the weights and the others' shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pcgeval.scoring.arrays import Floats, Measurements, measurements, normalised, prompt_scores
from pcgeval.scoring.inputs import CompetitionResults, LetterResults, ScoringRules, byte_order, first_by_trial

Gain = Literal["stability", "similarity", "diversity", "failures"]
GAINS: tuple[Gain, ...] = get_args(Gain)
POINT = 0.01  # of stability, similarity or diversity, which go from 0 to 1

Flags = NDArray[np.bool_]
Totals = Mapping[str, float]  # the normalised total of each team, in percent


@dataclass(frozen=True)
class Alternatives:
    """Normalised totals of all teams in other competitions than the one that was held.

    Attributes:
        held: The competition as it was held.
        unweighted: All letters weigh the same.
        without_model: By model: it took no part. Empty with a single model.
        gains: By team and what it gained: a point more of stability or similarity in each trial that became a level,
            of diversity in each letter with two levels or more, at most 1; or for `failures`: each of its failed
            trials was as stable and similar as the mean of its others of the letter with that model.
    """

    held: Totals
    unweighted: Totals
    without_model: Mapping[str, Totals]
    gains: Mapping[str, Mapping[Gain, Totals]]


def alternatives(results: CompetitionResults, rules: ScoringRules) -> Alternatives:
    """Score a competition again under other circumstances; quirks of the official script are left out."""
    models = sorted(results.models, key=byte_order)
    teams = sorted(results.models[models[0]], key=byte_order)
    programs = {model: [results.models[model][team].letters for team in teams] for model in models}
    measured = {model: measurements(programs[model], rules) for model in models}

    def totals(scores: Floats) -> Totals:
        return dict(zip(teams, map(float, normalised(scores)), strict=True))

    held = {model: _scores(each) for model, each in measured.items()}
    gained = np.sum([_gained(measured[model], _levels(programs[model], rules)) for model in models], axis=0)
    return Alternatives(
        held=totals(np.sum(list(held.values()), axis=0)),
        unweighted=totals(np.sum([_scores(each, weighted=False) for each in measured.values()], axis=0)),
        without_model={
            model: totals(np.sum([held[other] for other in models if other != model], axis=0))
            for model in models
            if len(models) > 1
        },
        gains={
            team: {gain: totals(gained[place, number]) for number, gain in enumerate(GAINS)}
            for place, team in enumerate(teams)
        },
    )


def places(totals: Totals) -> dict[str, int]:
    """Return the place of each team, from 1; equal totals share one."""
    return {team: 1 + sum(other > total for other in totals.values()) for team, total in totals.items()}


def _scores(model: Measurements, *, weighted: bool = True) -> Floats:
    """Return the prompt scores (P,) of one model."""
    scores: Floats = prompt_scores(
        model.stability[None], model.similarity[None], model.diversity[None], weighted=weighted
    )[0]
    return scores


def _levels(programs: list[Mapping[str, LetterResults]], rules: ScoringRules) -> Flags:
    """Return which trials (P, C, T) became a level that was simulated and classified."""

    def made(letter: LetterResults) -> list[bool]:
        measured = first_by_trial(letter.stability).keys() & first_by_trial(letter.similarity).keys()
        return [trial in measured for trial in range(1, rules.trials + 1)]

    return np.array([[made(each.get(letter, LetterResults())) for letter in rules.letters] for each in programs])


def _gained(model: Measurements, levels: Flags) -> Floats:
    """Return the prompt scores (P, gains, P) of one model after each team's gains."""
    teams = len(levels)
    shape = (teams, len(GAINS), *levels.shape)
    stability, similarity = (np.broadcast_to(each, shape).copy() for each in (model.stability, model.similarity))
    diversity = np.broadcast_to(model.diversity, shape[:-1]).copy()
    for team in range(teams):
        made = levels[team]
        stability[team, 0, team] += POINT * made
        similarity[team, 1, team] += POINT * made
        diversity[team, 2, team] += POINT * (made.sum(axis=-1) > 1)
        for values in (stability, similarity):
            values[team, 3, team] = _mended(values[team, 3, team], made)
    flat = [np.minimum(each, 1).reshape(-1, *each.shape[2:]) for each in (stability, similarity, diversity)]
    return prompt_scores(*flat).reshape(teams, len(GAINS), teams)


def _mended(values: Floats, made: Flags) -> Floats:
    """Return a team's values (C, T) with the mean of a letter's levels for its other trials."""
    count = made.sum(axis=-1, keepdims=True)
    mean = (values * made).sum(axis=-1, keepdims=True) / np.maximum(count, 1)
    mended: Floats = np.where(made, values, mean)
    return mended
