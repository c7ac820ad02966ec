"""The rubric grades: each team's tree with the judge's explanations, and what changed since the grades were kept."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pcgeval.report.anchors import grade_id
from pcgeval.report.grade_changes import change_note, changes, count_leaves
from pcgeval.report.grade_record import record
from pcgeval.report.html import NOTHING, Html, element, joined, shortened
from pcgeval.report.overview import title
from pcgeval.report.results import Evaluation, TeamResult
from pcgeval.report.words import count, figure
from pcgeval.rubric.explanation import Part, parts_below, whole
from pcgeval.rubric.grade_files import HEURISTIC
from pcgeval.rubric.grades import GradedTask, JudgeOutput, extract_leaf_grades, get_grade_summary
from pcgeval.rubric.history import LeafChange
from pcgeval.rubric.judge_record import judge_record

LONGEST_TEXT = 800  # characters of a requirement or an explanation
MOST_REASONS = 5
ANSWERS = 600_000  # characters of all judges' answers on the page together: a large competition shows less of each
LONGEST_ANSWER = 2_000  # characters


@dataclass(frozen=True)
class _Shown:
    """What the nodes of a team's tree need to know: what changed, and how much of an answer is shown."""

    changed: Mapping[str, LeafChange]
    answer: int


def grades(evaluation: Evaluation) -> Html:
    """Return the graded trees of all teams."""
    answers = sum(len(extract_leaf_grades(team.grade.graded_task_tree)) * team.grade.votes for team in evaluation.teams)
    longest = min(LONGEST_ANSWER, ANSWERS // max(1, answers))
    return element(
        "section",
        element("h2", "Rubric grades"),
        element(
            "p",
            f"Rubric {evaluation.params.rubric.id}. A node's score is the weighted mean of the scores below it; what "
            "could not be graded is left out, and the range says how much it could matter. Grades do not change the "
            "ranking.",
            class_="lead",
        ),
        *(_team(team, longest) for team in evaluation.teams),
        id="grades",
    )


def _team(team: TeamResult, answer: int) -> Html:
    grade, change = team.grade, team.grade_change
    tree = whole(grade.graded_task_tree)
    shown = _Shown({each.path: each for each in change.leaves} if change else {}, answer)
    head = element(
        "summary",
        _guess() if grade.judge_type == HEURISTIC else _score(grade.graded_task_tree),
        element("h3", title(team)),
        element("span", _summary(grade)),
        change_note(change),
    )
    return joined(
        [
            *(_warning(team, each) for each in grade.warnings),
            element(
                "details",
                head,
                _judge(grade),
                _not_graded(grade.graded_task_tree),
                changes(team),
                *(_node(part, shown) for part in parts_below(tree) or (tree,)),
                class_="grade",
                id=grade_id(team),
            ),
        ]
    )


def _warning(team: TeamResult, warning: str) -> Html:
    return element("p", element("b", f"{title(team)}: "), shortened(warning, LONGEST_TEXT), class_="alarm")


def _summary(grade: JudgeOutput) -> str:
    counted = get_grade_summary(grade.graded_task_tree)
    parts = [f"{counted.passed} passed", f"{counted.partial} in part", f"{counted.failed} failed"]
    parts += [f"{counted.invalid} not graded"] if counted.invalid else []
    bounds = grade.score_bounds
    spread = f" ({figure(bounds.low, 2)} – {figure(bounds.high, 2)})" if counted.invalid else ""
    return f"{count_leaves(grade.num_leaf_nodes)}: {', '.join(parts)}{spread}"


def _judge(grade: JudgeOutput) -> Html:
    """Say who judged, pinned by digest and prompts, and what it took."""
    if grade.judge_type == HEURISTIC:
        return element("p", "Guessed, not judged.", class_="judge")
    parts: list[Html | str] = [f"Judged by {shortened(grade.judge_type, 60)}"]
    if grade.model is not None:
        parts += [f" with the model {shortened(grade.model, 100)}, SHA-256 "]
        parts += [element("code", shortened(grade.model_digest or "not pinned", 100))]
        parts += [f", prompts {shortened(grade.prompt_version or 'unknown', 60)}"]
        parts += [f", {grade.votes} votes a leaf"] if grade.votes > 1 else []
    leaves = extract_leaf_grades(grade.graded_task_tree)
    checked = sum(bool(judge_record(leaf.judge_metadata).check) for leaf in leaves)
    parts += [f"; {checked} of {count_leaves(len(leaves))} by checks"] if checked and grade.model is not None else []
    total = grade.token_usage.total
    if total.calls:
        tokens = f"{total.prompt_tokens:,} tokens read, {total.output_tokens:,} written, {total.seconds:,.0f} s"
        parts += [f". {count(total.calls, 'call')}: {tokens}"]
    return element("p", *parts, ".", class_="judge")


def _not_graded(tree: GradedTask) -> Html:
    """Name the reasons why leaves have no grade, those that came up most first."""
    reasons = Counter(leaf.explanation for leaf in extract_leaf_grades(tree) if not leaf.valid_score)
    if not reasons:
        return NOTHING
    items = [
        element("li", element("b", f"{number} × "), shortened(reason, LONGEST_TEXT))
        for reason, number in reasons.most_common(MOST_REASONS)
    ]
    if len(reasons) > MOST_REASONS:
        items.append(element("li", f"and {len(reasons) - MOST_REASONS} more reasons"))
    return element("div", element("h4", "Not graded"), element("ul", *items), class_="not-graded")


def _node(part: Part, shown: _Shown) -> Html:
    node = part.node
    words = element("span", shortened(node.requirements, LONGEST_TEXT))
    weight = element("small", f"weight {node.weight:g}, {figure(100 * part.share, 1)} % of all")
    if node.is_leaf:
        why = element("p", shortened(node.explanation, LONGEST_TEXT)) if node.explanation else NOTHING
        judged = record(node.judge_metadata, shown.answer)
        return element(
            "div", _score(node), element("div", words, weight, *_notes(node, shown), why, judged), class_="leaf"
        )
    below = (_node(each, shown) for each in parts_below(part))
    return element("details", element("summary", _score(node), words, weight), *below, class_="node")


def _notes(leaf: GradedTask, shown: _Shown) -> list[Html]:
    notes = [] if leaf.task_category is None else [element("small", shortened(str(leaf.task_category), 60))]
    if (change := shown.changed.get(leaf.path)) is not None:
        before = "not graded" if change.before is None else figure(change.before, 2)
        notes.append(element("small", "new" if change.is_new else f"was {before}", class_="was"))
    return notes


def _score(node: GradedTask) -> Html:
    if node.score is None or not node.valid_score:
        return element("b", "?", class_="grade-score none", title="not graded")
    kind = "full" if node.score == 1 else "part" if node.score > 0 else "nil"
    return element("b", figure(node.score, 2), class_=f"grade-score {kind}")


def _guess() -> Html:
    return element("b", "guess", class_="grade-score nil", title="no leaf was graded; this is no rubric score")
