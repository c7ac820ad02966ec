"""The report of an evaluated round: opened in the browser, written beside files of others, with its table of levels."""

import webbrowser
from pathlib import Path

import pytest
from evaluated_round import PARAMS, write_round
from pyarrow import parquet

from pcgeval.cli.main import main
from pcgeval.core.layout import REPORT
from pcgeval.core.level_table import level_table
from pcgeval.report.render import write_report


@pytest.fixture(scope="module")
def round_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("round")
    write_round(root)
    write_report(PARAMS, root, root / REPORT)
    return root


@pytest.fixture
def workspace(round_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(round_folder)
    return round_folder


@pytest.mark.usefixtures("workspace")
def test_the_report_is_named_and_opened(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)  # which returns None, as where no browser starts
    main(["ranking", "--open"])
    said = capsys.readouterr()
    assert opened == [(REPORT / "index.html").resolve().as_uri()]
    assert "no browser could be started" in said.err


def test_a_missing_report_says_how_to_make_it(
    tmp_path: Path, round_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "params.yaml").write_bytes((round_folder / "params.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert main(["ranking", "--open"]) == 2
    assert "Run `make report`" in capsys.readouterr().err


def test_a_copy_has_all_trials_as_the_table_of_levels(workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    write_report(PARAMS, workspace, out)
    rows = parquet.read_table(out / "tables" / "levels.parquet").to_pylist()
    assert {(row["model"], row["team"]) for row in rows} == {(m, t) for m in PARAMS.models for t in PARAMS.teams}
    assert all((row["reason"] is None) == (row["failed_stage"] is None) for row in rows)
    assert any(row["reason"] for row in rows)
    scored = [row for row in rows if row["score"]]
    assert scored
    assert all(round(each[f"p_{each['letter']}"], 7) == each["similarity"] for each in scored)
    assert all(each["engine"] and each["classifier"] and each["blocks"] for each in scored)
    common = level_table([], "", None).column_names  # those of `pcgeval evaluate`
    assert list(rows[0])[: len(common)] == common
    assert 'href="tables/levels.parquet"' in (workspace / REPORT / "index.html").read_text()


def test_files_of_others_in_the_folder_stay(workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    write_report(PARAMS, workspace, out)
    mine = [out / "teams" / "notes.html", out / "teams" / "photo.png", out / "tables" / "mine.csv"]
    for path in mine:
        path.write_text("mine")
    (out / "teams" / "of-an-earlier-round.html").write_bytes((out / "index.html").read_bytes())
    write_report(PARAMS, workspace, out)
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert not (out / "teams" / "of-an-earlier-round.html").exists()
