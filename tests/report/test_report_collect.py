"""What the report reads: values of the stages' files, and files that are missing, broken or of another round."""

import json
import re
import shutil
from decimal import Decimal

import pytest
from evaluated_round import PARAMS

from pcgeval.core.errors import FileError
from pcgeval.core.layout import (
    GRADES,
    OFFICIAL_RESULTS,
    RANKING_JSON,
    SUBMISSIONS,
    Trial,
    stage_dir,
    summaries_file,
)
from pcgeval.report.collect import collect
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
    SIMILARITY / "T.json",
    STABILITY / "trials.json",
    GRADES / "cheats" / "grade.json",
]


def team(evaluation, name):
    return next(entry for entry in evaluation.teams if entry.row.team == name)


def trial(evaluation, model, name, letter, number):
    results = next(entry for entry in team(evaluation, name).models if entry.name == model)
    return next(entry for entry in results.trials if entry.trial == Trial(letter, number))


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_all_trials_of_all_teams_are_collected_in_the_order_of_the_ranking(evaluated):
    result = collect(PARAMS, evaluated)
    ranked = [row["team"] for row in json.loads((evaluated / RANKING_JSON).read_text())["teams"]]
    assert [entry.row.team for entry in result.teams] == ranked
    assert {entry.row.team for entry in result.scored_teams} == {"zero-shot", "builders"}
    for entry in result.teams:
        assert [model.name for model in entry.models] == ["small", "large"]
        assert [f"{one.trial.letter}{one.trial.number}" for one in entry.models[0].trials] == ["I1", "I2", "T1", "T2"]


def test_values_are_those_of_the_stages_files(evaluated):
    result = trial(collect(PARAMS, evaluated), "large", "builders", "T", 2)
    stability = json.loads((evaluated / STABILITY / "T.json").read_text())["raws"][1]
    similarity = json.loads((evaluated / SIMILARITY / "T.json").read_text())
    best = max(similarity["similarities"][1]["raws"], key=lambda entry: entry["softmax_prob"])
    table = (evaluated / OFFICIAL / "trial_scores.csv").read_text()
    assert result.stability == stability["score"]
    assert len(result.level.types) == stability["startingObjects"]
    assert sum(result.level.moved) == stability["movingObjects"]
    assert result.similarity == similarity["trials"][1]["similarity"]
    assert (result.top_label.label, result.top_label.probability) == (best["label"], best["softmax_prob"])
    assert result.score == Decimal(re.search(r'^"builders","T",2,"([0-9.]+)"', table, re.MULTILINE)[1])


def test_failed_trials_keep_the_stage_and_reason_and_have_no_measurements(evaluated):
    result = collect(PARAMS, evaluated)
    fates = [trial(result, "small", "builders", *key).failure for key in [("I", 1), ("I", 2), ("T", 1), ("T", 2)]]
    assert [fate and fate.stage for fate in fates] == [None, "convert", "extract", "generate"]
    lost = trial(result, "small", "builders", "T", 2)
    assert lost.failure.reason == "took 501 s; the limit is 500 s"
    assert (lost.level, lost.stability, lost.similarity, lost.top_label, lost.score) == (None, None, None, None, 0)


def test_a_disqualified_team_is_shown_without_scores(evaluated):
    cheats = team(collect(PARAMS, evaluated), "cheats")
    assert cheats.is_disqualified
    assert {letter.scores for model in cheats.models for letter in model.letters} == {None}
    assert {entry.score for entry in cheats.trials} == {None}
    assert any(entry.level for entry in cheats.trials)


def test_long_replies_are_cut(workspace):
    (workspace / RAW / "I" / "builders_I_1.txt").write_bytes(b"\xff" + "é".encode() * 1_000_000)
    reply = trial(collect(PARAMS, workspace), "large", "builders", "I", 1).reply
    assert reply.startswith("\ufffdééé")
    assert reply.endswith("é…")
    assert len(reply) == 2001


@pytest.fixture(scope="module")
def repaired(evaluated, tmp_path_factory):
    """One copy for all broken files: each test repairs what it broke."""
    return shutil.copytree(evaluated, tmp_path_factory.mktemp("repaired") / "workspace")


@pytest.mark.parametrize("path", READ, ids=str)
def test_a_missing_or_broken_file_is_named(repaired, path):
    file = repaired / path
    before = file.read_bytes()
    for content in (None, b"", b"\xff\xfe", b"[]", b"[" * 100_000, b'{"a": NaN}', b'"a"\n"'):
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


def test_a_missing_submission_and_a_missing_reply_are_named(workspace):
    shutil.rmtree(workspace / SUBMISSIONS / "cheats")
    with pytest.raises(SubmissionError, match="cheats"):
        collect(PARAMS, workspace)
    (workspace / RAW / "T" / "builders_T_1.txt").unlink()
    with pytest.raises(FileError, match=r"builders_T_1.*dvc repro"):
        collect(PARAMS, workspace)


@pytest.mark.parametrize(
    ("path", "change", "named"),
    [
        (STABILITY / "I.json", lambda value: value["raws"][0].update(score=1.5), r"raws\.0\.score"),
        (RANKING_JSON, lambda value: value["teams"][0].update(total="1e999999999"), "total"),
        (STABILITY / "simulations.json", lambda value: value["trials"][0]["positions"].pop(), "different lengths"),
        (SIMILARITY / "I.json", lambda value: value["trials"].pop(), "letter I, trial 2 did not fail"),
        (summaries_file("large", "builders"), lambda value: value.append({}), r"builders\.json.*dvc repro"),
    ],
)
def test_values_that_cannot_be_are_refused(workspace, path, change, named):
    edit(workspace / path, change)
    with pytest.raises(FileError, match=named):
        collect(PARAMS, workspace)


def test_results_of_other_teams_models_letters_and_trials_are_refused(evaluated):
    def changed(**competition):
        return PARAMS.model_copy(update={"competition": PARAMS.competition.model_copy(update=competition)})

    for params, named in (
        (PARAMS.model_copy(update={"teams": ("zero-shot", "builders")}), "the teams are"),
        (PARAMS.model_copy(update={"models": {"large": PARAMS.models["large"]}}), "the models of team"),
        (changed(characters="AIT"), r"A\.json"),
        (changed(trials=3), "letter I, trial 3"),
    ):
        with pytest.raises(FileError, match=named):
            collect(params, evaluated)
