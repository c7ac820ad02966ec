"""The command `compare`: two evaluated states side by side."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcgeval.cli.options import Json, group, print_json, print_table
from pcgeval.core.console import print_stderr
from pcgeval.core.untrusted import printable_line

if TYPE_CHECKING:
    from pcgeval.proof.compare import ComparedValue

MOST_LETTERS = 5  # of a team with a model
_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")

app = group()


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A revision of git, a folder, or a bundle.")],
    after: Annotated[
        str | None, typer.Argument(metavar="[AFTER]", help="Another one; default: the folder as it is.")
    ] = None,
    json: Json = False,
) -> None:
    """Show two evaluations side by side, and what differs."""
    from pcgeval.core.layout import RANKING_JSON
    from pcgeval.core.params import load_params
    from pcgeval.core.stage_files import RankingFile
    from pcgeval.proof.compare import compare_states
    from pcgeval.scoring.result_hash import result_doubts

    values = compare_states(before, after, Path())
    if after is None:
        for doubt in result_doubts(load_params(), RankingFile.read(RANKING_JSON)):
            print_stderr(f"warning: the folder has the ranking of an earlier run: {doubt}")
    if json:
        print_json([{**vars(value.label), "before": value.before, "after": value.after} for value in values])
    else:
        print_table(("what", "before", "after"), _rows(values))


def _rows(values: "Iterable[ComparedValue]") -> Iterator[tuple[str, str, str]]:
    for (kind, team, model), figures in groupby(
        values, key=lambda value: (value.label.kind, value.label.team, value.label.model)
    ):
        rows = [_row(value) for value in figures]
        most = MOST_LETTERS if kind == "letter" else len(rows)
        yield from rows[:most]
        if rows[most:]:
            yield printable_line(f"{team} {model} letter ..."), f"{len(rows) - most} more: --json", ""


def _row(value: "ComparedValue") -> tuple[str, str, str]:
    label = value.label
    what = " ".join(filter(None, (label.team, label.model, label.kind, label.name)))
    before, after = (_shown(label.kind, each) for each in (value.before, value.after))
    return printable_line(what), before, "=" if value.before == value.after else after


def _shown(kind: str, value: Any) -> str:
    from pcgeval.proof.compare import SCORES
    from pcgeval.scoring.decimals import rounded

    if value is None:
        return "-"
    if kind in SCORES:
        return rounded(value)
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return _HASH.sub(r"\1", printable_line(text)) or "none"
