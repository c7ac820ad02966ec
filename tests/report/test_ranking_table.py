"""The ranking as CSV and Markdown, and the failures below it."""

import csv
import io

from pcgeval.cli.main import main
from pcgeval.cli.ranking import doubtful_settings, ranking_table
from pcgeval.formats.layout import RANKING_JSON
from pcgeval.formats.params import load_params
from pcgeval.formats.results import RankingFile


def test_csv_has_the_exact_figures_and_markdown_has_rounded_ones(workspace, capsys):
    ranking = RankingFile.read(workspace / RANKING_JSON)
    first, *_ = ranking.teams
    main(["ranking", "--format", "csv"])
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (lines[0]["total"], lines[0]["small"]) == (f"{first.total:f}", f"{first.models['small'].score:f}")
    assert (float(lines[0]["low"]), float(lines[0]["high"])) == first.interval
    counts = {name: lines[-1].pop(name) for name in ("recognised", "trials", "failed trials")}
    assert set(lines[-1].values()) == {"cheats", "disqualified", ""}
    assert counts["trials"] == lines[0]["trials"]
    changed = ranking.model_copy(update={"teams": (first.model_copy(update={"team": "a_|b\n| x"}),)})
    table = ranking_table(changed, "markdown").splitlines()
    assert " ".join(table[2].split()).startswith(f"| a_\\|b \\| x | winner | 1 | {first.normalised:.3f} | ")
    assert len({line.replace("\\|", "..").count("|") for line in table}) == 1


def test_failures_stand_below_the_ranking_by_kind_and_point_to_a_setting(workspace, capsys):
    main(["ranking"])
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[-4:] == [
        ["failure", "all", "small", "large"],
        *([*title.split(), "2", "2", "0"] for title in ("no fence", "time limit", "too wide")),
    ]
    ranking, params = RankingFile.read(workspace / RANKING_JSON), load_params()
    small = params.models["small"].model_copy(update={"options": {"num_predict": 200}})
    params = params.model_copy(update={"models": {**params.models, "small": small}})
    for of_baseline, of_builders, words in (
        ({"cut-off": 60, "too-high": 10}, {"cut-off": 60}, ["small: 120 of 130 failures are `cut off`"]),
        ({"cut-off": 25, "too-high": 25}, {"cut-off": 25, "too-high": 25}, []),
        ({}, {"cut-off": 130}, []),
        ({"no-fence": 60}, {"no-fence": 60}, ["small: 120 of 120 failures are `no fence`"]),
        ({"context-filled": 1}, {"context-filled": 1}, []),
    ):
        changed = with_failures(ranking, {"zero-shot": of_baseline, "builders": of_builders})
        sentences = doubtful_settings(changed, params)
        assert [sentence.partition(" (")[0] for sentence in sentences] == words
        assert all("(2 teams, num_predict 200)" in sentence for sentence in sentences if "cut off" in sentence)


def with_failures(ranking, failures):
    """Return a ranking with these failures of its teams with the small model, and none with the large one."""
    teams = []
    for row in ranking.teams:
        small = {key: score for key, score in row.models.items() if key == "small"}
        counts = {key: score.model_copy(update={"failures": failures[row.team]}) for key, score in small.items()}
        teams.append(row.model_copy(update={"models": counts}))
    return ranking.model_copy(update={"teams": tuple(teams)})
