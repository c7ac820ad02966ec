"""Write the help of all commands to docs/commands.md, or check it: `python -m pcgeval.cli.docs [--check]`."""

import os
from pathlib import Path
from typing import Annotated, cast

import typer
from typer.cli import get_docs_for_click
from typer.core import TyperGroup

from pcgeval.cli.main import app
from pcgeval.core.console import print_stderr
from pcgeval.core.files import read_text, write_text

DOCUMENT = Path("docs/commands.md")


def commands_help() -> str:
    """Return the help of all commands as Markdown."""
    os.environ["COLUMNS"] = "100"
    top = cast("TyperGroup", typer.main.get_command(app))
    context = typer.Context(top, info_name="pcgeval")
    parts = [
        "<!-- made by `python -m pcgeval.cli.docs` -->\n\n# Commands\n",
        f"```text\n{top.get_help(context)}\n```\n",
    ]
    for name in top.list_commands(context):
        command = top.commands[name]
        parts.append(get_docs_for_click(obj=command, ctx=context, indent=1, call_prefix="pcgeval").rstrip() + "\n")
    return "\n".join(parts)


def main(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if the help is out of date.")] = False,
    document: Annotated[Path, typer.Argument(help="The document to write.")] = DOCUMENT,
) -> None:
    """Write the help of all commands into a document."""
    new = commands_help()
    is_current = document.is_file() and read_text(document) == new
    if check and not is_current:
        print_stderr(f"{document}: the commands' help is out of date. Run `python -m pcgeval.cli.docs`.")
        raise typer.Exit(1)
    if not is_current:
        write_text(document, new)


if __name__ == "__main__":
    typer.run(main)
