"""Grading an attempt to reproduce a paper from Python, as others call it."""

import asyncio
import os
import shutil
import tarfile
import time
from pathlib import Path

import pytest
from judged_attempt import ATTEMPT, MODEL, PAPER, FakeComputer, by_id, graded, write_files, write_paper
from model_servers import ScriptedModel, SlowJudgeServer, dies_after, wait_until
from rubric_trees import CODE, RESULT, RUN, leaf, node

from pcgeval import run_judge
from pcgeval.cli.main import main
from pcgeval.core.files import write_text
from pcgeval.formats.params import Model
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import JudgeSettings

ACQUIRE = {"finegrained_task_category": "Dataset and Model Acquisition"}
RAN = leaf("ran", 1, RUN, check={"name": "reproduce_succeeded"})
RESULTS = node("results", 2, leaf("figure", 1, RESULT), leaf("data", 1, CODE, **ACQUIRE))
RUBRIC = node("root", 1, leaf("code", 1, CODE), RAN, RESULTS)
LONG_AGO = 1_700_000_000


@pytest.fixture(autouse=True)
def attempt():
    write_paper(RUBRIC)
    write_files({"README.md": "We did it.", "reproduce.sh": "true"})


def simple(**more):
    return graded(ScriptedModel(), **more)


def files_of(output, name):
    return by_id(output)[name].judge_metadata.files.offered


@pytest.mark.parametrize("top", ["submission", "my-attempt", "."])
def test_a_tar_file_is_graded_as_the_folder_in_it(top):
    with tarfile.open("submission.tar", "w") as archive:
        archive.add(ATTEMPT, top)
    assert simple(submission="submission.tar", calls=CallFiles(log=None)) == simple(calls=CallFiles(log=None))


def test_the_command_names_the_submission_of_a_run_that_it_grades_and_follows_no_link(capsys):
    def told(submission):
        code = main(["grade", submission, "--paper", "toy", "--judge", "checks", "--set", "rubric.max_width=1"])
        return code, capsys.readouterr().err

    write_text(Path("run/status.json"), "{}")
    packed = Path("run/submission.tar")
    with tarfile.open(packed, "w") as archive:
        archive.add(ATTEMPT, "submission")
    code, err = told("run")
    assert (code, f"{packed} is graded" in err) == (0, True)
    packed.symlink_to(packed.rename("other.tar").resolve())
    assert "is graded" not in told("run")[1]
    code, err = told(shutil.make_archive("attempt", "zip", ATTEMPT))
    assert (code, "ZIP" in err) == (2, True)


def test_the_computer_runs_a_copy_and_its_results_are_judged():
    computer, before = FakeComputer(), sorted(Path().rglob("*"))
    output = simple(computer=computer, calls=CallFiles(log=None))
    assert sorted(Path().rglob("*")) == before
    assert by_id(output)["ran"].score == 1.0
    assert files_of(output, "figure") == ("README.md", "results.json")
    assert (computer.runs, output.reproduction.exit_code) == (1, 0)


@pytest.mark.parametrize(
    ("exit_code", "ignore_checks", "expected"),
    [
        (0, True, ("heuristic", 0.5, 4)),
        (1, True, ("heuristic", 0.2, 4)),
        (None, True, ("heuristic", 0.2, 4)),
        (0, False, ("simple", 0.25, 3)),  # its check is a grade
    ],
)
def test_run_judge_alone_guesses_where_no_leaf_could_be_graded(exit_code, ignore_checks, expected):
    pytest.importorskip("openai", reason="the extra openai is not installed")
    computer = FakeComputer(exit_code)
    model = Model(backend="openai", name="m", base_url="http://127.0.0.1:9/v1")  # where no server answers
    settings = JudgeSettings(judge="simple", model=model, ignore_checks=ignore_checks)
    output = asyncio.run(run_judge(ATTEMPT, "toy", computer=computer, settings=settings))
    plain = grade_submission(ATTEMPT, "toy", settings, computer)
    assert (output.judge_type, output.score, output.num_invalid_leaf_nodes) == expected
    assert (plain.judge_type, plain.score) == ("simple", 0.0 if ignore_checks else 0.25)
    assert ("is only a guess" in output.warnings[0]) == ignore_checks


def test_the_guess_names_why_the_grading_ended_and_not_the_commonest_reason_of_checks():
    pytest.importorskip("openai", reason="the extra openai is not installed")
    checked = {"check": {"name": "reproduce_succeeded"}}
    write_paper(node("root", 1, leaf("code", 1, CODE), *(leaf(f"ran-{number}", 1, RUN, **checked) for number in "123")))
    output = asyncio.run(
        run_judge(ATTEMPT, "toy", completer_config={"model": "m", "base_url": "http://127.0.0.1:9/v1"})
    )
    warning = output.warnings[0]
    assert (output.judge_type, output.score) == ("heuristic", 0.2)
    assert ("127.0.0.1:9" in warning, "was not run" in warning) == (True, False)


