"""Write docs/commands.md and docs/failures.md, or check them: `python -m pcgeval.cli.docs [--check]`."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import typer
from typer.core import TyperCommand, TyperGroup

from pcgeval.cli.main import app
from pcgeval.core.console import print_stderr
from pcgeval.core.failures import FAILURES
from pcgeval.core.files import read_text, write_text

COMMANDS, KINDS = Path("docs/commands.md"), Path("docs/failures.md")
FAILURES_INTRODUCTION = """<!-- made by `python -m pcgeval.cli.docs` -->

# Failures

A trial that fails has one of these failures, in ranking.json, on the page, and in `explain`, `try` and `status`. Only a
failure of the submission is a result of the team; any other is repeated by the next run, as is one that is not final.

| kind | stage | whose | final | sentence |
|---|---|---|---|---|
"""
INTRODUCTION = """<!-- made by `python -m pcgeval.cli.docs` -->

# Commands

Data goes to stdout, messages to stderr; `--json` prints JSON. Exit codes: 0 done, 1 a check failed, 2 wrong usage or
input. Every command has `--help`. `pcgeval --version` prints the version; `pcgeval --install-completion` lets the shell
complete commands.
"""


def commands_help() -> str:
    """Return the help of all commands as Markdown."""
    command = cast("TyperGroup", typer.main.get_command(app))
    return "\n".join([INTRODUCTION, *_help(command, typer.Context(command, info_name="pcgeval"))])


def _help(command: TyperCommand | TyperGroup, context: typer.Context) -> Iterator[str]:
    """Yield the usage, the text, the arguments and the options of a command or of all commands in a group."""
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            inner = cast("TyperCommand | TyperGroup", command.commands[name])
            yield from _help(inner, typer.Context(inner, parent=context, info_name=name))
        return
    pieces = [piece.strip("{}") for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield f"## `{' '.join([context.command_path, *pieces])}`\n\n{inspect.cleandoc(command.help or '')}\n"
    records = [record for parameter in command.params if (record := parameter.get_help_record(context))]
    yield "".join(f"- `{name}`: {text}\n" for name, text in records)


def failures_table() -> str:
    """Return the table of failures as Markdown."""
    lines = []
    for kind, row in FAILURES.items():
        sentence = row.sentence.replace("`", "\\`")
        lines.append(f"| `{kind}` | {row.stage} | {row.owner} | {'yes' if row.is_final else 'no'} | {sentence} |\n")
    return FAILURES_INTRODUCTION + "".join(lines)


def main() -> int:
    """Write or check the documents, and return the exit code."""
    for document, text in ((COMMANDS, commands_help()), (KINDS, failures_table())):
        if "--check" not in sys.argv:
            write_text(document, text)
        elif not document.exists() or read_text(document) != text:
            print_stderr(f"{document}: is out of date. Run `python -m pcgeval.cli.docs`.")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
