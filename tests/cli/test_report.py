"""`pcgeval report` on an evaluated round, and its server."""

import http.client
import subprocess
import threading
import webbrowser
from pathlib import Path

import pytest
from evaluated_round import PARAMS, write_round
from pyarrow import parquet

from pcgeval.cli.main import main
from pcgeval.core.layout import REPORT
from pcgeval.core.level_table import level_table
from pcgeval.report.render import write_report
from pcgeval.report.server import report_server


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
    main(["report", "--open"])
    said = capsys.readouterr()
    assert said.out == "results/report/index.html\n"
    assert opened == [(REPORT / "index.html").resolve().as_uri()]
    assert "no browser could be started" in said.err


def test_a_missing_report_says_how_to_make_it(
    tmp_path: Path, round_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "params.yaml").write_bytes((round_folder / "params.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert "Run `make report`" in capsys.readouterr().err


def test_a_copy_has_all_trials_as_the_table_of_levels(workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    assert main(["report", "--out", str(out)]) in {0, 1}
    rows = parquet.read_table(out / "tables" / "levels.parquet").to_pylist()
    assert {(each["model"], each["team"]) for each in rows} == {(m, t) for m in PARAMS.models for t in PARAMS.teams}
    assert all((each["reason"] is None) == (each["failed_stage"] is None) for each in rows)
    assert any(each["reason"] for each in rows)
    scored = [each for each in rows if each["score"]]
    assert scored
    assert all(round(each[f"p_{each['letter']}"], 7) == each["similarity"] for each in scored)
    assert all(each["engine"] and each["classifier"] and each["blocks"] for each in scored)
    common = level_table([], "", None).column_names  # those of `pcgeval evaluate`
    assert list(rows[0])[: len(common)] == common
    assert 'href="tables/levels.parquet"' in (workspace / REPORT / "index.html").read_text()


@pytest.mark.usefixtures("workspace")
def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    out = tmp_path / "copy"
    assert main(["report", "--out", str(out)]) in {0, 1}
    mine = [out / "teams" / "notes.html", out / "letters" / "photo.png", out / "tables" / "mine.csv"]
    for path in mine:
        path.write_text("mine")
    (out / "teams" / "of-an-earlier-round.html").write_bytes((out / "index.html").read_bytes())
    assert main(["report", "--out", str(out)]) in {0, 1}
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert not (out / "teams" / "of-an-earlier-round.html").exists()


def test_a_copy_to_share_names_the_commit(workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["init", "-q"],
        ["add", "params.yaml"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m", "--date", "2026-01-02T03:04:05"],
    ):
        subprocess.run(["git", *words], cwd=workspace, check=True)
    out = tmp_path / "shared"
    main(["report", "--out", str(out)])
    assert capsys.readouterr().out == f"{out / 'index.html'}\n"
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=workspace, text=True).strip()
    assert f"<code>{commit} of 20" in (out / "index.html").read_text()
    assert commit not in (workspace / REPORT / "index.html").read_text()
    assert (out / "teams" / "builders.html").exists()
    main(["report", "--out", str(out)])  # an earlier copy is replaced
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("x")
    assert main(["report", "--out", str(tmp_path / "notes")]) == 2
    assert "is no report" in capsys.readouterr().err


def test_the_server_answers_with_pages_and_nothing_else(round_folder: Path) -> None:
    def status(path: str, host: str = "127.0.0.1") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        connection.request("GET", path, headers={"Host": f"{host}:{server.server_port}"})
        return connection.getresponse().status

    with report_server(round_folder / REPORT) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert server.server_address[0] == "127.0.0.1"
        assert status("/") == status("/index.html") == status("/teams/builders.html") == 200
        assert status("/teams/") == status("/../../params.yaml") == status("/%2e%2e/%2e%2e/params.yaml") == 404
        assert status("/", "another.example") == 403
        assert status("/", "localhost") == 200
        server.shutdown()
