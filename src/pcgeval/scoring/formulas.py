"""The formulas of the competition: weights of the letters, scores of trials, letters, prompts and models.

With P programs, C letters and T trials, per model:

    weight of a letter = w_stability * w_similarity * w_diversity, each max(1 - mean over all programs, 1 / C)
    trial score        = weight * stability * similarity
    letter score       = diversity * sum of the trial scores / T
    prompt score       = mean of the letter scores
    normalised         = 100 * prompt score / sum of the prompt scores (0 if that sum is 0)

Source: the evaluation pages of ChatGPT4PCG 2024 and LLMs4PCG 2025. A missing value counts as 0.

The arithmetic is that of the official script (bignumber.js with its default settings): sums, differences and products
are exact, a quotient is rounded half up to 20 decimal places. Compute inside `with exact_arithmetic():`, as Python's
default rounds to 28 digits.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow, localcontext
from itertools import chain

from pcgeval.formats.results import LetterRow, OfficialWeight, TrialRow
from pcgeval.scoring.inputs import (
    CompetitionResults,
    Entry,
    LetterResults,
    Provenance,
    ScoringRules,
    TeamResults,
    byte_order,
    check_results,
    first_by_trial,
)

RULES_VERSION = 1  # increase it with every change, here or in ranking.py, that changes a score or a place
PLACES = 20  # bignumber.js: DECIMAL_PLACES
ZERO = Decimal(0)
ONE = Decimal(1)
# A product of three floats and three weights has under 1 200 digits; anything that would round raises instead.
_EXACT = Context(prec=5000, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])


@dataclass(frozen=True)
class PromptScore:
    """One team with one model; `normalised` is its share of all prompt scores, in percent.

    A letter that lacks one of its three files is 0 in every column, as in the official tables; its other files still
    count in the weights.
    """

    team: str
    letters: tuple[LetterRow, ...]
    trials: tuple[TrialRow, ...]  # of all letters, in their order
    score: Decimal
    normalised: Decimal
    failed_trials: int
    recognised: int | None  # trials; see `is_recognised`


@dataclass(frozen=True)
class ModelScores:
    """All teams with one model, in byte order of their names; `total` is the sum of their scores."""

    model: str
    weights: tuple[OfficialWeight, ...]
    prompts: tuple[PromptScore, ...]
    total: Decimal


@dataclass(frozen=True)
class TeamTotal:
    """One team over all models: the sum of its prompt scores, and its share of all totals in percent."""

    team: str
    total: Decimal
    normalised: Decimal


@dataclass(frozen=True)
class CompetitionScores:
    """All models and the totals over them, both in byte order of their names."""

    rules: ScoringRules
    provenance: Provenance
    models: tuple[ModelScores, ...]
    totals: tuple[TeamTotal, ...]


@dataclass(frozen=True)
class TrialShare:
    """The figures between one trial and its team's total."""

    model: str
    weight: OfficialWeight
    trial: TrialRow
    letter: LetterRow
    trials: tuple[TrialRow, ...]  # of the letter
    mean: Decimal  # of their scores, before the diversity
    prompt: PromptScore
    prompts: Mapping[str, Decimal]  # the team's score with each model; their sum is the total
    total: TeamTotal
    all_totals: Decimal  # the sum over all teams
    teams: int
    share: Decimal  # the trial's part of the total; all parts sum up to it within 20 decimal places
    percent: Decimal  # the same in percent; 0 if the total is 0


def score_competition(results: CompetitionResults, rules: ScoringRules) -> CompetitionScores:
    """Score every team with every model, in exact decimal arithmetic.

    Raises:
        ScoringError: One ranking cannot hold these results; see `check_results`.
    """
    check_results(results, rules)
    with exact_arithmetic():
        models = tuple(
            _score_model(model, results.models[model], rules) for model in sorted(results.models, key=byte_order)
        )
        totals = _totals(models)
    provenances = [team.provenance for teams in results.models.values() for team in teams.values()]
    packages = frozenset[tuple[str, str]]().union(*(provenance.packages for provenance in provenances))
    return CompetitionScores(rules, replace(provenances[0], packages=packages), models, totals)


def trial_share(scores: CompetitionScores, model: str, team: str, letter: str, trial: int) -> TrialShare:
    """Return the figures between a trial and its team's total; the scores must hold the trial."""
    scored = next(scored for scored in scores.models if scored.model == model)
    weight = next(weight for weight in scored.weights if weight.letter == letter)
    prompt = next(prompt for prompt in scored.prompts if prompt.team == team)
    letter_row = next(row for row in prompt.letters if row.letter == letter)
    trials = tuple(row for row in prompt.trials if row.letter == letter)
    trial_row = next(row for row in trials if row.trial == trial)
    total = next(total for total in scores.totals if total.team == team)
    with exact_arithmetic():
        share = divide(divide(trial_row.score, len(trials)) * letter_row.diversity, len(prompt.letters))
        return TrialShare(
            model=model,
            weight=weight,
            trial=trial_row,
            letter=letter_row,
            trials=trials,
            mean=divide(_sum(row.score for row in trials), len(trials)),
            prompt=prompt,
            prompts={model.model: row.score for model in scores.models for row in model.prompts if row.team == team},
            total=total,
            all_totals=_sum(total.total for total in scores.totals),
            teams=len(scores.totals),
            share=share,
            percent=_percent(share, total.total),
        )


