"""Published tables: every digit is computed again, and every changed digit is noticed."""

import json
import os
from pathlib import Path

import pytest
from scoring_examples import OFFICIAL_NAMES, golden_text

from pcgeval import PcgevalError, ScoringRules
from pcgeval.core.files import write_text
from pcgeval.scoring.rescore import rescore

REFERENCE = Path(os.environ.get("PCGEVAL_REFERENCE", Path(__file__).parents[2] / "../shared/reference"))
PUBLISHED = REFERENCE / "chatgpt4pcg-2024"


@pytest.fixture
def published(tmp_path):
    """The official files of a golden case, as a web page would publish them."""
    folder = tmp_path / "published"
    folder.mkdir()
    for name in OFFICIAL_NAMES:
        (folder / name).write_bytes(golden_text("t3_random", name).encode())
    return folder


def reproduce(folder, quirks=True):
    rescored = rescore([folder], folder.parent / "out", ScoringRules(official_quirks=quirks))
    return rescored, rescored.reproductions[0]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published tables of 2024 are not here")
def test_the_published_final_of_2024_to_the_last_digit(tmp_path):
    rescored = rescore([PUBLISHED], tmp_path)
    assert rescored.reproduced
    compared = {"trial score": 2600, "letter score": 260, "weight": 26, "sum": 1, "place": 10}
    assert rescored.reproductions[0].compared == compared
    assert rescored.ranking.winners == ("TheAlmostEngineer",)
    by_status = {row.team: row.status for row in rescored.ranking.rows if row.status != "ranked"}
    baselines = dict.fromkeys(["baseline_zero_shot_multi_turn", "baseline_zero_shot"], "baseline")
    assert by_status == {**baselines, "zergy": "disqualified"}
    for name in ("constants.json", "trial_scores.csv", "character_scores.csv"):
        written = (tmp_path / PUBLISHED.name / name).read_text().splitlines()
        assert sorted(written) == sorted((PUBLISHED / name).read_text().splitlines())  # the teams stood otherwise


def test_golden_tables_are_reproduced(published):
    rescored, reproduction = reproduce(published)
    assert rescored.reproduced
    assert reproduction.compared == {"trial score": 780, "letter score": 78, "place": 3, "weight": 26, "sum": 1}


@pytest.mark.parametrize(
    ("name", "old", "new", "kind"),
    [
        ("trial_scores.csv", '"alpha","A",1,"0.0', '"alpha","A",1,"0.1', "trial score alpha A 1"),
        ("character_scores.csv", '"alpha","A","0.0021', '"alpha","A","0.0022', "letter score alpha A"),
        ("constants.json", '"character":"A","weight":"0.', '"character":"A","weight":"1.', "weight A"),
        ("constants.json", '"competitionScore":"0.', '"competitionScore":"1.', "sum of the scores"),
        ("prompt_scores_ranks.csv", '0.00477207101309351977",1', '0.00477207101309351977",2', "place alpha"),
        ("prompt_scores_ranks.csv", '"gamma",', '"delta","1","1",9\n"gamma",', "place delta"),
    ],
)
def test_a_changed_digit_or_a_line_too_many_is_noticed(published, name, old, new, kind):
    text = (published / name).read_text()
    assert old in text
    (published / name).write_text(text.replace(old, new, 1))
    rescored, reproduction = reproduce(published)
    assert not rescored.reproduced
    assert reproduction.differences[0].startswith(f"{kind}: published ")


ALPHA = {"normalizedPromptScore": 40.8210994527029, "promptScore": 0.00477207101309}


def publish_result(folder, **beta):
    """Write a result.json as the web page has it: a baseline, a disqualified team, numbers cut to some digits."""
    value = [
        {"teamName": "alpha", "rank": 1, **ALPHA},
        {"teamName": "beta", "normalizedPromptScore": 36.8671714056665, "promptScore": 0.004309849, "rank": -1, **beta},
        {"teamName": "gamma", "normalizedPromptScore": 22.31172914, "promptScore": 0.002608287315, "rank": 2},
        {"teamName": "cheat", "normalizedPromptScore": -1, "promptScore": -1, "rank": -2},
    ]
    (folder / "prompt_scores_ranks.csv").unlink()
    (folder / "result.json").write_text(json.dumps(value))


@pytest.mark.parametrize("name", ["beta", "Weak Baseline (Zero-Shot)"])
def test_the_web_page_says_who_was_a_baseline_or_disqualified_maybe_under_another_name(published, name):
    publish_result(published, teamName=name)
    rescored, reproduction = reproduce(published, quirks=False)
    assert reproduction.differences == []
    roles = {row.team: row.status for row in rescored.ranking.rows}
    assert roles == {"alpha": "ranked", "beta": "baseline", "gamma": "ranked", "cheat": "disqualified"}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"rank": 2}, "gamma"),
        ({"promptScore": 0.0043098491}, "beta"),
        ({"teamName": "ghost", **ALPHA}, "ghost"),  # with the digits of a team that has a row
    ],
)
def test_another_rank_or_score_and_a_row_that_is_no_team_are_noticed_and_change_no_role(published, change, place):
    publish_result(published, **change)
    rescored, reproduction = reproduce(published, quirks=False)
    assert any(line.startswith(f"place {place}: ") for line in reproduction.differences)
    assert {row.team: row.status for row in rescored.ranking.rows}["alpha"] == "ranked"


def test_a_name_that_several_teams_could_have_gives_nobody_a_role(tmp_path):
    for name in OFFICIAL_NAMES[:3]:
        write_text(tmp_path / "published" / name, golden_text("t3_all_zero", name))
    unknown = {"teamName": "Weak Baseline", "rank": -1, "normalizedPromptScore": 0, "promptScore": 0}
    (tmp_path / "published/result.json").write_text(json.dumps([unknown]))
    rescored, reproduction = reproduce(tmp_path / "published", quirks=False)
    assert {row.status for row in rescored.ranking.rows} == {"ranked"}
    assert any("Weak Baseline" in line for line in reproduction.differences)


RANK = '[{"teamName": "a", "rank": 1, "promptScore": 0e-9999, "normalizedPromptScore": 1}]'


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("trial_scores.csv", lambda text: text.replace('"stabilityScore"', '"x"'), "stabilityScore: Field required"),
        ("trial_scores.csv", lambda text: "\n".join(text.split("\n")[:-1]), "letter 'Z': .*found 9 lines"),
        ("trial_scores.csv", lambda text: f'{text}\n"{"x" * 200_000}', "not a CSV"),
        ("trial_scores.csv", lambda text: text.replace('"1"', '"1e-999999"', 1), "2000 decimal places"),
        ("trial_scores.csv", lambda text: text.replace('"1"', '"-1"', 1), "no measurement"),
        ("trial_scores.csv", lambda text: text.replace('"1"', '"1.1"', 1), "no measurement"),
        ("trial_scores.csv", lambda text: text.replace('"0.16405986530296204"', '"0.5"', 1), "one diversity"),
        ("constants.json", lambda _: '{"weights": [1]}', "competitionScore"),
        ("result.json", lambda _: "[" * 100_000, "not valid JSON"),
        ("result.json", lambda _: RANK, "promptScore"),
    ],
)
def test_a_malformed_table_is_refused_by_name(published, name, change, complaint):
    (published / name).write_text(change((published / "trial_scores.csv").read_text()))
    with pytest.raises(PcgevalError, match=complaint) as caught:
        reproduce(published)
    assert str(published / name) in str(caught.value)
