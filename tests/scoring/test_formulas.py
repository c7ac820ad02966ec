"""The formulas against a slow literal version in fractions, and what must not change them."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scoring_examples import RULES, competitions, literal_prompt_score, literal_weight, measured, uniform

from pcgeval import CompetitionResults, LetterResults, PcgevalError, Provenance, ScoringRules, TeamResults
from pcgeval import score_competition as score
from pcgeval.scoring.decimals import divide, exact_arithmetic
from pcgeval.scoring.formulas import trial_share


@given(competitions())
def test_scores_are_those_of_the_literal_formulas(results):
    scores = score(results, RULES)
    for model in scores.models:
        teams = results.models[model.model]
        for weight in model.weights:
            assert Fraction(weight.weight) == literal_weight(teams, weight.letter, RULES)
        for prompt in model.prompts:
            assert Fraction(prompt.score) == literal_prompt_score(teams, prompt.team, RULES)
    whole = sum(Fraction(total.total) for total in scores.totals)
    for total in scores.totals:
        assert Fraction(total.total) == sum(
            literal_prompt_score(teams, total.team, RULES) for teams in results.models.values()
        )
        share = 100 * Fraction(total.total) / whole if whole else 0
        assert abs(Fraction(total.normalised) - share) <= Fraction(100, 10**20)


@given(competitions(), st.randoms(use_true_random=False))
def test_no_order_matters(results, random):
    def shuffled(mapping):
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    def turned(letter):
        stability, similarity = letter.stability, letter.similarity
        return LetterResults(stability and stability[::-1], similarity and similarity[::-1], letter.diversity)

    models = {
        model: {
            team: TeamResults({letter: turned(files) for letter, files in shuffled(measured_team.letters).items()})
            for team, measured_team in shuffled(teams).items()
        }
        for model, teams in shuffled(results.models).items()
    }
    assert score(CompetitionResults(models), RULES) == score(results, RULES)


@given(competitions())
def test_the_shares_of_all_trials_sum_up_to_the_total(results):
    scores = score(results, RULES)
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
                letters = sum(letter.score for letter in share.prompt.letters)
                assert share.prompt.score == divide(letters, len(RULES.letters))
                assert share.total.total == sum(share.prompts.values())
                assert share.total.normalised == divide(share.total.total, share.all_totals or 1) * 100


def made_by(engine="pymunk", classifier="vit"):
    return TeamResults({}, provenance=Provenance(engine, classifier))


@pytest.mark.parametrize(
    ("models", "complaint"),
    [
        ({"m": {}}, "no teams to score"),
        ({"m1": {"a": uniform(1, 1, 1), "b": uniform(1, 1, 1)}, "m2": {"a": uniform(1, 1, 1)}}, "'m2' .* team 'b'"),
        ({"m": {"a": made_by(), "b": made_by("box2d")}}, r"engines.*box2d: b \(m\); pymunk: a \(m\)"),
        ({"m1": {"a": made_by()}, "m2": {"a": made_by(classifier="cnn")}}, r"classifiers.*cnn: a \(m2\)"),
    ],
)
def test_results_that_cannot_share_a_ranking_are_refused(models, complaint):
    with pytest.raises(PcgevalError, match=complaint):
        score(CompetitionResults(models), RULES)


@pytest.mark.parametrize("missing", ["stability", "similarity", "diversity"])
def test_a_letter_that_lacks_a_file_is_0_in_every_column_and_still_counts_in_the_weights(missing):
    files = replace(measured({1: 1.0}, {1: 0.5}, 0.5), **{missing: None})
    results = CompetitionResults({"m": {"t": TeamResults({"A": files})}})
    model = score(results, ScoringRules("AB", 1)).models[0]
    letter, weight = model.prompts[0].letters[0], model.weights[0]
    assert {letter.stability, letter.similarity, letter.diversity, letter.score} == {0}
    assert (weight.stability == 1) == (missing == "stability")
    assert (weight.similarity == 1) == (missing == "similarity")
    with pytest.raises(PcgevalError, match=rf"{int(missing != 'stability')} stability.*official_quirks"):
        score(results, ScoringRules("AB", 1, official_quirks=True))  # the script ends without results


@pytest.mark.parametrize(("letters", "trials"), [("", 1), ("AA", 1), ("a", 1), ("AÄ", 1), ("A", 0), ("A", 1001)])
def test_rules_that_cannot_be_meant_are_refused(letters, trials):
    with pytest.raises(PcgevalError, match=r"capital letters|from 1 to 1000"):
        ScoringRules(letters, trials)
