"""The real pipeline with failing teams: their fault gives no score, ours no ranking; the others continue."""

import re
from pathlib import Path

import pytest
from competition_folder import PROGRAM, write_submission
from slow_ollama import SlowOllama
from workspace import Workspace, make_workspace

from pcgeval.core.files import sha256_json
from pcgeval.core.trials import TrialRecord, read_record

pytestmark = pytest.mark.e2e


def write_program(workspace: Workspace, team: str, requirements: str) -> Path:
    write_submission(workspace.folder, team, {"requirements.txt": requirements, **PROGRAM})
    return workspace.folder / "data" / "submissions" / team


def records(workspace: Workspace, team: str) -> list[TrialRecord]:
    return [read_record(path) for path in sorted((workspace.folder / "data/raw/m" / team).rglob("*.json"))]


def test_one_team_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A team asks for what no index has; another one for what its lock names, and the index is out of reach."""
    for name, value in {
        "PCGEVAL_CACHE": str(tmp_path / "cache"),
        "PCGEVAL_TRUST_PROGRAMS": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    workspace = make_workspace(tmp_path / "c")
    write_program(workspace, "greedy", "no-such-package\n")
    unlucky = write_program(workspace, "unlucky", "example\n")
    lock = f"example==1.0 \\\n    --hash=sha256:{'a' * 64}\n"
    (unlucky / "requirements-lock.txt").write_text(f"# {sha256_json(['example'])}, Python 3, m\n{lock}")
    with SlowOllama(0.002) as server:
        workspace.change("models", {"m": {"backend": "ollama", "name": "m:1", "host": server.address}})
        workspace.change("teams", ["alpha", "greedy", "unlucky"])
        workspace.change("similarity", {"model": "data/none"})  # so that none is loaded
        code, printed = workspace.run_and_fail("-m", "pcgeval", "check")
        assert code == 2
        assert re.findall(r"(?m)^([a-z ]+): .*/(\w+)/requirements", printed) == [
            ("failing team", "greedy"),
            ("error", "unlucky"),
        ]
        first = workspace.dvc("repro", "--keep-going")
        assert first.returncode != 0
        assert re.search(r"failed to reproduce.*generate@m", first.stdout)
        assert [len(records(workspace, team)) for team in ("alpha", "greedy", "unlucky")] == [4, 4, 0]
        assert all("no-such-package" in str(record.reason) for record in records(workspace, "greedy"))
        assert workspace.run_and_fail("-m", "pcgeval", "ranking")[0] == 2  # there is none
        asked = len(server.asked)
        for name in ("requirements.txt", "requirements-lock.txt"):
            (unlucky / name).unlink()
        workspace.repro("--keep-going", "extract")
        assert len(server.asked) == asked + 3 * 4  # the calls of the unlucky program
    assert [record.reason for record in records(workspace, "unlucky")] == [None] * 4
