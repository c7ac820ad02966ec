"""The commands for single files, in the order of the stages: `extract`, `convert`, `simulate`, `classify`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pcgeval.cli.options import Json, group, print_json
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import write_bytes
from pcgeval.core.untrusted import read_bounded_text

MAX_BYTES = 64 * 2**20  # of one file; no response or level is that large

app = group()
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of the stage before this one.")]


@app.command()
def extract(files: Files, json: Json = False) -> None:
    """Extract the drop_block calls from responses."""
    from pcgeval.levels.extraction import extract_code, no_code_reason

    def calls(path: Path) -> dict[str, Any]:
        response = _read(path)
        code = extract_code(response)
        return {"code": code} if code is not None else {"code": None, "reason": no_code_reason(response)}

    _print_each(files, calls, "code", json)


@app.command()
def convert(files: Files, json: Json = False) -> None:
    """Convert drop_block calls to Science Birds levels."""
    from pcgeval.levels.xml import level_xml

    _print_each(files, lambda path: {"xml": level_xml(_read(path))}, "xml", json)


@app.command()
def simulate(
    files: Files,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a PNG of each level there.")] = None,
    json: Json = False,
) -> None:
    """Simulate levels: stability, and with --images pictures."""
    from pcgeval.evaluator.image import png_bytes, render
    from pcgeval.evaluator.physics import simulate as simulate_level

    def stability_of(path: Path) -> dict[str, Any]:
        stability = simulate_level(_read(path))
        if images:
            write_bytes(images / f"{path.stem}.png", png_bytes(render(stability)))
        return {
            "score": stability.score,
            "total_blocks": stability.total_blocks,
            "moving_blocks": stability.moving_blocks,
            "positions": stability.positions.tolist(),
        }

    _print_each(files, stability_of, "score", json)


@app.command()
def classify(
    files: Files,
    classifier: Annotated[str, typer.Option(metavar="SOURCE", help="A folder or hub id.")] = "data/classifier",
    revision: Annotated[str | None, typer.Option(metavar="COMMIT", help="The commit that pins a hub id.")] = None,
    json: Json = False,
) -> None:
    """Classify level pictures: the probability of each letter."""
    from PIL import Image

    from pcgeval.similarity.classifier import Classifier

    network = Classifier.load(classifier, revision)

    def label(path: Path) -> dict[str, Any]:
        try:
            with Image.open(path) as image:
                row = network.predict([image]).probabilities[0]
        except (OSError, Image.DecompressionBombError) as error:
            raise FileError(f"{path}: not a picture that can be read ({error}). Give a PNG.") from error
        found = dict(zip(network.labels, (float(each) for each in row), strict=True))
        return {"label": max(found, key=lambda label: found[label]), "probabilities": found}

    _print_each(files, label, "label", json)


def _print_each(files: list[Path], evaluate: Callable[[Path], dict[str, Any]], shown: str, json: bool) -> None:
    """Print the result of each file; one that fails does not stop the others, but the command ends with exit code 1."""
    all_done = True
    for path in files:
        try:
            found = evaluate(path)
        except PcgevalError as error:
            found = {shown: None, "reason": str(error)}
        if found[shown] is None:
            all_done = False
            reason = found["reason"]
            print_stderr(reason if reason.startswith(f"{path}: ") else f"{path}: {reason}")
        if json:
            print_json({"file": str(path), **found})
        elif found[shown] is not None:
            prefix = f"{path}: " if shown not in {"code", "xml"} else ""
            sys.stdout.write(f"{prefix}{found[shown]}\n")
    if not all_done:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _read(path: Path) -> str:
    return read_bounded_text(path, MAX_BYTES, follow_link=True)
