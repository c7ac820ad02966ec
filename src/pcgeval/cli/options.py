"""Options that several commands share, and the form of their output: JSON, tables, the ranking."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

_WIDE = 100  # columns of a terminal from which on the columns of a table stand two spaces apart
_PIPED = 140  # columns of a table that no terminal shows, unless its names and numbers need more
_NAMES = frozenset(
    {"model", "team", "state", "status", "grading", "submission", "paper", "what", "judge", "attack", "category"}
)  # never broken
_TEXTS = frozenset({"before", "after"})  # broken where they are long

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
GradeFormat = Annotated[
    Literal["pcgeval", "paperbench"],
    typer.Option("--format", help="Of a grade in JSON: paperbench is what PaperBench reads, its grader_output.json."),
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", dir_okay=False, help="Also write it as a page.")]
Anonymous = Annotated[
    bool, typer.Option("--anonymous", help="Write pseudonyms for the names of all teams but baselines.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A key of params.yaml, such as physics.starts=20; may be repeated."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="A Dask cluster's, such as tcp://10.0.0.1:8786; default: that of params.yaml."
    ),
]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="An Ollama server.")]
BaseUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The model's endpoint, of OpenAI's interface; its key is OPENAI_API_KEY."),
]
TrustPrograms = Annotated[
    bool,
    typer.Option("--trust-programs", help="Run it with your rights where there is no sandbox for programs."),
]


def group() -> typer.Typer:
    """Return an empty group of commands whose help and errors are plain text."""
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


def assign(values: dict[str, Any], assignment: str) -> None:
    """Set a key of nested mappings to the value of `KEY=VALUE`, with dots for keys within keys; the value is YAML.

    Raises:
        BadParameter: It is no assignment.
    """
    import yaml

    name, sign, text = assignment.partition("=")
    *outer, last = name.split(".")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"--set {assignment}: the value is no YAML.") from error
    section: Any = values
    for key in outer:
        section = section.setdefault(key, {}) if isinstance(section, dict) else None
    if not sign or not last or not isinstance(section, dict):
        raise typer.BadParameter(f"--set {assignment}: give KEY=VALUE, with a key of params.yaml.")
    section[last] = value


def print_json(value: Any) -> None:
    """Print a value as one line of JSON; what a terminal cannot show, or obeys, is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    sys.stdout.write("".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of plain text, numbers to the right; on a terminal too narrow for it a few lines for each row."""
    from rich.console import Console
    from rich.table import Table

    rows, headers = list(rows), list(columns)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else max(_PIPED, _least_width(headers, rows, 2))
    gap = 2 if width >= _WIDE else 1
    if _least_width(headers, rows, gap) > width:
        headers = [header.replace(" ", "\n") for header in columns]
    if _least_width(headers, rows, gap) > width:
        _print_rows(columns, rows, width)
        return
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for column, header in zip(columns, headers, strict=True):
        is_number = column not in _NAMES | _TEXTS
        table.add_column(
            header, justify="right" if is_number else "left", no_wrap=column not in _TEXTS, overflow="fold"
        )
    for row in rows:
        table.add_row(*row)
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)


def _least_width(headers: Sequence[str], rows: Sequence[Sequence[str]], gap: int) -> int:
    """Return the columns of a terminal that a table needs, in which only long texts are broken."""
    widths = []
    for header, *cells in zip(headers, *rows, strict=True):
        unbroken = [] if header in _TEXTS else cells
        widths.append(max(map(len, [*header.split("\n"), *unbroken])))
    return sum(widths) + gap * len(widths)


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    """Print the names of each row in a line, and below them its other cells with their columns."""
    for row in rows:
        cells = list(zip(columns, row, strict=True))
        names = [cell for column, cell in cells if column in _NAMES]
        others = ", ".join(f"{column} {cell}" for column, cell in cells if column not in _NAMES)
        lines = textwrap.wrap(others, max(1, width - 2), break_on_hyphens=False, break_long_words=False)
        sys.stdout.writelines(f"{line}\n" for line in (" ".join(names), *(f"  {line}" for line in lines)))


def refuse_two_formats(form: str | None, *, json: bool, option: str = "--format") -> None:
    """Raise BadParameter where both --json and another format are given."""
    if json and form not in {None, "json"}:
        raise typer.BadParameter(f"--json and {option}: use one of them.")
