"""The audit trusts no word of dvc.yaml, git or Python that it can check: each way around it is named."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from mini_competition import COPY, FILES, PIPELINE, files_at_fault, run, write

from pcgeval.audit.audit import CODE, AuditError, audit
from pcgeval.audit.differences import Difference
from pcgeval.audit.history import Git
from pcgeval.audit.recompute import Recomputation, Recomputed
from pcgeval.audit.text import audit_text
from pcgeval.cli.main import main
from pcgeval.core.files import to_json
from pcgeval.core.packages import installed_version

GRADE = "python stages/grade.py ${item.team}"
NEW_STAGE = '  extra:\n    cmd: {cmd}\n    deps: [stages/rank.py]\n    outs: ["data/extra"]\n'
Trick = Callable[[Path], object]


def pipeline(old: str, new: str) -> Trick:
    assert old in PIPELINE
    return lambda folder: write(folder, "dvc.yaml", PIPELINE.replace(old, new))


TRICKS: dict[str, tuple[Trick, str, str]] = {  # what is done, the kind of the fault and a part of its message
    "a second command": (
        pipeline(GRADE, f"{GRADE}; touch x"),
        "command",
        "stage grade@aa runs `python stages/grade.py aa; touch x`",
    ),
    "a list of commands": (pipeline(f"cmd: {GRADE}", f"cmd: ['{GRADE}', 'touch x']"), "command", "touch x"),
    "a pipe": (pipeline(GRADE, f"{GRADE} | tee x"), "command", "tee x"),
    "a variable": (pipeline(GRADE, f"PYTHONPATH=x {GRADE}"), "command", "PYTHONPATH=x"),
    "an option of Python": (pipeline(GRADE, GRADE.replace("python", "python -c 1")), "command", "-c 1"),
    "a script elsewhere": (pipeline(GRADE, GRADE.replace("stages/", "data/")), "command", "data/grade.py"),
    "a new stage": (lambda f: write(f, "dvc.yaml", PIPELINE + NEW_STAGE.format(cmd="echo")), "command", "runs `echo`"),
    "another folder": (
        lambda f: (
            write(f, "sub/stages/rank.py", ""),
            write(f, "dvc.yaml", PIPELINE + NEW_STAGE.format(cmd="python stages/rank.py\n    wdir: sub")),
        ),
        "command",
        "sub. A stage runs",
    ),
    "a script that is no dep": (
        pipeline(
            "data/recordings/judge/${item.team}\n      - stages/grade.py\n", "data/recordings/judge/${item.team}\n"
        ),
        "command",
        "stages/grade.py: is run by stage grade@aa (and 1 more), whose deps do not name it",
    ),
    "a frozen stage": (pipeline("  rank:\n", "  rank:\n    frozen: true\n"), "command", "`dvc unfreeze rank`"),
    "another pipeline": (lambda f: write(f, "data/dvc.yaml", "stages: {}\n"), "command", "data/dvc.yaml: defines"),
    "tracked data": (lambda f: write(f, "data/x.dvc", "outs: []\n"), "command", "data/x.dvc: defines"),
    "a module in place of Python's": (lambda f: write(f, "stages/json.py", ""), "source", "stages/json.py: no stage"),
    "a compiled module": (lambda f: write(f, "stages/json.pyc", ""), "source", "stages/json.pyc: no stage"),
    "a package in place of another": (lambda f: write(f, "src/torch/__init__.py", ""), "source", "src/torch: no stage"),
    "a script with the name of a module": (
        lambda f: (
            (f / "stages/grade.py").rename(f / "stages/json.py"),
            write(f, "dvc.yaml", PIPELINE.replace("stages/grade.py", "stages/json.py")),
        ),
        "source",
        "stages/json.py: has the name of another module",
    ),
    "a module that is no dep": (
        lambda f: write(f, "stages/grade.py", "from pcgeval.llm import protocol\n"),
        "source",
        "src/pcgeval/llm/protocol.py: is loaded by stage grade@aa (and 1 more), whose deps do not name it",
    ),
    "a script that is no Python": (lambda f: write(f, "stages/grade.py", "def"), "source", "grade.py: is not Python"),
    "a rule that hides a file": (
        lambda f: write(f, ".dvcignore", FILES[".dvcignore"] + "aa_I_9.json\n"),
        "hidden",
        "data/raw/m1/aa/I/aa_I_9.json: a rule in a .dvcignore hides it",
    ),
    "a rule that hides a folder": (
        lambda f: write(f, "data/.dvcignore", "/raw/m1/aa/L\n"),
        "hidden",
        "data/raw/m1/aa/L: a rule in a .dvcignore hides it",
    ),
    "a rule that hides source": (
        lambda f: (write(f, ".dvcignore", FILES[".dvcignore"] + "new.py\n"), write(f, "src/pcgeval/llm/new.py", "")),
        "hidden",
        "src/pcgeval/llm/new.py: a rule",
    ),
}


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_is_named(workspace: Path, name: str) -> None:
    trick, kind, message = TRICKS[name]
    trick(workspace)
    found = [each for each in audit(workspace).faults if each.kind == kind]
    assert [each.message for each in found if message in each.message], found


def test_an_undeclared_module_is_healed_as_the_message_says(workspace: Path) -> None:
    write(workspace, "stages/grade.py", "if 0:\n    from pcgeval.llm import protocol\n" + FILES["stages/grade.py"])
    (fault,) = (each for each in audit(workspace).faults if each.kind == "source")
    deps = f"      - stages/grade.py\n      - {fault.path}\n"
    write(workspace, "dvc.yaml", PIPELINE.replace("      - stages/grade.py\n", deps))
    run(workspace, "dvc", "repro", "--quiet")
    assert audit(workspace).faults == ()


def test_what_the_messages_advise_heals(workspace: Path) -> None:
    for name in (
        "a frozen stage",
        "a module in place of Python's",
        "a package in place of another",
        "another pipeline",
    ):
        TRICKS[name][0](workspace)
    TRICKS["a rule that hides a folder"][0](workspace)
    found = audit(workspace).faults
    assert {each.kind for each in found} == {"command", "source", "hidden", "missing"}
    for fault in (each for each in found if each.kind != "missing"):  # what is hidden is not there for DVC
        if "Remove that rule" in fault.message:
            (workspace / "data/.dvcignore").unlink(missing_ok=True)
        elif "Delete it" in fault.message:
            path = workspace / str(fault.path)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            (command,) = re.findall("`(.*?)`", fault.message)
            run(workspace, *command.split())
    run(workspace, "dvc", "repro", "--quiet")
    assert audit(workspace).faults == ()


def test_the_commands_are_printed_once_each(workspace: Path) -> None:
    found = audit(workspace)
    assert found.commands == {
        "python stages/measure.py MODEL TEAM raw": 4,
        "python stages/measure.py MODEL TEAM stability images": 4,
        "python stages/evidence.py MODEL TEAM": 2,
        "python stages/rank.py": 1,
        "python stages/grade.py TEAM": 2,
    }
    lines = audit_text(found).splitlines()
    assert "     4  python stages/measure.py MODEL TEAM raw" in lines[lines.index("what the stages run") :]


def marked(option: str) -> Trick:
    def trick(folder: Path) -> None:
        run(folder, "git", "update-index", f"--{option}", "stages/measure.py")
        write(folder, "stages/measure.py", COPY + "\n")
        assert run(folder, "git", "status", "--porcelain") == ""

    return trick


def ignored(folder: Path) -> None:
    write(folder, ".git/info/exclude", "new.py\n")
    write(folder, "src/pcgeval/llm/new.py", "")


UNCOMMITTED: dict[str, tuple[Trick, str]] = {
    "edited": (lambda f: write(f, "stages/measure.py", COPY + "\n"), "stages/measure.py"),
    "edited and staged": (
        lambda f: (write(f, "stages/measure.py", COPY + "\n"), run(f, "git", "add", "stages")),
        "stages/measure.py",
    ),
    "same size and time": (
        lambda f: same_size_and_time(f / "src/pcgeval/llm/recorded.py"),
        "src/pcgeval/llm/recorded.py",
    ),
    "params": (lambda f: write(f, "params.yaml", FILES["params.yaml"] + "\n"), "params.yaml"),
    "pipeline": (lambda f: write(f, "dvc.yaml", PIPELINE + "\n"), "dvc.yaml"),
    "skip-worktree": (marked("skip-worktree"), "stages/measure.py"),
    "assume-unchanged": (marked("assume-unchanged"), "stages/measure.py"),
    "new and ignored": (ignored, "src/pcgeval/llm/new.py"),
    "missing": (lambda f: (f / "src/pcgeval/llm/protocol.py").unlink(), "src/pcgeval/llm/protocol.py"),
    "a link to the same bytes": (
        lambda f: (
            (f / "stages/rank.py").rename(f.parent / "kept"),
            (f / "stages/rank.py").symlink_to(f.parent / "kept"),
        ),
        "stages/rank.py",
    ),
}


def same_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_bytes(bytes(reversed(path.read_bytes())))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("name", UNCOMMITTED)
def test_uncommitted_code_is_named(workspace: Path, name: str) -> None:
    change, path = UNCOMMITTED[name]
    change(workspace)
    (fault,) = (each for each in audit(workspace, strict=True).faults if each.kind == "uncommitted")
    assert fault.path == path
    if name in {"skip-worktree", "assume-unchanged"}:
        advised = f"git update-index --no-{name} {path}"
        assert f"`{advised}`" in fault.message
        run(workspace, *advised.split())
        assert run(workspace, "git", "status", "--porcelain") != ""
    run(workspace, "git", "add", "--all", "--force", "src", "stages", "params.yaml", "dvc.yaml")
    run(workspace, "git", "commit", "--quiet", "--message", "change")
    assert list(Git(workspace).uncommitted(CODE)) == []


def test_marked_data_are_named_where_they_differ(workspace: Path) -> None:
    run(workspace, "git", "update-index", "--skip-worktree", "data/submissions/aa/prompt.txt", "constraints.txt")
    assert list(Git(workspace).uncommitted(CODE)) == []
    write(workspace, "data/submissions/aa/prompt.txt", "new")
    (workspace / "constraints.txt").unlink()
    assert [path for path, _ in Git(workspace).uncommitted(["src"])] == ["data/submissions/aa/prompt.txt"]


def test_without_a_commit_a_strict_audit_fails(workspace: Path) -> None:
    shutil.rmtree(workspace / ".git")
    write(workspace, ".dvc/config", "[core]\n    no_scm = true\n")
    assert audit(workspace).faults == ()
    (fault,) = (each for each in audit(workspace, strict=True).faults if each.kind == "uncommitted")
    assert fault.message.startswith("no git")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs as long as the test."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_an_evaluation_under_way_is_said_instead_of_faults(workspace: Path, sleeper: subprocess.Popen[bytes]) -> None:
    write(workspace, "results/ranking.json", "half")
    write(workspace, ".pcgeval/evaluating", f"{sleeper.pid}\n")
    with pytest.raises(AuditError, match=f"process {sleeper.pid}, an evaluation, is at work"):
        audit(workspace)
    (workspace / ".pcgeval/evaluating").unlink()
    info = {"pid": sleeper.pid, "cmd": "/usr/bin/dvc repro"}
    write(workspace, ".dvc/tmp/rwlock", to_json({"write": {"data/raw": info}, "read": {}}))
    with pytest.raises(AuditError, match=f"process {sleeper.pid}, `/usr/bin/dvc repro`, is at work"):
        audit(workspace)
    sleeper.kill()
    sleeper.wait()
    assert ("changed", "results/ranking.json") in files_at_fault(audit(workspace))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"write": {"a": 1}}', '{"write": {"a": {"pid": "x", "cmd": 1}}}'])
def test_a_torn_list_of_dvc_s_processes_is_no_evaluation(workspace: Path, content: str) -> None:
    write(workspace, ".dvc/tmp/rwlock", content)
    write(workspace, ".pcgeval/evaluating", content)
    assert audit(workspace).faults == ()


def test_an_audit_within_an_evaluation_goes_on(workspace: Path) -> None:
    write(workspace, ".pcgeval/evaluating", f"{os.getpid()}\n")
    assert audit(workspace).faults == ()


def test_other_versions_than_those_of_the_run_are_a_fault(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcgeval.audit.environment.installed_version", lambda _: "99.0")
    (fault,) = audit(workspace).faults
    assert fault.kind == "versions"
    assert f"numpy {installed_version('numpy')} measured levels of this ranking, here is 99.0" in fault.message
    assert "`dvc repro --force`" in fault.message


def test_other_versions_that_give_the_same_are_a_note(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcgeval.audit.environment.installed_version", lambda _: "99.0")
    done = Recomputed(simulations=1, classifications=1)
    only_the_name = Difference("data/stability/m1/aa/simulations.json", "packages.numpy", "'1'", "'99.0'", "simulate")
    score = Difference("data/stability/m1/aa/I.json", "raws[0].score", "1", "0", "simulate@m1-aa")
    for recomputed, differences, expected in (
        (done, (only_the_name,), []),
        (replace(done, simulations=0), (), ["versions"]),
        (done, (only_the_name, score), ["recomputed", "versions"]),
    ):
        recomputation = Recomputation(recomputed, differences, (), ())
        found = audit(workspace, recomputing=lambda *_, found=recomputation: found)
        assert [each.kind for each in found.faults] == expected
        notes = [each.message for each in found.notes if each.kind == "versions"]
        assert len(notes) == (not expected)
        assert all(each.endswith("The recomputation gives the same with what is here.") for each in notes)


def test_another_engine_than_that_of_the_run_is_a_fault(workspace: Path) -> None:
    path = workspace / "results/ranking.json"
    path.write_text(path.read_text().replace('"unknown"', '"pymunk 1.0 (chipmunk 7)"'))
    found = [each.message for each in audit(workspace).faults if each.kind == "versions"]
    assert len(found) == 1
    assert found[0].startswith("pymunk 1.0 (chipmunk 7) simulated the levels of this ranking, here is pymunk 7")


def test_code_that_is_not_of_this_folder_is_named(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [each.message for each in audit(workspace).notes if each.kind == "loaded"]
    assert len(loaded) == 1
    assert f"pcgeval is loaded from {Path(audit.__code__.co_filename).parents[1]}, which is not the code" in loaded[0]
    for name in ("pcgeval.core.grafted", "usercustomize"):
        spec = importlib.util.spec_from_file_location(name, workspace / "x.py")
        assert spec
        module = ModuleType(name)
        module.__file__ = str(workspace / "x.py")
        monkeypatch.setitem(sys.modules, name, module)
    faults = [each.message for each in audit(workspace, strict=True).faults if each.kind == "loaded"]
    assert faults[1].startswith(f"pcgeval.core.grafted is loaded from {workspace / 'x.py'}")
    assert faults[2].startswith(f"Python runs {workspace / 'x.py'} before every stage")


def test_a_copy_of_the_code_is_the_code(workspace: Path) -> None:
    """A round has one: it is evaluated by it, and audited by that of the competition."""
    package = Path(audit.__code__.co_filename).parents[1]
    shutil.rmtree(workspace / "src/pcgeval")
    shutil.copytree(package, workspace / "src/pcgeval", ignore=shutil.ignore_patterns("__pycache__"))
    assert "loaded" not in {each.kind for each in audit(workspace).notes}


def test_the_command_has_the_option_strict(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace, "Makefile", "")
    monkeypatch.chdir(workspace)
    for more in ([], ["--strict"]):  # what the stages make of the submissions is no level, so both have faults
        assert main(["audit", "--recompute", "0", *more]) == 1
        said = capsys.readouterr().out
        assert f"{'FAULT' if more else 'note'}: Makefile: is not in the last commit" in said
