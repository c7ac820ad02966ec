"""Grading an attempt to reproduce a paper from Python, as others call it."""

import asyncio
import json
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rubric_trees import CODE, RESULT, RUN, leaf, node
from scripted_judge import DIGEST, ScriptedModel, SlowJudgeServer, dies_after
from waiting import wait_until

import pcgeval
from pcgeval.core.files import to_json, write_text
from pcgeval.core.locks import FolderBusyError
from pcgeval.core.params import Model
from pcgeval.judge import run as module
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.grading import no_report
from pcgeval.judge.run import grade_submission, run_judge
from pcgeval.judge.settings import GradingError, JudgeSettings
from pcgeval.rubric.grade_files import judge_output_from_json
from pcgeval.rubric.grades import get_grade_summary
from pcgeval.rubric.papers import PaperError
from pcgeval.submissions.reproduction import ReproductionRun

ACQUIRE = {"finegrained_task_category": "Dataset and Model Acquisition"}
RUBRIC = node(
    "root",
    1,
    leaf("code", 1, CODE),
    leaf("ran", 1, RUN, check={"name": "reproduce_succeeded"}),
    node("results", 2, leaf("figure", 1, RESULT), leaf("data", 1, CODE, **ACQUIRE)),
)
MODEL = Model(backend="ollama", name="m:1", digest=DIGEST)


class FakeComputer:
    """Makes a result, as reproduce.sh would, and counts how often it was asked to."""

    def __init__(self, exit_code=0, dies=False):
        self.exit_code, self.dies, self.runs = exit_code, dies, 0

    def reproduce(self, submission, into):
        self.runs += 1
        for path in filter(Path.is_file, submission.iterdir()):
            write_text(into / path.name, path.read_text())
            os.utime(into / path.name, (1, 1))
        write_text(into / "results.json", '{"figure": 1}')
        if self.dies:
            raise KeyboardInterrupt
        return ReproductionRun(into, "it ran\n", self.exit_code, None, 1.5, 1000.0)


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "data/papers/toy/rubric.json", json.dumps(RUBRIC))
    write_text(tmp_path / "data/papers/toy/paper.md", "# A toy")
    write_text(tmp_path / "attempt/README.md", "We did it.")
    write_text(tmp_path / "attempt/reproduce.sh", "true")
    return tmp_path / "attempt"


def by_id(output):
    return {each.id: each for each in output.graded_task_tree.leaves}


def grade(attempt, judge, computer=None, report=no_report, **settings):
    return grade_submission(
        attempt, "toy", JudgeSettings.checked({"judge": judge, **settings}), computer, report=report
    )


def simple(attempt, backend, computer=None, calls=None, **settings):
    settings = JudgeSettings.checked({"judge": "simple", "model": MODEL, **settings})
    return grade_submission(attempt, "toy", settings, computer, calls, open_backend=lambda _: backend)


def test_the_public_interface(attempt):
    output = asyncio.run(pcgeval.run_judge(str(attempt), "toy", "dummy"))
    assert isinstance(output, pcgeval.JudgeOutput)
    assert (output.judge_type, output.score) == ("dummy", 1.0)
    assert len(pcgeval.extract_leaf_grades(output.graded_task_tree)) == 4
    assert pcgeval.get_grade_summary(output.graded_task_tree)["passed"] == 4


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"judge_type": "simpel"}, "simpel|judge: "),
        ({"judge_type": "human"}, "needs a file of grades"),
        ({"completer_config": {"backend": "olama", "name": "m"}}, r"model\.backend"),
        ({"judge_type": "dummy", "submission_path": "nowhere"}, "nowhere: no folder"),
    ],
)
def test_an_impossible_call_is_refused(attempt, change, expected):
    with pytest.raises(GradingError, match=expected):
        asyncio.run(run_judge(**{"submission_path": attempt, "paper_id": "toy", **change}))


def test_a_judge_without_a_model_needs_no_paper_and_tells_what_is_odd(attempt):
    folder = attempt.parent / "data/papers/toy"
    (folder / "paper.md").unlink()
    write_text(folder / "config.yaml", "id: tooy\ntitle: A toy\n")
    for judge in ("dummy", "random", "checks"):
        assert grade(attempt, judge).warnings == ("config.yaml gives the id 'tooy', but the folder is named 'toy'.",)
    with pytest.raises(PaperError, match=r"paper\.md: is missing"):
        simple(attempt, ScriptedModel())


