"""Small rubrics and random ones for the tests of the rubric package."""

from hypothesis import strategies as st

from pcgeval.rubric.tree import CATEGORIES, FINEGRAINED_CATEGORIES, TaskNode, parse_rubric

CODE, RUN, RESULT = CATEGORIES


def node(id_, weight, *sub_tasks):
    return {"id": id_, "requirements": f"All of {id_}.", "weight": weight, "sub_tasks": list(sub_tasks)}


def leaf(id_, weight=1, category=CODE, **more):
    return {**node(id_, weight), "requirements": f"Do {id_}.", "task_category": category, **more}


def rubric(value) -> TaskNode:
    return parse_rubric(value, "test")


def json_values(*keys):
    """Draw any JSON value; its objects have some of these keys."""
    scalars = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.just("\ud800")
    return st.recursive(
        scalars,
        lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(keys), below),
        max_leaves=12,
    )


def _inner(children):
    return st.builds(
        lambda id_, weight, below: node(id_, weight, *below), ids, weights, st.lists(children, min_size=1, max_size=4)
    )


ids = st.sampled_from(["a", "b", "c", "a/b", "a#2", "%", "ä ö"])  # so few that siblings share them
weights = st.one_of(st.integers(0, 9), st.floats(1e-3, 1e3), st.just(0))
leaf_values = st.builds(
    lambda id_, weight, category, fine: leaf(id_, weight, category, finegrained_task_category=fine),
    ids,
    weights,
    st.sampled_from(CATEGORIES),
    st.sampled_from([None, *FINEGRAINED_CATEGORIES]),
)
rubric_values = st.recursive(leaf_values, _inner, max_leaves=15)
rubrics = rubric_values.map(rubric)
