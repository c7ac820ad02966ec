"""The stages score and rank, on a small evaluated competition."""

import csv
from itertools import product
from pathlib import Path

import pytest
from evaluated_round import PARAMS
from params_for_tests import contents
from workspace import evaluate, make_workspace

from pcgeval import PcgevalError
from pcgeval.cli.main import main
from pcgeval.core.files import write_json
from pcgeval.core.text import plain
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import METRICS, OFFICIAL_RESULTS, RANKING_JSON, summaries_file
from pcgeval.formats.results import RankingFile
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
    assert {"numpy", "pillow", "pymunk", "safetensors"} <= {*ranking["packages"]}
    of_team = ranking["teams"][0]["models"]["small"]
    assert (of_team["failed_trials"], of_team["blocks"], of_team["supplied"]) == (3, 5, 0)
    assert (of_team["supplied_levels"], of_team["trials"]) == (0, 4)
    assert of_team["failures"] == dict.fromkeys(("late-call", "no-fence", "too-wide"), 1)
    assert [row["models"][model]["answered_by"] for row in ranking["teams"][:2] for model in ("small", "large")] == [
        *(["small:1b"], ["large:70b"]) * 2
    ]
    assert {path.name for path in (root / METRICS).iterdir()} == {"builders.json", "zero-shot.json"}
    summaries = root / summaries_file("small", "builders")
    summaries.write_text(summaries.read_text().replace('"whole": false', '"whole": true'))
    first = rank_stage(PARAMS, root).rows[0]
    assert first.models["small"].supplied_levels == 1, "the three trials that failed have no level"


def test_recognised_trials_are_counted_by_definition(root):
    """Of all trials, failed ones too: the asked letter is the likeliest, and at least 90 % of the blocks stay."""
    rank_stage(PARAMS, root)
    rows = {row["team"]: row["would_have"] or row for row in read_json(root / RANKING_JSON)["teams"]}
    for team, model in product(PARAMS.teams, PARAMS.models):
        recognised = 0
        for letter in "IT":
            folder = root / "data/similarity" / model / team
            stable = read_json(root / "data/stability" / model / team / f"{letter}.json")["raws"]
            stabilities = {Path(entry["tag"]).stem: entry["score"] for entry in stable}
            for prediction in read_json(folder / f"{letter}.json")["similarities"]:
                likeliest = max(prediction["raws"], key=lambda one: one["softmax_prob"])["label"]
                recognised += likeliest == letter and stabilities[Path(prediction["id"]).stem] >= 0.9
        assert rows[team]["models"][model]["recognised"] == recognised
    for row in rows.values():
        counts = [(of_model["recognised"], of_model["trials"]) for of_model in row["models"].values()]
        assert (row["recognised"], row["trials"]) == tuple(map(sum, zip(*counts, strict=True)))
    assert 0 < sum(row["recognised"] for row in rows.values()) < 24


def test_a_disqualified_team_is_shown_below_the_ranking_with_what_it_would_have_had(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    rank_stage(PARAMS, root)
    *_, cheats = RankingFile.read(root / RANKING_JSON).teams
    assert (cheats.rank, cheats.total, cheats.recognised, cheats.models) == (None, None, None, {})
    teams = {name: team.model_copy(update={"disqualified": None}) for name, team in PARAMS.teams.items()}
    ranked = rank_stage(PARAMS.model_copy(update={"teams": teams}), root)
    (row,) = (row for row in ranked.rows if row.team == "cheats")
    assert cheats.would_have == row.model_copy(update={"interval": None, "winner": cheats.would_have.winner})
    rank_stage(PARAMS, root)
    main(["ranking"])
    shown = capsys.readouterr().out
    assert "cheats is disqualified: used a picture of the letter\n" in shown
    assert f"would have had {row.normalised:.2f} % of all points, rank {row.rank}\n" in shown
    assert "0 of 2 best levels, call for call, and 0 % of its blocks stood in its messages before" in shown
    last = list(csv.DictReader((root / "results/ranking.csv").read_text().splitlines()))[-1]
    assert (last["disqualified"], last["normalised if ranked"]) == (cheats.disqualified, plain(row.normalised))
    assert (last["normalised"], last["score small"], last["recognised"]) == ("", "", str(row.recognised))


def test_a_ranking_of_an_earlier_release_is_read_without_the_new_figures(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    values = read_json(root / RANKING_JSON)
    for row in values["teams"]:
        for name in ("recognised", "trials", "best_levels", "supplied_best_levels", "would_have"):
            row.pop(name)
        for model in row["models"].values():
            del model["recognised"], model["trials"], model["supplied_levels"]
    write_json(root / RANKING_JSON, values)
    main(["ranking"])
    line = next(line for line in capsys.readouterr().out.splitlines() if "builders" in line)
    assert " of 8" not in line
    assert main(["ranking", "--format", "csv"]) == 1  # the result hash is another one


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
