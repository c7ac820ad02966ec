"""The functions that the stages call, on a small competition in the pipeline's folders."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from params_for_tests import file_states, small_params
from scoring_examples import write_json

from pcgeval import PcgevalError
from pcgeval.core.files import sha256_bytes
from pcgeval.core.layout import OFFICIAL_RESULTS, SUBMISSIONS, Trial, summaries_file
from pcgeval.core.trials import Flag, TrialRecord, record_path, write_trial
from pcgeval.generation.summaries import summarise_trials
from pcgeval.scoring.inputs import ScoringError
from pcgeval.scoring.stages import rank_stage, score_stage
from pcgeval.submissions.load import load_submission

TEAMS = {"alpha": 0.75, "base": 0.25, "out": 1.0}
MODELS = ("m1", "m2")


@pytest.fixture
def params(tmp_path, monkeypatch):
    """Three teams (a participant, a baseline, a disqualified one) with two models, letters A and B, two trials."""
    monkeypatch.chdir(tmp_path)
    for team, similarity in TEAMS.items():
        submission(team, {"base": "role: baseline", "out": "disqualified: late"}.get(team, "{}"))
        if team != "out":
            for model in MODELS:
                measure(model, team, similarity)
    scoring = {"baseline": "base", "bootstrap": 20}
    return small_params("AB", teams=tuple(TEAMS), models=MODELS, scoring=scoring)


def submission(team, notes):

    folder = Path("data/submissions") / team
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(team)
    (folder / "prompt.txt").write_text("Build <OBJECT>.")
    (folder / "submission.yaml").write_text(notes)


def measure(model, team, similarity, engine="pymunk 7", classifier="ab"):

    data = Path("data")
    for letter in "AB":
        tags = [f"{team}_{letter}_{trial}" for trial in (1, 2)]
        raws = [{"tag": tag, "score": 0.5} for tag in tags]
        trials = [{"id": tag, "similarity": similarity} for tag in tags if not tag.endswith("_A_1")]  # it failed
        write_json(data / "stability" / model / team / f"{letter}.json", {"raws": raws})
        write_json(data / "similarity" / model / team / f"{letter}.json", {"trials": trials})
        write_json(data / "diversity" / model / team / f"{letter}.json", {"diversityRate": 0.5})
    write_json(data / "stability" / model / team / "simulations.json", {"engine": engine})
    write_json(data / "similarity" / model / team / "classifier.json", {"name": "vit", "sha256": classifier})


def test_the_stage_score_writes_the_official_files_of_each_model(params, tmp_path):
    score_stage(params)
    assert sorted(path.name for path in (tmp_path / OFFICIAL_RESULTS).iterdir()) == list(MODELS)
    for model in MODELS:
        folder = tmp_path / OFFICIAL_RESULTS / model
        ranks = (folder / "prompt_scores_ranks.csv").read_text().split("\n")
        assert len(list(folder.iterdir())) == 4
        assert [line.split(",")[0] for line in ranks[1:]] == ['"alpha"', '"base"']
        assert [line.split(",")[3] for line in ranks[1:]] == ["1", "-1"]
        assert len((folder / "trial_scores.csv").read_text().split("\n")) == 1 + 2 * 2 * 2


def test_a_model_that_left_has_no_official_files_and_others_are_not_written_again(params, tmp_path):
    score_stage(params)
    before = file_states(tmp_path / OFFICIAL_RESULTS)
    score_stage(params.model_copy(update={"models": {"m2": params.models["m2"]}}))
    assert file_states(tmp_path / OFFICIAL_RESULTS) == {
        name: state for name, state in before.items() if name.startswith("m2/")
    }


def test_the_stage_rank_writes_the_ranking(params, tmp_path):
    found = rank_stage(params)
    assert found.winners == ("alpha",)
    value = json.loads((tmp_path / "results" / "ranking.json").read_text())
    assert [(each["team"], each["status"]) for each in value["teams"]] == [
        ("alpha", "ranked"),
        ("base", "baseline"),
        ("out", "disqualified"),
    ]
    assert value["engine"] == "pymunk 7"
    assert value["classifier"] == "vit sha256:ab"
    assert value["intervals"]["resamples"] == 20
    assert value["teams"][0]["models"]["m2"]["failed_trials"] == 1
    assert (tmp_path / "results" / "ranking.csv").read_text().startswith("rank,team,status,winner,normalised,total,")
    assert json.loads((tmp_path / "results" / "metrics.json").read_text())["failed_trials.alpha"] == 2


DVC_YAML = yaml.safe_load((Path(__file__).parents[2] / "dvc.yaml").read_text())
RANK_DATA = [dep for dep in DVC_YAML["stages"]["rank"]["deps"] if dep.startswith(("data/", "results/"))]
ELSEWHERE = {"data/trials", "data/recordings", "data/classifier"}  # responses and measurements may be made elsewhere
MEASURED = [dep for dep in RANK_DATA if dep not in ELSEWHERE]


@pytest.mark.parametrize("dep", MEASURED)
def test_rank_reads_all_data_that_it_names_as_a_dependency(params, tmp_path, dep):
    rank_stage(params)
    shutil.rmtree(tmp_path / dep)
    with pytest.raises(PcgevalError):
        rank_stage(params)


def trial_record(team, model, trial, *flags):
    record = TrialRecord("f" * 64, 1, model, "d" * 64, (), sha256_bytes(b""), "no answer", flags=flags)
    raw = Path("data/raw", model, team)
    write_trial(raw, team, trial, "", record)
    recorded = [each for each in (Trial("A", 1), Trial("A", 2)) if record_path(raw, team, each).exists()]
    summarise_trials(summaries_file(model, team), raw, load_submission(SUBMISSIONS / team), recorded)


def test_flags_and_supplied_blocks_stand_beside_the_ranking(params, tmp_path):
    trial_record("alpha", "m1", Trial("A", 1), Flag("altered-answer", "mine"))
    trial_record("alpha", "m1", Trial("A", 2))
    trial_record("base", "m1", Trial("A", 1))
    rank_stage(params)
    value = json.loads((tmp_path / "results" / "ranking.json").read_text())
    alpha, base, _ = value["teams"]
    assert (alpha["status"], value["winners"]) == ("ranked", ["alpha"])
    assert (alpha["models"]["m1"]["flagged_trials"], alpha["models"]["m2"]["flagged_trials"]) == (1, None)
    assert (alpha["models"]["m1"]["supplied"], alpha["models"]["m2"]["supplied"]) == (0, None)
    assert base["models"]["m1"]["flagged_trials"] == 0
    header, first, *_ = (tmp_path / "results" / "ranking.csv").read_text().splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["flagged trials m1"] == "1"
    metrics = json.loads((tmp_path / "results" / "metrics.json").read_text())
    assert (metrics["flagged_trials.alpha"], metrics["flagged_trials.base"]) == (1, 0)


def test_a_second_run_writes_the_same_bytes(params, tmp_path):
    rank_stage(params)
    first = {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    rank_stage(params)
    assert {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()} == first


def test_a_dropped_team_takes_no_part_although_its_folders_stay(params):
    measure("m1", "dropped", 1.0)
    measure("m2", "dropped", 1.0)
    assert [row.team for row in rank_stage(params).rows] == ["alpha", "base", "out"]


@pytest.mark.parametrize(("engine", "classifier"), [("box2d", "ab"), ("pymunk 7", "cd")])
def test_engines_and_classifiers_do_not_mix(params, tmp_path, engine, classifier):
    measure("m2", "alpha", 0.5, engine, classifier)
    with pytest.raises(ScoringError, match=r"alpha \(m2\)"):
        rank_stage(params)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("step", ["stability", "similarity", "diversity"])
def test_an_absent_letter_is_named(params, tmp_path, step):
    (tmp_path / "data" / step / "m1" / "alpha" / "B.json").unlink()
    with pytest.raises(ScoringError, match="model 'm1', team 'alpha': letter B lacks one of its three files"):
        score_stage(params)


def test_an_absent_folder_is_named(params, tmp_path):
    (tmp_path / "data" / "diversity" / "m1" / "alpha").rename(tmp_path / "elsewhere")
    with pytest.raises(ScoringError, match=r"model 'm1', team 'alpha': .*Run `dvc repro`"):
        score_stage(params)


def test_everybody_disqualified(params, tmp_path):
    for team in TEAMS:
        (tmp_path / "data" / "submissions" / team / "submission.yaml").write_text("disqualified: late")
    with pytest.raises(ScoringError, match="every team is disqualified"):
        rank_stage(params)
