"""The commands for levels: `level` scores and draws one, `evaluate` scores many."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from pcgeval.cli.models import load_params_or_default
from pcgeval.cli.options import Assignments, Json, file_to_write, group, print_json, terminal_width
from pcgeval.core.console import EXIT_CHECK_FAILED, Progress, print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_bytes, write_text
from pcgeval.core.text import printable_line
from pcgeval.core.untrusted import UntrustedFileError, decoded, read_bytes
from pcgeval.evaluator.image import png_bytes
from pcgeval.formats.blocks import NAMES
from pcgeval.formats.layout import LETTERS
from pcgeval.parallel.processes import chosen_scheduler
from pcgeval.similarity.classifier import Classifier

MAX_BYTES = 64 * 2**20  # of one file; no response or level is that large
STDIN = Path("-")
_WATCH_SECONDS = 0.3  # between two looks at the file
_MOST_IGNORED = 10  # lines that are named
_KINDS = {"response": "a response", "calls": "calls", "level": "a level in XML"}
_FORM = (
    f"Write calls as drop_block('b13', 7); the types are {NAMES}, the columns 0 to 19. "
    "In a response they stand between two lines of ```; only the last such block counts."
)
app = group()


@app.command()
def level(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A response, calls or an XML level; - reads stdin.")],
    letter: Annotated[str, typer.Option(metavar="L", help="The letter that the level should look like.")],
    png: Annotated[Path | None, file_to_write(text="Save the picture that the classifier sees.")] = None,
    replay: Annotated[Path | None, file_to_write(text="Save an SVG that plays the blocks that move.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Score the level again whenever the file changes.")] = False,
    assignments: Assignments = None,
    json: Json = False,
) -> None:
    """Score one level: which blocks fell, which letter it shows.

    Physics and classifier come from params.yaml, if there is one. Exit code 1: the level failed and
    scores 0.
    """
    if letter.upper() not in {*LETTERS}:
        raise typer.BadParameter(f"letter {letter!r}: must be A to Z.")
    if watch and file == STDIN:
        raise typer.BadParameter("--watch needs a file.")
    from pcgeval.preview import level_score as scores  # noqa: PLC0415 - the help needs no pymunk, an extra

    params = load_params_or_default(assignments or ())
    settings = params.similarity
    classifier = Classifier.load(settings.model, settings.revision, settings.device, settings.precision)

    width = terminal_width(piped=sys.maxsize)
    for text in _texts(file, watch=watch):
        scored = scores.score_level(text, letter.upper(), classifier, params.physics)
        if json:
            print_json(scored.to_dict())
        else:
            name = "stdin" if file == STDIN else printable_line(str(file))
            print(f"{name}: read as {_KINDS[scored.read_as]}", *scores.level_lines(scored, width), sep="\n")
            print(f"{scored.letter}: {scored.verdict}")
        sys.stdout.flush()
        ignored = [*islice(scores.ignored_lines(text, scored), _MOST_IGNORED)]
        for hint in [*ignored, _FORM] if ignored or scored.failed_stage == "extract" else ():
            print_stderr(hint)
        if scored.simulated and png:
            write_bytes(png, png_bytes(scored.image()))
        if scored.simulated and replay:
            write_text(replay, scored.replay_svg())
            if not scored.simulated.paths:
                print_stderr(f"{replay} is a still picture, as no block moved")
    if scored.failure is not None:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _texts(file: Path, *, watch: bool) -> Iterator[str]:
    """Yield the text of a file; with `watch`, again whenever it changes, until Ctrl-C."""
    text = _handmade(file)
    yield text
    while watch:
        time.sleep(_WATCH_SECONDS)
        with suppress(UntrustedFileError):  # an editor may remove the file before it writes it again
            if (now := _handmade(file)) != text:
                yield (text := now)


def _handmade(file: Path) -> str:
    """Return the text of a file that a person's editor wrote, or of standard input."""
    if file != STDIN:
        return decoded(read_bytes(file, MAX_BYTES, follow_link=True), file, may_be_utf16=True)
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise FileError(f"standard input: is larger than {MAX_BYTES} bytes. Shorten it.")
    return decoded(content, Path("standard input"), may_be_utf16=True)


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
    from pcgeval.bulk.evaluate import evaluate as evaluate_rows  # noqa: PLC0415 - as above

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
            scheduler=chosen_scheduler(default=params.execution.scheduler),
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
