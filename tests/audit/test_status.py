"""Every way in which workspace, dvc.lock and cache can come apart is named with its file; nothing else is."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from mini_competition import COPY, PARAMS, PIPELINE, accept_changes, faults_beside_hash, files_at_fault, run, write
from soak import shortened

from pcgeval.audit.audit import audit
from pcgeval.audit.text import audit_text

LEVEL = "data/stability/m1/aa/I/aa_I_1.txt"
Harm = Callable[[Path], object]


def edit(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


def same_size_and_times(folder: Path) -> None:
    """Edit a file in a way that DVC's own records of sizes and times do not show."""
    path = folder / LEVEL
    before = path.stat()
    path.write_bytes(bytes(reversed(path.read_bytes())))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def link_to_the_same_bytes(folder: Path, name: str) -> None:
    kept = folder.parent / "kept"
    (folder / name).rename(kept)
    (folder / name).symlink_to(kept)


def lock_an_older_input(folder: Path) -> None:
    """Make dvc.lock say that one simulate stage read other responses than are there."""
    lock = yaml.safe_load((folder / "dvc.lock").read_text())
    lock["stages"]["simulate@aa-m1"]["deps"][0]["md5"] = "0" * 32 + ".dir"
    (folder / "dvc.lock").write_text(yaml.safe_dump(lock))


