import pytest
import yaml
from dvc_command import run_dvc

from pcgeval.cli.run import RunError, StagesRun

pytestmark = pytest.mark.slow  # each starts DVC


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A DVC project without git; the function that it gives writes its stages, each behind the one before it."""
    monkeypatch.chdir(tmp_path)
    assert run_dvc(tmp_path, "init", "--no-scm", "--quiet").returncode == 0

    def write(**commands):
        stages, before = {}, []
        for name, command in commands.items():
            stages[name] = {"cmd": command, "outs": [name], "deps": before}
            before = [] if name == "apart" else [name]
        (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))

    return write


def reproduce():
    stages = StagesRun()
    stages.reproduce()
    return stages


def test_stages_that_run_are_named_and_counted(project, capfd):
    project(one="echo 1 > one", two="echo 2 > two")
    first = reproduce()
    shown = capfd.readouterr()
    assert first.summary() == "2 stages: 2 run, 0 reused"
    assert "stage 1 of 2: one" in shown.err
    assert "stage 2 of 2: two" in shown.err
    assert not shown.out
    project(one="echo 1 > one", two="echo 3 > two")
    assert reproduce().summary() == "2 stages: 1 run, 1 reused"
    assert "stage 2 of 2: two" in capfd.readouterr().err
    assert reproduce().summary() == "2 stages: 0 run, 2 reused"


def test_after_a_failed_stage_those_that_do_not_need_it_run(project, tmp_path):
    project(apart="echo 1 > apart", one="exit 2", two="echo 2 > two", three="echo 3 > three")
    stages = reproduce()
    assert stages.failed == ["one"]
    assert "2 stages wait" in stages.failures()
    assert (tmp_path / "apart").exists()
    assert not (tmp_path / "two").exists()
    assert not stages.summary().startswith("4 stages: 4")


def test_a_stage_that_makes_no_output_is_named_with_the_reason(project, capfd):
    project(one="true")
    assert reproduce().failed == ["one"]
    assert "one: output 'one' does not exist" in capfd.readouterr().err


def test_nothing_runs_after_a_stage_that_was_stopped(project, tmp_path):
    project(one="exit 130", apart="echo 1 > apart")
    with pytest.raises(KeyboardInterrupt):
        reproduce()
    assert not (tmp_path / "apart").exists()
    project(one="echo 1 > one", apart="echo 1 > apart")
    assert reproduce().summary().startswith("2 stages: 2 run")  # nothing of DVC is left locked


@pytest.mark.parametrize("content", ["stages: [", "stages: {a: {cmd: b, depz: []}}"])
@pytest.mark.usefixtures("project")
def test_what_dvc_refuses_is_one_message(tmp_path, content):
    (tmp_path / "dvc.yaml").write_text(content)
    with pytest.raises(RunError, match=r"dvc\.yaml"):
        reproduce()


def test_another_dvc_in_the_folder_is_named(project):
    from dvc.repo import Repo

    project(one="echo 1 > one")
    with Repo() as other, other.lock, pytest.raises(RunError, match="another DVC"):
        reproduce()
