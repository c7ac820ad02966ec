"""Options that several commands share, and the JSON and the tables that commands print."""

import json
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from typer.core import TyperCommand

# columns that name a row
_NAMES = {"model", "team", "letter", "state", "status", "submission", "what"}
_NAMES |= {"paper", "grading", "judge", "attack", "category"}
_TEXTS = _NAMES | {"before", "after", "failure"}  # columns that are aligned to the left


def file_to_write(*names: str, text: str) -> Any:
    """Return an option for a file to write, in a folder that exists; `text` is its help."""
    return typer.Option(*names, metavar="FILE", dir_okay=False, callback=_in_existing_folder, help=text)


def _in_existing_folder(path: Path | None) -> Path | None:
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"{path.parent}: no such folder.")
    return path


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", dir_okay=False, help="Also write a web page.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of params.yaml, as rubric.votes=3. Repeatable."),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="An OpenAI-compatible endpoint with the model; OPENAI_API_KEY has the key."),
]
TrustPrograms = Annotated[
    bool,
    typer.Option("--trust-programs", help="Without a sandbox, run the program with your own rights."),
]


class _Command(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments of the usage without the braces that Typer puts around them."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


class _Group(typer.Typer):
    def command(self, name: str | None = None, **settings: Any) -> Any:
        return super().command(name, cls=_Command, **settings)


def group() -> typer.Typer:
    """Return an empty group of commands with help and errors in plain text."""
    return _Group(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


def assign(values: dict[str, Any], assignment: str) -> None:
    """Set a key of nested mappings to the value of `KEY=VALUE`: dots separate nested keys, the value is YAML."""
    name, sign, text = assignment.partition("=")
    *outer, last = name.split(".")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # such as the date 2026-13-01
        raise typer.BadParameter(f"--set {assignment}: the value is not valid YAML.") from error
    section: Any = values
    for key in outer:
        section = section.setdefault(key, {}) if isinstance(section, dict) else None
    if not sign or not last or not isinstance(section, dict):
        raise typer.BadParameter(f"--set {assignment}: give KEY=VALUE, with a key of params.yaml.")
    section[last] = value


def print_json(value: Any) -> None:
    """Print a value as one line of JSON in ASCII, so that no text in it controls the terminal."""
    sys.stdout.write(f"{json.dumps(value)}\n")


def terminal_width(piped: int) -> int:
    """Return the columns of the terminal, or `piped` if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else piped


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, rare: Collection[str] = ()) -> None:
    """Print a table as plain text, with numbers aligned to the right.

    If the terminal is too narrow, headers are broken at spaces; if that is not enough, each row becomes a few lines.

    Args:
        columns: The headers.
        rows: The cells of each row.
        rare: Columns that are left out if all their cells are 0.
    """
    cells = list(zip(columns, *rows, strict=True))
    columns, *rows = zip(*(column for column in cells if column[0] not in rare or {*column[1:]} != {"0"}), strict=True)
    width = terminal_width(piped=sys.maxsize)
    broken = list(zip_longest(*map(str.split, columns), fillvalue=""))
    for headers, gap in (([columns], 2), (broken, 2), (broken, 1)):
        lines = [*headers, *rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        if sum(widths) + gap * (len(widths) - 1) <= width:
            for number, line in enumerate(lines):
                padded = [
                    cell.ljust(room) if column in _TEXTS else cell.rjust(room)
                    for column, cell, room in zip(columns, line, widths, strict=True)
                ]
                typer.secho((" " * gap).join(padded).rstrip(), bold=number < len(headers))
            return
    for row in rows:
        named = list(zip(columns, row, strict=True))
        typer.echo(" ".join(cell for column, cell in named if column in _NAMES))
        others = ", ".join(f"{column} {cell}" for column, cell in named if column not in _NAMES)
        for line in textwrap.wrap(others, width - 2, break_long_words=False, break_on_hyphens=False):
            typer.echo(f"  {line}")