HARM: dict[str, tuple[Harm, list[tuple[str, str | None]]]] = {
    "output edited by hand": (lambda f: write(f, LEVEL, "better"), [("changed", LEVEL)]),
    "output edited unseen": (same_size_and_times, [("changed", LEVEL)]),
    "output file missing": (lambda f: (f / LEVEL).unlink(), [("missing", LEVEL)]),
    "file added to an output": (
        lambda f: write(f, "data/images/m2/bb/L/x.png", "?"),
        [("untracked", "data/images/m2/bb/L/x.png")],
    ),
    "output folder missing": (
        lambda f: shutil.rmtree(f / "data/raw/m1/aa"),
        [("missing", "data/raw/m1/aa")],
    ),
    "ranking edited": (
        lambda f: edit(f, "results/ranking.json", '"winner": false', '"winner": true'),
        [("changed", "results/ranking.json")],
    ),
    "ranking is no ranking": (
        lambda f: write(f, "results/ranking.json", "[" * 10_000),
        [("result", "results/ranking.json"), ("changed", "results/ranking.json")],
    ),
    "uncached folder edited": (
        lambda f: write(f, "data/grades/bb/grade.json", '{"score": 1}'),
        [("changed", "data/grades/bb/grade.json")],
    ),
    "file instead of a folder": (
        lambda f: (shutil.rmtree(f / "data/grades/aa"), write(f, "data/grades/aa", "")),
        [("changed", "data/grades/aa")],
    ),
    "file beside outputs": (lambda f: write(f, "data/stability/x.txt", ""), [("untracked", "data/stability/x.txt")]),
    "file beside results": (lambda f: write(f, "results/new\nline", ""), [("untracked", "results/new\nline")]),
    "file beside a model's teams": (lambda f: write(f, "data/raw/m1/x", ""), [("untracked", "data/raw/m1/x")]),
    "file beside evidence": (lambda f: write(f, "data/evidence/x.json", ""), [("untracked", "data/evidence/x.json")]),
    "undecodable name": (
        lambda f: (f / "data/raw/m1" / os.fsdecode(b"\xff")).write_bytes(b""),
        [("untracked", "data/raw/m1/\udcff")],
    ),
    "output is a link": (lambda f: link_to_the_same_bytes(f, LEVEL), [("link", LEVEL)]),
    "output folder is a link": (
        lambda f: link_to_the_same_bytes(f, "data/images/m1/bb"),
        [("link", "data/images/m1/bb")],
    ),
    "link to a folder in an output": (
        lambda f: (f / "data/raw/m1/aa/loop").symlink_to(f),
        [("link", "data/raw/m1/aa/loop")],
    ),
    "output is a pipe": (lambda f: ((f / LEVEL).unlink(), os.mkfifo(f / LEVEL)), [("link", LEVEL)]),
    "output is a broken link": (
        lambda f: ((f / LEVEL).unlink(), (f / LEVEL).symlink_to("nowhere")),
        [("link", LEVEL), ("link", LEVEL)],
    ),
    "prompt changed": (
        lambda f: write(f, "data/submissions/aa/prompt.txt", "new"),
        [("changed", "data/submissions/aa/prompt.txt")],
    ),
    "file added to a submission": (
        lambda f: write(f, "data/submissions/bb/more.txt", "new"),
        [("changed", "data/submissions/bb/more.txt")],
    ),
    "recording missing": (
        lambda f: (f / "data/recordings/m1/bb/calls.jsonl").unlink(),
        [("missing", "data/recordings/m1/bb/calls.jsonl")],
    ),
    "all recordings of a team missing": (
        lambda f: shutil.rmtree(f / "data/recordings/m1/bb"),
        [("missing", "data/recordings/m1/bb"), ("missing", "data/recordings/m1/bb/calls.jsonl")],
    ),
    "ignore file in a submission": (
        lambda f: write(f, "data/submissions/aa/.dvcignore", "prompt.txt"),
        [("link", "data/submissions/aa/.dvcignore"), ("hidden", "data/submissions/aa/prompt.txt")],
    ),
    "DVC folder in a submission": (
        lambda f: write(f, "data/submissions/aa/.dvc/config", ""),
        [("link", "data/submissions/aa/.dvc")],
    ),
    "source changed": (
        lambda f: write(f, "src/pcgeval/llm/recorded.py", "REPLAY = 2\n"),
        [("changed", "src/pcgeval/llm/recorded.py")],
    ),
    "stage script changed": (lambda f: write(f, "stages/measure.py", COPY + "\n"), [("changed", "stages/measure.py")]),
    "classifier changed": (
        lambda f: write(f, "data/classifier/model.safetensors", "other"),
        [("changed", "data/classifier/model.safetensors")],
    ),
    "param changed": (lambda f: write(f, "params.yaml", PARAMS.replace("1e-05", "1e-04")), [("params", None)]),
    "param removed": (lambda f: write(f, "params.yaml", PARAMS.replace(", seed: 3", "")), [("params", None)]),
    "command changed": (
        lambda f: write(f, "dvc.yaml", PIPELINE.replace("stages/rank.py\n", "-B stages/rank.py\n")),
        [("stage", None), ("command", None)],
    ),
    "dep added": (
        lambda f: write(f, "dvc.yaml", PIPELINE.replace("[data/stability,", "[constraints.txt, data/stability,")),
        [("stage", None)],
    ),
    "dep removed": (
        lambda f: write(f, "dvc.yaml", PIPELINE.replace("data/stability, data/images,", "data/stability,")),
        [("stage", None)],
    ),
    "param of a stage removed": (
        lambda f: write(f, "dvc.yaml", PIPELINE.replace("models, limits, physics", "models, physics")),
        [("stage", None)],
    ),
    "reader older than its input": (lock_an_older_input, [("stage", "data/raw/m1/aa")]),
}


def test_an_evaluated_competition_has_no_fault(workspace: Path) -> None:
    assert audit(workspace).faults == ()


@pytest.mark.parametrize("name", HARM)
def test_harm_is_named(workspace: Path, name: str) -> None:
    harm, expected = HARM[name]
    harm(workspace)
    found = audit(workspace)
    assert files_at_fault(found) == expected
    assert all("\n" not in each.message and each.message.isprintable() for each in found.faults)
    audit_text(found).encode()
    found.to_json().encode()


@pytest.mark.parametrize("name", ["results/ranking.json", "data/grades/aa/grade.json", "stages/measure.py"])
def test_what_git_holds_can_be_restored_as_the_message_says(workspace: Path, name: str) -> None:
    (workspace / name).write_text("harm")
    (fault,) = (each for each in audit(workspace).faults if each.kind == "changed")
    assert f"`git restore {name}`" in fault.message
    run(workspace, "git", "restore", name)
    assert audit(workspace).faults == ()