def exact_arithmetic() -> AbstractContextManager[Context]:
    """Return the context in which + - x of decimals are exact."""
    return localcontext(_EXACT)


def divide(dividend: Decimal, divisor: Decimal | int) -> Decimal:
    """Return the quotient rounded half up (away from zero) to 20 decimal places; call inside `exact_arithmetic`."""
    divisor = Decimal(divisor)
    quotient, remainder = divmod(dividend.scaleb(PLACES), divisor)
    if 2 * abs(remainder) >= abs(divisor):
        quotient += 1 if (dividend < 0) == (divisor < 0) else -1
    return quotient.scaleb(-PLACES)


def _score_model(model: str, teams: Mapping[str, TeamResults], rules: ScoringRules) -> ModelScores:
    names = sorted(teams, key=byte_order)
    weights = tuple(_weight(letter, teams.values(), rules) for letter in rules.letters)
    trials = {name: [_trial_rows(name, weight, teams[name], rules) for weight in weights] for name in names}
    letters = {name: tuple(_letter_row(rows, rules) for rows in trials[name]) for name in names}
    scores = {name: divide(_sum(letter.score for letter in letters[name]), len(rules.letters)) for name in names}
    total = _sum(scores.values())
    prompts = [
        PromptScore(
            team=name,
            letters=letters[name],
            trials=tuple(chain.from_iterable(trials[name])),
            score=scores[name],
            normalised=_percent(scores[name], total),
            failed_trials=teams[name].failed_trials,
            recognised=teams[name].recognised,
        )
        for name in names
    ]
    return ModelScores(model, weights, tuple(prompts), total)


def _weight(letter: str, teams: Iterable[TeamResults], rules: ScoringRules) -> OfficialWeight:
    programs = [team.letters.get(letter, LetterResults()) for team in teams]
    attempts = len(programs) * rules.trials
    stability = _one_weight(_sum(_counted(program.stability, rules) for program in programs), attempts, rules)
    similarity = _one_weight(_sum(_counted(program.similarity, rules) for program in programs), attempts, rules)
    diversity = _one_weight(_sum(program.diversity or ZERO for program in programs), len(programs), rules)
    weight = stability * similarity * diversity
    return OfficialWeight(letter=letter, weight=weight, stability=stability, similarity=similarity, diversity=diversity)


def _one_weight(total: Decimal, count: int, rules: ScoringRules) -> Decimal:
    return max(ONE - divide(total, count), divide(ONE, len(rules.letters)))


def _counted(entries: tuple[Entry, ...] | None, rules: ScoringRules) -> Decimal:
    """Sum the configured trials, or with the script's quirk every entry of the file."""
    if rules.official_quirks:
        return _sum(entry.value for entry in entries or ())
    return _sum(value for trial, value in first_by_trial(entries).items() if 1 <= trial <= rules.trials)


def _trial_rows(name: str, weight: OfficialWeight, team: TeamResults, rules: ScoringRules) -> list[TrialRow]:
    results = team.letters.get(weight.letter, LetterResults())
    if not results.complete:
        results = LetterResults()
    stability, similarity = first_by_trial(results.stability), first_by_trial(results.similarity)
    diversity = results.diversity or ZERO
    trials = []
    for number in range(1, rules.trials + 1):
        measured = {"stability": stability.get(number, ZERO), "similarity": similarity.get(number, ZERO)}
        score = weight.weight * measured["stability"] * measured["similarity"]
        trials.append(
            TrialRow(team=name, letter=weight.letter, trial=number, score=score, diversity=diversity, **measured)
        )
    return trials


def _letter_row(trials: list[TrialRow], rules: ScoringRules) -> LetterRow:
    diversity = trials[0].diversity
    return LetterRow(
        team=trials[0].team,
        letter=trials[0].letter,
        score=divide(_sum(trial.score for trial in trials), rules.trials) * diversity,
        stability=divide(_sum(trial.stability for trial in trials), rules.trials),
        similarity=divide(_sum(trial.similarity for trial in trials), rules.trials),
        diversity=diversity,
    )


def _totals(models: tuple[ModelScores, ...]) -> tuple[TeamTotal, ...]:
    names = [prompt.team for prompt in models[0].prompts]
    sums = [_sum(model.prompts[index].score for model in models) for index in range(len(names))]
    everything = _sum(sums)
    return tuple(TeamTotal(name, total, _percent(total, everything)) for name, total in zip(names, sums, strict=True))


def _percent(part: Decimal, whole: Decimal) -> Decimal:
    """Return 100 * part / whole, the quotient rounded first as the official script does; 0 of 0 is 0 by the rules."""
    return divide(part, whole or ONE) * 100


def _sum(values: Iterable[Decimal]) -> Decimal:
    return sum(values, ZERO)
