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
from scripted_endpoint import ScriptedEndpoint
from scripted_judge import DIGEST, ScriptedModel, SlowJudgeServer
from waiting import wait_until

import pcgeval
from pcgeval.core.files import to_json, write_text
from pcgeval.core.locks import FolderBusyError
from pcgeval.core.params import Model
from pcgeval.judge import run as module
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.grading import no_report
from pcgeval.judge.run import grade_submission, run_judge
from pcgeval.judge.settings import GradingError, JudgeSettings, model_of
from pcgeval.rubric.grades import judge_output_from_json
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
LONG_AGO = 1_700_000_000


class FakeComputer:
    """Makes a result, as reproduce.sh would, and counts how often it was asked to."""

    def __init__(self, exit_code=0, dies=False):
        self.exit_code, self.dies, self.runs = exit_code, dies, 0

    def reproduce(self, submission, into):
        self.runs += 1
        assert not into.resolve().is_relative_to(submission.resolve())
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
    return {node.id: node for node in output.graded_task_tree.leaves}


def files_of(output, name):
    return by_id(output)[name].judge_metadata.files.offered


def grade(attempt, judge, computer=None, report=no_report, **settings):
    return grade_submission(
        attempt, "toy", JudgeSettings.checked({"judge": judge, **settings}), computer, report=report
    )


def simple(attempt, backend, computer=None, calls=None, **settings):
    settings = JudgeSettings.checked({"judge": "simple", "model": MODEL, **settings})
    return grade_submission(attempt, "toy", settings, computer, calls, open_backend=lambda _: backend)


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


def test_a_judge_without_a_model_needs_no_paper(attempt):
    (attempt.parent / "data/papers/toy/paper.md").unlink()
    for judge in ("dummy", "random", "checks"):
        assert grade(attempt, judge).warnings == ()
    with pytest.raises(PaperError, match=r"paper\.md: is missing"):
        simple(attempt, ScriptedModel())


def test_the_computer_runs_a_copy_and_its_results_are_judged(attempt):
    computer = FakeComputer()
    output = simple(attempt, ScriptedModel(), computer=computer)
    assert by_id(output)["ran"].score == 1.0
    assert files_of(output, "figure") == ("README.md", "results.json")
    assert (computer.runs, output.reproduction.exit_code) == (1, 0)
    assert sorted(path.name for path in attempt.iterdir()) == ["README.md", "reproduce.sh"]
    assert not list(attempt.parent.rglob("results.json"))


@pytest.mark.parametrize(
    ("exit_code", "ignore_checks", "expected"),
    [
        (0, True, ("heuristic", 0.5)),
        (1, True, ("heuristic", 0.2)),
        (None, True, ("heuristic", 0.2)),
        (0, False, ("simple", 0.25)),  # its check is a grade
    ],
)
def test_run_judge_alone_guesses_where_no_leaf_could_be_graded(attempt, exit_code, ignore_checks, expected):
    pytest.importorskip("openai", reason="the extra openai is not installed")
    settings = JudgeSettings(ignore_checks=ignore_checks)
    with ScriptedEndpoint() as endpoint:
        endpoint.most = 0  # its quota is exhausted
        config = {"model": "m", "base_url": endpoint.base_url}
        judged = run_judge(attempt, "toy", "simple", False, config, FakeComputer(exit_code), settings=settings)
        output = asyncio.run(judged)
        settings = settings.model_copy(update={"judge": "simple", "model": Model.model_validate(model_of(config))})
        graded = grade_submission(attempt, "toy", settings, FakeComputer(exit_code))
    assert (output.judge_type, output.score) == expected
    assert output.num_invalid_leaf_nodes == graded.num_invalid_leaf_nodes == 4 - (not ignore_checks)
    assert (graded.judge_type, graded.score) == ("simple", 0.0 if ignore_checks else 0.25)
    assert ("is only a guess" in output.warnings[0]) == ignore_checks
    assert output.warnings[-1] == graded.warnings[-1]


def test_a_run_is_kept_for_the_grading_that_goes_on_after_a_kill(attempt):
    class Killed(ScriptedModel):
        def chat(self, request, timeout):
            reply = super().chat(request, timeout)
            if len(self.requests) == 3:
                raise KeyboardInterrupt
            return reply

    computer, killed, backend = FakeComputer(), Killed(), ScriptedModel()
    with pytest.raises(KeyboardInterrupt):
        simple(attempt, killed, computer=computer)
    output = simple(attempt, backend, computer=computer)
    assert (computer.runs, output.num_invalid_leaf_nodes) == (1, 0)
    assert len(backend.requests) + len(killed.requests) - 1 == output.token_usage.total.calls
    simple(attempt, ScriptedModel(), computer=computer)
    assert computer.runs == 2  # a grading that ended leaves no run behind


