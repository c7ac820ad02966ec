"""Judges measured on submissions that people graded, in PaperBench's layout of JudgeEval."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from judged_attempt import MODEL
from model_servers import ScriptedModel, dies_after
from rubric_trees import CODE, RESULT, RUN, leaf, node

from pcgeval.cli.main import main
from pcgeval.core.files import write_text
from pcgeval.judge.settings import JudgeSettings
from pcgeval.judge.trust import JudgeEvalError, evaluate_judges, read_examples

DATA = Path("data/judge_eval")
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"


def graded(value, scores):
    """Return a rubric with people's grades in PaperBench's form; a leaf's may be its own keys."""
    given = scores.get(value["id"], 0)
    grades = given if isinstance(given, dict) else {"score": float(given), "valid_score": True}
    below = [graded(task, scores) for task in value["sub_tasks"]]
    return {**value, "explanation": "as I see it", "judge_metadata": None, **grades, "sub_tasks": below}


INNER = node("inner", 2, leaf("c", 1, RUN), leaf("d", 1, "Result Match"), leaf("e", 1, "Subtree"))
RUBRIC = node("root", 1, leaf("a", 1, CODE), leaf("b", 1, CODE), INNER)


@pytest.fixture(autouse=True)
def data():
    for example, grades, scores in (
        ("toy/0", "grading/", {"a": 1, "c": 1}),
        ("toy/1", "grading/", {"b": {"score": 1, "valid_score": 1.0}, "d": {"score": 1.0}}),
        ("other", "", {"a": {"score": 0.0, "valid_score": 0.0}, "e": 1}),
    ):
        write_text(DATA / example / f"{grades}expected_result.json", json.dumps(graded(RUBRIC, scores)))
        write_text(DATA / example / "submission/README.md", f"We did {example}.")
        write_text(DATA / example / "submission/main.py", "print(1)")
    for paper in ("toy", "other"):
        folder = Path("data/papers", paper)
        write_text(folder / "rubric.json", json.dumps(node("today", 1, leaf("b"), leaf("x"))))
        write_text(folder / "checks.yaml", "b: {name: file_exists, arguments: {path: README.md}}\n")
        write_text(folder / "paper.md", "# A toy")


def settings(judge="simple", **more):
    model = {"model": MODEL} if judge == "simple" else {}
    return JudgeSettings.checked({"judge": judge, **model, **more})


def evaluate(judges, backend=None, only=()):
    return evaluate_judges(read_examples(DATA, only), judges, Path("out"), open_backend=lambda _: backend)


def test_examples_are_read_and_their_leaves_pooled():
    assert [example.id for example in read_examples(DATA)] == ["other", "toy/0", "toy/1"]
    figures, by_checks = evaluate({"dummy": settings("dummy"), "checks": settings("checks")})
    pooled = figures.agreement
    assert pooled.uncompared["invalid_in_b"] == ["other: root/a"]
    assert pooled.overall.confusion == {"both_pass": 5, "only_a": 9, "only_b": 0, "both_fail": 0}
    sizes = {name: group.leaves for name, group in pooled.by_category.items()}
    assert sizes == {CODE: 5, RUN: 3, RESULT: 3, "Subtree": 3}
    confusion = by_checks.agreement.overall.confusion  # the checks of today's rubric, by their leaves' ids
    assert confusion == {"both_pass": 1, "only_a": 2, "only_b": 0, "both_fail": 0}


def test_a_killed_evaluation_goes_on_and_pays_for_nothing_twice():
    whole, killed, again = ScriptedModel(), ScriptedModel(fails=dies_after(7)), ScriptedModel()
    (partial,) = evaluate({"m": settings()}, killed)
    assert partial.invalid > 0
    (resumed,) = evaluate({"m": settings()}, again)
    shutil.rmtree(".pcgeval")
    (expected,) = evaluate({"m": settings()}, whole)
    assert resumed.agreement == expected.agreement
    assert resumed.usage.calls == expected.usage.calls == len(whole.requests) == len(again.requests) + 7
    assert json.loads(Path("out/m/toy_0.json").read_text())["num_leaf_nodes"] == 5


def test_an_example_that_fails_is_named_and_stops_no_other():
    (DATA / "toy/2").mkdir()
    with pytest.raises(JudgeEvalError, match=r"toy/2: no grading/expected_result\.json"):
        read_examples(DATA)
    (DATA / "toy/0/submission").rename(DATA / "submission")
    write_text(DATA / "toy/1/submission/main.py", LFS)
    examples, model = ["toy/0", "toy/1", "other"], ScriptedModel()
    with pytest.raises(JudgeEvalError) as error:
        evaluate({"m": settings()}, model, examples)
    assert [fault.partition(": ")[0] for fault in error.value.faults] == ["m, toy/0", "m, toy/1"]
    for fault in ("submission: no folder", "main.py is only a pointer to Git LFS"):
        assert fault in str(error.value)
    assert list(json.loads(Path("out/results.json").read_text())["judges"]["m"]["scores"]) == ["other"]
    asked = len(model.requests)
    (DATA / "submission").rename(DATA / "toy/0/submission")
    evaluate({"m": settings()}, model, ["toy/0", "other"])
    assert len(model.requests) == 2 * asked  # the other one is finished


def test_the_command_reads_tar_files_and_tabulates(capsys):
    submission = DATA / "toy/0/submission"
    with tarfile.open(f"{submission}.tar", "w") as archive:
        archive.add(submission, "submission")
    submission.rename(DATA / "toy/0/other_submission")
    arguments = ["rubric", "judge-eval", str(DATA), "--judge", "checks", "--judge", "dummy"]
    arguments += ["--example", "toy/0", "--example", "other", "--set", "rubric.max_width=1"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "toy/0: other_submission is not graded" in shown.err
    for words in ("| judge  | category", "2 submissions that people graded, 10 leaves", "not graded in B: 1\n"):
        assert words in shown.out
    assert Path("judge_eval_results/results.md").read_text() == shown.out
    assert main([*arguments, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values == json.loads(Path("judge_eval_results/results.json").read_text())
    assert not list(Path(".pcgeval").rglob("submission"))
    Path(f"{submission}.tar").unlink()  # the other submission is graded where there is no other
    assert main([*arguments, "--dry-run"]) == 0


def test_an_unknown_example_is_refused(capsys):
    assert main(["rubric", "judge-eval", str(DATA), "--judge", "random", "--example", "toy/7"]) == 2
    assert "There: other, toy/0, toy/1" in " ".join(capsys.readouterr().err.split())
