"""The shares of all trials make up every team's total."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from pcgeval import CompetitionResults, Entry, LetterResults, ScoringRules, TeamResults, score_competition
from pcgeval.scoring.decimals import divide, exact_arithmetic
from pcgeval.scoring.shares import trial_share

RULES = ScoringRules(letters="ABC", trials=3)
VALUES = st.decimals(0, 1, places=6)


@st.composite
def results(draw):
    def entries():
        return tuple(Entry(number, draw(VALUES)) for number in range(1, RULES.trials + 1))

    return CompetitionResults(
        {
            model: {
                team: TeamResults(
                    {letter: LetterResults(entries(), entries(), draw(VALUES)) for letter in RULES.letters}
                )
                for team in ("one", "two")
            }
            for model in ("m", "n")
        }
    )


@given(results())
def test_the_shares_of_all_trials_sum_up_to_the_total(results):
    scores = score_competition(results, RULES)
    for total in scores.totals:
        shares = [
            trial_share(scores, model, total.team, letter, number)
            for model in results.models
            for letter in RULES.letters
            for number in range(1, RULES.trials + 1)
        ]
        assert abs(sum(share.share for share in shares) - total.total) < Decimal("1e-17")
        with exact_arithmetic():  # each figure follows from those before it, in all digits
            for share in shares:
                assert share.trial.score == share.weight.weight * share.trial.stability * share.trial.similarity
                assert share.letter.score == share.mean * share.letter.diversity
                assert share.prompt.score == divide(sum(letter.score for letter in share.prompt.letters), 3)
                assert share.total.total == sum(share.prompts.values())
                assert share.total.normalised == divide(share.total.total, share.all_totals or 1) * 100
