"""Options that several commands share, and the form of their output."""

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

Number = TypeVar("Number", int, float)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="An Ollama server, or `pcgeval serve-local`.")]
TrustPrograms = Annotated[
    bool,
    typer.Option("--trust-programs", help="Run it with your rights where there is no sandbox for programs."),
]


def group() -> typer.Typer:
    """Return an empty group of commands whose help and errors are plain text."""
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


def within(least: Number, most: Number) -> Callable[[Number | None], Number | None]:
    """Return an option's callback that refuses numbers outside a range, and nan."""

    def check(value: Number | None) -> Number | None:
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{value:g} is not a number from {least:g} to {most:g}.")
        return value

    return check


def print_json(value: Any) -> None:
    """Print a value as one line of JSON; what a terminal cannot show, or obeys, is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    sys.stdout.write("".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text) + "\n")
