"""The formulas against a slow literal version in fractions, and what must not change them."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from scoring_examples import RULES, competitions, literal_prompt_score, literal_weight, measured

from pcgeval import (
    CompetitionResults,
    Entry,
    LetterResults,
    PcgevalError,
    Provenance,
    ScoringRules,
    TeamResults,
    score_competition as score,
)
from pcgeval.scoring.formulas import divide, exact_arithmetic, trial_share


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


@pytest.mark.parametrize("value", [0.5, Decimal("NaN"), Decimal("Infinity"), Decimal("-0.1"), Decimal(1000), "1", None])
def test_what_is_no_measurement_is_refused_where_it_is_given(value):
    with pytest.raises(PcgevalError, match=r"trial 2: .*: give a Decimal from 0 to 1"):
        Entry(2, value)
    if value not in {None, Decimal(1000)}:  # a letter without a file; a diversity has no limit
        with pytest.raises(PcgevalError, match=r"diversity .*: give a Decimal of at least 0"):
            LetterResults(diversity=value)
    assert Entry(2, Decimal("1.0000001192092896")).value > 1  # in single precision, as in official files


@given(competitions())
def test_no_order_matters(results):
    def turned(mapping, change):
        return {key: change(value) for key, value in reversed(mapping.items())}

    def letter(files):
        stability, similarity = (entries and entries[::-1] for entries in (files.stability, files.similarity))
        return LetterResults(stability, similarity, files.diversity)

    def team(results):
        return TeamResults(turned(results.letters, letter))

    models = turned(results.models, lambda teams: turned(teams, team))
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
                assert share.percent == divide(share.share, share.total.total or 1) * 100


def test_results_that_cannot_share_a_ranking_are_refused():
    of_engines = {name: TeamResults({}, provenance=Provenance(engine)) for name, engine in (("a", "x"), ("b", "y"))}
    with pytest.raises(PcgevalError, match=r"engines.*x: a \(m\); y: b \(m\)"):
        score(CompetitionResults({"m": of_engines}), RULES)
    two, one = {"a": TeamResults({}), "b": TeamResults({})}, {"a": TeamResults({})}
    with pytest.raises(PcgevalError, match=r"'m2' .* team 'b'"):
        score(CompetitionResults({"m1": two, "m2": one}), RULES)


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


def test_a_trial_beyond_the_last_counts_only_in_the_scripts_weights():
    results = CompetitionResults({"m": {"t": TeamResults({"A": measured({1: 0.1, 2: 0.2}, {1: 0.5}, 0.5)})}})
    by_rules, by_script = (score(results, ScoringRules("AB", 1, quirks)).models[0] for quirks in (False, True))
    assert [model.weights[0].stability for model in (by_rules, by_script)] == [Decimal("0.9"), Decimal("0.7")]
    assert [len(model.prompts[0].trials) for model in (by_rules, by_script)] == [2, 2]


@pytest.mark.parametrize(("letters", "trials"), [("", 1), ("AA", 1), ("a", 1), ("AÄ", 1), ("A", 0), ("A", 1001)])
def test_rules_that_cannot_be_meant_are_refused(letters, trials):
    with pytest.raises(PcgevalError, match=r"capital letters|from 1 to 1000"):
        ScoringRules(letters, trials)
