"""The command `pcgeval`: one module per group of commands; data goes to stdout, messages to stderr.

Commands import what they need when they run, so that no command waits for the packages of another one.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pcgeval.cli import (
    check,
    competition,
    evaluate,
    grade,
    init,
    levels,
    models,
    proof,
    rubric,
    run,
    status,
    submissions,
)
from pcgeval.core.console import EXIT_INTERRUPTED, exit_code_of, raise_on_sigterm

SECTIONS = {
    "Take part in a competition": ("validate", "try"),
    "Run a competition": ("init", "submit", "check", "run", "status"),
    "Look at the results": ("ranking", "explain", "compare"),
    "Prove and exchange results": ("audit", "bundle", "verify", "rescore", "export"),
    "Score levels": ("level", "evaluate"),
    "Grade with a rubric": ("grade", "rubric"),
    "Local language models": ("models",),
}


class _Sections(TyperGroup):
    """The commands, listed in sections."""

    def list_commands(self, _: Any) -> list[str]:
        """Return the commands' names in the order of the help."""
        return [name for names in SECTIONS.values() for name in names]

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write the commands, section by section."""
        width = max(map(len, self.commands))
        for heading, names in SECTIONS.items():
            with formatter.section(heading):
                texts = [self.commands[name].get_short_help_str(formatter.width - 6 - width) for name in names]
                formatter.write_dl([(name.ljust(width), text) for name, text in zip(names, texts, strict=True)])


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
for module in (init, check, run, competition, proof, status, submissions, levels, evaluate, grade, models):
    app.add_typer(module.app)
app.add_typer(rubric.app, name="rubric", help="Explain grades, compare them, and measure judges.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 a check failed, 2 wrong usage or input."""
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
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
        from importlib.metadata import version

        sys.stdout.write(f"pcgeval {version('pcgeval')}\n")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Declare the options that come before the command."""
