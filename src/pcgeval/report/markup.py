"""Fill the templates of the pages: HTML that is safe to open, whatever got into the values, and needs no network."""

import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from pcgeval.core.console import count, duration
from pcgeval.core.untrusted import printable_text
from pcgeval.evaluator.drawing import motion, outlines
from pcgeval.report import formats
from pcgeval.report.results import FAILURE_WORDS, commonest_failures
from pcgeval.rubric.explanation import NodeShare, reasons_without_grade
from pcgeval.rubric.grades import get_grade_summary
from pcgeval.rubric.record import foreign_text, record_of
from pcgeval.scoring.decimals import rounded


def render_template(name: str, **values: Any) -> str:
    """Return a template filled with values, as HTML that is safe to open whatever got into the values."""
    style, script = ((files(__package__) / each).read_text(encoding="utf-8") for each in ("style.css", "report.js"))
    # this style sheet, this script and nothing else: no picture, no request, whatever got into the page
    policy = (
        f"default-src 'none'; style-src '{_source(style)}'; script-src '{_source(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    markup = environment().get_template(name).render(style=style, script=script, policy=policy, **values)
    return printable_text(markup) + "\n"


def _source(text: str) -> str:
    """Return an inline text as a source expression of the Content-Security-Policy."""
    return f"sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}"


class _JoinLines(Extension):
    """Drop the line breaks of the templates beside tags and statements; within a sentence they become spaces."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Yield the tokens of a template with such breaks taken out of its text."""
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
        *(
            formats.figure,
            formats.score,
            formats.grade,
            formats.thousands,
            formats.percent,
            formats.share,
            formats.shade,
        ),
        *(formats.shortened, formats.shown, outlines, motion, formats.moved, formats.calls),
        commonest_failures,
        *(duration, foreign_text, reasons_without_grade, record_of, rounded),
    ):
        found.filters[each.__name__] = each
    found.globals |= {
        "count": count,
        "failure_words": FAILURE_WORDS,
        "grade_summary": get_grade_summary,
        "root_share": NodeShare,
    }
    return found
