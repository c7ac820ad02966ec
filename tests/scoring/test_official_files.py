"""The four official files, byte for byte, on all golden cases of the official script."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_examples import CASES, OFFICIAL_NAMES, golden_teams, golden_text, one_model

from pcgeval import CompetitionResults, ScoringRules, score_competition
from pcgeval.scoring.official_files import official_files, ranked_prompts

TIED = {"t3_all_zero", "t3_perfect", "t3_zero_diversity", "t8_ties"}  # the script ranks equals 1, 2, 3


def written(case, rules, folder):
    scores = score_competition(CompetitionResults({"m": golden_teams(case)}), rules)
    official_files(scores.models[0], rules).write(folder)
    return {name: (folder / name).read_bytes().decode() for name in OFFICIAL_NAMES}


@pytest.mark.parametrize("case", CASES)
def test_the_scripts_files_with_its_quirks(case, tmp_path):
    found = written(case, ScoringRules(official_quirks=True), tmp_path)
    assert found == {name: golden_text(case, name) for name in OFFICIAL_NAMES}


@pytest.mark.parametrize("case", CASES)
def test_the_scripts_files_by_the_rules_but_for_ranks_of_equals(case, tmp_path):
    found = written(case, ScoringRules(), tmp_path)
    for name in OFFICIAL_NAMES:
        assert (found[name] == golden_text(case, name)) == (name != "prompt_scores_ranks.csv" or case not in TIED)


def test_equals_share_a_rank_by_the_rules(tmp_path):
    found = written("t8_ties", ScoringRules(), tmp_path)["prompt_scores_ranks.csv"]
    rows = list(csv.DictReader(io.StringIO(found)))
    assert [row["rank"] for row in rows] == ["1", "2", "2", "2", "2", "2", "2", "8"]
    assert [row["team"] for row in rows[1:7]] == ["Team10", "Zeta", "alpha", "beta", "team10", "team2"]  # byte order


def test_baselines_stand_unranked():
    rules = ScoringRules("A", 3)
    results = one_model(a=(1, 1, 0.9), base=(1, 1, 0.8), b=(1, 1, 0.7))
    scores = score_competition(results, rules).models[0]
    assert [prompt.rank for prompt in ranked_prompts(scores, rules, {"base"})] == [1, -1, 2]
    assert [prompt.rank for prompt in ranked_prompts(scores, ScoringRules("A", 3, official_quirks=True), {"base"})] == [
        1,
        2,
        3,
    ]


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5]), min_size=1, max_size=6))
def test_a_rank_is_one_more_than_the_number_of_better_teams(diversities):
    rules = ScoringRules("A", 3)
    results = one_model(**{f"t{place}": (0.5, 0.5, diversity) for place, diversity in enumerate(diversities)})
    ranks = {prompt.team: prompt.rank for prompt in ranked_prompts(score_competition(results, rules).models[0], rules)}
    for place, diversity in enumerate(diversities):
        assert ranks[f"t{place}"] == 1 + sum(other > diversity for other in diversities)


def test_quotes_in_names_are_doubled(tmp_path):
    rules = ScoringRules("A", 3)
    results = one_model(**{'a "b", c': (1, 1, 1)})
    official_files(score_competition(results, rules).models[0], rules).write(tmp_path)
    text = (tmp_path / "prompt_scores_ranks.csv").read_text()
    assert text.split("\n")[1].startswith('"a ""b"", c",')
    assert not text.endswith("\n")
