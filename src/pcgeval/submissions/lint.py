"""Tell from the syntax of a program which file starts it, and what would fail, or be held against it, where it is run.

A program is started as `python FILE`. FILE has a subclass of the interface's TrialLoop and a block under
`if __name__ == "__main__"`; where the class lies in another module, the file that calls `run_evaluation` counts. Of
several such files, the one that the README starts with `python FILE` is taken.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pcgeval.core.trials import Flag
from pcgeval.core.untrusted import UntrustedFileError, printable_name, read_start
from pcgeval.submissions.findings import SubmissionFinding, error, warning
from pcgeval.submissions.sources import INTERFACE_PACKAGES, PythonFile, find_readme

MAX_IN_A_FILE = 50  # findings
_README_BYTES = 256 * 2**10
STARTED_WITH_PYTHON = re.compile(
    r"""\b(?:python[0-9.]*|py|uv[ ]run)(?:\.exe)?[ \t]+(?:-[a-zA-Z][ \t]+){0,3}"""
    r"""(?:"([^"\n]{1,200}\.py)"|'([^'\n]{1,200}\.py)'|([^\s"'`]{1,200}\.py)\b)"""
)
# these reach other machines; the program's only way out is the interface package
_NETWORK = {
    *("aiohttp", "anthropic", "boto3", "ftplib", "groq", "httpx", "huggingface_hub", "litellm", "mistralai", "ollama"),
    *("paramiko", "playwright", "requests", "selenium", "smtplib", "socket", "together", "urllib3", "websocket"),
    *("websockets", "http.client", "urllib.request", "google.generativeai", "google.genai", "openai"),
}


@dataclass(frozen=True)
class EntrySearch:
    """The entry, or None and the candidates from which somebody must choose; without candidates it is no program.

    `idle` are the files with a subclass of TrialLoop where there are no candidates: nothing starts them.
    """

    entry: str | None
    candidates: tuple[PythonFile, ...]
    idle: tuple[PythonFile, ...] = ()


def find_entry(folder: Path, files: Sequence[PythonFile]) -> EntrySearch:
    """Look among a program's files for the one that starts it."""
    running = {Path(file.name).stem for file in files if file.starts}

    def runs(file: PythonFile) -> bool:
        return file.starts > 0 or (file.has_main and bool(file.imports & running))

    def may_start(file: PythonFile) -> bool:
        if file.fault:  # an old copy must not be taken in the place of a file that is no Python
            return file.names_interface
        return runs(file) or (bool(file.loop) and file.has_main)

    candidates = tuple(file for file in files if may_start(file))
    by_rank = (
        [file for file in candidates if file.has_main and file.loop and runs(file)],
        [file for file in candidates if file.has_main and runs(file)],
        [file for file in candidates if file.has_main],
        list(candidates),
    )
    started = _started_by_readme(folder)
    named = [file for file in candidates if file.name in started]
    if len(candidates) > 1 and len(named) == 1:
        best = named
    elif len(candidates) > 1 and any(file.fault for file in candidates):
        best = []
    else:
        best = next((group for group in by_rank if group), [])
    entry = best[0].name if len(best) == 1 and not best[0].fault else None
    idle = tuple(file for file in files if file.loop and not candidates)
    return EntrySearch(entry, candidates, idle)


def _started_by_readme(folder: Path) -> set[str]:
    readme = find_readme(folder)
    try:
        text = read_start(readme, _README_BYTES).decode("utf-8", errors="replace") if readme else ""
    except UntrustedFileError:
        return set()
    names = ("".join(match.groups(default="")) for match in STARTED_WITH_PYTHON.finditer(text))
    return {name.replace("\\", "/").removeprefix("./") for name in names}


def source_findings(folder: Path, files: Sequence[PythonFile], entry: str | None) -> Iterator[SubmissionFinding]:
    """Yield what is wrong with a program's files; `entry` starts it, if that is known."""
    for file in files:
        if file.fault and file.name == entry and file.is_read:
            yield error(file.place, file.fault, "syntax")
        elif file.fault:
            yield warning(file.place, file.fault)
        yield from islice(_network_findings(file), MAX_IN_A_FILE)
        if file.name == entry and file.starts > 1:
            text = f"calls run_evaluation {file.starts} times; a submission is one program, the first call"
            yield warning(file.name, text)
        if file.name == entry and file.starts and not file.has_main:
            text = 'has no `if __name__ == "__main__":`; put the call of run_evaluation under it, as the rules ask'
            yield warning(file.name, text)
    if entry is not None and not any(file.starts or file.fault for file in files):
        yield warning(entry, "never calls run_evaluation, without which no trial is run")
    for package in INTERFACE_PACKAGES:
        if (folder / package).is_dir() or (folder / f"{package}.py").is_file():
            yield warning(package, "is not used: the competition's own package replaces it; remove the copy")
    for flag in unseeded_random(files):
        yield warning("", f"{flag.detail}; seed it, or its answers cannot be reproduced")


def _network_findings(file: PythonFile) -> Iterator[SubmissionFinding]:
    lines = set()
    for line, module in file.modules:
        if line not in lines and (module in _NETWORK or module.partition(".")[0] in _NETWORK):
            lines.add(line)
            text = (
                f"imports {printable_name(module)}: there is no network; the model is asked through chat_with_llm only"
            )
            yield warning(f"{file.name}:{line}", text)


def unseeded_random(files: Sequence[PythonFile]) -> tuple[Flag, ...]:
    """Return a flag for each source of random numbers of a program that gives others in another run.

    These are generators that the program uses and nowhere seeds, or seeds with the time or the like, and the system's
    own randomness. A seed in any file counts for all of them: this finds what was forgotten, not what is hidden.
    """
    seeded = frozenset().union(*(file.seeded for file in files))
    used: dict[str, str] = {}
    unrepeatable: dict[str, str] = {}
    for file in files:
        for generator, line in file.generators:
            used.setdefault(generator, f"{file.name}:{line}")
        for name, text in file.unrepeatable:
            unrepeatable.setdefault(name, f"{file.name}:{text}")
    details = [
        f"{place} uses {generator}, which no file of the program gives a seed"
        for generator, place in sorted(used.items())
        if generator not in seeded
    ]
    return tuple(Flag("unseeded-random", detail) for detail in [*details, *unrepeatable.values()])
