"""What changed in a team's grade since the grades were kept: in one figure, and leaf by leaf."""

from pcgeval.report.html import NOTHING, Html, element, shortened
from pcgeval.report.results import TeamResult
from pcgeval.report.words import figure
from pcgeval.rubric.history import GradeChange, KeptGrade, LeafChange

MOST_LEAVES = 60
MOST_KEPT = 12
LONGEST_PATH = 200  # characters


def change_note(change: GradeChange | None) -> Html:
    """Return how far the score moved since the grades were kept, or nothing if none were."""
    if change is None:
        return NOTHING
    return element("small", change_words(change), class_="change")


def change_words(change: GradeChange) -> str:
    """Return `+0.08 since LABEL`, or what else there is to say."""
    since = f"since {change.since}"
    if change.is_none:
        return f"unchanged {since}"
    if change.before is None or change.now is None:
        return f"was {_score(change.before)} ({change.since})"
    difference = change.now - change.before
    if difference == 0:
        return f"same score {since}, other leaves"
    return f"{'+' if difference > 0 else '−'}{figure(abs(difference), 2)} {since}"


def count_leaves(number: int) -> str:
    """Return `1 leaf` or `2 leaves`."""
    return "1 leaf" if number == 1 else f"{number} leaves"


def changes(team: TeamResult) -> Html:
    """Return a team's kept scores and the leaves whose grade is not what it was, closed until somebody opens it."""
    change = team.grade_change
    if change is None:
        return NOTHING
    moved = f"{_score(change.before)} → {_score(change.now)}, {count_leaves(len(change.leaves))} changed"
    words = f"Unchanged since {change.since}" if change.is_none else f"Since {change.since}: {moved}"
    rows = [_row(each) for each in change.leaves[:MOST_LEAVES]]
    if len(change.leaves) > MOST_LEAVES:
        rows.append(element("li", f"and {len(change.leaves) - MOST_LEAVES} more"))
    parts = [element("p", f"{'; '.join(change.causes)}.")] if change.causes else []
    parts += [element("p", _kept(team.kept_grades))] if len(team.kept_grades) > 1 else []
    parts += [element("ul", *rows)] if rows else []
    return element("details", element("summary", words), *parts, class_="changes") if parts else element("p", words)


def _kept(kept: tuple[KeptGrade, ...]) -> str:
    shown = " · ".join(f"{each.label} {_score(each.score)}" for each in kept[-MOST_KEPT:])
    return f"Kept grades, the oldest first: {'… · ' if len(kept) > MOST_KEPT else ''}{shown}"


def _row(leaf: LeafChange) -> Html:
    words = (
        f"new: {_score(leaf.now)}"
        if leaf.is_new
        else f"gone: was {_score(leaf.before)}"
        if leaf.is_gone
        else f"{_score(leaf.before)} → {_score(leaf.now)}"
    )
    return element("li", element("b", words), " ", element("code", shortened(leaf.path, LONGEST_PATH)))


def _score(score: float | None) -> str:
    return "not graded" if score is None else figure(score, 2)
