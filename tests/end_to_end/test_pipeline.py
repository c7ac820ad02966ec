"""The real pipeline on a small competition: what runs when something changes, and that nothing else does.

The tests of one module share a workspace and run in order: each starts from an up-to-date competition.
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dvc.repo import Repo
from slow_ollama import DIGEST, SlowOllama
from soak import SOAK, soak_only
from workspace import DIGESTS, OTHER_DIGEST, OTHER_PROMPT, PARAMS, PROMPTS, Workspace, make_workspace

from pcgeval.cli.main import main
from pcgeval.core.layout import Trial, recording_file, stage_dir, trial_file

pytestmark = pytest.mark.e2e

# what DVC itself takes grows with the square of the number of stages
MODELS = tuple(DIGESTS) if SOAK else ("small",)
INPUTS = {"submissions", "recordings", "rubrics", "classifier", "grade_history.jsonl"}
TEAM_STEPS = ("generate", "extract", "convert", "simulate", "classify", "diversity", "evidence")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = make_workspace(tmp_path_factory.mktemp("competition"))
    made.change_params("models", value={name: PARAMS["models"][name] for name in MODELS})
    return made


@pytest.fixture(scope="module")
def first_run(workspace: Workspace) -> list[str]:
    return workspace.repro()


def changed(workspace: Workspace) -> list[str]:
    """Run the stages that changed, after the first run as `pcgeval run` does; in full, as DVC alone does."""
    return workspace.repro() if SOAK else workspace.run_stages()


def steps(team: str, model: str, *, since: str = "generate", until: str = "evidence") -> set[str]:
    first, last = TEAM_STEPS.index(since), TEAM_STEPS.index(until)
    return {f"{step}@{model}-{team}" for step in TEAM_STEPS[first : last + 1]}


def scores() -> set[str]:
    return {f"score@{model}" for model in MODELS}


def ranked_teams(workspace: Workspace) -> set[str]:
    return {row["team"] for row in json.loads((workspace.folder / "results" / "ranking.json").read_text())["teams"]}


def copy_without(workspace: Workspace, target: Path, left_out: set[str]) -> Workspace:
    """Copy a competition without DVC's cache, the outputs that only DVC keeps, and what `left_out` names."""
    cached = {path.name for path in (workspace.folder / "data").iterdir()} - INPUTS - {"grades"}

    def ignored(folder: str, names: list[str]) -> set[str]:
        return set(names) & (left_out | {"cache", "tmp", ".cache"} | (cached if Path(folder).name == "data" else set()))

    shutil.copytree(workspace.folder, target, ignore=ignored)
    return Workspace(target)


def in_order(*models: str) -> list[str]:
    return [f"{step}@{model}-{team}" for model in models for team in PROMPTS for step in TEAM_STEPS]


def test_a_server_loads_each_model_once_and_a_team_is_evaluated_before_the_next(tmp_path: Path):
    workspace = make_workspace(tmp_path)
    with Repo(str(tmp_path)) as repo:
        for out in repo.index.outs:
            Path(out.fs_path).mkdir(parents=True)  # a dry run goes on where there are outputs
    expected = in_order(*DIGESTS)
    assert workspace.repro("--dry", "--force")[: len(expected)] == expected


def test_one_command_goes_from_submissions_to_ranking(workspace: Workspace, first_run: list[str]):
    everything = {*in_order(*MODELS), *scores(), "rank", "grade@alpha", "grade@beta", "report"}
    assert set(first_run) == everything
    assert first_run[: len(in_order(*MODELS))] == in_order(*MODELS)
    assert ranked_teams(workspace) == set(PROMPTS)
    assert (workspace.folder / "results" / "report" / "index.html").stat().st_size > 10_000
    assert json.loads((workspace.folder / "data" / "grades" / "beta" / "grade.json").read_text())["num_leaf_nodes"] > 0