def test_a_run_that_was_killed_or_whose_folder_is_gone_is_made_again(attempt):
    def report(*_):
        raise KeyboardInterrupt

    dying, computer = FakeComputer(dies=True), FakeComputer()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            simple(attempt, ScriptedModel(), computer=dying)
    assert dying.runs == 2
    with pytest.raises(KeyboardInterrupt):
        grade(attempt, "checks", computer=computer, report=report)
    (copy,) = attempt.parent.rglob("reproduction/copy")
    shutil.rmtree(copy)
    assert by_id(grade(attempt, "checks", computer=computer))["ran"].score == 1.0
    assert computer.runs == 2


def test_gradings_of_one_submission_neither_share_a_run_nor_pay_twice(attempt):
    def report(*_):
        with pytest.raises(FolderBusyError, match="working on it"):
            grade(attempt, "checks", computer=second)
        with pytest.raises(FolderBusyError, match="working on it"):
            simple(attempt, unasked)
        simple(attempt, ScriptedModel(), calls=CallFiles(log=None))

    first, second, unasked = FakeComputer(), FakeComputer(), ScriptedModel()
    settings = JudgeSettings(judge="simple", model=MODEL)
    grade_submission(attempt, "toy", settings, first, report=report, open_backend=lambda _: ScriptedModel())
    assert (first.runs, second.runs, unasked.requests) == (1, 0, [])
    grade(attempt, "checks", computer=second)  # the locks are free again
    simple(attempt, unasked, computer=second)
    assert (second.runs, unasked.requests) == (2, [])


def test_the_present_folder_can_be_the_submission(attempt, monkeypatch):
    monkeypatch.chdir(attempt)
    papers = attempt.parent / "data/papers"
    output = simple(Path(), ScriptedModel(), papers_dir=str(papers), computer=FakeComputer())
    assert by_id(output)["ran"].score == 1.0
    assert not list(attempt.rglob("reproduction*"))


def test_a_deep_tree_is_graded_and_what_lies_deep_belongs_to_the_submission(attempt):
    deep = attempt.joinpath(*["d"] * 120)
    deep.mkdir(parents=True)
    assert by_id(grade(attempt, "checks", computer=FakeComputer()))["ran"].score == 1.0
    state = module.state_of(attempt)
    write_text(attempt.joinpath(*["d"] * 64) / "new.py", "")  # as deep as the sandbox copies
    assert module.state_of(attempt) != state


@pytest.mark.parametrize("target", ["x" * 4000, "/", "reproduce.sh", "\udcff"])
def test_links_of_a_submission_prevent_nothing(attempt, target):
    write_text(attempt / "reproduce.log", "it ran\n")
    (attempt / "reproduce.sh").unlink()
    (attempt / "reproduce.sh").symlink_to(target)
    assert grade(attempt, "checks").warnings
    (attempt / "reproduce.log").unlink()
    (attempt / "reproduce.log").symlink_to(target)
    assert by_id(grade(attempt, "dummy"))["figure"].score == 1.0


def test_cuts_of_the_rubric(attempt):
    computer = FakeComputer()
    assert set(by_id(simple(attempt, ScriptedModel(), computer, code_only=True))) == {"code", "data"}
    assert computer.runs == 0
    assert by_id(grade(attempt, "dummy", resources_provided=True))["data"].weight == 0
    code = {"code_only": True, "resources_provided": True}
    assert grade(attempt, "dummy", **code).score < 1  # as in PaperBench
    assert grade(attempt, "dummy", **code, propagate_zero_weights=True).score == 1
    assert grade(attempt, "dummy", max_depth=2).num_leaf_nodes == 3
    assert simple(attempt, ScriptedModel(), max_depth=1).num_leaf_nodes == 1


@pytest.mark.parametrize("old", [True, False])
def test_the_start_in_a_log_of_ours_tells_which_results_are_fresh(attempt, old):
    at = datetime.fromtimestamp(LONG_AGO, UTC).isoformat(timespec="seconds")
    write_text(attempt / "reproduce.log", f"[pcgeval] reproduce.sh started at {at}\nit ran\n")
    write_text(attempt / "results.json", "{}")
    for name, seconds in (("reproduce.log", 0), ("README.md", -50), ("results.json", -50 if old else 50)):
        os.utime(attempt / name, (LONG_AGO + seconds, LONG_AGO + seconds))
    figure = by_id(simple(attempt, ScriptedModel()))["figure"]
    assert figure.valid_score
    assert (figure.judge_metadata.usage.grade.calls, figure.score == 0) in (
        [(0, True)] if old else [(1, True), (1, False)]
    )


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
    write_run(attempt, LONG_AGO, results={"old.json": 1, "brought.csv": 5000, "new.json": -1, "now.csv": 0})
    output = simple(attempt, ScriptedModel())
    assert files_of(output, "figure") == ("README.md", "new.json", "now.csv")
    assert files_of(output, "code") == ("README.md", "new.json", "old.json")
    assert any("came with the submission" in warning for warning in output.warnings)
    whole = files_of(simple(attempt, ScriptedModel(), max_depth=1), "root")
    assert "brought.csv" not in whole
    assert "now.csv" in whole
    (attempt / "reproduce.log").unlink()  # a run all the same
    assert by_id(simple(attempt, ScriptedModel()))["figure"].judge_metadata.usage.grade.calls == 1