def test_a_new_team_has_stages_that_never_ran(workspace: Path) -> None:
    write(workspace, "params.yaml", PARAMS.replace("[aa, bb]", "[aa, bb, cc]"))
    write(workspace, "data/submissions/cc/prompt.txt", "new")
    messages = [each.message for each in audit(workspace).faults]
    assert [message for message in messages if "generate@cc-m1 has never run" in message]
    assert [message for message in messages if message.startswith("params.yaml: teams is ['aa', 'bb', 'cc']")]
    assert [message for message in messages if message.startswith("data/submissions/cc/prompt.txt: was not there")]
    assert len(messages) == 6 + 2 + 1


def test_folders_of_former_teams_and_models_are_only_noted(workspace: Path) -> None:
    for name in (
        "data/stability/m1/gone/I/x.txt",
        "data/raw/old/aa/x.txt",
        "data/grades/gone/grade.json",
        "data/evidence/aa/old.json",
        "data/evidence/gone/m1.json",
    ):
        write(workspace, name, "left")
    found = audit(workspace)
    assert found.faults == ()
    assert [each.path for each in found.notes if each.kind == "left over"] == [
        "data/evidence/aa/old.json",
        "data/evidence/gone",
        "data/grades/gone",
        "data/raw/old",
        "data/stability/m1/gone",
    ]


def test_letters_and_files_that_dvc_ignores_are_no_strays(workspace: Path) -> None:
    ignored = ("data/raw/m1/aa/.x.part", "data/raw/__pycache__/x.pyc", "results/.gitignore")
    for name in (*ignored, "results/letters/aa.html"):
        write(workspace, name, "")
    assert audit(workspace).faults == ()


@pytest.mark.parametrize("name", ["data/submissions/bb/more.txt", "data/grades/bb/more.txt"])
def test_an_added_file_is_named_without_git_and_cache(workspace: Path, name: str) -> None:
    shutil.rmtree(workspace / ".git")
    shutil.rmtree(workspace / ".dvc/cache")
    write(workspace, ".dvc/config", "[core]\n    no_scm = true\n")
    write(workspace, name, "new")
    assert [path for _, path in files_at_fault(audit(workspace))] == [name]


def test_a_changed_source_is_hinted_at_without_git(workspace: Path) -> None:
    shutil.rmtree(workspace / ".git")
    write(workspace, ".dvc/config", "[core]\n    no_scm = true\n")
    write(workspace, "src/pcgeval/llm/protocol.py", "CALL = 2\n")
    lock = (workspace / "dvc.lock").stat().st_mtime_ns
    os.utime(workspace / "src/pcgeval/llm/protocol.py", ns=(lock + 1, lock + 1))
    (fault,) = faults_beside_hash(audit(workspace))
    assert fault.path == "src/pcgeval/llm"
    assert "newer than dvc.lock: src/pcgeval/llm/protocol.py" in fault.message


def test_a_folder_changed_some_commits_ago_is_still_understood(workspace: Path) -> None:
    for number in (2, 3):
        write(workspace, "src/pcgeval/llm/recorded.py", f"REPLAY = {number}\n")
        run(workspace, "git", "commit", "--all", "--quiet", "--message", "change")
    assert files_at_fault(audit(workspace)) == [("changed", "src/pcgeval/llm/recorded.py")]


def test_the_cache_may_be_absent(workspace: Path) -> None:
    shutil.rmtree(workspace / ".dvc/cache")
    found = audit(workspace)
    assert found.faults == ()
    assert [each.message for each in found.notes if each.kind == "cache"] == [
        "the cache holds nothing of what the stages made; nothing is lost, `make final-eval` computes it again."
    ]