def test_the_computer_runs_a_copy_and_its_results_are_judged(attempt):
    computer = FakeComputer()
    output = simple(attempt, ScriptedModel(), computer=computer)
    assert by_id(output)["ran"].score == 1.0
    assert by_id(output)["figure"].judge_metadata.files.offered == ("README.md", "results.json")
    assert computer.runs == 1
    assert sorted(path.name for path in attempt.iterdir()) == ["README.md", "reproduce.sh"]
    assert not list(attempt.parent.rglob("results.json"))


@pytest.mark.parametrize(("exit_code", "guess"), [(0, 0.5), (1, 0.2), (None, 0.2)])
def test_the_guess_follows_from_the_run(attempt, exit_code, guess):
    output = simple(attempt, ScriptedModel(fails=dies_after(0)), computer=FakeComputer(exit_code), ignore_checks=True)
    assert (output.judge_type, output.score) == ("heuristic", guess)
    assert output.warnings


def test_a_run_is_kept_for_the_grading_that_goes_on_after_a_kill(attempt):
    class Killed(ScriptedModel):
        def chat(self, request, timeout):
            reply = super().chat(request, timeout)
            if len(self.requests) == 3:
                raise KeyboardInterrupt
            return reply

    computer, killed = FakeComputer(), Killed()
    with pytest.raises(KeyboardInterrupt):
        simple(attempt, killed, computer=computer)
    backend = ScriptedModel()
    output = simple(attempt, backend, computer=computer)
    assert computer.runs == 1
    assert output.num_invalid_leaf_nodes == 0
    assert len(backend.requests) + len(killed.requests) - 1 == output.token_usage.total.calls
    simple(attempt, ScriptedModel(), computer=computer)
    assert computer.runs == 2  # a grading that ended leaves no run behind


def test_a_run_that_was_killed_or_of_other_files_is_made_again(attempt):
    dying = FakeComputer(dies=True)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            simple(attempt, ScriptedModel(), computer=dying)
    assert dying.runs == 2
    computer = FakeComputer()
    assert simple(attempt, ScriptedModel(), computer=computer).num_invalid_leaf_nodes == 0
    assert computer.runs == 1


def test_a_kept_run_whose_folder_is_gone_is_made_again(attempt):
    def report(*_):
        raise KeyboardInterrupt

    computer = FakeComputer()
    with pytest.raises(KeyboardInterrupt):
        grade(attempt, "checks", computer=computer, report=report)
    (copy,) = attempt.parent.rglob("reproduction/copy")
    shutil.rmtree(copy)
    output = grade(attempt, "checks", computer=computer)
    assert computer.runs == 2
    assert by_id(output)["ran"].score == 1.0


@pytest.mark.parametrize("target", ["x" * 4000, "/", "reproduce.sh", "\udcff"])
def test_links_of_a_submission_prevent_nothing(attempt, target):
    write_text(attempt / "reproduce.log", "it ran\n")
    (attempt / "reproduce.sh").unlink()
    (attempt / "reproduce.sh").symlink_to(target)
    assert grade(attempt, "checks").warnings
    (attempt / "reproduce.log").unlink()
    (attempt / "reproduce.log").symlink_to(target)
    assert by_id(grade(attempt, "dummy"))["figure"].score == 1.0


def test_two_gradings_do_not_share_a_run(attempt):
    def report(*_):
        with pytest.raises(FolderBusyError, match="working on it"):
            grade(attempt, "checks", computer=second)

    first, second = FakeComputer(), FakeComputer()
    output = grade(attempt, "checks", computer=first, report=report)
    assert by_id(output)["ran"].score == 1.0
    assert second.runs == 0
    grade(attempt, "checks", computer=second)
    assert second.runs == 1


def test_the_present_folder_can_be_the_submission(attempt, monkeypatch):
    class Strict(FakeComputer):
        def reproduce(self, submission, into):
            assert not into.resolve().is_relative_to(submission.resolve())
            into.mkdir(parents=True)
            return ReproductionRun(into, "it ran\n", 0, None, 1.5, 1000.0)

    monkeypatch.chdir(attempt)
    papers = attempt.parent / "data/papers"
    output = simple(Path(), ScriptedModel(), papers_dir=str(papers), computer=Strict())
    assert by_id(output)["ran"].score == 1.0
    assert not list(attempt.rglob("reproduction*"))


