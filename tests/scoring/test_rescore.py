"""Rescoring folders of the official layout: the official files byte for byte, roles, and what is refused."""

import json
import shutil

import pytest
from params_for_tests import contents
from scoring_examples import CASES, OFFICIAL_NAMES, golden_text, write_official

from pcgeval import PcgevalError, ScoringRules
from pcgeval.cli.main import main
from pcgeval.core.files import write_json
from pcgeval.scoring.rescore import rescore

RULES = ScoringRules("A", 2)
TIED = {"t3_all_zero", "t3_perfect", "t3_zero_diversity", "t8_ties"}  # the script ranks equals 1, 2, 3


@pytest.fixture
def source(tmp_path):
    """The random golden case in the official layout, as the results of the model `gemma`."""
    write_official(tmp_path / "runs" / "gemma", json.loads(golden_text("t3_random", "inputs.json")))
    return tmp_path / "runs" / "gemma"


@pytest.fixture
def team(tmp_path):
    pairs = [("t_A_1.xml", 1.0), ("t_A_2.xml", 0.5)]
    write_official(tmp_path / "source", {"t": {"A": {"stability": pairs, "similarity": pairs, "diversity": 0.25}}})
    return tmp_path / "source" / "t"


@pytest.mark.parametrize("case", CASES)
def test_golden_folders_give_the_official_files(case, tmp_path):
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

    assert "10 trials of each of the letters ABCDEFGHIJKLMNOPQRSTUVWXYZ" in shown(team.parent, "assumed")
    (team / "raw" / "A").mkdir(parents=True)
    write_json(team / "stability/A.json", {"raws": [{"tag": "t_A_1", "score": 0}, {"tag": "t_A_2", "score": 1}]})
    for number in (1, 2, 3):  # the third trial failed
        (team / "raw" / "A" / f"t_A_{number}.txt").touch()
    assert "3 trials of each of the letters A;" in shown(team.parent, "counted")
    assert "3 trials of each of the letters A;" in shown(tmp_path / "counted/source", "again")
    for out in ("counted", "again"):  # a level of which all blocks fell is no failed trial
        (row,) = json.loads((tmp_path / out / "ranking.json").read_text())["teams"]
        assert row["models"]["source"]["failed_trials"] == 1
    assert "2 trials of each of the letters A;" in shown(team.parent, "fewer", "--trials", "2")
    for option, complaint in (("--trials=0", "trials 0: give a number"), ("--letters=", "letters '': give capital")):
        assert main(["rescore", str(team.parent), "--out", str(tmp_path / "none"), option]) == 2
        assert complaint in capsys.readouterr().err


def test_totals_over_models_whatever_the_order_of_the_folders_also_of_one_name(source, tmp_path):
    other = tmp_path / "other" / "gemma"
    write_official(other, json.loads(golden_text("t3_missing_trials", "inputs.json")))
    first = rescore([source, other], tmp_path / "one")
    assert rescore([other, source], tmp_path / "two") == first
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    row = first.ranking.rows[0]
    assert row.total == sum(model.score for model in row.models.values())
    assert row.models["other_gemma"].failed_trials > row.models["runs_gemma"].failed_trials == 0


def test_a_baseline_has_no_rank_and_a_disqualified_team_takes_no_part_in_the_weights(source, tmp_path):
    def ranking(out, *options):
        words = ["--baseline", "beta", "--baselines", "gamma"]  # an option takes one team, and no folder
        assert main(["rescore", *options, *words, str(source), "--out", str(tmp_path / out)]) == 0
        return json.loads((tmp_path / out / "ranking.json").read_text())

    first = ranking("out", "--disqualified", "alpha")
    statuses = [(row["team"], row["status"]) for row in first["teams"]]
    assert statuses == [("beta", "baseline"), ("gamma", "baseline"), ("alpha", "disqualified")]
    lines = (tmp_path / "out/gemma/prompt_scores_ranks.csv").read_text().split("\n")
    assert [line.split(",")[-1] for line in lines] == ['"rank"', "-1", "-1"]
    assert first["teams"][2]["would_have"] == next(row for row in ranking("all")["teams"] if row["team"] == "alpha")
    shutil.rmtree(source / "alpha" / "stability")
    assert ranking("lacking", "--disqualified", "alpha")["teams"][:2] == first["teams"][:2]
    shutil.rmtree(source / "alpha")
    assert ranking("fewer")["teams"] == first["teams"][:2]


