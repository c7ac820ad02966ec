"""The command line: parse, call one function, print. Data goes to stdout, people are spoken to on stderr."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pcgeval.cli import commands, rubric_command
from pcgeval.core.console import exit_code_of

Command = Callable[[argparse.Namespace], int | None]


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; exit code 0 done, 1 the check failed, 2 bad usage or input."""
    arguments = parser().parse_args(words)
    action: Command = arguments.action
    return exit_code_of(lambda: action(arguments))


def parser() -> argparse.ArgumentParser:
    """Return the whole command line, as the README documents it."""
    top = argparse.ArgumentParser(
        prog="pcgeval",
        description="Evaluate Science Birds levels that language models write, from submissions to a ranking.",
        epilog="exit codes: 0 done, 1 a check failed, 2 bad usage or input",
    )
    add = top.add_subparsers(title="commands", metavar="COMMAND", required=True).add_parser
    for build in (_competition, _single_files, _official_layout, _grading, _rubric, _language_models):
        build(add)
    return top


Add = Callable[..., argparse.ArgumentParser]


def _competition(add: Add) -> None:
    _command(add, "check", commands.check, "check params.yaml, the submissions and all other inputs before a run")
    _command(add, "ranking", commands.ranking, "print the ranking of the last run", json_too=True)
    command = _command(add, "round", commands.run_round, "evaluate another round of params.yaml in rounds/NAME")
    command.add_argument("name", metavar="NAME", help="a key of `rounds` in params.yaml, such as midterm")
    command = _command(
        add,
        "audit",
        commands.run_audit,
        "name the inputs behind the ranking; check that nothing was altered",
        json_too=True,
    )
    command.add_argument("team", metavar="TEAM", nargs="?", help="only this team's line")
    command = _command(
        add, "try", commands.try_submission, "run a few trials of your submission before you hand it in", json_too=True
    )
    command.add_argument("program", metavar="PROGRAM", type=Path, help="its folder, its .py file or its prompt.txt")
    command.add_argument("--model", metavar="M", required=True, help="a model of params.yaml, a local one, or Ollama's")
    command.add_argument("--letters", default="IL", help="the letters to try, default IL")
    command.add_argument("--trials", type=int, default=2, help="trials per letter, default 2")
    command.add_argument("--host", metavar="ADDRESS", help="an Ollama server, or `pcgeval serve-local`")
    command.add_argument(
        "--out", metavar="DIR", type=Path, help="where the files go, default rehearsals/<team>/<model>"
    )
    command.add_argument(
        "--trust-programs", action="store_true", help="run it without a sandbox, with your rights, if there is none"
    )
    command = _command(
        add,
        "submit",
        commands.submit_submission,
        "check a submission that was handed in and file it below data/submissions",
        json_too=True,
    )
    command.add_argument("path", metavar="PATH", type=Path, help="its folder or zip file")
    command.add_argument("--team", metavar="NAME", help="default: the name of the folder or zip file")
    command.add_argument("--force", action="store_true", help="replace a submission that git has not kept")
    command = _command(
        add, "validate", commands.validate_submission, "say all that is wrong with a submission", json_too=True
    )
    command.add_argument("path", metavar="PATH", type=Path, help="its folder or zip file")
    _command(add, "record", commands.record, "keep the replies in data/raw as recordings that others can replay")


def _single_files(add: Add) -> None:
    for name, action, text in (
        ("extract", commands.extract, "extract the drop_block calls from responses"),
        ("convert", commands.convert, "convert drop_block calls to Science Birds levels"),
        ("simulate", commands.simulate, "simulate levels: stability, and with --images their pictures"),
        ("classify", commands.classify, "classify level pictures: the probability of each letter"),
    ):
        command = _command(add, name, action, text, json_too=True)
        command.add_argument("files", metavar="FILE", nargs="+", type=Path)
        if name == "simulate":
            command.add_argument("--images", metavar="DIR", type=Path, help="write a PNG of each level there")
        if name == "classify":
            command.add_argument("--classifier", metavar="SOURCE", default="data/classifier", help="folder or hub id")
            command.add_argument("--revision", metavar="COMMIT", help="the commit that pins a hub id")


def _official_layout(add: Add) -> None:
    command = _command(
        add, "rescore", commands.rescore, "score and rank from the official layout or published tables", json_too=True
    )
    command.add_argument("folders", metavar="DIR", nargs="+", type=Path, help="the <SOURCE> folder of one model each")
    command.add_argument("--out", metavar="DIR", type=Path, required=True, help="where the result files go")
    command.add_argument("--letters", default="ABCDEFGHIJKLMNOPQRSTUVWXYZ", help="default: A to Z")
    command.add_argument("--trials", type=int, default=10, help="trials per letter, default 10")
    command.add_argument("--baseline", metavar="TEAM", help="the team that the winner must beat")
    command.add_argument("--baselines", metavar="TEAM", nargs="*", default=[], help="teams scored but not ranked")
    command.add_argument("--disqualified", metavar="TEAM", nargs="*", default=[], help="teams left out of everything")
    command.add_argument("--official-quirks", action="store_true", help="follow the official script against the rules")
    command = _command(add, "export", commands.export, "lay the data out as the official tools expect it")
    command.add_argument("layout", choices=["official"])
    command.add_argument("target", metavar="DIR", type=Path)


