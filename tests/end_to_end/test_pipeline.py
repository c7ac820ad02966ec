"""The real pipeline on a small competition: what runs when something changes, and that nothing else does.

The tests of one module share a workspace and run in order: each starts from an up-to-date competition.
"""

import json
import shutil

import pytest
from this_machine import soak_only
from workspace import DIGESTS, OTHER_PROMPT, PROMPTS, Workspace, make_workspace

from pcgeval.formats.layout import STAGE_DIRS, stage_dir

pytestmark = pytest.mark.e2e

INPUTS = {"submissions", "locks", "recordings", "rubrics", "classifier", "examples"}
MEASURE = ["generate", "extract", "convert", "simulate", "classify", "diversity"]
CONCLUDE = ["score", "rank", "grade", "report"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("competition"))


@pytest.fixture
def before(workspace: Workspace) -> dict[str, int]:
    """The times at which the files of the teams were written."""
    if not (workspace.folder / "dvc.lock").exists():
        workspace.repro()
    return written(workspace)


def written(workspace: Workspace) -> dict[str, int]:
    """Return when each file of the teams in data/ was written, by its path."""
    data = workspace.folder / "data"
    files = (path for stage in STAGE_DIRS for path in (data / stage).rglob("*") if path.is_file())
    return {path.relative_to(data).as_posix(): path.stat().st_mtime_ns for path in files}


def owners(workspace: Workspace, before: dict[str, int]) -> set[tuple[str, str]]:
    """Return the models and teams of the files in data/ that were written or removed since."""
    changed = {name for name, _ in before.items() ^ written(workspace).items()}
    return {tuple(name.split("/")[1:3]) for name in changed if name.count("/") > 2}  # type: ignore[misc]


def ranking(workspace: Workspace) -> dict[str, set[str]]:
    """Return the teams of the ranking, and the models that each was ranked on."""
    rows = json.loads((workspace.folder / "results" / "ranking.json").read_text())["teams"]
    return {row["team"]: set(row["models"]) for row in rows}


def test_one_command_goes_from_submissions_to_ranking(workspace):
    ran = workspace.repro()
    assert sorted(ran) == sorted([*MEASURE, *CONCLUDE])
    assert ranking(workspace) == {team: set(DIGESTS) for team in PROMPTS}
    assert (workspace.folder / "results" / "report" / "index.html").stat().st_size > 10_000
    assert json.loads((workspace.folder / "data" / "grades" / "beta" / "grade.json").read_text())["num_leaf_nodes"] > 0
    before = written(workspace)
    assert workspace.repro() == []
    assert written(workspace) == before


def test_a_team_changes_its_prompt(workspace, before):
    prompt = workspace.folder / "data" / "submissions" / "beta" / "prompt.txt"
    prompt.write_text(OTHER_PROMPT)
    assert {"generate", "extract", "simulate", "score", "rank", "grade", "report"} <= set(workspace.repro())
    assert owners(workspace, before) == {(model, "beta") for model in DIGESTS}


@soak_only
def test_a_physics_parameter_changes(workspace, before):
    workspace.change_params("physics", trials=1)
    ran = set(workspace.repro())
    assert {"simulate", "rank", "report"} <= ran
    assert not ran & {"generate", "extract", "convert"}
    assert not {name for name, _ in before.items() ^ written(workspace).items() if name.startswith(("raw", "levels"))}


@pytest.mark.parametrize(
    ("name", "end", "stages"),
    [
        ("data/submissions/beta/README.md", "A comment.\n", {"generate", "score", "rank", "grade", "report"}),
        # whose hash is in ranking.json
        ("src/pcgeval/similarity/diversity.py", "# a comment\n", {"classify", "diversity", "rank", "report"}),
        ("data/rubrics/competition/rubric.json", "\n", {"grade", "report"}),
    ],
)
def test_a_change_that_decides_nothing_changes_no_trial_and_no_measurement(workspace, before, name, end, stages):
    with (workspace.folder / name).open("a") as file:
        file.write(end)
    assert set(workspace.repro()) == stages
    assert written(workspace) == before


def test_a_run_restores_a_file_that_was_altered_by_hand(workspace, before):
    assert before
    outputs = workspace.outputs()
    levels = workspace.folder / stage_dir("levels", "large", "beta")
    level = next(path for path in levels.rglob("*.xml"))
    level.write_text(level.read_text().replace("<", " <", 1))
    (levels / "A").mkdir()
    (levels / "A" / "beta_A_1.xml").write_text("<Level/>")
    assert workspace.repro() == ["convert"]
    assert workspace.outputs() == outputs


@soak_only
def test_a_second_machine_pulls_what_the_first_pushed(workspace, before, tmp_path):
    assert before
    for words in (["remote", "add", "--local", "--default", "store", str(tmp_path / "store")], ["push"]):
        done = workspace.dvc(*words)
        assert done.returncode == 0, done.stdout
    ignored = shutil.ignore_patterns("cache", "tmp", ".cache", ".pcgeval")
    second = Workspace(shutil.copytree(workspace.folder, tmp_path / "second", ignore=ignored))  # with the remote
    shutil.rmtree(second.folder / "results" / "report")
    for path in (second.folder / "data").iterdir():
        if path.is_dir() and path.name not in {*INPUTS, "grades"}:
            shutil.rmtree(path)
    done = second.dvc("pull")
    assert done.returncode == 0, done.stdout
    assert second.outputs() == workspace.outputs()
    assert second.repro() == []


def test_a_new_team_and_a_new_model_are_evaluated_at_once(workspace, before):
    """Their recordings are those of others, which were asked the same."""
    data = workspace.folder / "data"
    shutil.copytree(data / "submissions" / "alpha", data / "submissions" / "gamma")
    for model in DIGESTS:
        shutil.copytree(data / "recordings" / model / "alpha", data / "recordings" / model / "gamma")
    shutil.copytree(data / "recordings" / "large", data / "recordings" / "third")
    workspace.change("teams", {**workspace.params()["teams"], "gamma": {}})
    workspace.change_params("models", third=workspace.params()["models"]["large"])
    assert {*MEASURE, *CONCLUDE} == set(workspace.repro())
    assert ranking(workspace) == {team: {*DIGESTS, "third"} for team in (*PROMPTS, "gamma")}
    new = {(model, "gamma") for model in (*DIGESTS, "third")} | {("third", team) for team in PROMPTS}
    assert owners(workspace, before) == new


def test_a_team_and_a_model_that_leave_are_in_no_output_of_a_stage(workspace, before):
    assert any(name.startswith("raw/third/gamma/") for name in before)
    workspace.change("teams", {"alpha": {"role": "baseline"}, "gamma": {}})
    models = workspace.params()["models"]
    del models["large"]
    workspace.change("models", models)
    ran = workspace.repro()
    assert {"generate", "extract", "rank", "report"} <= set(ran)
    assert ranking(workspace) == {team: {"small", "third"} for team in ("alpha", "gamma")}
    no_output = tuple(f"data/{name}/" for name in INPUTS)
    parts = {part for path in workspace.outputs() if not path.startswith(no_output) for part in path.split("/")}
    assert not [part for part in parts if part.startswith(("beta", "large"))]
    assert {owner for owner in owners(workspace, before) if "beta" not in owner} == {
        ("large", team) for team in ("alpha", "gamma")
    }
    assert workspace.repro() == []
