"""The report of an evaluated round, written beside files of others, with its table of levels."""

from pathlib import Path

from evaluated_round import PARAMS, write_round
from pyarrow import parquet

from pcgeval.core.level_table import level_table
from pcgeval.report.render import write_report


def test_the_report_has_all_trials_in_a_table_and_leaves_files_of_others(tmp_path: Path) -> None:
    root, out = tmp_path / "round", tmp_path / "report"
    write_round(root)
    notes = [out / "teams" / "notes.html", out / "letters" / "photo.png", out / "tables" / "mine.csv"]
    write_report(PARAMS, root, out)
    for path in notes:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (out / "teams" / "of-an-earlier-round.html").write_bytes((out / "index.html").read_bytes())
    write_report(PARAMS, root, out)
    assert [path.read_text() for path in notes] == ["mine"] * 3
    assert not (out / "teams" / "of-an-earlier-round.html").exists()
    assert 'href="tables/levels.parquet"' in (out / "index.html").read_text()
    rows = parquet.read_table(out / "tables" / "levels.parquet").to_pylist()
    assert {(row["model"], row["team"]) for row in rows} == {(m, t) for m in PARAMS.models for t in PARAMS.teams}
    assert all((row["reason"] is None) == (row["failed_stage"] is None) for row in rows)
    assert any(row["reason"] for row in rows)
    scored = [row for row in rows if row["score"]]
    assert scored
    assert all(round(row[f"p_{row['letter']}"], 7) == row["similarity"] for row in scored)
    assert all(row["engine"] and row["classifier"] and row["blocks"] for row in scored)
    common = level_table([], "", None).column_names  # those of `pcgeval evaluate`
    assert list(rows[0])[: len(common)] == common