def _grading(add: Add) -> None:
    command = _command(add, "grade", commands.grade, "grade a submission by a rubric and print the tree", json_too=True)
    command.add_argument("submission", metavar="SUBMISSION", help="a team of params.yaml, or a submission's folder")
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--rubric", metavar="ID", help="a folder of data/rubrics, or a file; default: that of params.yaml"
    )
    what.add_argument("--paper", metavar="ID", help="the paper that the submission is to reproduce")
    command.add_argument(
        "--papers-dir", metavar="DIR", type=Path, help="default: the one of params.yaml, or data/papers"
    )
    command.add_argument(
        "--judge",
        choices=["simple", "checks", "random", "dummy", "human"],
        help="default: that of params.yaml; simple with --model, human with --grades",
    )
    command.add_argument("--model", metavar="M", help="who judges: a model of params.yaml, a local one, or Ollama's")
    command.add_argument("--host", metavar="ADDRESS", help="an Ollama server, or `pcgeval serve-local`")
    command.add_argument("--votes", metavar="N", type=int, help="how often the model grades each leaf")
    command.add_argument("--temperature", metavar="T", type=float, help="of the model; votes differ from above 0 on")
    command.add_argument("--context", metavar="N", type=int, help="tokens of one call, the answer included")
    command.add_argument("--deadline", metavar="SECONDS", type=float, help="ask the model nothing more after that")
    command.add_argument("--grades", metavar="FILE", type=Path, help="a person's grades, as YAML or CSV")
    command.add_argument("--code-only", action="store_true", help="grade the leaves about code only")
    command.add_argument("--resources-provided", action="store_true", help="acquiring data and models weighs nothing")
    command.add_argument("--max-depth", metavar="N", type=int, help="grade what lies deeper than N levels as a whole")
    command.add_argument("--ignore-checks", action="store_true", help="ask the model about leaves with a check too")
    command.add_argument("--invalid-as-zero", action="store_true", help="count leaves without a grade as 0")
    command.add_argument("--reproduce", action="store_true", help="run reproduce.sh first, on a copy in the sandbox")
    command.add_argument("--network", action="store_true", help="let it use the network")
    command.add_argument(
        "--trust-programs", action="store_true", help="run it without a sandbox, with your rights, if there is none"
    )
    command.add_argument("--recording", metavar="FILE", type=Path, help="the model's replies that were kept before")
    command.add_argument("--exchanges", metavar="FILE", type=Path, help="where to keep its replies")
    command.add_argument("--out", metavar="FILE", type=Path, help="write the grade there too, as JSON")


def _rubric(add: Add) -> None:
    top = add("rubric", help="explain grades, compare them, and keep them", description="Explain and compare grades.")
    add = top.add_subparsers(title="commands", metavar="COMMAND", required=True).add_parser
    text = "explain a grade: the whole tree, or one criterion from the root down to what the judge said"
    command = _command(add, "show", rubric_command.show, text, json_too=True)
    command.add_argument("grade", metavar="GRADE", type=Path, help="a grade.json, or a graded tree of PaperBench")
    command.add_argument("--leaf", metavar="PATH", help="a criterion's path, or an end of it that no other has")
    text = "say how far two gradings by one rubric agree: a judge's and a person's"
    command = _command(add, "agreement", rubric_command.agreement, text, json_too=True)
    for name in ("a", "b"):
        command.add_argument(name, metavar=name.upper(), type=Path, help="a grade.json, or a folder of them")
    command.add_argument("--pass-at", metavar="SCORE", type=float, default=0.5, help="what counts as passed, from 0.5")
    command.add_argument("--bootstrap", metavar="N", type=int, default=1000, help="resamples, default 1000")
    command.add_argument("--seed", type=int, default=0, help="of the resamples, default 0")
    text = "list the criteria of a rubric that are graded"
    command = _command(add, "leaves", rubric_command.leaves, text, json_too=True)
    command.add_argument("rubric", metavar="RUBRIC", help="a folder of data/rubrics, or a rubric.json")
    command.add_argument("--form", action="store_true", help="print a form for grading by hand (--judge human)")
    text = "keep the present grades under a label; the report shows what changed since"
    command = _command(add, "keep", rubric_command.keep, text)
    command.add_argument("label", metavar="LABEL", help="1 to 64 of A-Z a-z 0-9 . _ -")


def _language_models(add: Add) -> None:
    command = _command(add, "models", commands.models, "list the local models, or fetch one into the cache")
    command.add_argument("what", choices=["list", "fetch"])
    command.add_argument("names", metavar="NAME", nargs="*", help="which to fetch; default: all")
    command = _command(add, "serve-local", commands.serve_local, "serve the local models as Ollama and OpenAI do")
    command.add_argument("--host", default="127.0.0.1")
    command.add_argument("--port", type=int, default=11434, help="default 11434, as Ollama")


def _command(add: Add, name: str, action: Command, text: str, *, json_too: bool = False) -> argparse.ArgumentParser:
    command = add(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.set_defaults(action=action)
    if json_too:
        command.add_argument("--json", action="store_true", help="print JSON")
    return command


if __name__ == "__main__":
    sys.exit(main())
