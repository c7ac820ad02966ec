"""What a team handed in: its prompt, or the files of its program."""

from pcgeval.core.files import sha256_bytes
from pcgeval.report.html import NOTHING, Html, element, shortened
from pcgeval.report.program_source import ProgramSource, SourceFile
from pcgeval.report.results import TeamResult
from pcgeval.report.words import count

LONGEST_PROMPT = 6_000  # characters
LONGEST_NAME = 120  # characters
MOST_FILES = 50


def work(team: TeamResult) -> Html:
    """Return the prompt or the program, closed until somebody opens it."""
    return _prompt(team.submission.prompt or "") if team.program is None else _program(team.program)


def _prompt(prompt: str) -> Html:
    size = f"{count(len(prompt.split()), 'word')}, {count(len(prompt), 'character')}"
    return element(
        "details",
        element("summary", "The prompt: ", size),
        element("pre", shortened(prompt, LONGEST_PROMPT)),
        _hash("SHA-256 ", sha256_bytes(prompt.encode("utf-8"))),
        class_="prompt",
    )


def _program(program: ProgramSource) -> Html:
    entry, files = shortened(program.entry, LONGEST_NAME), count(len(program.files), "file")
    size = count(sum(file.size for file in program.files), "byte")
    return element(
        "details",
        element("summary", f"The program: python {entry}, {files}, {size}"),
        NOTHING if program.readme is None else _text("README", program.readme),
        _text(entry, program.entry_text),
        _files(program.files),
        _hash("SHA-256 of all files ", program.sha256),
        class_="prompt",
    )


def _text(heading: str, text: str) -> Html:
    return element("div", element("h4", heading), element("pre", text))


def _files(files: tuple[SourceFile, ...]) -> Html:
    rows = [
        element(
            "tr",
            element("th", shortened(file.name, LONGEST_NAME), scope="row"),
            element("td", f"{file.size:,}", class_="number"),
            element("td", element("code", file.sha256), class_="hash"),
        )
        for file in files[:MOST_FILES]
    ]
    columns = ("file", "bytes", "SHA-256")
    head = element("thead", element("tr", *(element("th", each, scope="col") for each in columns)))
    more = f"and {count(len(files) - MOST_FILES, 'more file')}" if len(files) > MOST_FILES else ""
    table = element("table", head, element("tbody", *rows), class_="files")
    return element("div", table, element("p", more) if more else NOTHING, class_="wide")


def _hash(words: str, digest: str) -> Html:
    return element("p", words, element("code", digest), class_="hash")
