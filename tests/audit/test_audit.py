"""An audit shows for each line its own inputs, for all the shared ones, and what it refuses."""

import hashlib
import json
import shutil
from dataclasses import asdict, replace
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from mini_competition import (
    CLASSIFIER_FILES,
    ODD_NAME,
    PARAMS,
    accept_changes,
    faults_beside_hash,
    files_at_fault,
    run,
    write,
)

from pcgeval.audit.audit import AuditError, audit
from pcgeval.audit.lineage import Input, count_lines
from pcgeval.audit.recompute import Recomputed
from pcgeval.audit.status import AuditFinding
from pcgeval.audit.text import audit_text
from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes, to_json
from pcgeval.core.layout import Trial
from pcgeval.core.params import ParamsError, load_params
from pcgeval.core.trials import TrialRecord, record_path, write_trial
from pcgeval.generation.failed_trials import TRIAL_HISTORY, TrialDecision
from pcgeval.generation.tasks import GenerationTask
from pcgeval.submissions.load import load_submission

REPLACED = PARAMS.replace('{backend: recorded, name: "two:2b"', '{backend: ollama, name: "two:2b"')


def paths(inputs: tuple[Input, ...], kind: str) -> list[str]:
    return [each.path for each in inputs if each.kind == kind]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_each_line_shows_the_inputs_of_its_team_alone(workspace: Path) -> None:
    first, second = audit(workspace).lines
    assert (first.team, first.rank, first.total) == ("aa", 1, Decimal("0.12345678901234567890"))
    assert (second.team, second.rank) == ("bb", None)
    assert paths(first.inputs, "submission") == [
        "data/submissions/aa/prompt.txt",
        f"data/submissions/aa/{ODD_NAME}.md",
    ]
    assert paths(first.inputs, "exchanges") == [
        "data/recordings/m1/aa/calls.jsonl",
        "data/recordings/m2/aa/calls.jsonl",
    ]
    assert [each.exchanges for each in first.inputs if each.kind == "exchanges"] == [2, 3]
    assert {each.kind for each in first.inputs} == {"submission", "exchanges"}
    assert first.stages == (
        "generate@aa-m1",
        "generate@aa-m2",
        "simulate@aa-m1",
        "simulate@aa-m2",
        "evidence@aa-m1",
        "rank",
        "grade@aa",
    )


@pytest.mark.parametrize(("judge", "expected"), [("simple", ["data/recordings/judge/aa/calls.jsonl"]), ("checks", [])])
def test_what_the_judge_said_is_an_input_of_the_grade(workspace: Path, judge: str, expected: list[str]) -> None:
    values = yaml.safe_load((workspace / "params.yaml").read_text())
    values["rubric"] |= {"judge": judge, "model": {"backend": "recorded", "name": "m", "digest": "0" * 64}}
    (workspace / "params.yaml").write_text(yaml.safe_dump(values))
    exchanges = paths(audit(workspace).lines[0].inputs, "exchanges")
    assert [path for path in exchanges if "/judge/" in path] == expected


def test_shared_inputs_stand_once_with_their_hashes(workspace: Path) -> None:
    found = audit(workspace)
    assert paths(found.shared, "classifier") == [f"data/classifier/{name}" for name in CLASSIFIER_FILES]
    assert paths(found.shared, "rubric") == ["data/rubrics/competition/rubric.json"]
    assert paths(found.shared, "script") == [
        "stages/evidence.py",
        "stages/grade.py",
        "stages/measure.py",
        "stages/rank.py",
    ]
    assert paths(found.shared, "source") == ["src/pcgeval/llm/protocol.py", "src/pcgeval/llm/recorded.py"]
    for each in found.shared:
        content = (workspace / each.path).read_bytes()
        assert each.sha256 == hashlib.sha256(content).hexdigest()
        assert each.md5 == hashlib.md5(content, usedforsecurity=False).hexdigest()
    script = next(each for each in found.shared if each.path == "stages/rank.py")
    assert [(each.path, each.md5) for each in script.locked] == [("stages/rank.py", script.md5)]
    assert len({each.path for each in found.shared}) == len(found.shared)


def test_params_seeds_and_models_are_those_that_the_stages_ran_with(workspace: Path) -> None:
    write(workspace, "params.yaml", PARAMS.replace("seed: 7", "seed: 8").replace("1e-05", "1e-06"))
    found = audit(workspace)
    assert {each.name: each.value for each in found.seeds} == {
        "competition.seed": 7,
        "physics.seed": 3,
        "rubric.seed": 5,
    }
    assert {each.name: each.value for each in found.params}["physics.jitter"] == 1e-05
    assert [each.model for each in found.models] == ["m1", "m2"]
    assert {each.name: each.value for each in found.models[0].settings} == {
        "models.m1.backend": "recorded",
        "models.m1.digest": "ab" * 32,
        "models.m1.name": "one:1b",
        "models.m1.options.temperature": 1,
    }


