"""The real pipeline with failing teams: their fault gives no score, ours no ranking; the others continue."""

import re
from pathlib import Path

import pytest
from handed_in_for_tests import write_folder
from model_servers import SlowOllama
from workspace import PROGRAM, make_workspace, write_submission

from pcgeval.core.files import sha256_json

pytestmark = pytest.mark.e2e


def test_one_team_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A team asks for what no index has; another one for what its lock names, and the index is out of reach."""
    monkeypatch.setenv("PCGEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PCGEVAL_TRUST_PROGRAMS", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    workspace = make_workspace(tmp_path / "c")
    lock = f"# {sha256_json(['example'])}, Python 3, m\nexample==1.0 \\\n    --hash=sha256:{'a' * 64}\n"
    write_submission(workspace.folder, "greedy", {"requirements.txt": "no-such-package\n", **PROGRAM})
    write_submission(workspace.folder, "unlucky", {"requirements.txt": "example\n", **PROGRAM})
    write_folder(workspace.folder, {"data/locks/unlucky.txt": lock})
    with SlowOllama(0.002) as server:
        workspace.change("models", {"m": {"backend": "ollama", "name": "m:1", "host": server.address}})
        workspace.change("teams", dict.fromkeys(["alpha", "greedy", "unlucky"]))
        (workspace.folder / "data/classifier/config.json").unlink()  # so that none is loaded
        code, printed = workspace.run_and_fail("-m", "pcgeval", "check")
        assert code == 2
        found = re.findall(r"(?m)^([a-z ]+): (greedy|unlucky): ", printed)
        assert found == [("failing team", "greedy"), ("error", "unlucky")]
        first = workspace.dvc("repro", "--keep-going")
        assert first.returncode != 0
        assert re.search(r"failed to reproduce.*generate", first.stdout)
        assert [len(workspace.records(team)) for team in ("alpha", "greedy", "unlucky")] == [4, 4, 0]
        assert all("no-such-package" in record.failure.detail for record in workspace.records("greedy"))
        assert workspace.run_and_fail("-m", "pcgeval", "ranking")[0] == 2  # there is none
        asked = len(server.asked)
        (workspace.folder / "data/submissions/unlucky/requirements.txt").unlink()
        workspace.repro("--keep-going", "extract")
        assert len(server.asked) == asked + 3 * 4  # the calls of the unlucky program
    assert [record.failure for record in workspace.records("unlucky")] == [None] * 4
