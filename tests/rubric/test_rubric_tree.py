"""The cuts of a rubric, and the paths of its nodes."""

from hypothesis import given
from rubric_trees import CODE, RESULT, RUN, leaf, node, rubric, rubrics

from pcgeval.rubric.tree import child_paths, code_only

A = node("A", 2, leaf("a1"), leaf("a2", category=RUN))
B = node("B", 3, node("C", 1, leaf("c1")), leaf("b2", category=RESULT))
EXAMPLE = rubric(node("root", 1, A, B, leaf("D", 4)))


def names(tasks):
    return [task.id for task in tasks]


def test_paths_tell_equal_and_awkward_ids_apart():
    assert child_paths("r", ["x#2", "x", "x", "a/b", "100%"]) == ["r/x%232", "r/x", "r/x#2", "r/a%2Fb", "r/100%25"]


def test_code_only_drops_other_leaves_and_emptied_parents_and_keeps_paths():
    cut = code_only(EXAMPLE)
    assert names(cut.walk()) == ["root", "A", "a1", "B", "C", "c1", "D"]
    assert {task.path for task in cut.walk()} < {task.path for task in EXAMPLE.walk()}
    without_code = code_only(rubric(node("root", 1, leaf("only", category=RUN))))
    assert [(task.id, task.task_category) for task in without_code.walk()] == [("root", CODE)]


def test_prune_folds_what_lies_deeper_into_the_node_above():
    cut = EXAMPLE.prune_to_depth(1)
    assert names(cut.leaves) == ["A", "B", "D"]
    assert [names(node.merged) for node in cut.sub_tasks] == [["a1", "a2"], ["C", "b2"], []]


@given(rubrics)
def test_paths_are_unique_and_prior_nodes_are_ancestors_and_earlier_siblings(tree):
    """A node is prior if it comes earlier in the file and is the root or a child of an ancestor."""
    order = list(tree.walk())
    assert len({task.path for task in order}) == len(order)
    above = {tree.path: None} | {child.path: parent.path for parent in order for child in parent.sub_tasks}
    for position, target in enumerate(order):
        ancestors = {None}
        up = target.path
        while up := above[up]:
            ancestors.add(up)
        literal = [task for task in order[:position] if above[task.path] in ancestors]
        assert target.get_prior_nodes(tree) == literal
