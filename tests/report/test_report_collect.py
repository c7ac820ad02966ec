"""What the report reads and derives: values of the stages' files, and files that are missing, broken or of a round."""

import json
import shutil
from dataclasses import replace
from decimal import Decimal

import pytest
from evaluated_round import PARAMS
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.errors import FileError
from pcgeval.core.layout import GRADES, OFFICIAL_RESULTS, RANKING_JSON, SUBMISSIONS, Trial, stage_dir
from pcgeval.report.collect import collect
from pcgeval.report.formats import figure
from pcgeval.submissions.load import SubmissionError

STABILITY = stage_dir("stability", "large", "builders")
SIMILARITY = stage_dir("similarity", "large", "builders")
RAW = stage_dir("raw", "large", "builders")
OFFICIAL = OFFICIAL_RESULTS / "large"
READ = [
    RANKING_JSON,
    OFFICIAL / "constants.json",
    OFFICIAL / "character_scores.csv",
    OFFICIAL / "trial_scores.csv",
    STABILITY / "I.json",
    STABILITY / "simulations.json",
    STABILITY / "trials.json",
    SIMILARITY / "T.json",
    GRADES / "cheats" / "grade.json",
]


def trials_of(evaluation, model, name):
    team = next(team for team in evaluation.teams if team.name == name)
    return next(results for results in team.models if results.name == model).trials


def test_a_failed_trial_lacks_what_it_did_not_reach_and_a_disqualified_team_has_no_scores(evaluated):
    evaluation = collect(PARAMS, evaluated)
    ranked = [row["team"] for row in json.loads((evaluated / RANKING_JSON).read_text())["teams"]]
    assert [team.name for team in evaluation.teams] == ranked
    first, failed_convert, failed_extract, lost = trials_of(evaluation, "small", "builders")
    assert [trial.failed_stage for trial in (first, failed_convert, failed_extract)] == [None, "convert", "extract"]
    assert (lost.trial, lost.failed_stage, lost.reason) == (Trial("T", 2), "generate", "took 501 s; the limit is 500 s")
    assert (lost.level, lost.stability, lost.similarity, lost.probabilities, lost.score) == (None, None, None, (), 0)
    cheats = evaluation.teams[-1]
    assert {letter.scores for model in cheats.models for letter in model.letters} == {None}
    assert {trial.score for trial in cheats.trials} == {None}
    assert any(trial.level for trial in cheats.trials)


@pytest.fixture(scope="module")
def repaired(evaluated, tmp_path_factory):
    """One copy for all broken files: each test repairs what it broke."""
    return shutil.copytree(evaluated, tmp_path_factory.mktemp("repaired") / "workspace")


@pytest.mark.parametrize("path", READ, ids=str)
def test_a_missing_or_broken_file_is_named(repaired, path):
    file = repaired / path
    before = file.read_bytes()
    for content in (None, b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}'):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(FileError) as caught:
            collect(PARAMS, repaired)
        message = str(caught.value)
        assert str(path) in message
        assert "dvc repro" in message
        assert len(message) < 2000
        file.write_bytes(before)


def test_what_is_cut_lacks_a_measurement_or_is_missing(workspace):
    (workspace / RAW / "I" / "builders_I_1.txt").write_bytes(b"\xff" + "é".encode() * 1_000_000)
    assert trials_of(collect(PARAMS, workspace), "large", "builders")[0].reply == f"\ufffd{'é' * 1999}…"
    path = workspace / SIMILARITY / "I.json"
    whole = path.read_text()
    path.write_text(json.dumps({**json.loads(whole), "trials": json.loads(whole)["trials"][:-1]}))
    with pytest.raises(FileError, match="letter I, trial 2 did not fail"):
        collect(PARAMS, workspace)
    path.write_text(whole)
    (workspace / RAW / "T" / "builders_T_1.txt").unlink()
    with pytest.raises(FileError, match=r"builders_T_1.*dvc repro"):
        collect(PARAMS, workspace)
    shutil.rmtree(workspace / SUBMISSIONS / "cheats")
    with pytest.raises(SubmissionError, match="cheats"):
        collect(PARAMS, workspace)


def test_a_ranking_of_other_params_is_refused(evaluated):
    for change in ({"teams": ("zero-shot", "builders")}, {"models": {"large": PARAMS.models["large"]}}):
        with pytest.raises(FileError, match=r"ranking\.json: has other teams, models, letters or trials"):
            collect(PARAMS.model_copy(update=change), evaluated)


def test_why_a_trial_that_did_not_fail_adds_nothing(evaluated):
    alone, letter = (model.letters[0] for model in collect(PARAMS, evaluated).teams[0].models)
    trial, level = letter.trials[0], letter.trials[0].level
    zero = replace(trial, score=Decimal(0))
    assert letter.why_zero(trial) is None
    assert "no block stayed" in letter.why_zero(replace(zero, stability=0.0))
    assert "empty" in letter.why_zero(replace(zero, stability=0.0, level=level.model_copy(update={"types": ()})))
    assert "does not see the letter" in letter.why_zero(replace(zero, similarity=0.0))
    assert "no diversity" in alone.why_zero(alone.trials[0])


@given(st.floats(0, 1000, exclude_min=True), st.integers(1, 6))
def test_only_zero_looks_like_zero(value, digits):
    shown = figure(value, digits)
    assert shown.startswith("<") or float(shown) > 0
    assert abs(float(shown.lstrip("<")) - value) <= 10.0**-digits
    assert figure(0, digits) == "0"
