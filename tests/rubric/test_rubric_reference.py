"""Exact agreement with PaperBench's published rubrics and human gradings, where these are at hand."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from pcgeval import load_rubric
from pcgeval.rubric.agreement import agreement
from pcgeval.rubric.grades import Verdict, grade_tree, rescored
from pcgeval.rubric.output import JudgeOutput, read_grade
from pcgeval.rubric.tree import code_only

REFERENCE = Path(os.environ.get("PCGEVAL_REFERENCE", Path(__file__).parents[3] / "shared" / "reference")) / "paperbench"
GOLDEN = REFERENCE / "golden_rubrics.json"
EXPECTED = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
HUMAN = {"rice": (0.18568121693121692, 361), "semantic-self-consistency": (0.9099999999999999, 79)}  # score, leaves

pytestmark = pytest.mark.skipif(not EXPECTED, reason="PaperBench's published data is not here")


def root_score(task):
    """Return the score if the last bit of the hash of its id says whether a leaf passes."""
    return grade_tree(task, lambda leaf: Verdict(hashlib.sha256(leaf.id.encode()).digest()[-1] % 2, "")).score


@pytest.fixture(params=sorted(EXPECTED))
def paper(request):
    return load_rubric(REFERENCE / "papers" / request.param / "rubric.json"), EXPECTED[request.param]


def published_leaves(task):
    """The leaves as they were before `prune` folded any of them into a node above."""
    below = task.sub_tasks or task.merged
    return [leaf for node in below for leaf in published_leaves(node)] if below else [task]


def test_every_figure_of_the_published_rubrics(paper):
    task, expected = paper
    without_resources = task.resources_provided()
    pruned = {number: task.prune_to_depth(int(number) - 1) for number in expected["subtree_by_max_depth"]}
    assert expected == {
        **expected,  # figures of the file itself, such as `duplicate_ids`
        "code_only_leaves": len(code_only(task).leaves),
        "code_only_nodes": len(list(code_only(task).walk())),
        "code_only_resources_provided_root_score": root_score(code_only(task).resources_provided()),
        "code_only_root_score": root_score(code_only(task)),
        "leaves": len(task.leaves),
        "nodes": len(list(task.walk())),
        "resources_provided_root_score": root_score(without_resources),
        "resources_provided_zeroed_leaves": sum(leaf.weight == 0 for leaf in without_resources.leaves),
        "root_score": root_score(task),
        "subtree_by_max_depth": {number: root_score(cut) for number, cut in pruned.items()},
        "subtree_graded_leaves_by_max_depth": {number: len(published_leaves(cut)) for number, cut in pruned.items()},
    }


@pytest.mark.parametrize("name", HUMAN)
def test_human_gradings_come_out_exactly(name):
    output = read_grade(REFERENCE / "judge_eval" / name / "expected_result.json")
    tree = output.graded_task_tree
    assert tree.score == rescored(tree).score == HUMAN[name][0]
    assert scores(rescored(tree)) == scores(tree)
    assert output.score_bounds == (output.score, output.score)
    assert output.num_passed == sum(leaf.score == 1 for leaf in tree.leaves)
    again = JudgeOutput.from_dict(output.to_dict()).graded_task_tree
    assert scores(again) == scores(tree)
    same = agreement({"": (tree, again)})
    assert (same.overall.leaves, same.overall.kappa.value, len(same.criteria)) == (HUMAN[name][1], 1.0, HUMAN[name][1])


def scores(tree):
    return [tree.score, *[score for task in tree.sub_tasks for score in scores(task)]]
