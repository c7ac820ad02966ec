"""The stages score and rank, on a small competition in the pipeline's folders."""

import json
from pathlib import Path

import pytest
from params_for_tests import contents, small_params
from scoring_examples import write_json

from pcgeval import PcgevalError
from pcgeval.core.layout import OFFICIAL_RESULTS, SUBMISSIONS
from pcgeval.scoring.stages import rank_stage, score_stage

TEAMS = {"alpha": 0.75, "base": 0.25, "out": 1.0}
MODELS = ("m1", "m2")


@pytest.fixture
def params(tmp_path, monkeypatch):
    """Three teams (a participant, a baseline, a disqualified one) with two models, letters A and B, two trials."""
    monkeypatch.chdir(tmp_path)
    for team, similarity in TEAMS.items():
        folder = SUBMISSIONS / team
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(team)
        (folder / "prompt.txt").write_text("Build <OBJECT>.")
        notes = {"base": "role: baseline", "out": "disqualified: late"}
        (folder / "submission.yaml").write_text(notes.get(team, "{}"))
        for model in MODELS if team != "out" else ():
            measure(model, team, similarity)
    scoring = {"baseline": "base", "bootstrap": 20}
    return small_params("AB", teams=tuple(TEAMS), models=MODELS, scoring=scoring)


def measure(model, team, similarity, engine="pymunk 7", classifier="ab"):
    """Write the measurements of a team, of which the first trial of A failed."""
    data = Path("data")
    for letter in "AB":
        tags = [f"{team}_{letter}_{trial}" for trial in (1, 2)]
        raws = [{"tag": tag, "score": 0.5} for tag in tags]
        trials = [{"id": tag, "similarity": similarity} for tag in tags if not tag.endswith("_A_1")]
        write_json(data / "stability" / model / team / f"{letter}.json", {"raws": raws})
        write_json(data / "similarity" / model / team / f"{letter}.json", {"trials": trials})
        write_json(data / "diversity" / model / team / f"{letter}.json", {"diversityRate": 0.5})
    write_json(data / "stability" / model / team / "simulations.json", {"engine": engine})
    write_json(data / "similarity" / model / team / "classifier.json", {"name": "vit", "sha256": classifier})


def test_the_stages_write_the_official_files_of_each_model_and_the_ranking(params):
    score_stage(params)
    assert sorted(path.name for path in OFFICIAL_RESULTS.iterdir()) == list(MODELS)
    for model in MODELS:
        folder = OFFICIAL_RESULTS / model
        ranks = [line.split(",") for line in (folder / "prompt_scores_ranks.csv").read_text().split("\n")[1:]]
        assert len(list(folder.iterdir())) == 4
        assert [(line[0], line[3]) for line in ranks] == [('"alpha"', "1"), ('"base"', "-1")]
        assert len((folder / "trial_scores.csv").read_text().split("\n")) == 1 + 2 * 2 * 2
        measure(model, "dropped", 1.0)  # a team that left takes no part, although its folders stay
    assert rank_stage(params).winners == ("alpha",)
    ranking = json.loads(Path("results/ranking.json").read_text())
    statuses = [(row["team"], row["status"]) for row in ranking["teams"]]
    assert statuses == [("alpha", "ranked"), ("base", "baseline"), ("out", "disqualified")]
    assert (ranking["engine"], ranking["classifier"]) == ("pymunk 7", "vit sha256:ab")
    assert ranking["intervals"]["resamples"] == 20
    assert ranking["teams"][0]["models"]["m2"]["failed_trials"] == 1
    assert sorted(path.name for path in Path("results/metrics").iterdir()) == ["alpha.json", "base.json"]
    first = contents(Path("results"))
    rank_stage(params)
    assert contents(Path("results")) == first
    rank_stage(params.model_copy(update={"teams": ("base", "out")}))
    assert [path.name for path in Path("results/metrics").iterdir()] == ["base.json"]


@pytest.mark.parametrize("stage", ["stability", "similarity", "diversity"])
def test_an_absent_file_is_named(params, stage):
    Path("data", stage, "m1", "alpha", "B.json").unlink()
    for run in (score_stage, rank_stage):
        with pytest.raises(PcgevalError, match=r"model 'm1', team 'alpha': letter B .*Run `dvc repro`"):
            run(params)


def test_results_of_different_tools_and_no_teams_are_refused(params):
    measure("m2", "alpha", 0.5, "box2d")
    with pytest.raises(PcgevalError, match=r"alpha \(m2\)"):
        rank_stage(params)
    assert not Path("results").exists()
    for team in TEAMS:
        (SUBMISSIONS / team / "submission.yaml").write_text("disqualified: late")
    with pytest.raises(PcgevalError, match="no teams to score"):
        rank_stage(params)