def test_a_deep_tree_is_graded_and_what_lies_deep_belongs_to_the_submission(attempt):
    deep = attempt.joinpath(*["d"] * 120)
    deep.mkdir(parents=True)
    computer = FakeComputer()
    assert by_id(grade(attempt, "checks", computer=computer))["ran"].score == 1.0
    assert computer.runs == 1
    state = module.state_of(attempt)
    write_text(attempt.joinpath(*["d"] * 64) / "new.py", "")  # as deep as the sandbox copies
    assert module.state_of(attempt) != state


def test_a_grading_that_asks_a_model_excludes_another_of_the_same_submission(attempt):
    def report(*_):
        with pytest.raises(FolderBusyError, match="working on it"):
            simple(attempt, second)
        simple(attempt, ScriptedModel(), calls=CallFiles(log=None))

    second = ScriptedModel()
    settings = JudgeSettings(judge="simple", model=MODEL)
    grade_submission(attempt, "toy", settings, report=report, open_backend=lambda _: ScriptedModel())
    assert second.requests == []
    simple(attempt, second)  # the lock is free again, and all replies are known
    assert second.requests == []


def test_code_only_runs_nothing_and_grades_code(attempt):
    computer = FakeComputer()
    output = simple(attempt, ScriptedModel(), computer, code_only=True)
    assert computer.runs == 0
    assert set(by_id(output)) == {"code", "data"}
    assert set(get_grade_summary(output.graded_task_tree)["by_category"]) == {CODE}


def test_cuts(attempt):
    output = grade(attempt, "dummy", resources_provided=True)
    assert {each.id: each.weight for each in output.graded_task_tree.leaves}["data"] == 0
    code = grade(attempt, "dummy", code_only=True, resources_provided=True)
    assert code.score < 1  # as in PaperBench
    assert grade(attempt, "dummy", code_only=True, resources_provided=True, propagate_zero_weights=True).score == 1
    assert grade(attempt, "dummy", max_depth=2).num_leaf_nodes == 3
    backend = ScriptedModel()
    assert simple(attempt, backend, max_depth=1).num_leaf_nodes == 1


@pytest.mark.parametrize(("old", "expected"), [(True, 0.0), (False, None)])
def test_the_log_of_an_earlier_run_tells_which_results_are_fresh(attempt, old, expected):
    started = time.time() - 100
    at = datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds")
    write_text(attempt / "reproduce.log", f"[pcgeval] reproduce.sh started at {at}\nit ran\n")
    os.utime(attempt / "reproduce.log", (started, started))
    write_text(attempt / "results.json", "{}")
    os.utime(attempt / "results.json", (started - 50, started - 50) if old else None)
    os.utime(attempt / "README.md", (started - 50, started - 50))
    figure = by_id(simple(attempt, ScriptedModel()))["figure"]
    assert figure.valid_score
    assert (figure.score if old else None) == expected
    assert bool(figure.judge_metadata.usage.grade.calls) is not old


def write_run(attempt, began, *, keeps_time=True, results):
    """Write what a run of PaperBench leaves: a log, the time when it began, and results that are so much older."""
    write_text(attempt / "reproduce.log", "it ran\n")
    os.utime(attempt / "README.md", (began - 9000, began - 9000))
    if keeps_time:
        write_text(attempt / "reproduce.log.creation_time", f"{int(began)}\n")
    else:
        os.utime(attempt / "reproduce.log", (began, began))
    for name, older in results.items():
        write_text(attempt / name, "{}")
        os.utime(attempt / name, (began - older, began - older))


def test_results_older_than_a_run_of_paperbench_are_never_offered(attempt):
    write_run(attempt, 1_700_000_000, results={"old.json": 1, "brought.csv": 5000, "new.json": -1, "now.csv": 0})
    output = simple(attempt, ScriptedModel())
    assert by_id(output)["figure"].judge_metadata.files.offered == ("README.md", "new.json", "now.csv")
    assert by_id(output)["code"].judge_metadata.files.offered == ("README.md", "new.json", "old.json")
    assert any("came with the submission" in warning for warning in output.warnings)
    whole = simple(attempt, ScriptedModel(), max_depth=1).graded_task_tree
    assert "brought.csv" not in whole.judge_metadata.files.offered
    assert "now.csv" in whole.judge_metadata.files.offered


def test_without_the_time_of_a_run_that_of_the_log_counts(attempt):
    write_run(attempt, 1_700_000_000, keeps_time=False, results={"old.json": 5000, "new.json": 0, "beside.json": 1})
    output = simple(attempt, ScriptedModel())
    assert by_id(output)["figure"].judge_metadata.files.offered == ("README.md", "new.json")
    os.utime(attempt / "reproduce.sh", (1_700_000_003, 1_700_000_003))  # as in a checkout
    checkout = simple(attempt, ScriptedModel())
    assert by_id(checkout)["figure"].judge_metadata.files.offered == ("README.md", "beside.json", "new.json")
    assert any("There is no reproduce.log.creation_time" in warning for warning in output.warnings)


