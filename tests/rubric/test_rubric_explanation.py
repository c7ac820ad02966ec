"""One grade from the root to a leaf: the shares add up, and whatever a judge noted is read without harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import leaf, node, rubric, rubrics

from pcgeval.rubric.explanation import NodeShare, explain
from pcgeval.rubric.grades import GradeError, JudgeOutput, Verdict, grade_tree, graded_task_from_json
from pcgeval.rubric.record import JudgeRecord
from pcgeval.rubric.text import explanation_lines, share_lines

ESCAPE = "\x1b[2J\x07"
SMALL = rubric(node("root", 1, node("in", 3, leaf("a", 2), leaf("b", 1)), leaf("c", 1), leaf("d", 4)))
SCORES = {"a": 1.0, "b": 0.5, "c": 0.0, "d": None}
NOTED = JudgeRecord.model_validate(
    {
        "files": {
            "offered": ["main.py", "README.md", "x.txt"],
            "num_offered": 3,
            "picked": ["main.py", "README.md"],
            "notes": {"main.py": "cut"},
            "refused": [{"name": "data.bin", "reason": "binary"}],
            "how": "",
        },
        "votes": [
            {
                "score": 1.0,
                "explanation": "it is there",
                "reason": None,
                "answer": "# Reality\nIt is there.\n# Score\n1",
            },
            {"score": None, "explanation": "", "reason": "two scores", "answer": f"0 or 1{ESCAPE}"},
        ],
        "agreement": 1.0,
        "usage": {
            "rank": {"calls": 1, "prompt_tokens": 100, "output_tokens": 10, "seconds": 1.5},
            "grade": {"calls": 2, "prompt_tokens": 900, "output_tokens": 80, "seconds": 4.0},
            "parse": {"calls": 0, "prompt_tokens": 0, "output_tokens": 0, "seconds": 0.0},
        },
        "reason": None,
    }
)


def explanation_of(output, way):
    return "\n".join(explanation_lines(output, way))


def shares_of(output):
    return "\n".join(share_lines(output))


def graded(noted=None):
    return grade_tree(SMALL, lambda each: Verdict(SCORES[each.id], f"why {each.id}", (noted or {}).get(each.id)))


@given(rubrics, st.randoms(use_true_random=False))
def test_what_the_leaves_add_is_the_score(task, luck):
    tree = grade_tree(task, lambda _: Verdict(luck.choice([None, 0.0, 0.3, 1.0]), ""))
    parts = [part for part in NodeShare.of_root(tree).walk() if part.node.is_leaf]
    assert sum(part.contribution for part in parts) == pytest.approx(tree.score)
    assert sum(part.share for part in parts) <= 1 + 1e-9  # less where all sub-tasks of a node weigh nothing


@given(rubrics)
def test_a_share_is_what_the_score_loses_with_the_leaf(task):
    """The definition: let all leaves pass but one."""
    tree = grade_tree(task, lambda _: Verdict(1.0, ""))
    for part in [part for part in NodeShare.of_root(tree).walk() if part.node.is_leaf][:4]:
        without = grade_tree(task, lambda each, path=part.node.path: Verdict(float(each.path != path), ""))
        assert part.share == pytest.approx(tree.score - without.score)


def test_parts_come_in_the_order_of_the_rubric():
    assert [part.node.id for part in NodeShare.of_root(graded()).walk()] == ["root", "in", "a", "b", "c", "d"]
    shares = {part.node.id: part.share for part in NodeShare.of_root(graded()).walk()}
    assert shares == pytest.approx({"root": 1, "in": 3 / 8, "a": 1 / 4, "b": 1 / 8, "c": 1 / 8, "d": 1 / 2})


def test_the_way_leads_from_the_root_to_the_leaf():
    assert [part.node.id for part in explain(graded(), "root/in/b")] == ["root", "in", "b"]
    assert [part.node.id for part in explain(graded(), "b")] == ["root", "in", "b"]
    assert [part.node.id for part in explain(graded(), "root")] == ["root"]


def test_a_path_that_is_not_there_gets_a_suggestion():
    with pytest.raises(GradeError, match="Did you mean root/in/b"):
        explain(graded(), "root/inn/b")
    twins = rubric(node("root", 1, node("x", 1, leaf("a")), node("y", 1, leaf("a"))))
    with pytest.raises(GradeError, match="root/x/a, root/y/a"):
        explain(grade_tree(twins, lambda _: Verdict(1.0, "")), "a")


def test_the_text_says_what_decided_the_leaf():
    output = JudgeOutput("simple", graded({"a": NOTED}), model="m:1", model_digest="d" * 64, prompt_version="v3")
    text = explanation_of(output, explain(output.graded_task_tree, "a"))
    for words in (
        "by the judge simple with the model m:1",
        f"model digest {'d' * 64}, prompts v3",
        "1 without a grade, which count as 0; if they had passed, the score would be 0.812",
        "→ 0.833 × weight 3, 37.5 % of all: in",
        "-----",
        "It decides 25.00 % of the whole and adds 0.2500 to its score.",
        "Why: why a",
        "Files it was shown, 2 of 3: main.py, README.md",
        "main.py: cut",
        "not looked at: data.bin, binary",
        "Vote 1 of 2: 1.000",
        "| # Reality",
        "Vote 2 of 2: ----- two scores",
        "grade: 2 calls, 900 tokens read and 80 written, 4.0 s of the model's time",
    ):
        assert words in text
    assert "\x1b" not in text
    assert "parse:" not in text


def test_a_leaf_without_a_grade_says_so():
    output = JudgeOutput("simple", graded())
    assert "It has no grade and counts as 0" in explanation_of(output, explain(output.graded_task_tree, "d"))


def test_a_guess_is_announced_before_anything_else():
    output = JudgeOutput("heuristic", graded(), guess=0.2, warnings=(f"No leaf could be graded{ESCAPE}",))
    first = shares_of(output).splitlines()[0]
    assert first.startswith("WARNING: No leaf could be graded")
    assert "\x1b" not in first


def test_the_whole_tree_has_a_line_a_node():
    lines = shares_of(JudgeOutput("checks", graded())).splitlines()
    assert lines[-6:] == [
        "0.312  100.0 %  root",
        "0.833   37.5 %  root/in",
        "1.000   25.0 %  root/in/a",
        "0.500   12.5 %  root/in/b",
        "0.000   12.5 %  root/c",
        "-----   50.0 %  root/d",
    ]


def test_the_records_of_people_and_checks_are_read():
    values = {
        "author": "Ada",
        "date": "2026-11-21",
        "history": [{"score": 0.0, "author": "Bo", "date": None, "reason": "missed it"}],
    }
    tree = read_with(values)
    (earlier,) = tree.judge_metadata.history
    assert (tree.judge_metadata.author, tree.judge_metadata.date) == ("Ada", "2026-11-21")
    assert (earlier.score, earlier.author, earlier.date, earlier.reason) == (0.0, "Bo", None, "missed it")
    assert tree.to_json()["judge_metadata"] == values
    check = read_with({"check": "readme_length", "arguments": {"at_least_words": 20}})
    assert check.judge_metadata.check_call == "readme_length(at_least_words=20)"


def read_with(metadata):
    """Read a graded leaf that has some metadata in its file."""
    leaf_value = graded().sub_tasks[1].to_json()
    return graded_task_from_json({**leaf_value, "judge_metadata": metadata})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "files",
                    "picked",
                    "notes",
                    "refused",
                    "votes",
                    "usage",
                    "rank",
                    "calls",
                    "check",
                    "arguments",
                    "history",
                ]
            ),
            below,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_no_metadata_breaks_the_reading_of_a_grade(metadata):
    tree = graded().to_json()
    tree["sub_tasks"][0]["sub_tasks"][0]["judge_metadata"] = metadata
    output = JudgeOutput("other", graded_task_from_json(tree))
    assert output.token_usage.tokens >= 0
    text = explanation_of(output, explain(output.graded_task_tree, "root/in/a"))
    assert all(character.isprintable() for character in text.replace("\n", ""))
