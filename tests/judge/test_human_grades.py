from functools import partial

import pytest
from rubric_trees import RESULT, leaf, node, rubric

from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.judge.grading import judge_leaves
from pcgeval.judge.human import HumanGradesError, human_verdict, read_human_grades
from pcgeval.rubric.grades import JudgeOutput
from pcgeval.rubric.tree import leaves

TREE = rubric(node("root", 1, leaf("a"), leaf("b", 2, RESULT), leaf("c"), leaf("d")))
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
FAULTY = """\
- {path: root/a, score: 1.5, author: A, reason: r}
- {path: root/x, score: 1, author: A, reason: r}
- {path: root/b, score: one, author: '', reason: r}
- {path: root/b, scor: 1, author: A, reason: r}
- word
- {path: root/c, score: 1, path: root/c, author: A, reason: r}
- {path: root/c, score: 1, author: [A], reason: r}
- {path: root, score: .nan, author: A, reason: r}
"""


def read(tmp_path, text):
    write_text(tmp_path / "grades.yaml", text)
    return read_human_grades(tmp_path / "grades.yaml", [leaf.path for leaf in leaves(TREE)])


def test_the_last_entry_about_a_leaf_counts(tmp_path):
    output = JudgeOutput("human", judge_leaves(TREE, partial(human_verdict, read(tmp_path, YAML))))
    a, b, c, d = output.graded_task_tree.leaves
    assert (a.score, a.explanation, a.judge_metadata.author) == (0.0, "It is not: look again.", "Bo")
    assert (b.score, b.explanation, b.judge_metadata.date) == (0.5, "Half of it, as far as I see.", "2026-03-01")
    assert (c.score, c.valid_score, c.explanation) == (0.0, False, "I cannot open it.")
    assert (d.valid_score, d.explanation) == (False, "nobody graded this leaf")
    assert output.score == pytest.approx(0.5 * 2 / 5)


def test_all_faults_are_listed_with_their_lines(tmp_path):
    with pytest.raises(HumanGradesError) as raised:
        read(tmp_path, FAULTY)
    said = "\n".join(raised.value.faults)
    for line, words in (
        *((1, "'1.5'"), (2, "'root/x' is no leaf"), (3, "'author' is missing"), (4, "unknown key 'scor'")),
        *((5, "an entry"), (6, "stands twice"), (7, "plain text"), (8, "'.nan'")),
    ):
        assert any(fault.startswith(f"line {line}:") and words in fault for fault in raised.value.faults), said


@pytest.mark.parametrize("text", ["", "a: 1", "[", "- &a [*a]", "- !!python/object:os.system x", "\x00"])
def test_what_is_no_list_of_grades_is_refused(tmp_path, text):
    with pytest.raises(HumanGradesError):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"none\.yaml: is missing"):
        read_human_grades(tmp_path / "none.yaml", [])
