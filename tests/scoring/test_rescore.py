"""Rescoring folders of the official layout: the official files byte for byte, roles, and what is refused."""

import csv
import io
import json
import shutil

import pytest
from params_for_tests import contents
from scoring_examples import CASES, OFFICIAL_NAMES, golden_text, write_json, write_official

from pcgeval import PcgevalError, ScoringRules
from pcgeval.cli.main import main
from pcgeval.scoring.rescore import rescore

QUIRKS = ScoringRules(official_quirks=True)
RULES = ScoringRules("A", 2)
TIED = {"t3_all_zero", "t3_perfect", "t3_zero_diversity", "t8_ties"}  # the script ranks equals 1, 2, 3


@pytest.fixture
def source(tmp_path):
    """The random golden case in the official layout, as the results of the model `gemma`."""
    write_official(tmp_path / "runs" / "gemma", json.loads(golden_text("t3_random", "inputs.json")))
    return tmp_path / "runs" / "gemma"


@pytest.fixture
def team(tmp_path):
    """A team `t` with two trials of A."""
    pairs = [("t_A_1.xml", 1.0), ("t_A_2.xml", 0.5)]
    write_official(tmp_path / "source", {"t": {"A": {"stability": pairs, "similarity": pairs, "diversity": 0.25}}})
    return tmp_path / "source" / "t"


def scored(team, rules=RULES):
    """Score the team alone; return its scores and its line of the ranking."""
    rescored = rescore([team.parent], team.parents[1] / "out", rules)
    return rescored.scores.models[0].prompts[0], rescored.ranking.rows[0].models["source"]


@pytest.mark.parametrize("case", CASES)
def test_golden_folders_give_the_official_files(case, tmp_path):
    assert len(CASES) == 8
    write_official(tmp_path / "m", json.loads(golden_text(case, "inputs.json")))
    assert main(["rescore", str(tmp_path / "m"), "--out", str(tmp_path / "script"), "--official-quirks"]) == 0
    rescore([tmp_path / "m"], tmp_path / "rules")
    for name in OFFICIAL_NAMES:
        golden = golden_text(case, name).encode()
        assert (tmp_path / "script" / "m" / name).read_bytes() == golden
        differs = name == "prompt_scores_ranks.csv" and case in TIED
        assert ((tmp_path / "rules" / "m" / name).read_bytes() != golden) == differs


def test_letters_and_trials_are_those_of_the_responses_or_tables_or_assumed(team, tmp_path, capsys):
    def shown(folder, out, *options):
        assert main(["rescore", str(folder), "--out", str(tmp_path / out), *options]) == 0
        return capsys.readouterr().err

    assert "scored 10 trials of each of the letters ABCDEFGHIJKLMNOPQRSTUVWXYZ" in shown(team.parent, "assumed")
    (team / "raw" / "A").mkdir(parents=True)
    (team / "raw" / "notes").mkdir()
    for name in ("A/t_A_1.txt", "A/t_A_2.txt", "A/t_A_3.txt", "notes/1.txt"):  # the third trial failed
        (team / "raw" / name).touch()
    assert "scored 3 trials of each of the letters A;" in shown(team.parent, "counted")
    (row,) = json.loads((tmp_path / "counted/ranking.json").read_text())["teams"]
    assert row["models"]["source"]["failed_trials"] == 1
    assert "scored 3 trials of each of the letters A;" in shown(tmp_path / "counted/source", "again")
    assert "scored 2 trials of each of the letters A;" in shown(team.parent, "fewer", "--trials", "2")


def test_equals_share_a_rank_by_the_rules_and_stand_in_byte_order(tmp_path):
    write_official(tmp_path / "m", json.loads(golden_text("t8_ties", "inputs.json")))
    (tmp_path / "m" / "beta").rename(tmp_path / "m" / 'b "e", a')
    ranking = rescore([tmp_path / "m"], tmp_path / "out").ranking
    assert [row.rank for row in ranking.rows] == [1, 2, 2, 2, 2, 2, 2, 8]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out/m/prompt_scores_ranks.csv").read_text())))
    assert [row["rank"] for row in rows] == ["1", "2", "2", "2", "2", "2", "2", "8"]
    assert [row["team"] for row in rows[1:7]] == ["Team10", "Zeta", "alpha", 'b "e", a', "team10", "team2"]


def test_trial_eleven_counts_only_in_the_scripts_weights(source, tmp_path):
    path = source / "alpha" / "stability" / "A.json"
    value = json.loads(path.read_text())
    value["raws"].append({"tag": "alpha_A_11.xml", "score": 1})
    path.write_text(json.dumps(value))
    by_script, by_rules = (
        rescore([source], tmp_path / str(rules.official_quirks), rules).scores.models[0].weights
        for rules in (QUIRKS, ScoringRules())
    )
    original = json.loads(golden_text("t3_random", "constants.json"))["weights"]
    assert str(by_rules[0].stability) == original[0]["weightStability"]
    assert by_script[0].stability < by_rules[0].stability
    assert by_script[1:] == by_rules[1:]


def test_totals_over_models_whatever_the_order_of_the_folders_also_of_one_name(source, tmp_path):
    other = tmp_path / "other" / "gemma"
    write_official(other, json.loads(golden_text("t3_missing_trials", "inputs.json")))
    first = rescore([source, other], tmp_path / "one")
    assert rescore([other, source], tmp_path / "two") == first
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert {"ranking.csv", "ranking.json", "other_gemma/constants.json"} < contents(tmp_path / "one").keys()
    row = first.ranking.rows[0]
    assert row.total == sum(model.score for model in row.models.values())
    assert row.models["other_gemma"].failed_trials > row.models["runs_gemma"].failed_trials == 0