def test_a_run_whose_log_is_lost_was_a_run(attempt):
    write_run(attempt, 1_700_000_000, results={"new.json": -1})
    (attempt / "reproduce.log").unlink()
    assert by_id(simple(attempt, ScriptedModel()))["figure"].judge_metadata.usage.grade.calls == 1


@pytest.mark.parametrize("text", ["soon", "-1", "1" * 50, "", "\ud800", None])
def test_a_time_that_is_none_is_not_used_and_told(attempt, text):
    write_run(attempt, time.time(), keeps_time=False, results={"new.json": 0})
    path = attempt / "reproduce.log.creation_time"
    if text is None:
        os.mkfifo(path)
    else:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    output = simple(attempt, ScriptedModel())
    assert any(warning.startswith("reproduce.log.creation_time") for warning in output.warnings)
    assert by_id(output)["figure"].judge_metadata.files.offered == ("README.md", "new.json")


@pytest.mark.parametrize("judge", ["dummy", "random", "checks", "simple"])
def test_the_blacklist_is_looked_at_whoever_judges(attempt, judge):
    def graded():
        return simple(attempt, ScriptedModel()) if judge == "simple" else grade(attempt, judge)

    assert graded().blacklist is None
    write_text(attempt.parent / "data/papers/toy/blacklist.txt", "https://github.com/them/code\n")
    assert graded().blacklist == "none of 1 blacklisted addresses is named"
    write_text(attempt / "get.sh", "git clone http://www.github.com/them/code.git")
    output = graded()
    assert output.blacklist == "'get.sh' names https://github.com/them/code"
    assert any("blacklist.txt: 'get.sh' names" in warning for warning in output.warnings)
    assert judge_output_from_json(json.loads(to_json(output.to_json()))) == output


def test_a_check_from_a_side_file_is_graded_again_and_nothing_else(attempt):
    beside = attempt.parent / "data/papers/toy/checks.yaml"
    first = ScriptedModel()
    assert simple(attempt, first).checks_sha256 is None
    write_text(beside, "code: {name: file_exists, arguments: {path: README.md}}")
    second = ScriptedModel()
    output = simple(attempt, second)
    assert by_id(output)["code"].judge_metadata.check == "file_exists"
    assert second.requests == []
    assert len(output.checks_sha256) == 64
    write_text(attempt.parent / "mine.yaml", "data: {name: file_exists, arguments: {path: none}}")
    other = simple(attempt, second, checks_file=attempt.parent / "mine.yaml")
    assert (by_id(other)["data"].score, second.requests) == (0.0, [])
    assert by_id(other)["code"].judge_metadata.check is None
    assert other.checks_sha256 != output.checks_sha256


def test_human_grades_are_those_of_a_file(attempt, tmp_path):
    write_text(tmp_path / "g.yaml", "- {path: root/code, score: 0.5, author: Ada, reason: half}")
    output = grade(attempt, "human", human_grades=tmp_path / "g.yaml")
    assert (output.judge_type, output.score, output.num_invalid_leaf_nodes) == ("human", 0.125, 3)
    cut = grade(attempt, "human", max_depth=1, human_grades=tmp_path / "g.yaml")
    assert cut.num_invalid_leaf_nodes == 1


def test_a_cancelled_caller_makes_no_further_call(attempt):
    async def cancelled(model):
        task = asyncio.create_task(run_judge(attempt, "toy", completer_config=model))
        await asyncio.to_thread(wait_until, lambda: server.asked)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with SlowJudgeServer(0.1) as server:
        asyncio.run(cancelled(MODEL.model_copy(update={"host": server.address})))
        time.sleep(0.5)
        assert len(server.asked) < 6


def test_exchanges_that_are_not_to_be_kept_leave_nothing(attempt):
    before = sorted(attempt.parent.rglob("*"))
    simple(attempt, ScriptedModel(), FakeComputer(), CallFiles(log=None))
    assert sorted(attempt.parent.rglob("*")) == before


def test_an_empty_file_is_shown_as_empty(attempt):
    (attempt / "README.md").write_text(" \n")
    backend = ScriptedModel()
    simple(attempt, backend)
    shown = [request.messages[-1].content for request in backend.requests]
    assert any("README.md\n(the file is empty)" in each for each in shown)
