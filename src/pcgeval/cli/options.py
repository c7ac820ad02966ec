"""Options that several commands share, and the form of their output: JSON, tables, the ranking."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

_WIDE = 100  # columns of a terminal from which on the columns of a table stand two spaces apart
_TEXT_COLUMNS = frozenset(
    {"model", "team", "state", "status", "grading", "submission", "paper", "what", "before", "after", "judge", "attack"}
)

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


def within(least: float, most: float) -> Callable[[float | None], float | None]:
    """Return an option's callback that refuses numbers outside a range, and nan."""

    def check(value: float | None) -> float | None:
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{value:g} is not a number from {least:g} to {most:g}.")
        return value

    return check


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
    """Print a table of plain text, numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 140, markup=False, emoji=False, highlight=False)
    gap = 2 if console.width >= _WIDE else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for column in columns:
        is_text = column in _TEXT_COLUMNS
        table.add_column(column, justify="left" if is_text else "right", no_wrap=is_text, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def refuse_two_formats(form: str | None, *, json: bool) -> None:
    """Raise BadParameter where both --json and another --format are given."""
    if json and form not in {None, "json"}:
        raise typer.BadParameter("--json and --format: use one of them.")
