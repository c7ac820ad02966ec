"""The judges beside the language model, such as a person's grades; and what params and docs know of them all."""

import re
from pathlib import Path
from typing import get_args

import pytest
from judged_attempt import graded, write_files, write_paper
from rubric_trees import RESULT, leaf, node

from pcgeval.core.files import write_text
from pcgeval.formats.params import RubricParams
from pcgeval.judge.grading import HumanGradesError
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import JudgeSettings
from pcgeval.rubric.agreement import agreement
from pcgeval.rubric.output import read_grade

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "data/papers/block-letters"
YAML = """\
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
- {path: root/b, scor: one, author: '', reason: r}
- word
"""


def graded_by_hand(text):
    write_paper(node("root", 1, leaf("a"), leaf("b", 2, RESULT), leaf("c"), leaf("d")))
    write_files({"README.md": "We did it."})
    write_text(Path("grades.yaml"), text)
    return graded(judge="human", human_grades="grades.yaml")


def test_the_last_entry_of_a_person_about_a_leaf_counts():
    output = graded_by_hand(YAML)
    a, b, c, d = output.graded_task_tree.leaves
    assert (a.score, a.explanation, a.judge_metadata.author) == (0.0, "It is not: look again.", "Bo")
    assert (b.score, b.explanation, b.judge_metadata.date) == (0.5, "Half of it, as far as I see.", "2026-03-01")
    assert (c.score, c.valid_score, c.explanation) == (0.0, False, "I cannot open it.")
    assert (d.valid_score, d.explanation) == (False, "nobody graded this leaf")
    assert output.score == pytest.approx(0.5 * 2 / 5)


def test_all_faults_of_a_persons_file_are_listed_with_their_lines():
    with pytest.raises(HumanGradesError) as raised:
        graded_by_hand(FAULTY)
    named = [(int(line), words) for line, words in re.findall(r"line (\d+): ('root/x'|\w*)", str(raised.value))]
    assert named == [(1, "score"), (2, "'root/x'"), (3, "score"), (3, "author"), (3, "scor"), (4, "")]


@pytest.mark.parametrize(("name", "differences"), [("half", 4), ("reproduces", 1)])
def test_the_measured_gradings_agree_with_a_person_as_the_docs_say(name, differences):
    judged = read_grade(EXAMPLE / "judged" / f"{name}.json")
    grades = EXAMPLE / "human" / f"{name}.yaml"
    human = JudgeSettings(judge="human", papers_dir=EXAMPLE.parent, human_grades=grades)
    by_hand = grade_submission(EXAMPLE / "submissions" / name, EXAMPLE.name, human)
    assert judged.model == "qwen2.5-coder:1.5b-instruct-q4_K_M"
    assert (judged.num_invalid_leaf_nodes, judged.token_usage.grade.calls) == (0, 9)
    measured = agreement({"": (by_hand.graded_task_tree, judged.graded_task_tree)})
    assert len(measured.disagreements) == differences
    assert measured.overall.accuracy.value == pytest.approx(1 - differences / 19)


def test_params_commands_and_docs_know_the_same_judges():
    rows = re.search(r"\| judge \|.*?\n\n", (ROOT / "docs/grading.md").read_text(), re.DOTALL)[0]
    in_docs = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in rows.splitlines()[2:] if line))
    in_commands = re.findall(r"--judge <(simple[|a-z]*)>", (ROOT / "docs/commands.md").read_text())
    in_params = set(get_args(RubricParams.model_fields["judge"].annotation))
    assert [set(in_docs), *(set(names.split("|")) for names in in_commands)] == [in_params] * 2
