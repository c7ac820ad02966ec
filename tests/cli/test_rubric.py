"""`pcgeval rubric ...` as a person types it."""

import json

import pytest
from rubric_trees import leaf, node, rubric

from pcgeval.cli.main import main
from pcgeval.core.files import write_json, write_text
from pcgeval.judge.grading import read_human_grades
from pcgeval.rubric.grades import JudgeRecord, Verdict, grade_tree
from pcgeval.rubric.output import JudgeOutput

TASK = rubric(node("root", 1, leaf("a"), leaf("b", 3)))
ANSWERS = ("# Reality\nIt is there.\n# Score\n1", "0 or 1\x1b[2J\x07")
RECORD = JudgeRecord.model_validate(
    {
        "files": {"num_offered": 3, "picked": ["main.py"], "refused": [{"name": "data.bin", "reason": "binary"}]},
        "votes": [{"score": 1.0, "answer": ANSWERS[0]}, {"score": None, "reason": "two scores", "answer": ANSWERS[1]}],
        "usage": {"grade": {"calls": 2, "prompt_tokens": 900, "output_tokens": 80, "seconds": 4.0}},
    }
)


def write_grading(path, a, b, record=None, **more):
    scores = {"a": a, "b": b}
    tree = grade_tree(TASK, lambda leaf_: Verdict(scores[leaf_.id], f"because {leaf_.id}", record))
    write_json(path, JudgeOutput("dummy", tree, **more).to_json())
    return path


@pytest.fixture
def grading(tmp_path):
    model = {"model": "m:1", "model_digest": "d" * 64, "prompt_version": "v3", "warnings": ("only\x1b[2J a guess",)}
    return write_grading(tmp_path / "grade.json", 1.0, None, RECORD, **model)


@pytest.fixture
def rubric_command(capsys):
    def run(*arguments, code=0):
        assert main(["rubric", *map(str, arguments)]) == code
        printed = capsys.readouterr()
        if code == 2:
            return printed.err
        return json.loads(printed.out) if {"--json", "convert"} & {*arguments} else printed.out

    return run


def test_show_prints_criteria_and_not_ids(grading, tmp_path, rubric_command):
    out = rubric_command("show", grading)
    assert "0.250  100.0 %  All of root.\n1.000   25.0 %    1  Do a.\n" in out
    values = rubric_command("show", grading, "--json")
    assert [(part["number"], part["share"]) for part in values["parts"]] == [("", 1), ("1", 0.25), ("2", 0.75)]
    for name in ("2", "b", "root/b"):
        out = rubric_command("show", grading, "--leaf", name)
        # the criterion stands at the head of what is said of it, below those above it
        assert "\n\n0.250  100.0 %  All of root.\n-----   75.0 %    2  Do b.\n\n       Do b.\n" in out
        for part in ("if they had passed, the score would be 1.000", "75.00 % of the whole", "Why: because b"):
            assert part in out
    assert "Did you mean root/a" in rubric_command("show", grading, "--leaf", "roott/a", code=2)
    (tmp_path / "bad.json").write_text('{"id": 3}')
    assert "bad.json" in rubric_command("show", tmp_path / "bad.json", code=2)


def test_the_judges_record_is_shown_without_control_characters(grading, rubric_command):
    out = rubric_command("show", grading, "--leaf", "1")
    for part in (
        "WARNING: only",
        "d" * 64,
        "1 of 3: main.py",
        "data.bin, binary",
        "| # Reality",
        "2 calls, 900 tokens",
    ):
        assert part in out
    assert "Vote 2 of 2: ----- two scores" in out
    assert not {"\x1b", "\x07"} & set(out)


