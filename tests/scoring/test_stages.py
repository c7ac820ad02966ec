"""The stages score and rank, on a small evaluated competition."""

import csv

import pytest
from evaluated_round import PARAMS
from params_for_tests import contents
from workspace import evaluate, make_workspace

from pcgeval import PcgevalError
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import METRICS, OFFICIAL_RESULTS, RANKING_JSON
from pcgeval.scoring.stages import rank_stage, score_stage


def test_the_stages_write_the_official_files_of_each_model_and_the_ranking(root):
    before = contents(root / "results")
    score_stage(PARAMS, root)
    assert rank_stage(PARAMS, root).winners == ("builders",)
    assert contents(root / "results") == before
    assert {path.name for path in (root / OFFICIAL_RESULTS).iterdir()} == {*PARAMS.models}
    for folder in (root / OFFICIAL_RESULTS).iterdir():
        ranks = [line.split(",") for line in (folder / "prompt_scores_ranks.csv").read_text().split("\n")[1:]]
        assert {line[0]: line[3] for line in ranks} == {'"builders"': "1", '"zero-shot"': "-1"}
    ranking = read_json(root / RANKING_JSON)
    statuses = [(row["team"], row["status"]) for row in ranking["teams"]]
    assert statuses == [("builders", "ranked"), ("zero-shot", "baseline"), ("cheats", "disqualified")]
    assert ranking["engine"].startswith("pymunk ")
    assert "sha256:" in ranking["classifier"]
    of_team = ranking["teams"][0]["models"]["small"]
    assert (of_team["failed_trials"], of_team["blocks"], of_team["supplied"]) == (3, 5, 0)
    assert of_team["failures"] == dict.fromkeys(("late-call", "no-fence", "too-wide"), 1)
    assert [row["models"][model]["answered_by"] for row in ranking["teams"][:2] for model in ("small", "large")] == [
        *(["small:1b"], ["large:70b"]) * 2
    ]
    assert {path.name for path in (root / METRICS).iterdir()} == {"builders.json", "zero-shot.json"}


@pytest.mark.parametrize("stage", ["stability", "similarity", "diversity"])
def test_an_absent_file_is_named(root, stage):
    (root / "data" / stage / "small/builders/T.json").unlink()
    for run in (score_stage, rank_stage):
        with pytest.raises(PcgevalError, match=r"model 'small', team 'builders': letter T .*Run `dvc repro`"):
            run(PARAMS, root)


def test_with_one_trial_a_letter_the_diversity_is_1_and_a_team_wins(tmp_path):
    workspace = make_workspace(tmp_path)
    workspace.change_params("competition", trials=1)
    workspace.change_params("scoring", baseline=None)
    workspace.change("rounds", {"midterm": {"characters": "I", "trials": 1}})
    evaluate(tmp_path)
    ranking = read_json(tmp_path / RANKING_JSON)
    assert ranking["winners"] == ["beta"]
    assert float(ranking["teams"][0]["total"]) > 0
    for model in ("small", "large"):
        lines = (tmp_path / OFFICIAL_RESULTS / model / "character_scores.csv").read_text().splitlines()
        rows = list(csv.DictReader(lines))
        assert {row["diversityScore"] for row in rows} == {"1"}
        assert all(float(row["characterScore"]) > 0 for row in rows)
    assert "once each" in " ".join((tmp_path / "results/report/index.html").read_text().split())