def test_a_second_run_runs_nothing(workspace: Workspace, first_run: list[str]):
    assert first_run
    assert workspace.repro() == []
    assert workspace.run_stages() == []


def test_a_recording_is_edited(workspace: Workspace, first_run: list[str]):
    assert first_run
    path = workspace.folder / recording_file("small", "alpha")
    first, *others = path.read_text().splitlines()
    call = json.loads(first)
    call["reply"]["text"] = "No code at all."
    path.write_text("\n".join([json.dumps(call), *others]))
    ran = set(changed(workspace))
    assert ran <= steps("alpha", "small") | {"score@small", "rank", "grade@alpha", "report"}
    assert {"generate@small-alpha", "extract@small-alpha"} <= ran
    trial = Trial(call["letter"], call["trial"])
    replayed = trial_file(workspace.folder / stage_dir("raw", "small", "alpha"), "raw", "alpha", trial)
    assert replayed.read_text() == "No code at all."


def test_a_team_changes_its_prompt(workspace: Workspace, first_run: list[str]):
    assert first_run
    prompt = workspace.folder / "data" / "submissions" / "beta" / "prompt.txt"
    prompt.write_text(OTHER_PROMPT)
    ran = set(changed(workspace))
    shared = {"rank", "grade@beta", "report"}
    assert ran <= {step for model in MODELS for step in steps("beta", model)} | scores() | shared
    assert {f"generate@{model}-beta" for model in MODELS} | {"extract@small-beta"} | shared <= ran


@soak_only
def test_a_model_gets_another_digest(workspace: Workspace, first_run: list[str]):
    assert first_run
    workspace.change_params("models", "small", "digest", value=OTHER_DIGEST)
    ran = set(workspace.repro())
    shared = {"score@small", "rank", "grade@alpha", "grade@beta", "report"}
    assert ran <= steps("alpha", "small") | steps("beta", "small") | shared
    assert {"generate@small-alpha", "generate@small-beta", "rank", "report"} <= ran


@soak_only
def test_a_physics_parameter_changes(workspace: Workspace, first_run: list[str]):
    assert first_run
    workspace.change_params("physics", "trials", value=1)
    ran = set(workspace.repro())
    assert {f"simulate@{model}-{team}" for team in PROMPTS for model in MODELS} <= ran
    assert not [stage for stage in ran if stage.startswith(("generate", "extract", "convert"))]


def test_the_rubric_changes(workspace: Workspace, first_run: list[str]):
    assert first_run
    rubric = workspace.folder / "data" / "rubrics" / "competition" / "rubric.json"
    tree = json.loads(rubric.read_text())
    tree["sub_tasks"][0]["weight"] += 1
    rubric.write_text(json.dumps(tree))
    assert set(changed(workspace)) == {"grade@alpha", "grade@beta", "report"}


@soak_only
def test_a_run_from_scratch_gives_the_same_bytes(workspace: Workspace, first_run: list[str], tmp_path: Path):
    assert first_run
    before = workspace.outputs()
    scratch = copy_without(workspace, tmp_path / "again", {"results", "dvc.lock", "grades"})
    scratch.repro()
    assert scratch.outputs() == before


@soak_only
def test_a_second_machine_pulls_what_the_first_pushed(workspace: Workspace, first_run: list[str], tmp_path: Path):
    assert first_run
    for words in (["remote", "add", "--local", "--default", "store", str(tmp_path / "store")], ["push"]):
        done = workspace.dvc(*words)
        assert done.returncode == 0, done.stdout
    second = copy_without(workspace, tmp_path / "second", {".pcgeval"})  # as from git, and with the remote
    shutil.rmtree(second.folder / "results" / "report")
    assert not (second.folder / "data" / "raw").exists()
    done = second.dvc("pull")
    assert done.returncode == 0, done.stdout
    assert second.outputs() == workspace.outputs()
    assert second.repro() == []


