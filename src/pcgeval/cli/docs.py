"""Keeps the commands' help in the README as the commands print it: `python -m pcgeval.cli.docs [--check] README.md`."""

import argparse
import os
import sys
from pathlib import Path

from pcgeval.cli.main import parser
from pcgeval.core.console import print_stderr
from pcgeval.core.files import read_text, write_text

BEGIN, END = "<!-- commands: made by `python -m pcgeval.cli.docs README.md` -->\n", "<!-- end of commands -->"
WIDTH = "100"  # columns; help is wrapped to the terminal otherwise


def commands_help() -> str:
    """Return the help of all commands as one Markdown block."""
    os.environ["COLUMNS"] = WIDTH
    return f"```text\n{parser().format_help().rstrip()}\n```\n"


def with_help(text: str) -> str:
    """Return a document with the part between the two markers replaced by the commands' help of now."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"the markers {BEGIN.strip()} and {END} are missing. Put them where the help belongs.")
    return before + BEGIN + commands_help() + END + after


def main() -> int:
    """Write the help into a document, or check that it is there already."""
    words = argparse.ArgumentParser(prog="python -m pcgeval.cli.docs")
    words.add_argument("--check", action="store_true", help="change nothing; exit 1 if the help is out of date")
    words.add_argument("document", type=Path)
    arguments = words.parse_args()
    old = read_text(arguments.document)
    new = with_help(old)
    if arguments.check and old != new:
        print_stderr(
            f"{arguments.document}: the commands' help is out of date. "
            f"Run `python -m pcgeval.cli.docs {arguments.document}`."
        )
        return 1
    if old != new:
        write_text(arguments.document, new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
