"""The command audit: what it runs again, what it says, and what is no fault. Forgeries are in test_forgeries.py."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_servers import SlowJudgeServer
from params_for_tests import contents
from workspace import commit_all, evaluate, make_workspace, run_dvc, with_this_python

from pcgeval import pipeline
from pcgeval.cli.main import main
from pcgeval.core.locks import lock_folder
from pcgeval.formats.layout import GENERATION_LOCK, RUN_LOCK
from pcgeval.formats.params import load_params
from pcgeval.proof.audit import audit
from pcgeval.proof.parts import OUTPUTS
from pcgeval.submissions.load import submission_sha256


def make_published(folder: Path) -> Path:
    make_workspace(folder)
    recording = folder / "data/recordings/small/beta/calls.jsonl"
    first, *others = recording.read_text().splitlines(keepends=True)
    recording.write_text("".join([first.replace("drop_block(", "drop("), *others]))  # a trial without a level
    evaluate(folder)
    done = run_dvc(folder, "commit", "--force")
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="session")
def published(shared_folder: Callable[..., Path]) -> Path:
    """A competition that was evaluated, with its dvc.lock."""
    return shared_folder(make_published)


@pytest.fixture
def folder(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the working folder."""
    copy = Path(shutil.copytree(published, tmp_path / "competition", symlinks=True))
    monkeypatch.chdir(copy)
    monkeypatch.setenv("PATH", with_this_python())
    return copy


