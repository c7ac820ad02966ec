"""The command `evaluate`: many levels at once."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pcgeval.cli.options import Assignments, Json, group, print_json
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.progress import Progress

app = group()


@app.command()
def evaluate(
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT", help="*.jsonl, *.parquet, folders; - for stdin.")],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="The folder for the dataset: README.md and data/*.parquet."),
    ],
    assignments: Assignments = None,
    no_classifier: Annotated[bool, typer.Option("--no-classifier", help="Simulate only.")] = False,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="Also store the classifier's embeddings.")] = False,
    any_text: Annotated[bool, typer.Option("--any-text", help="Also accept bare calls and XML levels.")] = False,
    processes: Annotated[int | None, typer.Option(metavar="N", min=1, help="Default: one per core.")] = None,
    json: Json = False,
) -> None:
    """Score the levels of many responses and write Parquet files.

    The inputs have id, letter and text. Physics and classifier come from params.yaml, if there is one. Repeat the
    command to continue a stopped run. Exit code 1: some rows could not be read; the table has them with the reason.
    """
    from pcgeval.bulk.evaluate import evaluate as evaluate_rows
    from pcgeval.cli.settings import load_params_or_default
    from pcgeval.parallel.processes import chosen_scheduler

    params = load_params_or_default(assignments or ())
    progress = Progress("levels", None)

    def begin(rows: int | None) -> None:
        progress.total = rows

    with progress:
        summary = evaluate_rows(
            inputs,
            out,
            similarity=params.similarity,
            classify=not no_classifier,
            physics=params.physics,
            embeddings=embeddings,
            read_as=None if any_text else "response",
            processes=processes,
            scheduler=chosen_scheduler(params.execution.scheduler),
            begin=begin,
            report=lambda row: progress.step(failed=row.reason is not None),
        )
    if json:
        print_json(summary.model_dump())
    else:
        failures = ", ".join(f"{number} in {stage}" for stage, number in summary.failed.items()) or "none"
        print_stderr(f"{progress.done} new of {summary.rows} rows; failed: {failures}")
        sys.stdout.write(f"{out}\n")
    if summary.failed.get("input"):
        raise typer.Exit(EXIT_CHECK_FAILED)