def test_folders_and_roles_that_cannot_be_used_are_refused(source, tmp_path):
    for inside in (".", "..", "new"):
        with pytest.raises(PcgevalError, match="would write into the results"):
            rescore([source], source / inside)
    for names in (["gemma", "gemma"], ["nowhere"], ["x" * 5000]):
        with pytest.raises(PcgevalError, match=r"tell the models apart|Name one"):
            rescore([source.parent / name for name in names], tmp_path / "out")
    with pytest.raises(PcgevalError, match="'delta' is in none of the folders"):
        rescore([source], tmp_path / "out", disqualified=["delta"])
    with pytest.raises(PcgevalError, match="no team folders"):
        rescore([source.parent], tmp_path / "out")
    (source / "a\x1b[31m").mkdir()
    with pytest.raises(PcgevalError, match="is no team name"):
        rescore([source], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_official_folders_beside_the_teams_are_no_teams(source):
    for name in ("logs", ".git"):
        (source / name).mkdir()
    first = rescore([source], source / "result")  # where the official tools write
    assert [row.team for row in first.ranking.rows] == ["alpha", "beta", "gamma"]
    assert rescore([source], source / "result") == first


def test_recognised_trials_need_the_probabilities_of_all_letters(team, tmp_path):
    def recognised(out):
        rescore([team.parent], tmp_path / out, RULES)
        (row,) = json.loads((tmp_path / out / "ranking.json").read_text())["teams"]
        return row["recognised"], row["trials"]

    assert recognised("unknown") == (None, 2)
    path = team / "similarity/A.json"
    values = json.loads(path.read_text())
    raws = [[{"label": "A", "softmax_prob": value}, {"label": "B", "softmax_prob": 0.4}] for value in (1.0, 0.5)]
    values["similarities"] = [{"id": f"t_A_{number}", "raws": raw} for number, raw in enumerate(raws, start=1)]
    write_json(path, values)
    assert recognised("known") == (1, 2), "of the second only half of the blocks stay"
    write_json(path, values | {"similarities": values["similarities"][:1]})
    assert recognised("part") == (None, 2)
    (team / "stability/A.json").unlink()
    assert recognised("failed") == (0, 2)


def test_of_two_entries_of_a_trial_the_first_counts_whatever_follows_its_number(team, tmp_path):
    entries = {"/t/levels/A/t_A_1.xml": 0.5, "t_A_1.png": 0.75, "t_A_2 (copy).xml": 1.0000001192092896}  # a softmax
    assert rescore([team.parent], tmp_path / "whole", RULES).scores.models[0].prompts[0].failed_trials == 0
    trials = [{"id": name, "similarity": value} for name, value in entries.items()]
    write_json(team / "similarity" / "A.json", {"trials": trials})
    (prompt,) = rescore([team.parent], tmp_path / "out", RULES).scores.models[0].prompts
    assert [float(trial.similarity) for trial in prompt.trials] == [0.5, 1.0000001192092896]
    trials = [{"id": f"t_A_{n}", "similarity": 0.5} for n in (1, 3)]
    first = {"id": "t_A_1", "raws": [{"label": "A", "softmax_prob": 0.5}]}
    write_json(team / "similarity/A.json", {"trials": trials, "similarities": [first]})
    write_json(team / "stability/A.json", {"raws": [{"tag": f"t_A_{n}", "score": 1} for n in (1, 2, 3)]})
    (prompt,) = rescore([team.parent], tmp_path / "fewer", RULES).scores.models[0].prompts
    assert (prompt.failed_trials, prompt.recognised) == (1, 1), (
        "the second has no similarity, and a third does not exist"
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[" * 100_000, "not valid JSON"),
        ('{"raws": [{"tag": "t_A_1", "score": ' + "9" * 100_000 + "}]}", "out of range"),
        ('{"raws": [{"tag": "t_A_٣", "score": 1}]}', "does not end in a trial number"),
    ],
)
def test_a_malformed_file_is_refused_by_name_and_nothing_is_written(team, tmp_path, content, complaint):
    (team / "stability/A.json").write_text(content)
    with pytest.raises(PcgevalError, match=complaint) as caught:
        rescore([team.parent], tmp_path / "out", RULES)
    assert str(team / "stability/A.json") in str(caught.value)
    assert "dvc repro" not in str(caught.value)
    assert not (tmp_path / "out").exists()
