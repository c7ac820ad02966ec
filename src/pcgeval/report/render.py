"""Write the page: `results/report/index.html`, one file without scripts that needs no network."""

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from pcgeval.core.console import duration
from pcgeval.core.files import sha256_text, write_text
from pcgeval.core.params import Params
from pcgeval.core.untrusted import printable_text
from pcgeval.report import formats
from pcgeval.report.collect import collect
from pcgeval.report.plots import write_plots
from pcgeval.report.results import FAILURE_WORDS, Evaluation
from pcgeval.rubric.explanation import NodeShare
from pcgeval.rubric.grades import get_grade_summary
from pcgeval.rubric.record import foreign_text, record_of
from pcgeval.scoring.decimals import round_totals, rounded

PAGE = "index.html"
ANSWERS = 600_000  # characters of all judges' answers on the page together: a large competition shows less of each
LONGEST_ANSWER = 2_000  # characters
MESSAGES = 600_000  # the same for the conversations of flagged trials
LONGEST_MESSAGE = 1_000


def write_report(params: Params, root: Path, out: Path) -> Path:
    """Write the page of an evaluated round, with plots for DVC beside it, and return its file.

    The same files give the same bytes; the page says nothing about when or where it was made.

    Args:
        params: The competition, as in its params.yaml.
        root: The competition's folder, with `data/` and `results/`.
        out: The folder for the page, usually `results/report`.

    Raises:
        FileError: A file of an earlier stage is missing, is broken, or is about something else.
        SubmissionError: A team's submission cannot be read.
    """
    page, evaluation = out / PAGE, collect(params, root)
    write_text(page, render_page(evaluation))
    write_plots(evaluation, out / "plots", environment())
    return page


def render_page(evaluation: Evaluation) -> str:
    """Return the page as HTML."""
    answers = sum(len(team.leaves) * team.grade.votes for team in evaluation.teams)
    messages = sum(map(len, evaluation.conversations.values()))
    return render_template(
        "page.html.j2",
        evaluation=evaluation,
        params=evaluation.params,
        competition=evaluation.params.competition,
        heat_maps=list(heat_maps(evaluation)),
        longest_answer=min(LONGEST_ANSWER, ANSWERS // max(1, answers)),
        longest_message=min(LONGEST_MESSAGE, MESSAGES // max(1, messages)),
    )


def render_template(name: str, **values: Any) -> str:
    """Return a template filled with values, as HTML that is safe to open whatever got into the values."""
    style = (files(__package__) / "style.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode("utf-8")).digest()).decode("ascii")
    # this one style sheet and nothing else: no script, no picture, no request, whatever got into the page
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    markup = environment().get_template(name).render(style=style, policy=policy, **values)
    return printable_text(markup) + "\n"


class _JoinLines(Extension):
    """Drop the line breaks of the templates beside tags and statements; within a sentence they become spaces."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        tokens = list(stream)
        for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
            text = token.value
            if token.type == "data":
                text = re.sub(r"(?<=>)\s*\n\s*|\s*\n\s*(?=<)|\A\s*\n\s*\Z", "", text)
                if before is None or before.type != "variable_end":
                    text = re.sub(r"\A\s*\n\s*", "", text)
                if after is None or after.type != "variable_begin":
                    text = re.sub(r"\s*\n\s*\Z", "", text)
                text = re.sub(r"\s*\n\s*", " ", text)
            yield Token(token.lineno, token.type, text)


@cache
def environment() -> Environment:
    """Return the environment of the templates: it escapes every text, and an unknown name is an error."""
    found = Environment(
        loader=PackageLoader("pcgeval.report"), autoescape=True, undefined=StrictUndefined, extensions=[_JoinLines]
    )
    for each in (
        *(formats.figure, formats.score, formats.grade, formats.thousands, formats.percent, formats.shade),
        *(formats.shortened, formats.shown, formats.outlines, formats.moved),
        *(duration, foreign_text, record_of, round_totals, rounded),
    ):
        found.filters[each.__name__] = each
    found.filters["sha256"] = sha256_text
    found.globals |= {
        "count": formats.count,
        "failure_words": FAILURE_WORDS,
        "grade_summary": get_grade_summary,
        "root_share": NodeShare.of_root,
    }
    return found


@dataclass(frozen=True)
class HeatMap:
    """One of the measures by which the letters are coloured, and its scale in all models alike.

    Attributes:
        measure: The measure's name in a `LetterRow`.
        weight: The name in an `OfficialWeight` of what goes into a letter's weight because of it.
        darkest: The value with the darkest colour.
        highest: The weight with the highest bar.
        times: The factor of the values in the cells, so that the largest has a digit before its point.
    """

    measure: str
    title: str
    weight: str
    weight_title: str
    legend: str
    darkest: Decimal
    highest: Decimal
    times: int


def heat_maps(evaluation: Evaluation) -> Iterator[HeatMap]:
    """Yield the heat maps of the letters' scores and of the three measures behind them."""
    letters = [letter for team in evaluation.scored_teams for model in team.models for letter in model.letters]

    def highest(weight: str) -> Decimal:
        return max((getattr(letter.weight, weight) for letter in letters), default=Decimal(1))

    best = max((letter.scores.score for letter in letters if letter.scores), default=Decimal(0))
    times = 10 ** max(0, -best.adjusted()) if best else 1
    legend = f"Letter score{f' times {times:,}' if times > 1 else ''}. Bars: the weight of each letter"
    yield HeatMap("score", "Letter score", "weight", "letter weight", legend, best, highest("weight"), times)
    for measure, words in (
        ("stability", "Mean stability of the trials"),
        ("similarity", "Mean similarity of the trials"),
        ("diversity", "Diversity of the trials"),
    ):
        legend = f"{words}. Bars: its factor in the weight of each letter"
        yield HeatMap(measure, measure.capitalize(), measure, "weight factor", legend, Decimal(1), highest(measure), 1)