def test_an_unfinished_run_moves_to_a_second_machine(tmp_path: Path):
    with SlowOllama() as server:
        first = make_workspace(tmp_path / "first")
        served = {"backend": "ollama", "name": "m:1", "host": server.address}
        first.change_params("models", value={"small": served})
        assert first.python("stages/generate.py", "small", "alpha").returncode == 0
        asked = len(server.asked)
        second = Workspace(tmp_path / "second")
        shutil.copytree(
            first.folder, second.folder, ignore=shutil.ignore_patterns("raw", "locks")
        )  # with .pcgeval/calls
        ran = second.repro("generate")
        assert {"generate@small-alpha", "generate@small-beta"} <= set(ran)
        assert (asked, len(server.asked)) == (4, 8)
        assert len(set(server.asked)) == 8
        response = Path(stage_dir("raw", "small", "alpha"), "I", "alpha_I_1.txt")
        assert (second.folder / response).read_bytes() == (first.folder / response).read_bytes()


@soak_only
def test_another_round_leaves_the_final_alone(workspace: Workspace, first_run: list[str]):
    assert first_run
    before = workspace.outputs()
    done = workspace.python("-m", "pcgeval", "round", "midterm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert workspace.outputs() == before
    midterm = json.loads((workspace.folder / "rounds" / "midterm" / "results" / "ranking.json").read_text())
    assert (midterm["rules"]["letters"], midterm["rules"]["trials"]) == ("I", 2)


def test_a_team_that_leaves_is_not_ranked_although_its_folders_stay(workspace: Workspace, first_run: list[str]):
    assert first_run
    workspace.change_params("teams", value=["alpha"])
    ran = set(changed(workspace))
    assert {*scores(), "rank", "report"} <= ran
    assert not [stage for stage in ran if stage.startswith(("generate", "classify"))]
    assert ranked_teams(workspace) == {"alpha"}
    assert (workspace.folder / "data" / "raw" / "small" / "beta").is_dir()


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("physics", "trails"), 3, ["'physics.trails'", "Did you mean 'trials'?"]),
        (("teams",), ["alpha", "gamma"], ["gamma", "no submission"]),
        (("rubric",), {"id": "nothing"}, ["data/rubrics/nothing/rubric.json"]),
        (("similarity",), {"model": "data/no-classifier"}, ["data/no-classifier"]),
    ],
)
def test_a_mistake_is_named_before_anything_runs(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], keys, value, words
):
    params = (workspace.folder / "params.yaml").read_bytes()
    workspace.change_params(*keys, value=value)
    monkeypatch.chdir(workspace.folder)
    assert main(["check"]) == 2
    (workspace.folder / "params.yaml").write_bytes(params)
    said = capsys.readouterr().err
    assert all(word in said.replace("\n", " ") for word in words)


@soak_only  # the short form is in tests/soak/test_dvc.py: teams asked in turn
def test_models_that_were_asked_at_once_by_hand_are_not_asked_again(tmp_path: Path):
    workspace = make_workspace(tmp_path)
    with SlowOllama(0.002) as small, SlowOllama(0.002) as large:
        servers = {"small": small, "large": large}
        for temperature, (model, server) in enumerate(servers.items()):  # else their calls would be the same
            values = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": server.address}
            workspace.change_params("models", model, value={**values, "options": {"temperature": temperature}})

        def generate(model: str) -> list[str]:
            done = [workspace.python("stages/generate.py", model, team) for team in PROMPTS]
            return [each.stderr for each in done if each.returncode]

        with ThreadPoolExecutor() as terminals:
            assert list(terminals.map(generate, servers)) == [[], []]
        asked = [len(server.asked) for server in servers.values()]
        assert asked == [len(PROMPTS) * 2 * 2] * 2
        assert len(workspace.repro("generate")) == len(PROMPTS) * len(servers)
        assert [len(server.asked) for server in servers.values()] == asked
