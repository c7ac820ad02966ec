"""The judges beside the language model: checks, a person's grades, a seeded coin; and what the docs say of them all."""

import re
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from rubric_trees import RESULT, leaf, node, rubric

from pcgeval.core.files import write_text
from pcgeval.core.params import RubricParams
from pcgeval.judge import JUDGES
from pcgeval.judge.grading import random_verdict
from pcgeval.judge.human import HumanGradesError, human_verdict, read_human_grades
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import JudgeSettings
from pcgeval.rubric.agreement import Pair, agreement
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.grades import JudgeOutput, grade_tree
from pcgeval.rubric.tree import leaves

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "data/papers"


def test_the_coin_differs_by_seed_and_leaf_and_about_half_pass():
    tree = rubric(node("root", 1, *[leaf("same") for _ in range(1000)]))
    one, two = ([random_verdict(seed, task).score for task in leaves(tree)] for seed in (1, 2))
    assert one != two
    assert all(430 < sum(scores) < 570 for scores in (one, two))


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
- {path: root, score: .nan, author: [A], reason: r}
"""


def read(tmp_path, text):
    write_text(tmp_path / "grades.yaml", text)
    return read_human_grades(tmp_path / "grades.yaml", [task.path for task in leaves(TREE)])


def test_the_last_entry_of_a_person_about_a_leaf_counts(tmp_path):
    output = JudgeOutput("human", grade_tree(TREE, partial(human_verdict, read(tmp_path, YAML))))
    a, b, c, d = output.graded_task_tree.leaves
    assert (a.score, a.explanation, a.judge_metadata.author) == (0.0, "It is not: look again.", "Bo")
    assert (b.score, b.explanation, b.judge_metadata.date) == (0.5, "Half of it, as far as I see.", "2026-03-01")
    assert (c.score, c.valid_score, c.explanation) == (0.0, False, "I cannot open it.")
    assert (d.valid_score, d.explanation) == (False, "nobody graded this leaf")
    assert output.score == pytest.approx(0.5 * 2 / 5)


def test_all_faults_of_a_persons_file_are_listed_with_their_lines(tmp_path):
    with pytest.raises(HumanGradesError) as raised:
        read(tmp_path, FAULTY)
    named = [(int(line), words) for line, words in re.findall(r"line (\d+): ('root/x'|\w*)", str(raised.value))]
    faults = [(1, "score"), (2, "'root/x'"), (3, "score"), (3, "author"), (4, "score"), (4, "scor"), (5, "")]
    assert named == [*faults, (6, "score"), (6, "author")]


TWICE = "- {path: root/c, score: 1, path: root/c, author: A, reason: r}"


@pytest.mark.parametrize("text", ["", "a: 1", "[", "- &a [*a]", "- !!python/object:os.system x", TWICE])
def test_what_is_no_list_of_grades_is_refused(tmp_path, text):
    with pytest.raises(HumanGradesError):
        read(tmp_path, text)


@pytest.mark.parametrize("name", ["half", "reproduces"])
def test_the_measured_gradings_agree_with_a_person_as_the_docs_say(name):
    example = PAPERS / "block-letters"
    judged = read_grade(example / "judged" / f"{name}.json")
    human = JudgeSettings(judge="human", papers_dir=str(PAPERS), human_grades=example / "human" / f"{name}.yaml")
    by_hand = grade_submission(example / "submissions" / name, "block-letters", human)
    assert judged.model == "qwen2.5-coder:1.5b-instruct-q4_K_M"
    assert (judged.num_invalid_leaf_nodes, judged.token_usage.grade.calls) == (1, 9)
    measured = agreement([Pair("", by_hand.graded_task_tree, judged.graded_task_tree)])
    assert len(measured.disagreements) == 18 - 13
    assert measured.overall.accuracy.value == pytest.approx(13 / 18)


def test_params_commands_and_docs_know_the_judges_of_the_table():
    rows = re.search(r"\| judge \|.*?\n\n", (ROOT / "docs/grading.md").read_text(), re.DOTALL)[0]
    in_docs = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in rows.splitlines()[2:] if line))
    assert set(in_docs) == set(JUDGES) == set(get_args(RubricParams.model_fields["judge"].annotation))
    assert f"<{'|'.join(JUDGES)}>" in (ROOT / "docs/commands.md").read_text()