def test_a_model_asked_for_real_has_its_replies_as_input(workspace: Path) -> None:
    write(workspace, "params.yaml", REPLACED)
    first, _ = audit(workspace).lines
    live = [each for each in first.inputs if each.kind == "exchanges"]
    assert [(each.path, each.exchanges) for each in live] == [
        ("data/raw/m2/aa", 1),
        ("data/recordings/m1/aa/calls.jsonl", 2),
    ]
    assert live[0].md5 == live[0].locked[0].md5


def test_a_team_s_audit_shows_its_line_and_checks_everything(workspace: Path) -> None:
    write(workspace, "data/submissions/aa/prompt.txt", "new")
    found = audit(workspace, "bb")
    assert [line.team for line in found.lines] == ["bb"]
    assert files_at_fault(found) == [("changed", "data/submissions/aa/prompt.txt")]


def test_a_missing_input_keeps_its_place_in_the_list(workspace: Path) -> None:
    (workspace / "stages/rank.py").unlink()
    script = next(each for each in audit(workspace).shared if each.path == "stages/rank.py")
    assert (script.sha256, script.md5) == (None, None)
    assert script.locked


def test_text_begins_with_the_verdict_and_has_a_block_for_each_team(workspace: Path) -> None:
    found = audit(workspace)
    lines = audit_text(found).splitlines()
    assert lines[0] == "mini 2026, final: workspace, dvc.lock and cache agree"
    assert lines[1].startswith("  compared      ")
    assert f"  result hash   {found.result.sha256}" in lines
    block = lines[lines.index("rank 1  aa: total 0.123457, normalised 50.000 (ranked)") :]
    recordings = [each for each in found.lines[0].inputs if each.kind == "exchanges"]
    assert [each.split() for each in block[1 : block.index("")]] == [
        ["submission", "2", "files,", "sha256", block[1][-12:]],
        f"m1 4 trials, 3 failed, 1 flagged, score 0.062500; 2 exchanges, sha256 {recordings[0].sha256[:12]}".split(),
        f"m2 4 trials, 3 failed, 1 flagged, score 0.062500; 3 exchanges, sha256 {recordings[1].sha256[:12]}".split(),
    ]
    assert "unranked  bb: total 0.123457, normalised 50.000 (baseline)" in lines
    assert [line for line in lines if "physics" in line and "jitter 1e-05" in line]
    assert [line for line in lines if "name one:1b, digest abababababab, backend recorded" in line]
    assert not [line for line in lines if "data/submissions/aa/prompt.txt" in line]
    write(workspace, "data/submissions/aa/prompt.txt", "another")
    other = audit_text(audit(workspace)).splitlines()
    assert other[0].startswith("mini 2026, final: 2 faults")
    assert other[3].startswith("FAULT: data/submissions/aa/prompt.txt")
    assert block[1] not in other


def test_a_block_says_what_was_recomputed_of_the_team(workspace: Path) -> None:
    path = "data/stability/m1/aa/I.json"
    fault = AuditFinding("recomputed", path, f"{path}: I1.score is 1, recomputed 0.5")
    found = replace(audit(workspace), recomputed=Recomputed(replies=16, scores=16), faults=(fault,))
    lines = audit_text(found).splitlines()
    assert lines[0] == "mini 2026, final: 1 fault: results do not follow from the inputs"
    assert lines[2].startswith("  recomputed    from the replies to the ranking: 16 replies, ")
    assert lines[2].endswith(": 1 fault above")
    blocks = [line for line in lines[3:] if line.startswith("  recomputed")]
    assert blocks == ["  recomputed    8 trials: 1 fault above", "  recomputed    8 trials: nothing differs"]


def test_the_long_text_names_each_file_with_whole_hashes(workspace: Path) -> None:
    lines = audit_text(audit(workspace), long=True).splitlines()
    prompt = sha256(workspace / "data/submissions/aa/prompt.txt")
    assert [line for line in lines if f"data/submissions/aa/prompt.txt  sha256 {prompt}, locked md5 " in line]
    assert [line for line in lines if "data/recordings/m2/aa/calls.jsonl  3 exchanges" in line]
    assert [line for line in lines if "two\\nlines" in line]
    assert [line for line in lines if f"digest {'ab' * 32}" in line]
    assert [line for line in lines if "generate x 2" in line]


