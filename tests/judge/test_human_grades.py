from functools import partial

import pytest
from rubric_trees import RESULT, leaf, node, rubric

from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.judge.grading import judge_leaves
from pcgeval.judge.human import HumanGradesError, human_verdict, read_human_grades
from pcgeval.rubric.grades import JudgeOutput, Verdict
from pcgeval.rubric.record import JudgeRecord
from pcgeval.rubric.tree import leaves

TREE = rubric(node("root", 1, leaf("a"), leaf("b", 2, RESULT), leaf("c")))
PATHS = [each.path for each in leaves(TREE)]

YAML = """\
# graded on a Tuesday
- {path: root/a, score: 1, author: Ada, reason: It is there.}
- path: root/b
  score: 0.5
  author: Ada
  reason: >
    Half of it,
    as far as I see.
  date: 2026-03-01
- {path: root/a, score: 0, author: Bo, reason: 'It is not: look again.', date: 2026-03-02}
- {path: root/c, score: none, author: Bo, reason: I cannot open it.}
"""


def read(tmp_path, text, name="grades.yaml"):
    write_text(tmp_path / name, text)
    return read_human_grades(tmp_path / name, PATHS)


def graded(grades):
    return JudgeOutput("human", judge_leaves(TREE, partial(human_verdict, grades)))


def faults_of(tmp_path, text, name="grades.yaml"):
    with pytest.raises(HumanGradesError) as raised:
        read(tmp_path, text, name)
    assert str(raised.value).startswith(str(tmp_path / name))
    return list(raised.value.faults)


@pytest.mark.parametrize("text", [YAML, "\ufeff" + YAML])
def test_the_last_grade_of_a_leaf_counts(tmp_path, text):
    output = graded(read(tmp_path, text))
    a, b, c = output.graded_task_tree.leaves
    assert (a.score, a.explanation, a.judge_metadata.author) == (0.0, "It is not: look again.", "Bo")
    assert (b.score, b.explanation, b.judge_metadata.date) == (0.5, "Half of it, as far as I see.", "2026-03-01")
    assert (c.score, c.valid_score, c.explanation) == (0.0, False, "I cannot open it.")
    assert output.score == pytest.approx((0 * 1 + 0.5 * 2 + 0 * 1) / 4)


def test_a_leaf_that_nobody_graded_has_no_grade(tmp_path):
    output = graded(read(tmp_path, "- {path: root/a, score: 1, author: A, reason: r}"))
    assert output.num_invalid_leaf_nodes == 2
    assert "nobody graded" in output.graded_task_tree.leaves[1].explanation


def test_all_faults_are_listed_with_their_lines(tmp_path):
    text = """\
- {path: root/a, score: 1.5, author: A, reason: r}
- {path: root/x, score: 1, author: A, reason: r}
- {path: root/b, score: one, author: '', reason: r}
- {path: root/b, scor: 1, author: A, reason: r}
- word
- path: root/c
  score: 1
  path: root/c
  author: [A]
  reason: r
- {path: root, score: .nan, author: A, reason: r}
"""
    faults = faults_of(tmp_path, text)
    assert [fault.split(":")[0] for fault in faults] == [
        "line 1",
        "line 2",
        *("line 3",) * 2,
        *("line 4",) * 2,
        "line 5",
        "line 8",
        "line 9",
        "line 6",
        *("line 11",) * 2,
    ]
    said = "\n".join(faults)
    for words in (
        "'1.5'",
        "'root/x' is no leaf",
        "'author' is missing",
        "unknown key 'scor'",
        "stands twice",
        "'.nan'",
    ):
        assert words in said


@pytest.mark.parametrize("text", ["", "a: 1", "[", "- &a [*a]", "- !!python/object:os.system x", "\x00"])
def test_what_is_no_list_of_grades_is_refused(tmp_path, text):
    assert faults_of(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"none\.yaml: is missing"):
        read_human_grades(tmp_path / "none.yaml", PATHS)


def test_what_an_entry_says_is_kept(tmp_path):
    grades = read(tmp_path, "- {path: root/a, score: ~, author: A, reason: r, date: today}")
    assert grades == {"root/a": Verdict(None, "r", JudgeRecord(author="A", date="today"))}
