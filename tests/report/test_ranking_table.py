"""The ranking as CSV, LaTeX and Markdown, and with pseudonyms."""

import csv
import io
import json
from decimal import Decimal

import pytest

from pcgeval.cli.main import main
from pcgeval.core.stage_files import RankedTeam, RankingFile, RankingRules, ScoreInterval, TeamModelScore
from pcgeval.report.tables import ranking_table

EXACT = Decimal("0.00339783327489470138")


def team(name, rank=None, status="ranked", total=EXACT):
    scores = {} if total is None else {"small": TeamModelScore(score=total, normalised=Decimal(100), failed_trials=3)}
    return RankedTeam(
        team=name,
        status=status,
        rank=rank,
        winner=rank == 1,
        total=total,
        normalised=None if total is None else Decimal("64.4012"),
        interval=None if total is None else ScoreInterval(40.71, 81.6),
        models=scores,
        disqualified=None,
    )


RANKING = RankingFile(
    winners=("a_b",),
    reason="",
    baseline=None,
    rules=RankingRules(version=1, letters="A", trials=1, official_quirks=False),
    engine="e",
    classifier="c",
    intervals=None,
    teams=(team("a_b", 1), team("cheats", status="disqualified", total=None)),
)


def test_csv_has_the_exact_figures():
    first, second = csv.DictReader(io.StringIO(ranking_table(RANKING, "csv")))
    assert Decimal(first["total"]) == Decimal(first["small"]) == EXACT
    assert (first["team"], first["status"], first["rank"], first["failed trials"]) == ("a_b", "winner", "1", "3")
    assert (float(first["low"]), float(first["high"])) == (40.71, 81.6)
    assert set(second.values()) == {"cheats", "disqualified", ""}


def test_latex_is_a_tabular_with_escaped_names():
    lines = ranking_table(RANKING, "latex").splitlines()
    assert lines[0] == r"\begin{tabular}{llrrrrrrr}"
    assert lines[-1] == r"\end{tabular}"
    assert r"a\_b & winner & 1 & 64.401 & 40.7 & 81.6 & 0.003398 & 0.003398 & 3 \\" in lines
    assert {line.count(" & ") for line in lines if line.endswith(r" \\")} == {8}


@pytest.mark.parametrize(("name", "shown"), [("a|b", r"a\|b"), ("a\n| x", r"a \| x")])
def test_markdown_keeps_a_team_on_its_line(name, shown):
    changed = RANKING.model_copy(update={"teams": (team(name, 1),)})
    lines = ranking_table(changed, "markdown").splitlines()
    assert len(lines) == 3
    assert lines[1] == "| --- | --- |" + " ---: |" * 7
    assert lines[2].startswith(f"| {shown} | winner | 1 | 64.401 |")


def test_an_anonymous_ranking_names_no_participant(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    (workspace / "data/submissions/cheats/submission.yaml").write_text("disqualified: copied The Builders\n")
    main(["ranking", "--anonymous", "--json"])
    said = capsys.readouterr()
    first, second, third = json.loads(said.out)["teams"]
    assert second["team"] == "zero-shot"
    assert json.loads(said.out)["result"] is None
    for name in ("builders", "The Builders", "cheats"):
        assert name not in said.out
    for row, name in ((first, "builders"), (third, "cheats")):
        assert f"{row['team']} is {name}" in said.err
    main(["ranking", "--anonymous", "--format", "csv"])
    assert first["team"] in capsys.readouterr().out  # the key stays