def test_lines_are_broken_at_the_width_of_the_terminal(workspace: Path) -> None:
    found = audit(workspace)
    whole, broken = (audit_text(found, width=width) for width in (None, 80))
    assert max(len(line) for line in whole.splitlines() if line.startswith("  ")) > 80
    assert max(len(line) for line in broken.splitlines() if line.startswith("  ")) <= 80
    assert broken.split() == whole.split()


def test_text_of_many_faults_stays_short(workspace: Path) -> None:
    for number in range(500):
        write(workspace, f"data/raw/m1/aa/{number}.txt", "")
    found = audit(workspace)
    assert len(files_at_fault(found)) == 500
    lines = audit_text(found).splitlines()
    assert len(lines) < 80
    assert lines[0].startswith("mini 2026, final: 501 faults: workspace, dvc.lock and cache do not agree")


def test_json_holds_everything(workspace: Path) -> None:
    write(workspace, "results/x", "")
    found = audit(workspace)
    read = json.loads(found.to_json())
    assert [line["team"] for line in read["lines"]] == ["aa", "bb"]
    assert read["lines"][0]["inputs"][1]["path"] == "data/submissions/aa/two\\nlines é.md"
    assert read["faults"] == [
        {"kind": "untracked", "path": "results/x", "message": "results/x: no stage made it. Delete it or move it away."}
    ]
    assert read["git"]["changed"] == ["results/x"]


def test_an_audit_changes_nothing_and_repeats_itself(workspace: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in workspace.rglob("*") if ".dvc/tmp" not in str(path)}
    first, second = audit(workspace).to_json(), audit(workspace).to_json()
    assert first == second
    assert before == {path: path.lstat().st_mtime_ns for path in workspace.rglob("*") if ".dvc/tmp" not in str(path)}


def test_git_is_told_when_it_is_there(workspace: Path) -> None:
    state = audit(workspace).git
    assert state.commit == run(workspace, "git", "rev-parse", "HEAD").strip()
    assert state.changed == ()
    write(workspace, "notes\n1", "")
    write(workspace, "stages/rank.py", "x")
    state = audit(workspace).git
    assert state.changed == ("notes\n1", "stages/rank.py")
    assert "2 uncommitted changes: notes\\n1, stages/rank.py" in audit_text(audit(workspace))


def test_git_may_be_absent(workspace: Path) -> None:
    shutil.rmtree(workspace / ".git")
    write(workspace, ".dvc/config", "[core]\n    no_scm = true\n")
    found = audit(workspace)
    assert found.faults == ()
    assert "  commit        no git" in audit_text(found).splitlines()


def test_packages_are_compared_with_constraints(workspace: Path) -> None:
    found = audit(workspace)
    assert [(each.name, each.pinned, each.installed) for each in found.environment.packages] == [
        ("no-such-package-here", "1.0", None),
        ("pytest", "0.0.1", version("pytest")),
    ]
    assert [each.message for each in found.notes if each.kind == "packages"] == [
        f"pytest {version('pytest')} is installed, constraints.txt says 0.0.1: run `make setup`."
    ]
    write(workspace, "constraints.txt", f"pytest=={version('pytest')}\n\n# x\n-r y\npytest==1; python_version < '3'\n")
    assert "packages" not in {each.kind for each in audit(workspace).notes}
    write(workspace, "constraints.txt", "what is this\n")
    assert audit(workspace).notes[0].message.startswith("constraints.txt:1: not a requirement")
    (workspace / "constraints.txt").unlink()
    assert audit(workspace).notes[0].path == "constraints.txt"


def test_an_unknown_team_gets_a_suggestion(workspace: Path) -> None:
    with pytest.raises(AuditError, match=r"no team 'aaa'\. Did you mean 'aa'"):
        audit(workspace, "aaa")


def test_what_cannot_be_audited_is_said(workspace: Path, tmp_path: Path) -> None:
    (workspace / "dvc.lock").unlink()
    with pytest.raises(AuditError, match=r"nothing has been evaluated yet\. Run `make final-eval`"):
        audit(workspace)
    shutil.rmtree(workspace / ".dvc")
    with pytest.raises(AuditError, match="Run this in the competition's folder"):
        audit(workspace)
    with pytest.raises(ParamsError, match="cannot be read"):
        audit(tmp_path)


