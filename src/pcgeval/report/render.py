"""Write the report: `results/report`, with an index and a page per team, which need no network."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pcgeval.bulk.level_table import CARD, dataset_card
from pcgeval.core.files import write_bytes
from pcgeval.formats.layout import OFFICIAL_RESULTS, RANKING_CSV, RANKING_JSON, RESULTS
from pcgeval.formats.params import Params
from pcgeval.formats.stages import read_stage_file
from pcgeval.report.collect import collect
from pcgeval.report.markup import SCRIPT, STYLE, asset, render_template, shown_tree
from pcgeval.report.results import Evaluation
from pcgeval.report.tables import levels_parquet
from pcgeval.scoring.stages import OFFICIAL_NAMES

INDEX = "index.html"
TEAMS = "teams"  # the folder of the teams' pages
TABLES = "tables"  # the folder of what the index links to
LEVELS = "levels.parquet"  # there: all trials, a row each
_shown_tree = partial(shown_tree, answers=400_000, longest=2_000)  # a team's page has more to show


def write_report(params: Params, root: Path, out: Path) -> Path:
    """Write the report of an evaluated round and return its index.

    The tables that the pages link to lie beside them. The same arguments and files give the same bytes. Pages of teams
    that left and official tables of models that left are removed.

    Args:
        params: The competition, as in its params.yaml.
        root: The competition's folder, with `data/` and `results/`.
        out: The folder for the pages, usually `results/report`.

    Raises:
        MissingPackageError: pyarrow is not installed.
        FileError: A file of an earlier stage is missing or broken, or belongs to other teams or models.
        SubmissionError: A team's submission cannot be read.
    """
    evaluation = collect(params, root)
    tables = [RANKING_CSV, RANKING_JSON]
    tables += [OFFICIAL_RESULTS / model / name for model in params.models for name in OFFICIAL_NAMES]
    files = {out / TABLES / table.relative_to(RESULTS): read_stage_file(root / table, bytes) for table in tables}
    files[out / TABLES / LEVELS] = levels_parquet(evaluation)
    files[out / TABLES / CARD] = dataset_card(params.competition.name, LEVELS).encode("utf-8")
    files |= {out / name: asset(name).encode("utf-8") for name in (STYLE, SCRIPT)}
    files |= {out / name: markup.encode("utf-8") for name, markup in render_pages(evaluation)}
    for path, content in files.items():
        write_bytes(path, content)
    for path in (*out.glob(f"{TEAMS}/*.html"), *out.glob(f"{TABLES}/official/*/*")):
        if path not in files:
            path.unlink()
    return out / INDEX


def render_pages(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield the name of each page, relative to the report's folder, and its HTML; the index comes first."""
    pages = {team.name: f"{TEAMS}/{team.name}.html" for team in evaluation.teams}
    values: dict[str, Any] = {"evaluation": evaluation, "pages": pages, "shown_tree": _shown_tree}
    yield INDEX, render_template("index.html.j2", beside="", **values)
    for team in evaluation.teams:
        yield pages[team.name], render_template("team.html.j2", beside="../", team=team, **values)


def single_page(params: Params, root: Path) -> str:
    """Return the report as one page that needs nothing beside it: the index, and the page of each team folded below."""
    return render_template("index.html.j2", evaluation=collect(params, root), pages={}, shown_tree=_shown_tree)
