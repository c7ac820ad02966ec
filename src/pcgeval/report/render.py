"""Write the report: `results/report`, with an index, a page per team and a page per letter, which need no network."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from pcgeval.core.files import write_bytes
from pcgeval.core.layout import OFFICIAL_RESULTS, RANKING_CSV, RANKING_JSON, RESULTS
from pcgeval.core.params import Params
from pcgeval.core.stage_files import read_stage_file
from pcgeval.report.collect import collect
from pcgeval.report.formats import Scale
from pcgeval.report.gradings import ShownTree, anchors
from pcgeval.report.markup import environment, render_template
from pcgeval.report.plots import write_plots
from pcgeval.report.results import Evaluation
from pcgeval.report.standing import compared_letters, standings
from pcgeval.report.tables import levels_parquet
from pcgeval.scoring.official_files import OFFICIAL_NAMES

INDEX = "index.html"
TEAMS = "teams"  # the folder of the teams' pages
LETTERS = "letters"  # the folder of the pages that compare a letter
_GENERATOR = b'<meta name="generator" content="pcgeval">'  # of base.html.j2
_HEAD = 2_000  # bytes of a page in which it stands
TABLES = "tables"  # the folder of what the index links to
LEVELS = "levels.parquet"  # there: all trials, a row each
ANSWERS = 400_000  # characters of all judges' answers on a page together: a large rubric shows less of each
LONGEST_ANSWER = 2_000  # characters
MESSAGES = 400_000  # the same for the conversations of flagged trials
LONGEST_MESSAGE = 1_000


def write_report(params: Params, root: Path, out: Path) -> Path:
    """Write the report of an evaluated round, with plots for DVC beside it, and return its index.

    Beside the pages lie the tables that they link to. The same arguments and files give the same bytes: nothing is
    said of when or where the report was made. Pages and tables that an earlier report left there of teams, letters and
    models that are not in this round are removed.

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
    written |= {out / name: markup.encode("utf-8") for name, markup in render_pages(evaluation)}
    for path, content in written.items():
        write_bytes(path, content)
    for folder in (TEAMS, LETTERS, TABLES):
        for path in (out / folder).rglob("*"):
            if path.is_file() and path not in written and _is_of_a_report(path):
                path.unlink()
    write_plots(evaluation, out / "plots", environment())
    return out / INDEX


def _is_of_a_report(path: Path) -> bool:
    """Tell whether a file below a report's folder was written by `write_report`, as far as its name or start tell."""
    return path.name in OFFICIAL_NAMES or _GENERATOR in path.read_bytes()[:_HEAD]


def render_pages(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield the name of each page, relative to the report's folder, and its HTML; the index comes first."""
    letters = [letter for team in evaluation.teams for model in team.models for letter in model.letters]
    scales = {
        "totals": Scale.of((team.row.total for team in evaluation.scored_teams if team.row.total), 1, 3),
        "letters": Scale.of((letter.scores.score for letter in letters if letter.scores), 3, 1),
        "trials": Scale.of((trial.score for trial in evaluation.trials if trial.score), 3, 1),
    }
    standing = standings(evaluation)
    common = {
        "evaluation": evaluation,
        "params": evaluation.params,
        "competition": evaluation.params.competition,
        "scales": scales,
        "rows": {},  # of trials: a team's page and a letter's page show the same
    }
    yield (
        INDEX,
        render_template(
            "index.html.j2",
            heat_maps=list(heat_maps(evaluation, scales["letters"])),
            **common,
        ),
    )
    for team in evaluation.teams:
        answers = len(team.leaves) * team.grade.votes
        messages = sum(
            len(conversation) for key, conversation in evaluation.conversations.items() if key[0] == team.name
        )
        yield (
            f"{TEAMS}/{team.name}.html",
            render_template(
                "team.html.j2",
                team=team,
                standing=standing.get(team.name),
                tree=ShownTree(
                    team.grade,
                    anchors([team.grade.graded_task_tree]),
                    min(LONGEST_ANSWER, ANSWERS // max(1, answers)),
                ),
                longest_message=min(LONGEST_MESSAGE, MESSAGES // max(1, messages)),
                **common,
            ),
        )
    for place, letter in enumerate(evaluation.params.competition.characters):
        letters_by_model = [(model, compared_letters(evaluation, model, place)) for model in evaluation.params.models]
        yield (
            f"{LETTERS}/{letter}.html",
            render_template("compared_letter.html.j2", letter=letter, letters=letters_by_model, **common),
        )


@dataclass(frozen=True)
class HeatMap:
    """One of the measures by which the letters are coloured, and its scale in all models alike.

    Attributes:
        measure: The measure's name in a `LetterRow`.
        weight: The name in an `OfficialWeight` of what goes into a letter's weight because of it.
        darkest: The value with the darkest colour.
        highest: The weight with the highest bar.
        scale: The notation of the cells.
    """

    measure: str
    title: str
    weight: str
    weight_title: str
    legend: str
    darkest: Decimal
    highest: Decimal
    scale: Scale


def heat_maps(evaluation: Evaluation, scale: Scale) -> Iterator[HeatMap]:
    """Yield the heat maps of the letters' scores and of the three measures behind them."""
    letters = [letter for team in evaluation.scored_teams for model in team.models for letter in model.letters]

    def highest(weight: str) -> Decimal:
        return max((getattr(letter.weight, weight) for letter in letters), default=Decimal(1))

    best = max((letter.scores.score for letter in letters if letter.scores), default=Decimal(0))
    legend = f"Letter score{scale.times}. Bars: the weight of each letter"
    yield HeatMap("score", "Letter score", "weight", "letter weight", legend, best, highest("weight"), scale)
    for measure, words in (
        ("stability", "Mean stability of the trials"),
        ("similarity", "Mean similarity of the trials"),
        ("diversity", "Diversity of the trials"),
    ):
        legend = f"{words}. Bars: its factor in the weight of each letter"
        darkest = max((getattr(letter.scores, measure) for letter in letters if letter.scores), default=Decimal(0))
        title = measure.capitalize()
        yield HeatMap(measure, title, measure, "weight factor", legend, darkest, highest(measure), Scale(0, 2))