def test_agreement_of_two_files_or_folders_names_what_it_leaves_out(tmp_path, rubric_command):
    for folder, b in (("human", 0.0), ("model", 1.0)):
        write_grading(tmp_path / folder / "x" / "grade.json", 1.0, b)
        write_grading(tmp_path / folder / "y.json", 0.0, None)
    folders = (tmp_path / "human", tmp_path / "model")
    out = rubric_command("agreement", *folders)
    assert "compared 3 of 4 leaves" in out
    assert "A 0.00  B 1.00  x/grade.json: Do b." in out
    values = rubric_command("agreement", *(folder / "y.json" for folder in folders), "--json")
    assert values["uncompared"]["invalid_in_b"] == ["root/b"]
    (tmp_path / "model" / "y.json").unlink()
    assert "Only one has y.json" in rubric_command("agreement", *folders, code=2)


def test_leaves_lists_the_criteria_with_shares_and_checks_and_its_form_becomes_human_grades(tmp_path, rubric_command):
    path = tmp_path / "rubric.json"
    write_json(path, node("root: 1", 1, leaf("a #x"), leaf("ü'\"", 3)))
    write_text(tmp_path / "checks.yaml", '"a #x": {name: reproduce_succeeded}')
    out = rubric_command("leaves", path)
    assert " 75.00 %  root: 1/ü'\"  (Code Development)" in out
    assert "check reproduce_succeeded" in out
    rows = rubric_command("leaves", path, "--json")
    assert [row["share"] for row in rows] == [0.25, 0.75]
    form = rubric_command("leaves", path, "--form")
    paths = [row["path"] for row in rows]
    filled = form.replace("score:", "score: 1").replace("author:", "author: Ada").replace("reason:", "reason: x")
    write_text(tmp_path / "grades.yaml", filled)
    assert list(read_human_grades(tmp_path / "grades.yaml", paths)) == paths


def test_a_grade_of_paperbench_is_shown_and_converted(grading, tmp_path, rubric_command):
    value = rubric_command("convert", grading)
    assert (value["score"], value["num_invalid_leaf_nodes"], value["graded_at"][:4]) == (0.25, 1, "1970")
    output = tmp_path / "grader_output.json"
    write_json(output, {"judge_output": value})
    assert "Why: because b" in rubric_command("show", output, "--leaf", "b")
    assert rubric_command("convert", output, "--format", "pcgeval")["score_bounds"] == [0.25, 1.0]


def test_a_grade_becomes_an_eval_log_of_inspect(grading, rubric_command):
    log = rubric_command("convert", grading, "--format", "inspect")
    assert (log["version"], log["status"], log["eval"]["model"]) == (2, "success", "m:1")
    metrics = log["results"]["scores"][0]["metrics"]
    assert {name: metric["value"] for name, metric in metrics.items()} == {"score": 0.25, "lowest": 0.25, "highest": 1}
    a, b = log["samples"]
    assert [(sample["id"], sample["scores"]["dummy"]["value"]) for sample in (a, b)] == [("root/a", 1.0), ("root/b", 0)]
    assert ("error" in a, b["error"]["message"]) == (False, "because b")
    assert [message["content"] for message in a["messages"]] == ["Do a.", *ANSWERS]


@pytest.mark.parametrize("listed", ["\ufeffx_1\n\n y_1 \n", '{"flagged_run_ids": ["x_1"], "total_runs": 2}', "g/x_1"])
def test_disqualified_runs_are_named_and_count_as_0(tmp_path, rubric_command, listed):
    for name, a, b in (("x_1", 0.711, 0.711), ("x_2", 0.331, 0.331), ("x_3", 0.529, 0.529)):
        write_grading(tmp_path / "runs/g" / name / "grade.json", a, b)
    (tmp_path / "list.txt").write_text(listed)
    arguments = ["table", tmp_path / "runs", "--disqualified", tmp_path / "list.txt"]
    assert "g/x_1: disqualified" in rubric_command(*arguments)
    (row,) = rubric_command(*arguments, "--json")["rows"]
    assert (row["n"], round(row["mean"], 3)) == (3, 0.287)
    (tmp_path / "list.txt").write_text("{}")
    assert "flagged_run_ids" in rubric_command(*arguments, code=2)
