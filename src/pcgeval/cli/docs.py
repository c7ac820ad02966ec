"""Write the help of all commands to docs/commands.md, or check it: `python -m pcgeval.cli.docs [--check]`."""

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import typer
from typer.core import TyperCommand, TyperGroup

from pcgeval.cli.main import SECTIONS, app
from pcgeval.core.console import print_stderr
from pcgeval.core.files import read_text, write_text

DOCUMENT = Path("docs/commands.md")
INTRODUCTION = """<!-- made by `python -m pcgeval.cli.docs` -->

# Commands

Data goes to stdout, messages to stderr; `--json` prints JSON. Exit codes: 0 done, 1 a check failed, 2 wrong usage or
input. Every command has `--help`. `pcgeval --version` prints the version; `pcgeval --install-completion` lets the shell
complete commands.
"""


def commands_help() -> str:
    """Return the help of all commands as Markdown."""
    top = cast("TyperGroup", typer.main.get_command(app))
    parts = [INTRODUCTION]
    for heading, names in SECTIONS.items():
        parts += [f"## {heading}\n", *_group_help(top, names, typer.Context(top, info_name="pcgeval"))]
    return "\n".join(parts)


def _group_help(group: TyperGroup, names: Iterable[str], parent: typer.Context) -> Iterator[str]:
    """Yield the help of the group's commands: usage, text, arguments and options."""
    commands = cast("dict[str, TyperCommand | TyperGroup]", group.commands)
    for name in names:
        command = commands[name]
        context = typer.Context(command, parent=parent, info_name=name)
        if isinstance(command, TyperGroup):
            yield from _group_help(command, command.list_commands(context), context)
            continue
        arguments = [piece.strip("{}") for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
        records = [record for parameter in command.params if (record := parameter.get_help_record(context))]
        rows = [record for record in records if record[0] != "--json"]
        prints_json = ["[--json]"] if len(rows) < len(records) else []
        yield f"### `{' '.join([context.command_path, *arguments, *prints_json])}`\n"
        yield inspect.cleandoc(command.help or "") + "\n"
        if rows:
            yield "".join(map(_row, rows))


def _row(record: tuple[str, str]) -> str:
    name, text = record
    if not name.startswith("-"):  # the usage line tells which arguments are required
        name, text = name.partition(" ")[0], text.removesuffix("  [required]")
    return f"- `{name}`: {text}\n"


if __name__ == "__main__":
    if "--check" not in sys.argv:
        write_text(DOCUMENT, commands_help())
    elif read_text(DOCUMENT) != commands_help():
        print_stderr(f"{DOCUMENT}: the commands' help is out of date. Run `python -m pcgeval.cli.docs`.")
        sys.exit(1)