@pytest.mark.parametrize("suffix", ["", ".dir"])
def test_a_damaged_cache_is_named(workspace: Path, suffix: str) -> None:
    objects = sorted((workspace / ".dvc/cache").rglob("*"))
    damaged = next(path for path in objects if path.is_file() and path.suffix == suffix)
    damaged.unlink()  # it is shared with other tests
    damaged.write_bytes(b"[]")
    assert files_at_fault(audit(workspace)) == [("cache", damaged.relative_to(workspace).as_posix())]


def test_dvc_agrees_that_there_is_something_to_do(workspace: Path) -> None:
    """DVC itself must see what it can see of the harm, and nothing in a workspace without faults."""
    assert run(workspace, "dvc", "status", "--json").strip() == "{}"
    write(workspace, LEVEL, "better")
    write(workspace, "src/pcgeval/llm/recorded.py", "REPLAY = 2\n")
    assert "data/stability/m1/aa" in run(workspace, "dvc", "status", "--json")
    assert files_at_fault(audit(workspace)) == [("changed", LEVEL), ("changed", "src/pcgeval/llm/recorded.py")]


def test_what_the_messages_advise_helps(workspace: Path) -> None:
    same_size_and_times(workspace)
    write(workspace, "data/submissions/bb/prompt.txt", "new")
    link_to_the_same_bytes(workspace, "data/images/m1/bb/L/bb_L_1.txt")
    for fault in audit(workspace).faults:
        if "Delete it" in fault.message:  # that of the result hash says it too
            (workspace / str(fault.path)).unlink()
    run(workspace, "dvc", "repro", "--quiet")
    assert audit(workspace).faults == ()


FORGERY = {
    "submissions": "data/submissions/bb/prompt.txt",
    "recordings": "data/recordings/m2/aa/calls.jsonl",
    "trials": "data/raw/m1/aa/I/aa_I_1.txt",
    "measurements": LEVEL,
    "source": "src/pcgeval/llm/recorded.py",
    "classifier": "data/classifier/config.json",
    "ranking": "results/ranking.json",
}


def hash_faults(workspace: Path) -> list[str]:
    return [each.message for each in audit(workspace).faults if each.kind == "hash"]


@pytest.mark.parametrize("parts", [[*FORGERY], *shortened([[part] for part in FORGERY], 3)], ids=",".join)
def test_a_change_that_dvc_was_told_to_accept_is_named_by_the_result_hash(workspace: Path, parts: list[str]) -> None:
    for part in parts:
        path = workspace / FORGERY[part]
        whole = path.read_bytes()
        path.write_bytes(whole + b" " if part != "ranking" else whole.replace(b"false", b"true"))
    accept_changes(workspace)
    (fault,) = audit(workspace).faults
    assert (fault.kind, fault.path) == ("hash", "results/ranking.json")
    named = re.search(r"is of another state of: (.*?)\.", fault.message)
    assert named
    assert sorted(named[1].split(", ")) == sorted(parts)
    advised = re.search("`(dvc repro --force .*?)`", fault.message)
    assert advised
    run(workspace, *advised[1].split())
    run(workspace, "dvc", "repro", "--quiet")
    assert audit(workspace).faults == ()


def test_params_that_dvc_was_told_to_accept_are_named_by_the_result_hash(workspace: Path) -> None:
    write(workspace, "params.yaml", PARAMS.replace("1e-05", "1e-04"))
    accept_changes(workspace)
    (message,) = hash_faults(workspace)
    assert "is of another state of: params." in message


@pytest.mark.parametrize("forged", [None, {"sha256": "0" * 64}])
def test_a_result_hash_that_is_absent_or_made_up_is_named(workspace: Path, forged: dict[str, str] | None) -> None:
    path = workspace / "results/ranking.json"
    value = json.loads(path.read_text())
    value["result"] = {**value["result"], **forged} if forged else None
    path.write_text(json.dumps(value))
    accept_changes(workspace)
    (message,) = hash_faults(workspace)
    assert ("not that of its parts" if forged else "has no result hash") in message
