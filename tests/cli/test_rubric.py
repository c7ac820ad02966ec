"""`pcgeval rubric ...` as a person types it."""

import json

import pytest
from rubric_trees import leaf, node, rubric

from pcgeval.cli.main import main
from pcgeval.core.files import write_json, write_text
from pcgeval.judge.human import read_human_grades
from pcgeval.rubric.grades import JudgeOutput, Verdict, grade_tree
from pcgeval.rubric.record import JudgeRecord

TASK = rubric(node("root", 1, leaf("a"), leaf("b", 3)))
RECORD = JudgeRecord.model_validate(
    {
        "files": {
            "num_offered": 3,
            "picked": ["main.py", "README.md"],
            "notes": {"main.py": "cut"},
            "refused": [{"name": "data.bin", "reason": "binary"}],
        },
        "votes": [
            {"score": 1.0, "explanation": "it is there", "answer": "# Reality\nIt is there.\n# Score\n1"},
            {"score": None, "reason": "two scores", "answer": "0 or 1\x1b[2J\x07"},
        ],
        "agreement": 1.0,
        "usage": {"grade": {"calls": 2, "prompt_tokens": 900, "output_tokens": 80, "seconds": 4.0}},
    }
)


def write_grading(path, a, b, record=None, **more):
    scores = {"a": a, "b": b}
    tree = grade_tree(TASK, lambda leaf_: Verdict(scores[leaf_.id], f"because {leaf_.id}", record))
    write_json(path, JudgeOutput("dummy", tree, **more).to_json())
    return path


@pytest.fixture
def gradings(tmp_path):
    return write_grading(tmp_path / "a.json", 1.0, 0.0), write_grading(tmp_path / "b.json", 1.0, None)


@pytest.fixture
def rubric_command(capsys):
    def run(*arguments, code=0):
        assert main(["rubric", *map(str, arguments)]) == code
        printed = capsys.readouterr()
        if code == 2:
            return printed.err
        return json.loads(printed.out) if {"--json", "convert"} & {*arguments} else printed.out

    return run


def test_show_prints_criteria_and_not_ids(gradings, tmp_path, rubric_command):
    out = rubric_command("show", gradings[0])
    assert "0.250  100.0 %  All of root.\n1.000   25.0 %    1  Do a.\n" in out
    out = rubric_command("show", write_grading(tmp_path / "none.json", None, None))
    assert "\n\n1 leaf without a grade: because a\n1 leaf" in out
    values = rubric_command("show", gradings[0], "--json")
    assert values["judge_type"] == "dummy"
    assert [(part["number"], part["share"]) for part in values["parts"]] == [("", 1), ("1", 0.25), ("2", 0.75)]


@pytest.mark.parametrize("name", ["2", "b", "root/b"])
def test_a_criterion_is_named_by_its_number_or_path(gradings, rubric_command, name):
    out = rubric_command("show", gradings[1], "--leaf", name)
    for part in ("-----", "if they had passed, the score would be 1.000", "75.00 % of the whole", "Why: because b"):
        assert part in out
    values = rubric_command("show", gradings[1], "--leaf", name, "--json")
    assert [(part["path"], part["valid_score"]) for part in values["way"]] == [("root", True), ("root/b", False)]
    assert values["node"]["explanation"] == "because b"


def test_the_judges_record_is_shown_without_control_characters(tmp_path, rubric_command):
    model = {"model": "m:1", "model_digest": "d" * 64, "prompt_version": "v3", "warnings": ("only\x1b[2J a guess",)}
    out = rubric_command("show", write_grading(tmp_path / "g.json", 1.0, 0.0, RECORD, **model), "--leaf", "1")
    for part in (
        "WARNING: only",
        f"model digest {'d' * 64}, prompts v3",
        "2 of 3: main.py, README.md",
        "data.bin, binary",
        "| # Reality",
        "Vote 2 of 2: ----- two scores",
        "grade: 2 calls, 900 tokens read and 80 written, 4.0 s",
    ):
        assert part in out
    assert not {"\x1b", "\x07"} & set(out)


def test_agreement_names_what_it_leaves_out(gradings, rubric_command):
    out = rubric_command("agreement", *gradings)
    assert "compared 1 of 2 leaves" in out
    assert "not graded in B: 1\n    Do b." in out
    values = rubric_command("agreement", *gradings, "--json")
    assert values["uncompared"]["invalid_in_b"] == ["root/b"]
    assert (values["resamples"], values["seed"], values["overall"]["kappa"]["value"]) == (1000, 0, None)