def test_the_command_prints_and_tells_by_its_exit_code(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faults(*words: str) -> set[str]:
        capsys.readouterr()
        assert main(["audit", *words, "--json"]) == 1
        return {fault["kind"] for fault in json.loads(capsys.readouterr().out)["faults"]}

    monkeypatch.chdir(workspace)
    assert faults("--recompute", "0") == {"recomputed"}  # what these stages make of the submissions is no level
    (workspace / "results/stray").touch()
    assert "untracked" in faults()
    capsys.readouterr()
    assert main(["audit", "bb", "--json"]) == 1
    assert [line["team"] for line in json.loads(capsys.readouterr().out)["lines"]] == ["bb"]
    for words in (["--recompute", "-1"], ["--recompute", "some"]):
        assert main(["audit", *words]) == 2
        assert words[1] in capsys.readouterr().err
    write(workspace, "dvc.lock", "- no lock")
    assert main(["audit"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "dvc.lock" in said.err


@pytest.mark.parametrize(("content", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n\n", 2)])
def test_count_lines(tmp_path: Path, content: bytes, lines: int) -> None:
    (tmp_path / "file").write_bytes(content)
    assert count_lines(tmp_path / "file") == lines


RECORD = record_path(Path("data/raw/m1/aa"), "aa", Trial("I", 1))


def write_record(workspace: Path, digest: str = "ab" * 32, accepted: str | None = None) -> None:
    """Write the record of a trial as it is made now, and let dvc.lock agree with it."""
    params, folder = load_params(workspace / "params.yaml"), workspace / "data/raw/m1/aa"
    submission, model, trial = load_submission(workspace / "data/submissions/aa"), params.models["m1"], Trial("I", 1)
    task = GenerationTask(submission, model, digest, params.limits, params.competition.seed)
    seed, fingerprint = task.job(trial).seed, task.fingerprint(trial)
    record = TrialRecord(fingerprint, seed, model.name, digest, (), sha256_bytes(b""), reason="no reply")
    if accepted:
        record = replace(record, cause="server", accepted=accepted)
    write_trial(folder, "aa", trial, "", record)
    run(workspace, "python", "stages/rank.py")
    accept_changes(workspace)


@pytest.fixture(scope="module")
def recorded(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The competition with the record of a trial; no test changes it."""
    folder = Path(shutil.copytree(evaluated, tmp_path_factory.mktemp("recorded") / "competition", symlinks=True))
    write_record(folder)
    return folder


def test_a_trial_that_was_made_as_its_record_says_is_no_fault(recorded: Path) -> None:
    assert audit(recorded).faults == ()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("data/submissions/aa/prompt.txt", "draw", "paint"),
        ("params.yaml", "seed: 7", "seed: 8"),
        ("params.yaml", "tokens: 100", "tokens: 90"),
        ("params.yaml", '"one:1b"', '"two:1b"'),
    ],
)
def test_a_trial_that_was_made_from_something_else_is_named_though_the_lock_agrees(
    recorded: Path, tmp_path: Path, name: str, old: str, new: str
) -> None:
    workspace = Path(shutil.copytree(recorded, tmp_path / "workspace", symlinks=True))
    (workspace / name).write_text((workspace / name).read_text().replace(old, new, 1))
    accept_changes(workspace)
    (fault,) = faults_beside_hash(audit(workspace))
    assert (fault.kind, fault.path) == ("record", RECORD.as_posix())
    assert "another submission" in fault.message


def test_a_trial_of_another_model_than_the_pinned_one_is_named(workspace: Path) -> None:
    write_record(workspace, digest="cd" * 32)
    assert files_at_fault(audit(workspace)) == [("record", RECORD.as_posix())]


def test_an_accepted_failure_without_a_decision_in_the_history_is_named(workspace: Path) -> None:
    write_record(workspace, accepted="Eve: it always fails")
    (fault,) = faults_beside_hash(audit(workspace))
    assert (fault.kind, fault.path) == ("record", RECORD.as_posix())
    assert "trial_history.jsonl" in fault.message
    decision = TrialDecision("2026-08-01", "Eve", "m1", "aa", "I", 1, "0" * 64, "no reply", "server", "it always fails")
    history = workspace / TRIAL_HISTORY
    history.write_text('{"torn\n' + to_json(asdict(replace(decision, trial=2)), indent=None) + "\n")
    assert faults_beside_hash(audit(workspace)) == [fault]
    history.write_text(to_json(asdict(decision), indent=None) + "\n")
    assert audit(workspace).faults == ()


def test_a_record_that_is_none_is_named(recorded: Path, tmp_path: Path) -> None:
    workspace = Path(shutil.copytree(recorded, tmp_path / "workspace", symlinks=True))
    (workspace / RECORD).write_text("{}")
    found = faults_beside_hash(audit(workspace))
    assert sorted((fault.kind for fault in found), reverse=True) == ["record", "changed"]
    assert any(fault.message.startswith(RECORD.as_posix()) for fault in found if fault.path is None)