def test_a_run_is_kept_for_the_grading_that_goes_on_after_a_kill():
    def kills(number, _):
        if number == 3:
            raise KeyboardInterrupt

    ATTEMPT.joinpath(*["d"] * 120).mkdir(parents=True)
    computer, killed, backend = FakeComputer(), ScriptedModel(fails=kills), ScriptedModel()
    with pytest.raises(KeyboardInterrupt):
        graded(killed, computer=computer)
    output = graded(backend, computer=computer)
    assert (computer.runs, output.num_invalid_leaf_nodes) == (1, 0)
    assert len(backend.requests) + len(killed.requests) - 1 == output.token_usage.total.calls
    assert not list(Path().rglob("results.json"))
    graded(ScriptedModel(fails=dies_after(0)), computer=computer, seed=1)  # after a whole grading it is made again
    assert computer.runs == 2
    write_text(ATTEMPT.joinpath(*["d"] * 64) / "new.py", "")  # as deep as the sandbox copies
    simple(computer=computer)
    assert computer.runs == 3
    dying = FakeComputer(dies=True)
    for runs in (1, 2):  # a run that did not end is made again
        with pytest.raises(KeyboardInterrupt):
            simple(computer=dying)
        assert dying.runs == runs


def test_the_present_folder_can_be_the_submission(monkeypatch):
    papers = PAPER.parent.resolve()
    monkeypatch.chdir(ATTEMPT)
    settings = JudgeSettings(judge="checks", papers_dir=papers)
    assert by_id(grade_submission(Path(), "toy", settings, FakeComputer()))["ran"].score == 1.0
    assert not list(Path().rglob("reproduction*"))


@pytest.mark.parametrize("target", ["x" * 4000, "/", "\udcff"])
def test_links_of_a_submission_prevent_nothing(target):
    write_files({"reproduce.log": "it ran\n"})
    for name in ("reproduce.sh", "reproduce.log"):
        (ATTEMPT / name).unlink()
        (ATTEMPT / name).symlink_to(target)
        graded(judge="checks")
    assert by_id(graded(judge="dummy"))["figure"].score == 1.0


def test_provided_resources_have_no_weight():
    code = {"judge": "dummy", "code_only": True, "resources_provided": True}
    assert graded(**code).score < graded(**code, propagate_zero_weights=True).score == 1


def write_run(*, time_file=True, **results):
    """Write what a run left: a log, perhaps when it began, and results that are so many seconds older."""
    ages = {"README.md": 9000, "reproduce.log": 0, **{f"{name}.json": age for name, age in results.items()}}
    write_files({"reproduce.log": "it ran\n", **{f"{name}.json": "{}" for name in results}})
    if time_file:
        write_files({"reproduce.log.creation_time": f"{LONG_AGO}\n"})
    for name, age in ages.items():
        os.utime(ATTEMPT / name, (LONG_AGO - age, LONG_AGO - age))


def test_results_older_than_a_run_of_paperbench_are_never_offered():
    write_run(old=1, brought=5000, new=-1, now=0)
    output = simple()
    assert files_of(output, "figure") == ("README.md", "new.json", "now.json")
    assert files_of(output, "code") == ("README.md", "brought.json", "new.json", "now.json", "old.json")
    assert any("came with the submission" in warning for warning in output.warnings)
    (ATTEMPT / "brought.json").rename(ATTEMPT / "brought.csv")
    (ATTEMPT / "now.json").rename(ATTEMPT / "now.csv")
    assert {"brought.csv", "now.csv"} & set(files_of(simple(max_depth=1), "root")) == {"now.csv"}
    (ATTEMPT / "reproduce.log").unlink()  # a run all the same
    assert by_id(simple())["figure"].judge_metadata.usage.grade.calls == 1


@pytest.mark.parametrize("time", [None, b"soon", b"-1", b"1" * 50, b"\xff"])
def test_without_the_time_of_a_run_that_of_the_log_counts(time):
    write_run(time_file=False, old=5000, new=0, beside=1)
    if time is not None:
        (ATTEMPT / "reproduce.log.creation_time").write_bytes(time)
    output = simple()
    assert files_of(output, "figure") == ("README.md", "new.json")
    assert sum("creation_time" in warning for warning in output.warnings) == 1


@pytest.mark.parametrize("judge", ["dummy", "simple"])
def test_the_blacklist_is_looked_at_whoever_judges(judge, monkeypatch):
    def blacklisted():
        output = graded(ScriptedModel(), judge=judge)
        return output.blacklist, output.is_blacklisted

    write_text(PAPER / "blacklist.txt", "https://github.com/them/code\n")
    assert blacklisted() == ("none of 1 blacklisted addresses is named", False)
    write_files({"get.sh": "git clone http://www.github.com/them/code.git"})
    assert blacklisted() == ("'get.sh' names https://github.com/them/code", True)
    monkeypatch.setattr("pcgeval.checks.paper_checks.MAX_READ_BYTES", 5)
    unread, is_blacklisted = blacklisted()  # what nobody looked at is no proof
    assert (unread.startswith("not all of the submission was looked through"), is_blacklisted) == (True, False)


def test_a_cancelled_caller_makes_no_further_call():
    async def cancelled(model):
        task = asyncio.create_task(run_judge(ATTEMPT, "toy", completer_config=model))
        await asyncio.to_thread(wait_until, lambda: server.asked)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    write_paper(node("root", 1, *(leaf(f"leaf-{number}") for number in range(99))))
    with SlowJudgeServer(0.05) as server:
        asyncio.run(cancelled(MODEL.model_copy(update={"host": server.address})))
        time.sleep(0.3)
        asked = len(server.asked)
        time.sleep(0.2)
        assert len(server.asked) == asked < 99
