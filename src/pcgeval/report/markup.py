"""Fill the templates of the pages: HTML that is safe to open with any values, and needs no network."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pcgeval.core.console import count
from pcgeval.core.untrusted import printable_text
from pcgeval.evaluator.drawing import motion, outlines
from pcgeval.report import formats
from pcgeval.report.results import FAILURE_WORDS, commonest_failures
from pcgeval.rubric.explanation import NodeShare, reasons_without_grade
from pcgeval.rubric.grades import get_grade_summary
from pcgeval.rubric.record import foreign_text, record_of
from pcgeval.scoring.decimals import rounded

STYLE, SCRIPT = "report.css", "report.js"  # beside the pages, and files of this package


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
    functions = (commonest_failures, foreign_text, motion, outlines, reasons_without_grade, record_of, rounded)
    templates.filters |= {function.__name__: function for function in functions}
    templates.filters |= {name: value for name, value in vars(formats).items() if name.islower() and callable(value)}
    templates.globals |= {
        "count": count,
        "failure_words": FAILURE_WORDS,
        "grade_summary": get_grade_summary,
        "root_share": NodeShare,
    }
    return templates
