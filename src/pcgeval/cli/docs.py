"""Write the help of all commands to docs/commands.md, or check it: `python -m pcgeval.cli.docs [--check]`."""

import os
import sys
from pathlib import Path
from typing import cast

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


if __name__ == "__main__":
    if "--check" not in sys.argv:
        write_text(DOCUMENT, commands_help())
    elif read_text(DOCUMENT) != commands_help():
        print_stderr(f"{DOCUMENT}: the commands' help is out of date. Run `python -m pcgeval.cli.docs`.")
        sys.exit(1)
