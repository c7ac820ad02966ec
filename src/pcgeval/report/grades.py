"""The rubric grades: each team's tree with the judge's explanations."""

from pcgeval.report.anchors import grade_id
from pcgeval.report.html import NOTHING, Html, element, shortened
from pcgeval.report.overview import title
from pcgeval.report.results import Evaluation, TeamResult
from pcgeval.report.words import count, figure
from pcgeval.rubric.grades import GradedTask, get_grade_summary

LONGEST_TEXT = 800  # characters of a requirement or an explanation


def grades(evaluation: Evaluation) -> Html:
    """Return the graded trees of all teams."""
    rubric = evaluation.params.rubric
    return element(
        "section",
        element("h2", "Rubric grades"),
        element(
            "p",
            f"Rubric {rubric.id}, judged by {rubric.judge}. A node's score is the weighted mean of the scores below "
            "it; what could not be graded is left out, and the range says how much it could matter.",
            class_="lead",
        ),
        *(_team(team) for team in evaluation.teams),
        id="grades",
    )


def _team(team: TeamResult) -> Html:
    grade = team.grade
    summary = get_grade_summary(grade.graded_task_tree)
    parts = [f"{summary.passed} passed", f"{summary.partial} in part", f"{summary.failed} failed"]
    parts += [f"{summary.invalid} not graded"] if summary.invalid else []
    bounds = grade.score_bounds
    spread = f" ({figure(bounds.low, 2)} – {figure(bounds.high, 2)})" if summary.invalid else ""
    head = element(
        "summary",
        _score(grade.graded_task_tree),
        element("h3", title(team)),
        element(
            "span", f"{count(grade.num_leaf_nodes, 'leaf').replace('leafs', 'leaves')}: {', '.join(parts)}{spread}"
        ),
    )
    nodes = grade.graded_task_tree.sub_tasks or (grade.graded_task_tree,)
    return element("details", head, *(_node(node) for node in nodes), class_="grade", id=grade_id(team))


def _node(node: GradedTask) -> Html:
    words = element("span", shortened(node.requirements, LONGEST_TEXT))
    weight = element("small", f"weight {node.weight:g}")
    if node.is_leaf:
        kind = NOTHING if node.task_category is None else element("small", shortened(str(node.task_category), 60))
        why = element("p", shortened(node.explanation, LONGEST_TEXT))
        return element("div", _score(node), element("div", words, weight, kind, why), class_="leaf")
    return element(
        "details", element("summary", _score(node), words, weight), *map(_node, node.sub_tasks), class_="node"
    )


def _score(node: GradedTask) -> Html:
    if node.score is None or not node.valid_score:
        return element("b", "?", class_="grade-score none", title="not graded")
    kind = "full" if node.score == 1 else "part" if node.score > 0 else "nil"
    return element("b", figure(node.score, 2), class_=f"grade-score {kind}")
