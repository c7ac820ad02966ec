"""Judges measured on submissions that people graded, in PaperBench's layout of JudgeEval."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from rubric_trees import CODE, RESULT, RUN, leaf, node
from scripted_judge import DIGEST, ScriptedModel, dies_after

from pcgeval.cli.main import main
from pcgeval.core.files import write_text
from pcgeval.core.params import Model
from pcgeval.judge.judge_eval import JudgeEvalError, evaluate_judges, read_examples
from pcgeval.judge.settings import JudgeSettings

REFERENCE = Path(os.environ.get("PCGEVAL_REFERENCE", Path(__file__).parents[3] / "shared" / "reference"))
PUBLISHED = REFERENCE / "paperbench" / "judge_eval"
MODEL = Model(backend="ollama", name="m:1", digest=DIGEST, options={"temperature": 0.5})
DATA = Path("data/judge_eval")
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"


def graded(value, scores):
    """Return a rubric with people's grades in PaperBench's form; a leaf's may be its own keys."""
    given = scores.get(value["id"], 0)
    grades = given if isinstance(given, dict) else {"score": float(given), "valid_score": True}
    below = [graded(task, scores) for task in value["sub_tasks"]]
    return {**value, "explanation": "as I see it", "judge_metadata": None, **grades, "sub_tasks": below}


RUBRIC = node(
    "root",
    1,
    leaf("a", 1, CODE),
    leaf("b", 1, CODE),
    node("inner", 2, leaf("c", 1, RUN), leaf("d", 1, "Result Match"), leaf("e", 1, "Subtree")),
)


@pytest.fixture(autouse=True)
def data():
    """Two examples of one paper, and one of another with the file of grades beside its submission."""
    for example, grades, scores in (
        ("toy/0", "grading/", {"a": 1, "c": 1}),
        ("toy/1", "grading/", {"b": {"score": 1, "valid_score": 1.0}, "d": {"score": 1.0}}),
        ("other", "", {"a": {"score": 0.0, "valid_score": 0.0}, "e": 1}),
    ):
        write_text(DATA / example / f"{grades}expected_result.json", json.dumps(graded(RUBRIC, scores)))
        write_text(DATA / example / "submission/README.md", f"We did {example}.")
        write_text(DATA / example / "submission/main.py", "print(1)")
    for paper in ("toy", "other"):
        write_text(Path(f"data/papers/{paper}/rubric.json"), json.dumps(node("today", 1, leaf("x"))))
        write_text(Path(f"data/papers/{paper}/paper.md"), "# A toy")


def settings(judge="simple", **more):
    model = {"model": MODEL} if judge == "simple" else {}
    return JudgeSettings.checked({"judge": judge, **model, **more})


def evaluate(judges, backend=None, only=()):
    return evaluate_judges(read_examples(DATA, only), judges, Path("out"), open_backend=lambda _: backend)


def test_examples_are_read_and_their_leaves_pooled():
    assert [(example.id, example.paper_id) for example in read_examples(DATA)] == [
        ("other", "other"),
        ("toy/0", "toy"),
        ("toy/1", "toy"),
    ]
    (figures,) = evaluate({"dummy": settings("dummy")})
    pooled = figures.agreement
    assert pooled.uncompared["invalid_in_b"] == ["other: root/a"]
    assert vars(pooled.overall.confusion) == {"both_pass": 5, "only_a": 9, "only_b": 0, "both_fail": 0}
    sizes = {name: group.leaves for name, group in pooled.by_category.items()}
    assert sizes == {CODE: 5, RUN: 3, RESULT: 3, "no category": 3}
    # scikit-learn's precision_score(people, judge, average="macro", zero_division=0) and so on
    assert pooled.overall.precision.value == pytest.approx(5 / 14 / 2)
    assert pooled.overall.recall.value == pytest.approx(1 / 2)
    assert pooled.overall.macro_f1.value == pytest.approx(2 * 5 / (14 + 5) / 2)


def test_a_killed_evaluation_goes_on_and_pays_for_nothing_twice():
    whole, killed, again = ScriptedModel(), ScriptedModel(fails=dies_after(11)), ScriptedModel()
    (partial,) = evaluate({"m": settings()}, killed)
    assert partial.invalid > 0
    (resumed,) = evaluate({"m": settings()}, again)
    shutil.rmtree(".pcgeval")
    (expected,) = evaluate({"m": settings()}, whole)
    assert resumed.agreement == expected.agreement
    assert resumed.usage.calls == expected.usage.calls == len(whole.requests) == len(again.requests) + 11
    assert json.loads(Path("out/m/toy_0.json").read_text())["num_leaf_nodes"] == 5


def test_checks_beside_the_paper_are_a_judge_too():
    write_text(Path("data/papers/toy/rubric.json"), json.dumps(node("today", 1, leaf("a"), leaf("x"))))
    write_text(Path("data/papers/toy/checks.yaml"), "a: {name: file_exists, arguments: {path: README.md}}\n")
    (figures,) = evaluate({"checks": settings("checks")})
    assert vars(figures.agreement.overall.confusion) == {"both_pass": 1, "only_a": 1, "only_b": 0, "both_fail": 0}


def test_what_an_example_lacks_is_named_before_anything_is_paid_for():
    (DATA / "toy/0/submission").rename(DATA / "submission")
    write_text(DATA / "toy/1/submission/main.py", LFS)
    Path("data/papers/other/paper.md").unlink()
    examples, model = ["toy/0", "toy/1", "other"], ScriptedModel()
    with pytest.raises(JudgeEvalError) as error:
        evaluate({"m": settings()}, model, examples)
    for fault in ("toy/0: no folder", "main.py is only a pointer to Git LFS", "paper.md: is missing", "papers_dir"):
        assert fault in str(error.value)
    assert not model.requests
    evaluate({"random": settings("random")}, only=examples)


def test_the_command_reads_tar_files_and_tabulates(capsys):
    submission = DATA / "toy/0/submission"
    with tarfile.open(f"{submission}.tar", "w") as archive:
        archive.add(submission, "submission")
    submission.rename(DATA / "toy/0/other_submission")
    arguments = ["rubric", "judge-eval", str(DATA), "--judge", "checks", "--judge", "dummy"]
    arguments += ["--example", "toy/0", "--example", "other", "--max-invalid", "10"]
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
    write_text(Path(f"{submission}.tar"), LFS)
    assert main(arguments) == 2
    assert "Git LFS" in capsys.readouterr().err
    Path(f"{submission}.tar").unlink()  # the other submission is graded where there is no other
    assert main([*arguments, "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ((), "models with --model"),
        (("--judge", "human"), "'human' is not one of"),
        (("--judge", "random", "--out", "data"), "Name a new or empty folder"),
        (("--judge", "random", "--example", "toy/7"), "no example 'toy/7'. There: other, toy/0, toy/1"),
    ],
)
def test_what_cannot_be_is_refused(arguments, advice, capsys):
    assert main(["rubric", "judge-eval", str(DATA), *arguments]) == 2
    assert advice in " ".join(capsys.readouterr().err.split())


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="PaperBench's human grades are not here")
def test_the_published_trees_are_used_as_they_are():
    examples = read_examples(PUBLISHED)
    sizes = {example.id: len(example.expected.leaves) for example in examples}
    assert sizes == {"rice": 361, "semantic-self-consistency": 79}
    (figures,) = evaluate_judges(examples, {"random": settings("random")}, Path("out"))
    assert (figures.agreement.overall.leaves, len(figures.agreement.criteria)) == (440, 440)
    assert set(figures.agreement.by_category) == {CODE, RUN, RESULT}
