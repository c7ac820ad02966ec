"""The command `pcgeval`: a module of commands is imported when one of its commands runs or shows its help.

Data goes to stdout, messages to stderr.
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from pcgeval.core.console import EXIT_INTERRUPTED, GARBAGE, exit_code_of, raise_on_sigterm

# the module of each command, and the first line of its help
SECTIONS = {
    "Take part in a competition": {
        "validate": ("competition", "Check a submission and list every problem."),
        "try": ("competition", "Run a few trials of your submission and score them."),
    },
    "Run a competition": {
        "init": ("competition", "Make a folder for a competition."),
        "submit": ("competition", "Check a submission, copy it, and add its team to params.yaml."),
        "check": ("check", "Check params.yaml, the submissions and all other inputs."),
        "run": ("check", "Evaluate the competition, from the checks to the ranking."),
        "status": ("status", "Show the progress of a run: trials done, failed and left."),
    },
    "Look at the results": {
        "ranking": ("ranking", "Print the ranking of the last run, or open its report."),
        "explain": ("explain", "Explain a trial, from its prompt to its share of the total."),
        "compare": ("proof", "Compare two evaluations and show the differences."),
    },
    "Prove and exchange results": {
        "audit": ("proof", "Run the whole evaluation again and compare every file."),
        "bundle": ("proof", "Write inputs and results to one file that anyone can verify."),
        "verify": ("proof", "Run the evaluation of a bundle again with the installed release."),
        "rescore": ("proof", "Score and rank from official files or published tables."),
        "export": ("proof", "Export the data or the recordings of the last run."),
    },
    "Score levels": {
        "level": ("levels", "Score one level: which blocks fell, which letter it shows."),
        "evaluate": ("levels", "Score the levels of many responses and write Parquet files."),
    },
    "Grade with a rubric": {
        "grade": ("grade", "Grade a submission by a rubric, or a folder of runs."),
        "rubric": ("rubric", "Explain grades, compare them, and measure judges."),
    },
    "Local language models": {
        "models": ("models", "List the local models, fetch them into the cache, or serve one."),
    },
}
_MODULES = {name: module for commands in SECTIONS.values() for name, (module, _) in commands.items()}


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import a command or a group of commands."""
    module = import_module(f"pcgeval.cli.{_MODULES[name]}")
    return cast("TyperCommand | TyperGroup", get_group(module.app).commands[name])


class _Sections(TyperGroup):
    """The commands in sections; each is only a name and a line of help until it is used."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        texts = {name: text for commands in SECTIONS.values() for name, (_, text) in commands.items()}
        self.commands = {name: TyperCommand(name, help=text) for name, text in texts.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name of the command to run, the imported command, and its arguments."""
        name, command, arguments = super().resolve_command(ctx, args)
        return name, command and load_command(command.name or ""), arguments

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write the commands, section by section."""
        width = max(map(len, self.commands))
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])


app = typer.Typer(
    name="pcgeval",
    cls=_Sections,
    help="Evaluate Science Birds levels written by language models, from submissions to a ranking.",
    epilog="Exit codes: 0 done, 1 a check failed, 2 wrong usage or input.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 a check failed, 2 wrong usage or input."""
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        gc.set_threshold(GARBAGE)
        raise_on_sigterm()
        for stream in (sys.stdout, sys.stderr):  # the terminal's encoding may lack a character of a submission
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    def run_command() -> int:
        try:
            app(list(words), prog_name="pcgeval")
        except SystemExit as end:
            if end.code == EXIT_INTERRUPTED:
                raise KeyboardInterrupt from None
            return end.code if isinstance(end.code, int) else 0
        return 0

    code = exit_code_of(run_command, " ".join(["pcgeval", *words[:1]]))
    if code == EXIT_INTERRUPTED and arguments is None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # a normal exit would wait for threads that still call a model
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"pcgeval {version('pcgeval')}\n")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Declare the options that come before the command."""
