"""Write a letter of results to each team: Markdown, and the same as a page.

It tells a team all about its own trials, and of the others only what the public ranking says. The same files give the
same bytes. Texts of strangers become plain text: they can neither format the letter nor link to anything.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from pcgeval.core.console import count
from pcgeval.core.files import write_text
from pcgeval.core.params import Params
from pcgeval.core.stage_files import RankedTeam
from pcgeval.core.untrusted import printable_line
from pcgeval.report import formats
from pcgeval.report.collect import collect
from pcgeval.report.markup import render_template
from pcgeval.report.pseudonyms import Pseudonyms, anonymous_ranking
from pcgeval.report.results import Evaluation, TeamResult
from pcgeval.rubric.grades import GradedTaskNode, get_grade_summary
from pcgeval.scoring.decimals import round_totals

LONGEST_CELL = 400  # characters
_MARKS = re.compile(r"([\\`*_{}\[\]<>#!|~&$])")


@dataclass(frozen=True)
class FailedTrials:
    """The trials with a model that failed in the same stage for the same reason, such as `A1, A3`."""

    model: str
    words: str
    reason: str
    trials: str


def write_letters(
    params: Params, root: Path, out: Path, teams: Iterable[str], pseudonyms: Pseudonyms | None = None
) -> list[Path]:
    """Write the letters of some teams, `<team>.md` and `<team>.html`, and return the files.

    Args:
        params: The competition, as in its params.yaml.
        root: The competition's folder, after its stages ran.
        out: The folder for the letters; files of the same names are replaced.
        teams: The teams to write to.
        pseudonyms: Stand for the names of all teams; None to name them.

    Raises:
        FileError: A file of an earlier stage is missing, is broken, or is about something else.
        SubmissionError: A team's submission cannot be read.
    """
    evaluation = collect(params, root)
    by_name = {each.name: each for each in evaluation.teams}
    written = []
    for team in teams:
        name = pseudonyms.of_team[team] if pseudonyms else team
        text = letter_text(evaluation, by_name[team], pseudonyms)
        # a page of plain Markdown: what looks like HTML in it is shown and not obeyed
        body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
        body = body.replace('style="text-align:right"', 'class="number"')  # the page's policy allows no style there
        page = render_template("letter.html.j2", title=f"Results of {name}", letter=Markup(body))  # noqa: S704
        for suffix, content in ((".md", text), (".html", page)):
            written.append(out / f"{name}{suffix}")
            write_text(written[-1], content)
    return written


def letter_text(evaluation: Evaluation, team: TeamResult, pseudonyms: Pseudonyms | None = None) -> str:
    """Return a team's letter as Markdown."""

    def plain_text(value: object) -> str:
        text = pseudonyms.hide(str(value)) if pseudonyms else str(value)
        if isinstance(value, Markup):  # a name that params.yaml allows, or a hash: it may stand between backticks
            return text
        return _MARKS.sub(r"\\\1", printable_line(text, LONGEST_CELL))

    environment = Environment(  # noqa: S701 - it is no HTML: every value becomes plain text of Markdown
        loader=PackageLoader("pcgeval.report"),
        undefined=StrictUndefined,
        finalize=plain_text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "figure": formats.figure,
        "score": formats.score,
        "shown": formats.shown,
        "round_totals": round_totals,
    }
    environment.globals["grade_summary"] = get_grade_summary
    return environment.get_template("letter.md.j2").render(
        evaluation=evaluation,
        params=evaluation.params,
        ranking=anonymous_ranking(evaluation.ranking, pseudonyms) if pseudonyms else evaluation.ranking,
        team=team,
        name=pseudonyms.of_team[team.name] if pseudonyms else team.name,
        title=pseudonyms.of_team[team.name] if pseudonyms else team.title,
        place=_place(evaluation, team.row),
        failures=list(_failures(team)),
        unmet=[leaf for leaf in team.leaves if _is_unmet(leaf)],
        version=version("pcgeval"),
    )


def _place(evaluation: Evaluation, row: RankedTeam) -> str:
    if row.disqualified:
        return f"The team is disqualified: {row.disqualified}"
    if row.rank is None:
        return {
            "baseline": "It is a baseline: it is scored like all teams and has no rank.",
            "held": "It has no rank yet: some of its trials are flagged, and the organiser has not decided about them.",
        }.get(row.status, "It has no rank.")
    ranked = sum(each.row.rank is not None for each in evaluation.teams)
    return f"Rank {row.rank} of {count(ranked, 'ranked team')}{', and winner' if row.winner else ''}."


def _failures(team: TeamResult) -> Iterator[FailedTrials]:
    for model in team.models:
        found: dict[tuple[str, str], list[str]] = {}
        for trial in model.trials:
            if trial.failure:
                place = f"{trial.trial.letter}{trial.trial.number}"
                found.setdefault((trial.failure.words, trial.failure.reason), []).append(place)
        for (words, reason), places in found.items():
            yield FailedTrials(model.name, words, reason, ", ".join(places))


def _is_unmet(leaf: GradedTaskNode) -> bool:
    return leaf.score is None or leaf.score < 1
