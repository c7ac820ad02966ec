"""The command `level`."""

import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pcgeval.cli.options import Assignments, Json, file_to_write, group, print_json, print_lines, terminal_width
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import write_bytes, write_text
from pcgeval.core.untrusted import printable_line, read_bounded_text, read_stdin

if TYPE_CHECKING:
    from pcgeval.evaluator.level_score import LevelScore

MAX_BYTES = 64 * 2**20  # of one file; no response or level is that large
MOST_IGNORED = 10  # lines that are named
STDIN = Path("-")
WATCH_SECONDS = 0.3  # between two looks at the file

app = group()


@app.command()
def level(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A response, calls or an XML level; - reads stdin.")],
    letter: Annotated[str, typer.Option(metavar="L", help="The letter that the level should look like.")],
    png: Annotated[Path | None, file_to_write(text="Save the picture that the classifier sees.")] = None,
    svg: Annotated[Path | None, file_to_write(text="Save a drawing.")] = None,
    replay: Annotated[Path | None, file_to_write(text="Save an SVG that plays the simulation.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Score the level again whenever the file changes.")] = False,
    engines: Annotated[bool, typer.Option("--engines", help="Compare all installed physics engines.")] = False,
    assignments: Assignments = None,
    json: Json = False,
) -> None:
    """Score one level: which blocks fell, which letter it shows.

    Physics and classifier come from params.yaml, if there is one. Exit code 1: the level failed and
    scores 0.
    """
    from pcgeval.cli.level_output import score_lines
    from pcgeval.cli.settings import load_params_or_default
    from pcgeval.core.packages import MissingPackageError
    from pcgeval.evaluator.level_score import score_level
    from pcgeval.evaluator.physics import simulate_with_all_engines
    from pcgeval.similarity.classifier import Classifier

    _check_arguments(file, letter, watch=watch)
    params = load_params_or_default(assignments or ())
    try:
        classifier = Classifier.load(params.similarity.model, params.similarity.revision)
    except MissingPackageError as error:
        if any(assignment.startswith("similarity.") for assignment in assignments or ()):
            raise
        classifier = None
        print_stderr(f"The level is only simulated: {error}")

    def score(text: str) -> bool:
        scored = score_level(text, letter, classifier, params.physics, classify=classifier is not None)
        ends = {}
        if engines and scored.xml and scored.simulated:
            ends = simulate_with_all_engines(scored.xml, params.physics)
        if json:
            by_engine = {name: {"stability": end.score, "moved": list(end.moved)} for name, end in ends.items()}
            print_json(scored.to_dict() | ({"engines": by_engine} if engines else {}))
        else:
            name = "stdin" if file == STDIN else str(file)
            print_lines(score_lines(scored, name, ends, terminal_width(piped=sys.maxsize)))
        sys.stdout.flush()
        _name_ignored_lines(text)
        if scored.simulated:
            _write_pictures(scored, png, svg, replay)
        return scored.reason is None

    if watch:
        try:
            _score_changes(file, score)
        except KeyboardInterrupt:
            print_stderr("ended")
    elif not score(read_stdin(MAX_BYTES) if file == STDIN else _read(file)):
        raise typer.Exit(EXIT_CHECK_FAILED)


def _name_ignored_lines(text: str) -> None:
    """Print the first lines of bare calls that hold no valid call; a comment needs no message."""
    from pcgeval.evaluator.level_score import text_kind
    from pcgeval.levels.extraction import extract_code

    if text_kind(text) != "calls":
        return
    lines = ((number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip())
    ignored = (
        f"line {number} is ignored, because it holds no valid call: {printable_line(line)[:80]}"
        for number, line in lines
        if not line.lstrip().startswith("#") and extract_code(f"```\n{line}\n```") is None
    )
    for message in islice(ignored, MOST_IGNORED):
        print_stderr(message)


def _check_arguments(file: Path, letter: str, *, watch: bool) -> None:
    if len(letter) != 1 or not "A" <= letter <= "Z":
        raise typer.BadParameter(f"letter {letter!r}: give one of A to Z.")
    if watch and file == STDIN:
        raise typer.BadParameter("--watch needs a file.")


def _write_pictures(scored: "LevelScore", png: Path | None, svg: Path | None, replay: Path | None) -> None:
    from pcgeval.evaluator.image import png_bytes

    if png:
        write_bytes(png, png_bytes(scored.image()))
    if svg:
        write_text(svg, scored.svg())
    if replay:
        write_text(replay, scored.replay_svg())


def _score_changes(file: Path, score: Callable[[str], bool]) -> NoReturn:
    """Score a file now and whenever it changes, and wait for one that cannot be read."""
    before: str | None = None
    while True:
        try:
            now = _read(file)
            if now != before:
                score(now)
        except PcgevalError as error:
            now = str(error)
            if now != before:
                print_stderr(now)
        before = now
        time.sleep(WATCH_SECONDS)


def _read(path: Path) -> str:
    return read_bounded_text(path, MAX_BYTES, follow_link=True)