@pytest.fixture
def audited(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Run `pcgeval audit --json`, which fails, and return what it printed."""

    def run(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["audit", "--json", *words]) == 1
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return printed

    return run


@pytest.fixture
def forged(tampered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tampered, tmp_path / "competition", symlinks=True))


def test_a_competition_as_it_was_evaluated_passes(folder, audited, capsys):
    (folder / "data/levels/small/beta/.DS_Store").write_bytes(b"\0")
    (folder / "results/notes.txt").write_text("to do")
    before = {name: content for name, content in contents(folder).items() if not name.startswith(".dvc/")}
    assert main(["audit"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("PASSED  test 1, final: ")
    assert json.loads((folder / "results/ranking.json").read_text())["result"]["sha256"] in shown
    for team in ("alpha", "beta"):
        assert submission_sha256(folder / "data/submissions" / team)[:12] in shown
    assert {name: content for name, content in contents(folder).items() if not name.startswith(".dvc/")} == before
    assert main(["audit", "--strict"]) == 1
    assert "not all is committed" in capsys.readouterr().out.splitlines()[0]
    printed = audited("--strict")
    assert printed["differences"] == printed["faults"] == printed["not_run"] == []
    assert any("git" in sentence for sentence in printed["unpublished"])
    figures = {
        team["team"]: (team["trials"], team["failed"], team["total"] == team["again"]) for team in printed["teams"]
    }
    assert figures == {"alpha": (8, 0, True), "beta": (8, 1, True)}
    ranking = {row["team"]: row for row in json.loads((folder / "results/ranking.json").read_text())["teams"]}
    for team in printed["teams"]:
        row = ranking[team["team"]]
        assert team["status"] == ("winner" if row["winner"] else row["status"])
        assert (team["rank"], team["total"]) == (row["rank"], row["total"])


def test_files_that_no_stage_wrote_and_missing_ones_are_named(folder, audited):
    more = {
        "data/levels/small/beta/I/beta_I_9.xml",
        "results/official/prompt_scores_ranks.csv",
        "results/report/teams/beta-2.html",
    }
    for name in more:
        (folder / name).write_text("more")
    (folder / "results/official/small/constants.json").unlink()
    printed = audited()
    sides = {row["path"]: (row["published"] == "absent", row["again"] == "absent") for row in printed["differences"]}
    assert sides == dict.fromkeys(more, (False, True)) | {"results/official/small/constants.json": (True, False)}


def test_the_winner_by_the_inputs_is_named_beside_a_forged_one_and_twenty_differences_at_most(folder, capsys):
    path = folder / "results/ranking.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"winners": ["alpha"]}))
    for record in (folder / "data/raw").rglob("*.json"):
        record.write_text(record.read_text().replace('"seconds": 1.5', '"seconds": 2.5'))
    for level in (folder / "data/levels").rglob("*.xml"):
        level.write_text(f"{level.read_text()} ")
    assert main(["audit"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("FAILED")
    assert "by the inputs the winner is" in shown
    differing = [line for line in shown.splitlines() if line.startswith("differs: ")]
    assert len(differing) == 21
    assert "data/raw" in differing[0]
    assert "2.5" in differing[0]


def test_a_run_is_not_audited_before_it_has_ended_and_neither_is_a_folder_without_a_ranking(folder, capsys):
    for lock in (RUN_LOCK, GENERATION_LOCK):
        with lock_folder(folder, folder / lock):
            assert main(["audit"]) == 2
        assert f"process {os.getpid()} is evaluating" in capsys.readouterr().err
    shutil.move(folder / "data/raw", folder / "away")  # as in a clone without DVC's data
    assert main(["audit"]) == 2
    shown = capsys.readouterr()
    assert "data/raw: is missing, so there is nothing to compare. Run `dvc pull`" in shown.err
    assert "winner" not in shown.out
    shutil.move(folder / "away", folder / "data/raw")
    (folder / "results/ranking.json").unlink()
    assert main(["audit"]) == 2
    assert "make final-eval" in capsys.readouterr().err


def test_a_lock_file_of_another_run_or_none_is_a_fault_and_no_module_stands_in_for_dvc(folder, audited):
    (folder / "dvc.py").write_text("print('{}')")
    commit_all(folder)
    path = folder / "dvc.lock"
    text = path.read_text()
    path.write_text(text.replace("python stages/rank.py", "python stages/score.py"))
    for word in ("rank", "dvc.lock"):
        printed = audited("--trust", "generate", "--trust", "simulate")
        assert any("dvc.lock" in fault and word in fault for fault in printed["faults"])
        assert any("dvc.lock" in sentence for sentence in printed["unpublished"])
        path.unlink(missing_ok=True)


def test_a_trusted_stage_is_not_run_and_the_verdict_says_so(folder, audited, capsys):
    path = folder / "data/similarity/small/beta/I.json"
    value = json.loads(path.read_text())
    value["trials"][0]["similarity"] = 1.0
    path.write_text(json.dumps(value))
    evaluate(folder, since="diversity")
    assert main(["audit", "--trust", "classify"]) == 1  # dvc.lock is that of before
    shown = capsys.readouterr().out
    assert "not all was run again: classify" in shown.splitlines()[0]
    assert "differs: data/similarity" not in shown
    printed = audited()
    assert printed["differences"][0]["path"] == "data/similarity/small/beta/I.json"
    assert [team["team"] for team in printed["teams"] if team["total"] != team["again"]] != []
    assert main(["audit", "--trust", "clasify"]) == 2
    assert "clasify" in capsys.readouterr().err


def test_a_stage_that_cannot_be_run_again_is_named(folder, audited):
    (folder / "data/rubrics/competition/rubric.json").write_text("{")
    printed = audited()
    assert any(fault.startswith("grade: ") and "rubric.json" in fault for fault in printed["faults"])
    assert any(sentence.startswith("grade: ") for sentence in printed["not_run"])


def test_what_was_changed_after_the_published_commit_is_named(folder, audited, capsys):
    commit_all(folder)
    assert main(["audit", "--since", "HEAD"]) == 0
    path = folder / "params.yaml"
    path.write_text(path.read_text().replace("seed: 1", "seed: 2", 1))
    (folder / "data/submissions/beta/more.txt").write_text("more")
    trusted = [word for stage in OUTPUTS for word in ("--trust", stage)]
    changes = ("competition.seed is 2, and was 1", "team beta was changed (more.txt)")
    faults = audited("--since", "HEAD", *trusted)["faults"]
    assert all(any(change in fault for fault in faults) for change in changes)
    assert not any(change in fault for fault in audited(*trusted)["faults"] for change in changes)
    capsys.readouterr()
    assert main(["audit", "--since", "nonesuch"]) == 2
    assert "nonesuch" in capsys.readouterr().err


def test_two_answers_to_one_call_are_a_fault_and_replies_of_records_alone_are_noted(forged):
    key = json.loads((forged / "data/raw/live/beta/H/beta_H_1.json").read_text())["exchanges"][0]["key"]
    (log,) = [path for path in (forged / ".pcgeval/calls").glob("*.jsonl") if key in path.read_text()]
    call = next(json.loads(line) for line in log.read_text().splitlines() if key in line)
    call["reply"]["text"] = "another"
    log.write_text(log.read_text() + json.dumps(call) + "\n")
    assert any(key in fault for fault in audit(forged, is_bundle=True).faults)
    shutil.rmtree(forged / ".pcgeval")
    (forged / ".pcgeval/calls/a.jsonl").mkdir(parents=True)  # no file
    result = audit(forged, is_bundle=True)
    assert result.passed()
    (alone,) = [note for note in result.notes if "records" in note and "alpha" in note]
    assert "alpha with live" in alone


def test_a_judge_without_a_pinned_digest_is_replayed(forged):
    values = yaml.safe_load((forged / "params.yaml").read_text())
    with SlowJudgeServer(0) as server:
        values["rubric"] |= {"judge": "simple"}
        values["rubric"]["model"] = {"backend": "ollama", "name": "m:1", "host": server.address}
        (forged / "params.yaml").write_text(yaml.safe_dump(values))
        pipeline.grade(load_params(forged / "params.yaml"), forged)
        assert server.asked
    assert audit(forged, is_bundle=True).passed()


def test_where_no_sandbox_starts_the_trials_of_programs_are_taken_as_they_are(tampered, monkeypatch):
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    result = audit(tampered, is_bundle=True)
    assert result.passed()
    assert not result.passed(strict=True)
    assert [sentence for sentence in result.not_run if "gamma" in sentence]
    assert not [sentence for sentence in result.not_run if "beta" in sentence]