def test_agreement_of_folders_pairs_by_name(tmp_path, rubric_command):
    for folder, b in (("human", 0.0), ("model", 1.0)):
        write_grading(tmp_path / folder / "x" / "grade.json", 1.0, b)
        write_grading(tmp_path / folder / "y.json", 0.0, 0.0)
    out = rubric_command("agreement", tmp_path / "human", tmp_path / "model")
    assert "compared 4 of 4 leaves" in out
    assert "A 0.00  B 1.00  x/grade.json: Do b." in out
    (tmp_path / "model" / "y.json").unlink()
    assert "Only one has y.json" in rubric_command("agreement", tmp_path / "human", tmp_path / "model", code=2)


def test_faults_name_the_file_or_the_criterion(gradings, tmp_path, rubric_command):
    (tmp_path / "bad.json").write_text('{"id": 3}')
    for arguments in (("show", tmp_path / "bad.json"), ("agreement", gradings[0], tmp_path / "bad.json")):
        assert "bad.json" in rubric_command(*arguments, code=2)
    assert "Did you mean root/a" in rubric_command("show", gradings[0], "--leaf", "roott/a", code=2)


def test_leaves_lists_the_criteria_with_shares_and_checks_and_its_form_becomes_human_grades(tmp_path, rubric_command):
    path, checks = tmp_path / "rubric.json", tmp_path / "checks.yaml"
    write_json(path, node("root: 1", 1, leaf("a #x"), leaf("ü'\"", 3)))
    assert " 75.00 %  root: 1/ü'\"  (Code Development)" in rubric_command("leaves", path)
    rows = rubric_command("leaves", path, "--json")
    assert [row["share"] for row in rows] == [0.25, 0.75]
    form = rubric_command("leaves", path, "--form")
    paths = [row["path"] for row in rows]
    filled = form.replace("score:", "score: 1").replace("author:", "author: Ada").replace("reason:", "reason: x")
    write_text(tmp_path / "grades.yaml", filled)
    assert list(read_human_grades(tmp_path / "grades.yaml", paths)) == paths
    checks.write_text('"a #x": {name: reproduce_succeeded}')
    assert "check reproduce_succeeded" in rubric_command("leaves", path)


def test_a_grade_of_paperbench_is_shown_compared_and_converted(gradings, tmp_path, rubric_command):
    value = rubric_command("convert", gradings[1])
    assert (value["score"], value["num_invalid_leaf_nodes"], value["graded_at"][:4]) == (0.25, 1, "1970")
    output = tmp_path / "grader_output.json"
    write_json(output, {"judge_output": value})
    assert "Why: because b" in rubric_command("show", output, "--leaf", "b")
    assert rubric_command("convert", output, "--format", "pcgeval")["score_bounds"] == [0.25, 1.0]


def test_a_grade_becomes_an_eval_log_of_inspect(tmp_path, rubric_command):
    grade = write_grading(tmp_path / "g.json", 1.0, None, RECORD, model="m:1")
    log = rubric_command("convert", grade, "--format", "inspect")
    assert (log["version"], log["status"], log["eval"]["model"], log["plan"]) == (2, "success", "m:1", {})
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (2, 1)
    (score,) = log["results"]["scores"]
    metrics = {name: metric["value"] for name, metric in score["metrics"].items()}
    assert metrics == {"score": 0.25, "lowest": 0.25, "highest": 1.0}
    a, b = log["samples"]
    assert [(sample["id"], sample["scores"]["dummy"]["value"]) for sample in (a, b)] == [("root/a", 1.0), ("root/b", 0)]
    assert ("error" in a, b["error"]["message"]) == (False, "because b")
    assert [message["content"] for message in a["messages"]] == ["Do a.", *(vote.answer for vote in RECORD.votes)]


@pytest.mark.parametrize("listed", ["\ufeffx_1\n\n y_1 \n", '{"flagged_run_ids": ["x_1"], "total_runs": 2}', "g/x_1"])
def test_disqualified_runs_are_named_and_out_of_the_table(tmp_path, rubric_command, listed):
    for name, b in (("x_1", 1.0), ("x_2", 0.0)):
        write_grading(tmp_path / "runs/g" / name / "grade.json", 1.0, b)
    (tmp_path / "list.txt").write_text(listed)
    arguments = ["table", tmp_path / "runs", "--disqualified", tmp_path / "list.txt"]
    assert "g/x_1: disqualified" in rubric_command(*arguments, code=1)
    (row,) = rubric_command(*arguments, "--json", code=1)["rows"]
    assert (row["n"], row["scores"]) == (1, [0.25])
    (tmp_path / "list.txt").write_text("{}")
    assert "flagged_run_ids" in rubric_command(*arguments, code=2)
