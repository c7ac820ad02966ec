"""Rescoring folders of the official layout."""

import json
import shutil

import pytest
from scoring_examples import CASES, OFFICIAL_NAMES, golden_text, write_official

from pcgeval import ScoringRules
from pcgeval.core.errors import FileError
from pcgeval.scoring.inputs import ScoringError
from pcgeval.scoring.rescore import rescore

QUIRKS = ScoringRules(official_quirks=True)


@pytest.fixture
def source(tmp_path):
    """The random golden case in the official layout, as the results of the model `gemma`."""
    write_official(tmp_path / "runs" / "gemma", json.loads(golden_text("t3_random", "inputs.json")))
    return tmp_path / "runs" / "gemma"


@pytest.mark.parametrize("case", CASES)
def test_golden_folders_give_the_official_files(case, tmp_path):
    write_official(tmp_path / "m", json.loads(golden_text(case, "inputs.json")))
    rescore([tmp_path / "m"], tmp_path / "out", QUIRKS)
    for name in OFFICIAL_NAMES:
        assert (tmp_path / "out" / "m" / name).read_bytes().decode() == golden_text(case, name)


def test_ties_by_the_rules(tmp_path):
    write_official(tmp_path / "m", json.loads(golden_text("t8_ties", "inputs.json")))
    found = rescore([tmp_path / "m"], tmp_path / "out")
    assert [row.rank for row in found.ranking.rows] == [1, 2, 2, 2, 2, 2, 2, 8]


def test_trial_eleven_counts_only_in_the_scripts_weights(source, tmp_path):
    path = source / "alpha" / "stability" / "A.json"
    value = json.loads(path.read_text())
    value["raws"].append({"tag": "alpha_A_11.xml", "score": 1})
    path.write_text(json.dumps(value))
    by_script = rescore([source], tmp_path / "script", QUIRKS)
    by_rules = rescore([source], tmp_path / "rules")
    original = json.loads(golden_text("t3_random", "constants.json"))["weights"]
    assert str(by_rules.scores.models[0].weights[0].stability) == original[0]["weightStability"]
    assert by_script.scores.models[0].weights[0].stability < by_rules.scores.models[0].weights[0].stability
    assert by_script.scores.models[0].weights[1:] == by_rules.scores.models[0].weights[1:]


def test_totals_over_models_and_no_order_of_the_folders(source, tmp_path):
    other = source.parent / "phi"
    write_official(other, json.loads(golden_text("t3_missing_trials", "inputs.json")))
    first = rescore([source, other], tmp_path / "one")
    second = rescore([other, source], tmp_path / "two")
    assert first == second
    for name in ("ranking.csv", "ranking.json", "metrics.json", "gemma/trial_scores.csv", "phi/constants.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    row = first.ranking.rows[0]
    assert row.total == sum(model.score for model in row.models.values())
    assert row.models["phi"].failed_trials > row.models["gemma"].failed_trials == 0


def test_roles(source, tmp_path):
    found = rescore(
        [source], tmp_path / "out", ScoringRules(baseline="beta"), baselines=["beta"], disqualified=["alpha"]
    )
    assert [(row.team, row.status) for row in found.ranking.rows] == [
        ("beta", "baseline"),
        ("gamma", "ranked"),
        ("alpha", "disqualified"),
    ]
    assert found.ranking.winners == ()
    assert "no team beats the baseline beta" in found.ranking.reason


def test_a_disqualified_team_takes_no_part_in_the_weights(source, tmp_path):
    with_alpha_out = rescore([source], tmp_path / "one", disqualified=["alpha"])
    shutil.rmtree(source / "alpha")
    without_alpha = rescore([source], tmp_path / "two")
    assert with_alpha_out.scores == without_alpha.scores


@pytest.mark.parametrize("role", ["baselines", "disqualified"])
def test_a_role_for_nobody_is_refused(source, tmp_path, role):
    with pytest.raises(ScoringError, match="'delta' is in none of the folders"):
        rescore([source], tmp_path / "out", **{role: ["delta"]})


def test_folders_of_one_name_are_told_apart(source, tmp_path):
    other = source.parent.parent / "other" / "gemma"
    shutil.copytree(source, other)
    found = rescore([source, other], tmp_path / "out")
    assert [model.model for model in found.scores.models] == ["other_gemma", "runs_gemma"]


def test_different_teams_do_not_meet(source, tmp_path):
    other = source.parent / "phi"
    shutil.copytree(source, other)
    shutil.rmtree(other / "alpha")
    with pytest.raises(ScoringError, match="'phi' has no results of team 'alpha'"):
        rescore([source, other], tmp_path / "out")


def test_unequal_file_counts_stop_the_script_aloud(source, tmp_path):
    (source / "alpha" / "similarity" / "A.json").unlink()
    with pytest.raises(ScoringError, match="26 stability, 25 similarity and 26 diversity files"):
        rescore([source], tmp_path / "out", QUIRKS)
    assert rescore([source], tmp_path / "out").ranking.winners == ("alpha",)


def test_nothing_is_written_when_anything_is_wrong(source, tmp_path):
    (source / "gamma" / "diversity" / "Z.json").write_text("{")
    with pytest.raises(FileError):
        rescore([source], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("inside", [".", "..", "new", "alpha", "alpha/stability"])
def test_results_are_not_written_among_the_inputs(source, inside):
    with pytest.raises(ScoringError, match="would write into the results"):
        rescore([source], source / inside)


def test_the_official_result_folder_may_be_written(source):
    first = rescore([source], source / "result")
    assert rescore([source], source / "result") == first


@pytest.mark.parametrize("folders", [[], ["gemma", "gemma"], ["gemma", "../runs/gemma"]])
def test_no_folder_or_one_twice_is_refused(source, tmp_path, folders):
    with pytest.raises(ScoringError, match="named twice"):
        rescore([source.parent / folder for folder in folders], tmp_path / "out")


@pytest.mark.parametrize("name", ["nowhere", "file", "x" * 5000])
def test_what_is_no_folder_is_refused(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScoringError, match="Name"):
        rescore([tmp_path / name], tmp_path / "out")


def test_a_team_linked_in_a_circle_is_no_endless_loop(source, tmp_path):
    (source / "loop").symlink_to(source / "loop")
    assert rescore([source], tmp_path / "out").ranking.winners == ("alpha",)