def test_roles(source, tmp_path):
    without = rescore([source], tmp_path / "without", disqualified=["alpha"]).scores
    rules = ScoringRules(baseline="beta")
    ranking = rescore([source], tmp_path / "out", rules, baselines=["beta"], disqualified=["alpha"]).ranking
    roles = [(row.team, row.status) for row in ranking.rows]
    assert roles == [("beta", "baseline"), ("gamma", "ranked"), ("alpha", "disqualified")]
    assert ranking.winners == ()
    assert "no team beats the baseline beta" in ranking.reason
    rescore([source], tmp_path / "script", ScoringRules(baseline="beta", official_quirks=True))
    ranks = [
        [line.split(",")[-1] for line in (tmp_path / name / "gemma/prompt_scores_ranks.csv").read_text().split("\n")]
        for name in ("out", "script")
    ]
    assert ranks == [['"rank"', "-1", "1"], ['"rank"', "1", "2", "3"]]
    shutil.rmtree(source / "alpha")
    assert rescore([source], tmp_path / "fewer").scores == without  # a disqualified team takes no part in the weights


def test_folders_and_roles_that_cannot_be_used_are_refused(source, tmp_path):
    for inside in (".", "..", "new", "alpha/stability"):
        with pytest.raises(PcgevalError, match="would write into the results"):
            rescore([source], source / inside)
    assert rescore([source], source / "result") == rescore([source], source / "result")  # as the official tools do
    for names in ([], ["gemma", "gemma"], ["gemma", "../runs/gemma"], ["nowhere"], ["x" * 5000]):
        with pytest.raises(PcgevalError, match=r"tell the models apart|Name one"):
            rescore([source.parent / name for name in names], tmp_path / "out")
    (source.parent / "loop").symlink_to("loop")
    with pytest.raises(PcgevalError, match="Name one"):
        rescore([source.parent / "loop"], tmp_path / "out")
    for name in ("a\x1b[31m", b"\xff".decode(errors="surrogateescape")):
        (source / name).mkdir()
        with pytest.raises(PcgevalError, match="is no team name"):
            rescore([source], tmp_path / "out")
        (source / name).rmdir()
    for role in ("baselines", "disqualified"):
        with pytest.raises(PcgevalError, match="'delta' is in none of the folders"):
            rescore([source], tmp_path / "out", **{role: ["delta"]})
    for name in ("empty", "models/model/team/stability"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("empty", "models", "file"):
        with pytest.raises(PcgevalError, match=r"no team folders|Name one"):
            rescore([tmp_path / name], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for name in ("logs", "result", ".git"):
        (tmp_path / "models/model" / name).mkdir()
    rows = rescore([tmp_path / "models/model"], tmp_path / "out").ranking.rows
    assert [row.team for row in rows] == ["team"]  # the others are no teams


def test_of_two_entries_of_a_trial_the_first_counts_whatever_follows_its_number(team):
    names = ("/eval/t/levels/A/t_A_1.xml", "t_A_1.png", "t_A_2 (copy).xml")
    write_json(team / "stability" / "A.json", {"raws": [{"tag": name, "score": 0.25} for name in names[:2]]})
    raws = [{"id": names[0], "similarity": 0.5}, {"id": names[1], "similarity": 0.75}]
    raws.append({"id": names[2], "similarity": 1.0000001192092896})  # a softmax just above one
    write_json(team / "similarity" / "A.json", {"trials": raws})
    write_json(team / "diversity" / "A.json", {"diversityRate": 4.4})
    write_json(team / "stability" / "simulations.json", {"engine": {"name": "pymunk", "version": "7.1.0", "a": "1"}})
    write_json(team / "similarity" / "classifier.json", {"name": "vit", "sha256": "ab"})
    prompt, _ = scored(team)
    assert [float(trial.stability) for trial in prompt.trials] == [0.25, 0]
    assert [float(trial.similarity) for trial in prompt.trials] == [0.5, 1.0000001192092896]
    assert float(prompt.letters[0].diversity) == 4.4
    provenance = rescore([team.parent], team.parents[1] / "out", RULES).scores.provenance
    assert (provenance.engine, provenance.classifier) == ("pymunk 7.1.0 (a 1)", "vit sha256:ab")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("stability/A.json", "[" * 100_000, "not valid JSON"),
        ("stability/A.json", '{"raws": [{"tag": "t_A_1", "score": NaN}]}', r"raws\.0\.score.*finite"),
        ("stability/A.json", '{"raws": [{"tag": "t_A_1", "score": -0.5}]}', r"raws\.0\.score.*found -0\.5"),
        ("stability/A.json", '{"raws": [{"tag": "t_A_1", "score": ' + "9" * 100_000 + "}]}", "out of range"),
        ("stability/A.json", '{"raws": [{"tag": "t_A_٣", "score": 1}]}', "does not end in a trial number"),
        ("diversity/A.json", '{"diversityRate": -1}', "diversityRate"),
    ],
)
def test_a_malformed_file_is_refused_by_name_and_nothing_is_written(team, name, content, complaint):
    (team / name).write_text(content)
    with pytest.raises(PcgevalError, match=complaint) as caught:
        scored(team)
    assert str(team / name) in str(caught.value)
    assert "dvc repro" not in str(caught.value)
    assert not (team.parents[1] / "out").exists()
    if "trial number" in complaint:
        assert scored(team, ScoringRules("A", 2, official_quirks=True))
