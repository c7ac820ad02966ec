"""Write the report: `results/report`, with an index and a page per team, which need no network.

`.cache/report` keeps the teams' pages, the table of levels and the hand-made letters with the hash of what they were
made from, so a run makes what changed. You may delete the folder.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from pcgeval.bulk.level_table import CARD, LevelRow, dataset_card, import_pyarrow, level_table, parquet_bytes
from pcgeval.core.files import cached, sha256_bytes, write_bytes
from pcgeval.core.packages import installed_release, installed_versions
from pcgeval.formats.layout import LETTERS, OFFICIAL_RESULTS, RANKING_CSV, RANKING_JSON, RESULTS
from pcgeval.formats.params import Params
from pcgeval.formats.stages import read_stage_file
from pcgeval.formats.trial_view import TrialView
from pcgeval.report.collect import CACHE, collect
from pcgeval.report.markup import SCRIPT, STYLE, asset, render_template, shown_tree
from pcgeval.report.results import Evaluation, ModelResult, TeamResult
from pcgeval.scoring.stages import OFFICIAL_NAMES

INDEX = "index.html"
TEAMS = "teams"  # the folder of the teams' pages
TABLES = "tables"  # the folder of what the index links to
LEVELS = "levels.parquet"  # there: all trials, a row each
_MODELS = TypeAdapter(tuple[ModelResult, ...], config=ConfigDict(defer_build=True))
_shown_tree = partial(shown_tree, answers=400_000, longest=2_000)  # a team's page has more to show


def write_report(params: Params, root: Path, out: Path) -> Path:
    """Write the report of an evaluated round and return its index.

    The tables that the pages link to lie beside them. The same arguments and files give the same bytes.

    Args:
        params: The competition, as in its params.yaml.
        root: The competition's folder, with `data/` and `results/`.
        out: The folder for the pages, usually `results/report`.

    Raises:
        MissingPackageError: pyarrow is not installed.
        FileError: A file of an earlier stage is missing or broken, or belongs to other teams or models.
        SubmissionError: A team's submission cannot be read.
    """
    evaluation, cache = collect(params, root), root / CACHE
    tables = [RANKING_CSV, RANKING_JSON]
    tables += [OFFICIAL_RESULTS / model / name for model in params.models for name in OFFICIAL_NAMES]
    files = {out / TABLES / table.relative_to(RESULTS): read_stage_file(root / table, bytes) for table in tables}
    code = (installed_release(), installed_versions("jinja2", "markupsafe", "pyarrow"))
    measured = {team.name: sha256_bytes(_MODELS.dump_json(team.models)) for team in evaluation.teams}
    files[out / TABLES / LEVELS] = cached(cache / LEVELS, (measured, code), partial(_levels_parquet, evaluation))
    files[out / TABLES / CARD] = dataset_card(params.competition.name, LEVELS).encode("utf-8")
    files |= {out / name: asset(name).encode("utf-8") for name in (STYLE, SCRIPT)}
    pages = {team.name: f"{TEAMS}/{team.name}.html" for team in evaluation.teams}
    files[out / INDEX] = _page("index.html.j2", "", evaluation, pages)
    ranking = evaluation.ranking.model_copy(update={"result": None})  # no page shows its hash
    for team in evaluation.teams:
        made_from = (replace(team, models=()), measured[team.name], ranking, params, code)
        render = partial(_page, "team.html.j2", "../", evaluation, pages, team=team)
        files[out / pages[team.name]] = cached(cache / f"{team.name}.html", made_from, render)
    for path, content in files.items():
        write_bytes(path, content)
    return out / INDEX


def _page(template: str, beside: str, evaluation: Evaluation, pages: Mapping[str, str], **values: Any) -> bytes:
    values |= {"evaluation": evaluation, "pages": pages, "shown_tree": _shown_tree}
    return render_template(template, beside=beside, **values).encode("utf-8")


def single_page(params: Params) -> str:
    """Return the report as one page that needs nothing beside it: the index, and the page of each team folded below."""
    return render_template("index.html.j2", evaluation=collect(params, Path()), pages={}, shown_tree=_shown_tree)


def _levels_parquet(evaluation: Evaluation) -> bytes:
    """Return all trials as the table of levels, a row each, with a competition's columns behind the common ones."""
    pa = import_pyarrow()
    text, count = pa.string(), pa.int32()
    tables = []
    for team in evaluation.teams:
        for model in team.models:
            table = level_table(
                [_level_row(team, model, trial) for trial in model.trials], model.engine_sha256, model.classifier_sha256
            )
            usages = [trial.usage for trial in model.trials]
            columns: dict[str, tuple[Any, list[Any]]] = {
                "model": (text, [model.name] * len(usages)),
                "team": (text, [team.name] * len(usages)),
                "trial": (count, [trial.trial.number for trial in model.trials]),
                "calls": (count, [usage.calls if usage else None for usage in usages]),
                "tokens": (pa.int64(), [usage.tokens if usage else None for usage in usages]),
                "supplied": (pa.float64(), [usage.supplied.share if usage else None for usage in usages]),
                "flags": (pa.list_(text), [list(trial.flags) for trial in model.trials]),
            }
            for name, (kind, values) in columns.items():
                table = table.append_column(name, pa.array(values, kind))
            tables.append(table)
    return parquet_bytes(pa.concat_tables(tables))


def _level_row(team: TeamResult, model: ModelResult, result: TrialView) -> LevelRow:
    letter, level = result.trial.letter, result.level
    by_label = {probability.label: probability.probability for probability in result.probabilities}
    row = LevelRow.failed(result.failure) if result.failure else LevelRow()
    return replace(
        row,
        id=f"{model.name}/{team.name}/{letter}/{result.trial.number}",
        letter=letter,
        blocks=len(level.types) if level else None,
        moved=sum(level.moved) if level else None,
        stability=result.stability,
        starts=level.starts if level else None,
        similarity=result.similarity,
        score=None if result.score is None else float(result.score),
        probabilities=[by_label[label] for label in LETTERS] if by_label.keys() >= set(LETTERS) else None,
    )
