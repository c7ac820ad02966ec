from functools import partial

import pytest
from rubric_trees import RESULT, leaf, node, rubric

from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.judge.grading import judge_leaves
from pcgeval.judge.human import HumanGradesError, human_verdict, read_human_grades
from pcgeval.rubric.grades import JudgeOutput
from pcgeval.rubric.record import Correction
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
CSV = """\
path,score,author,reason,date
root/a,1,Ada,It is there.,
root/b,0.5,Ada,"Half of it, as far as I see.",2026-03-01

root/a,0,Bo,It is not: look again.,2026-03-02
root/c,none,Bo,I cannot open it.,
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


@pytest.mark.parametrize(("name", "text"), [("g.yaml", YAML), ("g.csv", CSV), ("g.csv", "\ufeff" + CSV)])
def test_grades_with_their_corrections(tmp_path, name, text):
    output = graded(read(tmp_path, text, name))
    a, b, c = output.graded_task_tree.leaves
    assert (a.score, a.explanation, a.judge_metadata.author) == (0.0, "It is not: look again.", "Bo")
    assert a.to_json()["judge_metadata"]["history"] == [
        {"score": 1.0, "author": "Ada", "reason": "It is there.", "date": None}
    ]
    assert (b.score, b.explanation, b.judge_metadata.date) == (0.5, "Half of it, as far as I see.", "2026-03-01")
    assert (c.score, c.valid_score, c.explanation) == (0.0, False, "I cannot open it.")
    assert output.score == pytest.approx((0 * 1 + 0.5 * 2 + 0 * 1) / 4)


def test_yaml_and_csv_say_the_same(tmp_path):
    assert read(tmp_path, YAML) == read(tmp_path, CSV, "g.csv")


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1: the header must be path,score,author,reason"),
        ("path,score,author\n", "line 1: the header must be"),
        ("path,score,author,reason,mood\n", "look at 'mood'"),
        ("path,score,author,reason\nroot/a,1,A\n", "line 2: 3 values under 4 headings"),
        ('path,score,author,reason\n\nroot/a,1,A,"r\nroot/b,1,A,r\n', "line 3: not valid CSV"),
        ("path,score,author,reason\nroot/a,-0.1,A,r\n", "line 2: score '-0.1'"),
    ],
)
def test_faulty_csv(tmp_path, text, expected):
    assert expected in faults_of(tmp_path, text, "g.csv")[0]


@pytest.mark.parametrize("text", ["", "a: 1", "[", "- &a [*a]", "- !!python/object:os.system x", "\x00"])
def test_what_is_no_list_of_grades_is_refused(tmp_path, text):
    assert faults_of(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"none\.yaml: is missing"):
        read_human_grades(tmp_path / "none.yaml", PATHS)


def test_what_an_entry_says_is_kept(tmp_path):
    grades = read(tmp_path, "- {path: root/a, score: ~, author: A, reason: r, date: today}")
    assert grades == {"root/a": (Correction(score=None, author="A", reason="r", date="today"),)}
