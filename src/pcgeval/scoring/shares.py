"""One trial's way into its team's total: the figures of each formula between them, and the trial's share."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from pcgeval.scoring.decimals import ONE, ZERO, divide, exact_arithmetic
from pcgeval.scoring.formulas import CompetitionScores, LetterScore, LetterWeight, PromptScore, TeamTotal, TrialScore


@dataclass(frozen=True)
class TrialShare:
    """The figures between one trial and its team's total, as `score_competition` computed them.

    Attributes:
        mean: The mean score of the letter's trials, before its diversity.
        prompts: The team's score with each model; their sum is the total.
        all_totals: The sum of all teams' totals.
        teams: The number of teams that are scored.
        share: What of the total comes from this trial. The shares of all trials sum up to the total, but for the
            rounding of the means at the 20th decimal place.
        percent: The share in percent of the total; 0 if that is 0.
    """

    model: str
    weight: LetterWeight
    trial: TrialScore
    letter: LetterScore
    mean: Decimal
    prompt: PromptScore
    prompts: Mapping[str, Decimal]
    total: TeamTotal
    all_totals: Decimal
    teams: int
    share: Decimal
    percent: Decimal


def trial_share(scores: CompetitionScores, model: str, team: str, letter: str, trial: int) -> TrialShare:
    """Return the way of a trial into its team's total; the scores must have its model, team, letter and number."""
    scored = next(scored for scored in scores.models if scored.model == model)
    weight = next(weight for weight in scored.weights if weight.letter == letter)
    prompt = next(prompt for prompt in scored.prompts if prompt.team == team)
    letter_score = next(score for score in prompt.letters if score.letter == letter)
    trial_score = next(score for score in letter_score.trials if score.trial == trial)
    total = next(total for total in scores.totals if total.team == team)
    trials = len(letter_score.trials)
    with exact_arithmetic():
        share = divide(divide(trial_score.score, trials) * letter_score.diversity, len(prompt.letters))
        return TrialShare(
            model=model,
            weight=weight,
            trial=trial_score,
            letter=letter_score,
            mean=divide(sum((score.score for score in letter_score.trials), ZERO), trials),
            prompt=prompt,
            prompts={
                scored.model: prompt.score
                for scored in scores.models
                for prompt in scored.prompts
                if prompt.team == team
            },
            total=total,
            all_totals=sum((total.total for total in scores.totals), ZERO),
            teams=len(scores.totals),
            share=share,
            percent=divide(share, total.total or ONE) * 100,
        )