def test_without_the_time_of_a_run_that_of_the_log_counts(attempt):
    write_run(attempt, LONG_AGO, keeps_time=False, results={"old.json": 5000, "new.json": 0, "beside.json": 1})
    output = simple(attempt, ScriptedModel())
    assert files_of(output, "figure") == ("README.md", "new.json")
    assert any("There is no reproduce.log.creation_time" in warning for warning in output.warnings)
    os.utime(attempt / "reproduce.sh", (LONG_AGO + 3, LONG_AGO + 3))  # as in a checkout
    assert files_of(simple(attempt, ScriptedModel()), "figure") == ("README.md", "beside.json", "new.json")


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
    assert files_of(output, "figure") == ("README.md", "new.json")


@pytest.mark.parametrize("judge", ["dummy", "random", "checks", "simple"])
def test_the_blacklist_is_looked_at_whoever_judges(attempt, judge, monkeypatch):
    def graded():
        return simple(attempt, ScriptedModel()) if judge == "simple" else grade(attempt, judge)

    assert graded().blacklist is None
    write_text(attempt.parent / "data/papers/toy/blacklist.txt", "https://github.com/them/code\n")
    assert graded().blacklist == "none of 1 blacklisted addresses is named"
    write_text(attempt / "get.sh", "git clone http://www.github.com/them/code.git")
    output = graded()
    assert (output.blacklist, output.is_blacklisted) == ("'get.sh' names https://github.com/them/code", True)
    assert any("blacklist.txt: 'get.sh' names" in warning for warning in output.warnings)
    assert judge_output_from_json(json.loads(to_json(output.to_json()))) == output
    monkeypatch.setattr("pcgeval.checks.paper_checks.MAX_READ_BYTES", 5)
    output = graded()  # what nobody looked at is no proof
    assert ("not all of the submission was looked through" in output.blacklist, output.is_blacklisted) == (True, False)
    assert any("blacklist.txt: not all" in warning for warning in output.warnings)


def test_checks_of_a_side_file_decide_their_leaves_and_nothing_is_asked_again(attempt):
    assert simple(attempt, ScriptedModel()).checks_sha256 is None
    beside, mine = attempt.parent / "data/papers/toy/checks.yaml", attempt.parent / "mine.yaml"
    write_text(beside, "code: {name: file_exists, arguments: {path: README.md}}")
    write_text(mine, "data: {name: file_exists, arguments: {path: none}}")
    unasked = ScriptedModel()
    output, other = simple(attempt, unasked), simple(attempt, unasked, checks_file=mine)
    assert by_id(output)["code"].judge_metadata.check == "file_exists"
    assert (by_id(other)["data"].score, by_id(other)["code"].judge_metadata.check) == (0.0, None)
    assert len(output.checks_sha256) == 64
    assert other.checks_sha256 != output.checks_sha256
    assert unasked.requests == []


def test_a_cancelled_caller_makes_no_further_call(attempt):
    async def cancelled(model):
        task = asyncio.create_task(pcgeval.run_judge(attempt, "toy", completer_config=model))
        await asyncio.to_thread(wait_until, lambda: server.asked)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    wide = node("root", 1, *(leaf(f"leaf-{number}") for number in range(99)))
    write_text(attempt.parent / "data/papers/toy/rubric.json", json.dumps(wide))
    with SlowJudgeServer(0.05) as server:
        asyncio.run(cancelled(MODEL.model_copy(update={"host": server.address})))
        time.sleep(0.5)
        asked = len(server.asked)
        time.sleep(0.2)
        assert len(server.asked) == asked < 99


def test_exchanges_that_are_not_to_be_kept_leave_nothing(attempt):
    before = sorted(attempt.parent.rglob("*"))
    simple(attempt, ScriptedModel(), FakeComputer(), CallFiles(log=None))
    assert sorted(attempt.parent.rglob("*")) == before
