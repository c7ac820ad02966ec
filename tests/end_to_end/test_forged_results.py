"""Forgeries that dvc.lock agrees with: a clone does not show a forged winner, and the audit's advice heals the rest."""

import json
import re
import shutil
import subprocess
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from evaluated_competition import evaluate
from mini_competition import accept_changes, run
from soak import soak_only
from workspace import PARAMS, REPOSITORY, Workspace

from pcgeval.core.files import sha256_bytes, write_json
from pcgeval.core.layout import REPORT
from pcgeval.core.params import load_params
from pcgeval.report.render import write_report

pytestmark = pytest.mark.e2e
RANKING = "results/ranking.json"


def audited(workspace: Workspace, *words: str) -> subprocess.CompletedProcess[str]:
    """Audit the folder in a process of its own: the audit looks at which modules Python would load."""
    return workspace.python("-m", "pcgeval", "audit", *words)


def rewrite(path: Path, change: Any) -> None:
    value = json.loads(path.read_text())
    change(value)
    write_json(path, value)


def commit(workspace: Workspace, message: str) -> None:
    run(workspace.folder, "git", "add", "--all")
    run(workspace.folder, "git", "commit", "--quiet", "--message", message)


@pytest.fixture(scope="module")
def evaluated(competition: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The small competition with one of its models, evaluated and committed to git with a clean tree."""
    workspace = Workspace(Path(shutil.copytree(competition, tmp_path_factory.mktemp("evaluated") / "competition")))
    workspace.change_params("models", value={"small": PARAMS["models"]["small"]})
    for path in (*workspace.folder.glob("*/*/large"), *workspace.folder.glob("data/evidence/*/large.json")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (workspace.folder / ".dvc" / "config.local").unlink()
    shutil.copy(REPOSITORY / ".gitignore", workspace.folder)
    with (workspace.folder / ".gitignore").open("a") as lines:
        lines.write("/.dvc/tmp\n/.dvc/cache\n/.dvc/config.local\n")
    run(workspace.folder, "git", "init", "--quiet")
    evaluate(workspace.folder, "score")
    with chdir(workspace.folder):
        write_report(load_params(), Path(), REPORT)
    accept_changes(workspace.folder)
    commit(workspace, "evaluated")
    return workspace


def cloned(workspace: Workspace, folder: Path) -> Workspace:
    """Clone a competition; the clone shares the cache, so that its run is short."""
    run(workspace.folder, "git", "clone", "--quiet", str(workspace.folder), str(folder))
    cache = workspace.folder / ".dvc" / "cache"
    (folder / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {cache}\n    type = copy\n")
    return Workspace(folder)


def test_a_clone_shows_the_true_winner_and_names_the_forged_one(evaluated: Workspace, tmp_path: Path) -> None:
    forger = Workspace(Path(shutil.copytree(evaluated.folder, tmp_path / "forger", symlinks=True)))
    true = (forger.folder / RANKING).read_bytes()

    def beta_wins(value: Any) -> None:
        value["winners"], value["reason"] = ["beta"], "beta wins: it has the highest total."
        for team in value["teams"]:
            team.update(winner=team["team"] == "beta", total="900" if team["team"] == "beta" else team["total"])

    rewrite(forger.folder / RANKING, beta_wins)
    accept_changes(forger.folder)
    commit(forger, "a new winner")
    clone = cloned(forger, tmp_path / "clone")
    done = clone.pcgeval("run")
    assert done.returncode == 0, done.stderr
    total = next(team["total"] for team in json.loads(true)["teams"] if team["team"] == "beta")
    assert re.search(
        r"warning: .*results/ranking\.json.*teams\[beta\]\.total is '900', recomputed '" + total[:9], done.stderr
    )
    assert "Made again: rank, report" in done.stderr
    assert "900" not in done.stdout
    assert (clone.folder / RANKING).read_bytes() == true
    assert "beta wins" not in (clone.folder / "results/report/index.html").read_text()
    assert clone.pcgeval("ranking").returncode == 0
    done = audited(clone, "--recompute", "2")
    assert done.returncode == 0, done.stdout
    assert "nothing differs" in done.stdout
    again = clone.pcgeval("run")
    assert (again.returncode, "warning" in again.stderr) == (0, False)


def forge_reply(folder: Path) -> str:
    record = folder / "data/raw/small/alpha/I/alpha_I_1.json"
    response = "```\ndrop_block('b31', 9)\n```"
    record.with_suffix(".txt").write_text(response)

    def change(value: Any) -> None:
        value["exchanges"][0]["reply"]["text"] = response
        value["response_sha256"] = sha256_bytes(response.encode())

    rewrite(record, change)
    return "generate@small-alpha"


def forge_code(folder: Path) -> str:
    path = next((folder / "data/intermediate/small/beta").rglob("*.txt"))
    path.write_text("drop_block('b31', 9)\n")
    return "extract@small-beta"


def forge_diversity(folder: Path) -> str:
    path = folder / "data/diversity/small/alpha/T.json"
    path.write_text(path.read_text().replace('"diversityRate":', '"diversityRate":1', 1))
    return "diversity@small-alpha"


def forge_leaf(folder: Path) -> str:
    def change(value: Any) -> None:
        value["graded_task_tree"]["sub_tasks"][0]["sub_tasks"][0]["explanation"] = "it is the best"

    rewrite(folder / "data/grades/beta/grade.json", change)
    return "grade@beta"


@soak_only
def test_the_advice_of_the_audit_heals_what_dvc_lock_agrees_with(evaluated: Workspace, tmp_path: Path) -> None:
    forged = Workspace(Path(shutil.copytree(evaluated.folder, tmp_path / "forged", symlinks=True)))
    before = {name: content for name, content in forged.outputs().items() if name != "dvc.lock"}
    stages = [forge(forged.folder) for forge in (forge_reply, forge_code, forge_diversity, forge_leaf)]
    accept_changes(forged.folder)
    done = audited(forged, "--recompute", "0", "--json")
    assert done.returncode == 1
    faults = [each for each in json.loads(done.stdout)["faults"] if each["kind"] == "recomputed"]
    advice = "\n".join(each["message"] for each in faults)
    assert all(stage in advice for stage in stages[1:])
    for stage in dict.fromkeys(re.findall(r"`dvc repro --force --single-item ([^`]+)`", advice)):
        assert forged.dvc("repro", "--force", "--single-item", stage).returncode == 0
    for each in faults:
        if "Delete it" in each["message"]:
            (forged.folder / each["path"]).unlink(missing_ok=True)
    done = forged.pcgeval("run")
    assert done.returncode == 0, done.stderr
    done = audited(forged, "--recompute", "2")
    assert done.returncode == 0, done.stdout
    assert {name: content for name, content in forged.outputs().items() if name != "dvc.lock"} == before
