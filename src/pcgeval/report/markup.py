"""Fill the templates of the pages: HTML that is safe to open with any values, and needs no network."""

import math
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from pcgeval.core.files import sha256_text
from pcgeval.core.text import count, printable_text, rounded, shortened
from pcgeval.formats.stages import SimulatedTrial
from pcgeval.preview.drawing import block_text, motion, outlines, tile_view
from pcgeval.report.results import commonest_failures, shares_by_model
from pcgeval.rubric.explanation import NodeShare, reasons_without_grade
from pcgeval.rubric.grades import GradedTaskNode, foreign_text, record_of
from pcgeval.rubric.output import JudgeOutput, get_grade_summary

SHADES = 9  # classes h1 to h9 of the style sheet; h0 is for exactly nothing
Figure = float | Decimal

STYLE, SCRIPT = "report.css", "report.js"  # beside the pages, and files of this package
ANSWERS = 3_000_000  # characters of all the judge's answers on a page together: a large rubric shows less of each
LONGEST_ANSWER = 20_000
MOST_OPEN = 60  # leaves of a tree that stands open from the start
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def asset(name: str) -> str:
    """Return the text of the style sheet or of the script."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def render_template(template: str, *, beside: str | None = None, **values: Any) -> str:
    """Return a template filled with values, as HTML that is safe to open with any values.

    Args:
        template: Its file name.
        beside: The path from the page to style sheet and script, such as `../`; None puts them into the page.
        values: Whatever the template names.
    """
    # this style sheet and this script alone: no picture and no request, with any content
    style, script = (f"'{_source(asset(name))}'" if beside is None else "'self'" for name in (STYLE, SCRIPT))
    policy = f"default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'"
    inline = {} if beside is not None else {"style": asset(STYLE), "script": asset(SCRIPT)}
    markup = environment().get_template(template).render(policy=policy, beside=beside, inline=inline, **values)
    return printable_text(markup) + "\n"


def _source(text: str) -> str:
    """Return an inline text as a source expression of the Content-Security-Policy."""
    return f"sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}"


@cache
def environment() -> Environment:
    """Return the environment of the templates: it escapes every text, and an unknown name is an error."""
    templates = Environment(
        loader=PackageLoader("pcgeval.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions: tuple[Callable[..., Any], ...] = (
        *(block_text, commonest_failures, foreign_text, motion, outlines, reasons_without_grade, record_of, rounded),
        *(shares_by_model, tile_view),
        *(calls, figure, moved, percent, shade, share, shortened, shown, thousands),
    )
    templates.filters |= {function.__name__: function for function in functions}
    templates.globals |= {
        "count": count,
        "grade_summary": get_grade_summary,
        "root_share": NodeShare,
    }
    return templates


class ShownTree(NamedTuple):
    """A graded tree as a page shows it."""

    grade: JudgeOutput
    anchors: Mapping[str, str]  # the id of each node's element by the node's path
    longest_answer: int  # characters that are shown of an answer
    is_open: bool  # whether all of it stands open from the start

    def kinds(self, leaf: GradedTaskNode) -> tuple[str, ...]:
        """Return the kind of a leaf's grade, in words that a reader may search for."""
        record = record_of(leaf.judge_metadata)
        kinds: list[str] = ["not graded" if leaf.outcome == "invalid" else leaf.outcome]
        kinds += ["in part"] if 0 < (leaf.graded_score or 0) < 1 else []
        kinds += ["by a check"] if record.check else ["by a person"] if record.author else []
        kinds += ["votes differ"] if record.agreement is not None and record.agreement < 1 else []
        return tuple(kinds)


def shown_tree(
    grade: JudgeOutput, prefix: str = "", answers: int = ANSWERS, longest: int = LONGEST_ANSWER, most_open: int = 0
) -> ShownTree:
    """Return the tree of a grading, in which the ids of all nodes begin with `prefix`.

    Of all the judge's answers together at most so many characters are shown, and of each at most `longest`. A tree of
    at most `most_open` leaves stands open from the start.
    """
    root = grade.graded_task_tree
    votes = sum(len(record_of(leaf.judge_metadata).votes) for leaf in root.leaves)
    ids = {share.node.path: share.node.id for share in NodeShare(root).walk()}
    times = Counter(ids.values())
    anchors = {  # the id in the rubric, or a hash of the path where that is not unique
        path: f"{prefix}node-{name if times[name] == 1 and _PLAIN.fullmatch(name) else sha256_text(path)[:16]}"
        for path, name in ids.items()
    }
    return ShownTree(grade, anchors, min(longest, answers // max(1, votes)), len(root.leaves) <= most_open)


def grade_page(grade: JudgeOutput, title: str) -> str:
    """Return a grading as a page in one file; `title` names the submission."""
    tree = shown_tree(grade, most_open=MOST_OPEN)
    return render_template("graded.html.j2", tree=tree, grade=grade, title=title)


def figure(value: Figure | None, digits: int = 3) -> str:
    """Return a number with so many decimals, a dash for none; only 0 is shown as 0."""
    if value is None:
        return "–"
    if value <= 0:
        return "0"
    least = 10.0**-digits
    return f"{value:.{digits}f}" if value >= least else f"<{least:.{digits}f}"


def share(value: float | None) -> str:
    """Return a share in whole per cent, or a dash without one."""
    return "–" if value is None else f"{value:.0%}"


def thousands(value: float) -> str:
    """Return a whole number with a comma between thousands."""
    return f"{value:,.0f}"


def percent(value: Figure, most: Figure) -> str:
    """Return a share of a width or height, from 0.0 to 100.0."""
    return f"{min(100.0, 100 * float(value) / float(most)) if most > 0 else 0.0:.1f}"


def shade(value: Figure, most: Figure) -> str:
    """Return the class of a coloured cell: `h0` for 0, else `h1` to `h9` up to `most`.

    The steps are equal in the square root of the value, so that small values are told apart.
    """
    if value <= 0 or most <= 0:
        return "h0"
    return f"h{min(SHADES, 1 + int(SHADES * math.sqrt(float(value) / float(most))))}"


def shown(value: object) -> str:
    """Return a value of params.yaml as text; of a mapping, the entries with a value."""
    if isinstance(value, tuple):
        return " and ".join(shown(part) for part in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(part)}" for name, part in value.items() if part not in (None, [], {}))
    return "none" if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)


def moved(level: SimulatedTrial) -> int:
    """Count the living blocks that moved."""
    return sum(moved and not dead for moved, dead in zip(level.moved, level.dead, strict=True))


def calls(code: str) -> str:
    """Return extracted calls on one line in the short form `b31 9, b13 9`."""
    lines = (line.removeprefix("drop_block('").removesuffix(")") for line in code.splitlines())
    return ", ".join(line.replace("',", " ").replace("  ", " ") for line in lines)
