"""The page as a whole: `results/report/index.html`, one file without scripts that needs no network."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from pcgeval.core.files import write_text
from pcgeval.core.params import Params
from pcgeval.report import alphabet, failures, flags, grades, heat_map, levels, overview, provenance
from pcgeval.report.collect import collect
from pcgeval.report.html import Html, element
from pcgeval.report.results import Evaluation

PAGE = "index.html"
_STYLE = "style.css"
_LINKS = (
    ("ranking", "Ranking"),
    ("letters", "Letters"),
    ("failures", "Failures"),
    ("flags", "Flags"),
    ("levels", "Levels"),
    ("grades", "Grades"),
    ("provenance", "Provenance"),
)


def write_report(params: Params, root: Path, out: Path) -> Path:
    """Write the page of an evaluated round and return its file.

    The same files give the same bytes; the page says nothing about when or where it was made.

    Args:
        params: The competition, as in its params.yaml.
        root: The competition's folder, with `data/` and `results/`.
        out: The folder for the page, usually `results/report`.

    Raises:
        ReportError: A file of an earlier stage is missing, is broken, or is about something else.
        SubmissionError: A team's submission cannot be read.
    """
    page = out / PAGE
    write_text(page, render_page(collect(params, root)))
    return page


def render_page(evaluation: Evaluation) -> str:
    """Return the page as HTML."""
    competition = evaluation.params.competition
    style = (files(__package__) / _STYLE).read_text(encoding="utf-8")
    body = element(
        "body",
        element("a", "Skip to the ranking", href="#ranking", class_="skip"),
        element("nav", *(element("a", words, href=f"#{place}") for place, words in _LINKS), aria_label="Sections"),
        overview.head(evaluation),
        element("main", *_sections(evaluation)),
        element("footer", provenance.provenance(evaluation)),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{competition.name}, edition {competition.edition}, {competition.round}"),
        Html(f"<style>{style}</style>"),  # the package's own file, not text to be escaped
    )
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en").text + "\n"


def _sections(evaluation: Evaluation) -> tuple[Html, ...]:
    return (
        alphabet.alphabet(evaluation),
        overview.ranking(evaluation),
        heat_map.heat_map(evaluation),
        failures.failures(evaluation),
        flags.flags(evaluation),
        levels.levels(evaluation),
        grades.grades(evaluation),
    )


def _policy(style: str) -> str:
    """Allow this one style sheet and nothing else: no script, no picture, no request, whatever got into the page."""
    digest = b64encode(sha256(style.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
