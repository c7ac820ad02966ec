"""Write docs/commands.md and docs/failures.md, or check them: `python -m pcgeval.cli.docs [--check]`."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperGroup

from pcgeval.cli.main import app, load_command
from pcgeval.core.console import print_stderr
from pcgeval.core.files import write_text
from pcgeval.core.untrusted import read_text
from pcgeval.formats.failures import FAILURES, FailureStage

COMMANDS, KINDS = Path("docs/commands.md"), Path("docs/failures.md")
FAILURES_INTRODUCTION = """<!-- made by `python -m pcgeval.cli.docs` -->

# Failures

The kinds of failures, by the stage that finds them, with words in braces for a trial's values. A failure is the
submission's, final, and counts as zero, unless its line says otherwise. The next run repeats a trial whose failure is
not final. `pcgeval ranking` counts failures by kind.
"""
INTRODUCTION = """<!-- made by `python -m pcgeval.cli.docs` -->

# Commands

Data goes to stdout, messages to stderr; with `--json`, commands that print data print JSON. Exit codes: 0 done, 1 a
check failed, 2 wrong usage or input. Every command has `--help`. `pcgeval --version` prints the version;
`pcgeval --install-completion` lets the shell complete commands.
"""


def commands_help() -> str:
    """Return the help of all commands as Markdown."""
    command = typer.main.get_command(app)
    return "\n".join([INTRODUCTION, *_help(command, typer.Context(command, info_name="pcgeval"))])


def _help(command: Any, context: typer.Context) -> Iterator[str]:
    """Yield the usage, the text, the arguments and the options of a command or of all commands in a group."""
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            inner = load_command(name) if context.parent is None else command.commands[name]
            yield from _help(inner, typer.Context(inner, parent=context, info_name=name))
        return
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield f"## `{' '.join([context.command_path, *pieces])}`\n\n{inspect.cleandoc(command.help or '')}\n"
    records = [record for parameter in command.params if (record := parameter.get_help_record(context))]
    yield "".join(f"- `{name}`: {text}\n" for name, text in records if name != "--json")


def failures_table() -> str:
    """Return the table of failures as Markdown."""
    lines = [FAILURES_INTRODUCTION]
    for stage in get_args(FailureStage):
        lines.append(f"## {stage}\n")
        for kind, row in FAILURES.items():
            if row.stage == stage:
                notes = [f"the {row.owner}'s"] * (row.owner != "submission") + ["not final"] * (not row.is_final)
                marks = f" ({', '.join(notes)})" if notes else ""
                sentence = row.sentence.replace("`", "\\`")
                lines.append(f"- **{kind}**{marks}: {sentence}")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Write or check the documents, and return the exit code."""
    for document, text in ((COMMANDS, commands_help()), (KINDS, failures_table())):
        if "--check" not in sys.argv:
            write_text(document, text)
        elif not document.exists() or read_text(document, follow_link=True) != text:
            print_stderr(f"{document}: is out of date. Run `python -m pcgeval.cli.docs`.")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
