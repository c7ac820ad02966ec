"""The ranking as CSV, LaTeX and Markdown, and with pseudonyms."""

import csv
import io
import json
from decimal import Decimal

from pcgeval.cli.main import main
from pcgeval.core.stage_files import RankedTeam, RankingFile, RankingRules, ScoreInterval, TeamModelScore
from pcgeval.report.tables import ranking_table

EXACT = Decimal("0.00339783327489470138")
SCORE = TeamModelScore(score=EXACT, normalised=Decimal(100), failed_trials=3)
TEAM = RankedTeam(
    team="a_b",
    status="ranked",
    rank=1,
    winner=True,
    total=EXACT,
    normalised=Decimal("64.4012"),
    interval=ScoreInterval(40.71, 81.6),
    models={"small": SCORE},
    disqualified=None,
)
UNSCORED = {"rank": None, "winner": False, "total": None, "normalised": None, "interval": None, "models": {}}
CHEATS = TEAM.model_copy(update={"team": "cheats", "status": "disqualified", **UNSCORED})
RANKING = RankingFile(
    winners=("a_b",),
    reason="",
    baseline=None,
    rules=RankingRules(version=1, letters="A", trials=1, official_quirks=False),
    engine="e",
    classifier="c",
    intervals=None,
    teams=(TEAM, CHEATS),
)


def test_csv_has_the_exact_figures_and_latex_and_markdown_have_rounded_ones():
    first, second = csv.DictReader(io.StringIO(ranking_table(RANKING, "csv")))
    assert Decimal(first["total"]) == Decimal(first["small"]) == EXACT
    assert (first["team"], first["status"], first["rank"], first["failed trials"]) == ("a_b", "winner", "1", "3")
    assert (float(first["low"]), float(first["high"])) == (40.71, 81.6)
    assert set(second.values()) == {"cheats", "disqualified", ""}
    lines = ranking_table(RANKING, "latex").splitlines()
    assert (lines[0], lines[-1]) == (r"\begin{tabular}{llrrrrrrr}", r"\end{tabular}")
    assert r"a\_b & winner & 1 & 64.401 & 40.71 & 81.60 & 0.003398 & 0.003398 & 3 \\" in lines
    assert {line.count(" & ") for line in lines if line.endswith(r" \\")} == {8}
    for name, shown in (("a|b", r"a\|b"), ("a\n| x", r"a \| x")):
        changed = RANKING.model_copy(update={"teams": (TEAM.model_copy(update={"team": name}),)})
        _, marks, line = ranking_table(changed, "markdown").splitlines()
        assert marks == "| --- | --- |" + " ---: |" * 7
        assert line.startswith(f"| {shown} | winner | 1 | 64.401 |")


def test_an_anonymous_ranking_names_no_participant(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    (workspace / "data/submissions/cheats/submission.yaml").write_text("disqualified: copied The Builders\n")
    main(["ranking", "--anonymous", "--json"])
    shown = capsys.readouterr()
    values = json.loads(shown.out)
    first, second, third = values["teams"]
    assert (second["team"], values["result"], values["winners"]) == ("zero-shot", None, [first["team"]])
    assert not [name for name in ("builders", "The Builders", "cheats", "picture") if name in shown.out]
    for row, name in ((first, "builders"), (third, "cheats")):
        assert f"{row['team']} is {name}" in shown.err
    main(["ranking", "--anonymous", "--format", "csv"])
    assert first["team"] in capsys.readouterr().out  # the key stays
    assert main(["ranking", "--anonymous", "--single-file", "page.html"]) == 2
    assert not (workspace / "page.html").exists()
    (key,) = (workspace / ".pcgeval").glob("pseudonyms*")
    key.write_text("")
    assert main(["ranking", "--anonymous"]) == 2
    assert "is empty" in capsys.readouterr().err
