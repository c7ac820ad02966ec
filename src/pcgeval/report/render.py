"""Write the report: `results/report`, with an index and a page per team, which need no network."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcgeval.core.files import write_bytes
from pcgeval.core.layout import OFFICIAL_RESULTS, RANKING_CSV, RANKING_JSON, RESULTS
from pcgeval.core.level_table import CARD, dataset_card
from pcgeval.core.params import Params
from pcgeval.core.stage_files import read_stage_file
from pcgeval.report.collect import collect
from pcgeval.report.gradings import ShownTree, anchors
from pcgeval.report.markup import SCRIPT, STYLE, asset, render_template
from pcgeval.report.results import Evaluation, LetterResult, TeamResult
from pcgeval.report.standing import Standing, standing_of
from pcgeval.report.tables import levels_parquet
from pcgeval.scoring.official_files import OFFICIAL_NAMES

INDEX = "index.html"
TEAMS = "teams"  # the folder of the teams' pages
TABLES = "tables"  # the folder of what the index links to
LEVELS = "levels.parquet"  # there: all trials, a row each
ANSWERS = 400_000  # characters of all judges' answers on a page together: a large rubric shows less of each
LONGEST_ANSWER = 2_000  # characters
MESSAGES = 400_000  # the same for the conversations of flagged trials
LONGEST_MESSAGE = 1_000
_GENERATOR = b'<meta name="generator" content="pcgeval">'  # of base.html.j2
_HEAD = 2_000  # bytes of a page in which it stands


def write_report(params: Params, root: Path, out: Path) -> Path:
    """Write the report of an evaluated round and return its index.

    Beside the pages lie the tables that they link to. The same arguments and files give the same bytes: nothing is
    said of when or where the report was made. Pages and tables of an earlier report of other teams and models are
    removed.

    Args:
        params: The competition, as in its params.yaml.
        root: The competition's folder, with `data/` and `results/`.
        out: The folder for the pages, usually `results/report`.

    Raises:
        MissingPackageError: pyarrow is not installed.
        FileError: A file of an earlier stage is missing, is broken, or is about something else.
        SubmissionError: A team's submission cannot be read.
    """
    evaluation = collect(params, root)
    tables = [RANKING_CSV, RANKING_JSON]
    tables += [OFFICIAL_RESULTS / model / name for model in params.models for name in OFFICIAL_NAMES]
    written = {out / TABLES / table.relative_to(RESULTS): read_stage_file(root / table) for table in tables}
    written[out / TABLES / LEVELS] = levels_parquet(evaluation)
    written[out / TABLES / CARD] = dataset_card(params.competition.name, LEVELS).encode("utf-8")
    written |= {out / name: asset(name).encode("utf-8") for name in (STYLE, SCRIPT)}
    written |= {out / name: markup.encode("utf-8") for name, markup in render_pages(evaluation)}
    for path, content in written.items():
        write_bytes(path, content)
    for path in out.rglob("*"):
        if path not in written and path.is_file() and _is_of_a_report(path):
            path.unlink()
    return out / INDEX


def _is_of_a_report(path: Path) -> bool:
    """Tell whether a file below a report's folder was written by `write_report`, as far as its name or start tell."""
    return path.name in OFFICIAL_NAMES or (path.suffix == ".html" and _GENERATOR in path.read_bytes()[:_HEAD])


def render_pages(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield the name of each page, relative to the report's folder, and its HTML; the index comes first."""
    common = _common(evaluation, {team.name: f"{TEAMS}/{team.name}.html" for team in evaluation.teams})
    yield INDEX, render_template("index.html.j2", beside="", views=(), **common)
    for team in evaluation.teams:
        yield (
            f"{TEAMS}/{team.name}.html",
            render_template("team.html.j2", beside="../", view=_team_view(evaluation, team), **common),
        )


def single_page(params: Params, root: Path) -> str:
    """Return the report as one page that needs nothing beside it: the index, and the page of each team folded below.

    Raises:
        FileError: As for `write_report`.
        SubmissionError: As for `write_report`.
    """
    evaluation = collect(params, root)
    views = [_team_view(evaluation, team) for team in evaluation.teams]
    return render_template("index.html.j2", views=views, **_common(evaluation, {}))


def _common(evaluation: Evaluation, pages: dict[str, str]) -> dict[str, Any]:
    """Return the values of all pages; `pages` has the address of each team's page, none where they are one."""
    return {
        "evaluation": evaluation,
        "params": evaluation.params,
        "competition": evaluation.params.competition,
        "heat_maps": [(name, legend, heat_map(evaluation, name)) for name, legend in HEAT_MAPS.items()],
        "pages": pages,
    }


@dataclass(frozen=True)
class TeamView:
    """What a team's page shows besides the team; `standing` is None for a disqualified team."""

    team: TeamResult
    standing: Standing | None
    tree: ShownTree
    longest_message: int


def _team_view(evaluation: Evaluation, team: TeamResult) -> TeamView:
    answers = len(team.leaves) * team.grade.votes
    messages = sum(map(len, team.conversations.values()))
    return TeamView(
        team=team,
        standing=None if team.is_disqualified else standing_of(evaluation, team),
        tree=ShownTree(
            team.grade,
            anchors(team.grade.graded_task_tree, f"{team.name}:"),
            min(LONGEST_ANSWER, ANSWERS // max(1, answers)),
        ),
        longest_message=min(LONGEST_MESSAGE, MESSAGES // max(1, messages)),
    )


HEAT_MAPS = {  # by the name of a figure, what it is
    "points": "parts of a team's points",
    "stability": "mean of the trials, from 0 to 1",
    "similarity": "mean of the trials, from 0 to 1",
    "diversity": "how much the trials of a letter differ, from 0 to 1",
}


def heat_map(evaluation: Evaluation, name: str) -> dict[tuple[str, str], list[float]]:
    """Return one figure of all letters by scored team and model."""

    def value(letter: LetterResult) -> float:
        is_points = name == "points"
        return (evaluation.letter_points(letter) or 0.0) if is_points else float(getattr(letter.scores, name))

    return {
        (team.name, model.name): [value(letter) for letter in model.letters]
        for team in evaluation.scored_teams
        for model in team.models
    }
