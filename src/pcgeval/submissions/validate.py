"""Check the folder or zip file that a team hands in and list every problem, without running any of it.

`pcgeval validate` does this, and `pcgeval submit` begins with it. What passes goes into git and onto other people's
disks, so a name must mean the same file on all of them.
"""

import os
import posixpath
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pcgeval.core.archives import unpack
from pcgeval.core.files import copy_files
from pcgeval.core.text import count, listed, printable_name
from pcgeval.core.untrusted import UntrustedFileError, read_text, walk
from pcgeval.formats.layout import SUBMISSIONS
from pcgeval.formats.params import PARAMS_FILE, Limits, Params, load_params
from pcgeval.submissions.load import (
    INTERFACE_PACKAGES,
    PROMPT_FILE,
    Program,
    Prompt,
    PythonFile,
    SubmissionError,
    find_readme,
    load_work,
    prompt_findings,
    python_files,
)
from pcgeval.submissions.packages import REQUIREMENTS, ProgramModules, RequirementsError, read_requirements

PUBLISHED_LIMITS = Limits(tokens=25_000, seconds=500, prompt_words=900)  # of 2025, and for prompts of 2023 and 2024
MAX_README_BYTES = 1_000_000  # what a rubric reads of it
MAX_FILES = 10_000
MAX_BYTES = 2**30  # the competition's rule: a program has at most 1 GB with all its data
_MAX_ENTRIES = 4 * MAX_FILES  # with the folders and with what is left out
MAX_PATH_BYTES = 400  # UTF-8
MAX_DEPTH = 20  # folders in one another
_NOT_ON_WINDOWS = re.compile(
    r'[<>:"|?*\\]|[. ](/|$)|(^|/)(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])[ ]*(\.|/|$)', re.IGNORECASE
)
# hidden files, and files of DVC, which would run a pipeline of the team, systems and Python
_LEFT_OUT = re.compile(
    r"\..*|dvc\.(yaml|lock)|.*\.dvc|__macosx|thumbs\.db|desktop\.ini|__pycache__|.*\.py[co]|.*\.egg-info"
)
# hidden files that a program may need: all but those of git, systems, editors and tools
_HIDDEN = re.compile(
    r"\.(?!_|git(hub|lab.*|config|-.*|ignore|attributes|modules|keep)?$|hg$|svn$|dvc|ds_store|venv|idea|vscode|ipynb"
    r"|pcgeval|.*_cache$|.*\.swp$).+",
    re.IGNORECASE,
)
MAIN_FILE = "main.py"  # the usual name of a program
STAND_INS = ("dotenv", "openai", "tqdm")  # modules that a sandbox has in place of packages, see generation/guest
# these reach other machines; the program's only way out is the interface package
_NETWORK = """
    aiohttp anthropic boto3 ftplib google.genai google.generativeai groq http.client httpx
    huggingface_hub litellm mistralai ollama openai paramiko playwright requests selenium
    smtplib socket together urllib.request urllib3 websocket websockets
"""


@dataclass(frozen=True)
class SubmissionFinding:
    """A problem of a submission."""

    severity: Literal["error", "warning"]  # an error refuses the submission; a warning may be intended
    place: str  # a file of the submission, perhaps with `:line`; empty for the whole
    text: str  # the problem and its remedy; may quote hostile text


error = partial(SubmissionFinding, "error")
warning = partial(SubmissionFinding, "warning")


@dataclass(frozen=True)
class SubmissionCheck:
    """The contents of a submission, and all findings, errors first."""

    files: int
    size: int  # bytes
    work: Prompt | Program | None  # None if that cannot be told
    findings: Sequence[SubmissionFinding]

    @property
    def passed(self) -> bool:
        """Whether it can be filed."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def kind(self) -> str | None:
        """`prompt`, `program`, or None if that cannot be told."""
        return None if self.work is None else type(self.work).__name__.lower()

    @property
    def summary(self) -> str:
        """Its kind and size in a few words."""
        start = f", started as `python {self.work.entry}`" if isinstance(self.work, Program) else ""
        return f"{self.kind or 'unknown kind'}{start}, {count(self.files, 'file')}, {self.size} bytes"

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "passed": self.passed,
            "kind": self.kind,
            "entry": self.work.entry if isinstance(self.work, Program) else None,
            "files": self.files,
            "bytes": self.size,
            "findings": [asdict(finding) for finding in self.findings],
        }


def printable_findings(findings: Iterable[SubmissionFinding]) -> list[str]:
    """Return a line for each text, with its places."""
    places: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        places.setdefault((finding.severity, finding.text), []).append(finding.place)
    return [
        f"{severity}: {f'{listed(names)}: ' if any(names) else ''}{printable_name(text, 1000)}"
        for (severity, text), names in places.items()
    ]


def validate(path: Path) -> SubmissionCheck:
    """Check a folder or a zip file by the limits of params.yaml; without one, by the published limits.

    Raises:
        ParamsError: There is a params.yaml, and it is faulty.
        UntrustedFileError: The zip file cannot be unpacked.
    """
    params = load_params(Path(PARAMS_FILE)) if Path(PARAMS_FILE).exists() else None
    with unpacked_submission(path) as folder:
        if params is None:
            return check(folder, PUBLISHED_LIMITS)
        return check(folder, params.limits, entry=filed_entry(path, params))


def filed_entry(path: Path, params: Params) -> str | None:
    """Return the entry that the organiser gave the program in a folder of data/submissions; None elsewhere."""
    place = path.resolve()
    team = params.teams.get(place.name) if place.parent == SUBMISSIONS.resolve() else None
    return team.entry if team else None


@contextmanager
def unpacked_submission(path: Path) -> Iterator[Path]:
    """Yield the folder that a team hands in; a zip file is unpacked until the end of the block.

    Raises:
        UntrustedFileError: It is neither, or a zip file that is damaged, unpacks to too much, or names a place outside
            of its folder.
    """
    if path.is_dir():
        yield path
        return
    if path.is_file() and path.suffix.lower() != ".zip":
        reason = "is neither a folder nor a zip file"
        raise UntrustedFileError(
            path, "malformed", reason, "Name the folder that holds it, or pack that as a .zip file."
        )
    with TemporaryDirectory(prefix="pcgeval-") as folder:
        unpack(path, Path(folder, "submission"), max_files=_MAX_ENTRIES, max_bytes=MAX_BYTES)
        yield Path(folder, "submission")


def check(folder: Path, limits: Limits, copy_to: Path | None = None, *, entry: str | None = None) -> SubmissionCheck:
    """Choose the files of a submission and check them, or the copy that is made in the empty folder `copy_to`.

    The program starts in the file `entry`, if the organiser names one.

    Raises:
        UntrustedFileError: A file became something else while it was copied.
    """
    source, sizes, findings = _select(folder)
    size, work = sum(sizes.values()), None
    if len(sizes) > MAX_FILES:
        findings.append(error("", f"has {len(sizes)} files; {MAX_FILES} are allowed. Put many small ones into one"))
    elif size > MAX_BYTES:
        text = f"has {size} bytes; {MAX_BYTES} (1 GB) are allowed with all data. Leave out what is not read"
        findings.append(error("", text))
    elif sizes:
        if copy_to is not None:
            copy_files(source, copy_to, sizes)
            source = copy_to
        findings += _readme_findings(source)
        files = [file for file in python_files(source) if file.name in sizes]
        try:
            work = load_work(source, entry, files)
        except SubmissionError as fault:
            findings.append(error(fault.place, fault.text))
        if isinstance(work, Program) and work.entry not in sizes:
            findings.append(error(work.entry, "starts the program and is left out. Name another file"))
            work = None
        if isinstance(work, Prompt):
            findings += [error(PROMPT_FILE, text) for text in prompt_findings(work.text, limits.prompt_words)]
            if work.text.startswith("\ufeff"):
                text = "begins with a byte order mark, which the model gets, too; save it as UTF-8 without BOM"
                findings.append(warning(PROMPT_FILE, text))
            text = f"is not run, because {PROMPT_FILE} counts where no file starts a program; remove one of them"
            findings += [warning(file.name, text) for file in files if file.imports_interface or file.name == MAIN_FILE]
        elif work is not None:
            findings += _program_findings(source, work.entry, files, sizes)
    ordered = sorted(dict.fromkeys(findings), key=lambda finding: finding.severity != "error")
    return SubmissionCheck(len(sizes), size, work, ordered)


def _select(folder: Path) -> tuple[Path, dict[str, int], list[SubmissionFinding]]:
    """Choose the files of a submission in a folder; links are not followed, and ignored folders are not entered.

    Returns:
        The folder with the files, which may be the only one in `folder`; the bytes of each file that every disk can
        store, by its name in that folder; and the findings.
    """
    sizes: dict[str, int] = {}
    findings: list[SubmissionFinding] = []
    entries = walk(folder, limit=_MAX_ENTRIES, depth=MAX_DEPTH, enter=lambda name: not _is_left_out(folder / name))
    for entry in entries:
        if entry.status is None:
            findings.append(error(entry.name, f"{entry.fault}; remove it"))
        elif _is_left_out(folder / entry.name):
            if _HIDDEN.fullmatch(posixpath.basename(entry.name)):
                findings.append(warning(entry.name, "is left out, as all hidden files are; rename what is needed"))
        elif entry.is_file:
            sizes[entry.name] = entry.status.st_size
        else:
            findings.append(error(entry.name, "is a link, a pipe, a socket or a device; put the file itself there"))
    if not sizes:
        return folder, sizes, [*findings, error("", "the submission holds no files")]
    top = posixpath.commonpath([posixpath.dirname(name) for name in sizes])
    sizes = {posixpath.relpath(name, top or "."): size for name, size in sizes.items()}
    paths_by_form: dict[str, str] = {}
    for name in list(sizes):
        if finding := _name_finding(name, paths_by_form):
            findings.append(finding)
            del sizes[name]
    return folder / top, sizes, findings


def _name_finding(name: str, paths_by_form: dict[str, str]) -> SubmissionFinding | None:
    """Return an error if some disk cannot store a file, or takes it for another one by case or Unicode form."""
    if fault := name_fault(name):
        return error(name, fault)
    for path in map(str, (PurePosixPath(name), *PurePosixPath(name).parents)):
        form = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        if (other := paths_by_form.setdefault(form, path)) != path:
            return error(path, f"has on some disks the same name as {printable_name(other)}; rename one of them")
    return None


def name_fault(name: str) -> str | None:
    """Return why some disk cannot store a relative path, in words that follow it; None if all can."""
    if not all(character.isprintable() or unicodedata.category(character) == "Zs" for character in name):
        return "has unprintable characters; rename it"
    if len(name.encode()) > MAX_PATH_BYTES:
        return f"is over {MAX_PATH_BYTES} bytes long; shorten it"
    if _NOT_ON_WINDOWS.search(name):
        return "has a name that Windows cannot store; rename it"
    if re.search("(^|/)git~[0-9]", name, re.IGNORECASE):
        return "has a name that git refuses, as it is short for .git on some disks; rename it"
    return "has a name that begins with - or a space; rename it" if re.search("(^|/)[- ]", name) else None


def _is_left_out(path: Path) -> bool:
    """Return whether a file or folder is no part of a submission, such as a virtual environment."""
    return _LEFT_OUT.fullmatch(path.name.casefold()) is not None or os.path.lexists(path / "pyvenv.cfg")


def _program_findings(
    folder: Path, entry: str, files: Sequence[PythonFile], names: Collection[str]
) -> Iterator[SubmissionFinding]:
    yield from _start_findings(folder, entry, files, names)
    if not any(file.evaluates for file in files):
        is_known = not any(file.fault for file in files)
        text = "never calls run_evaluation, without which no trial is run"
        yield error(entry, text) if is_known else warning(entry, text)
    if PROMPT_FILE in names:
        text = f"is not asked, because {entry} starts a program, and that counts; remove it unless the program reads it"
        yield warning(PROMPT_FILE, text)
    for package in INTERFACE_PACKAGES:
        if (folder / package).is_dir() or (folder / f"{package}.py").is_file():
            yield warning(package, "is not used: the competition's own package replaces it; remove the copy")


def _start_findings(
    folder: Path, entry: str, files: Sequence[PythonFile], names: Collection[str]
) -> Iterator[SubmissionFinding]:
    """Yield what is wrong with requirements.txt, and with the files and imports with which every trial starts."""
    try:
        requirements = read_requirements(folder)
    except RequirementsError as fault:
        for words in str(fault).splitlines():
            place, _, text = words.partition(": ")
            yield error(place, text)
        requirements = [REQUIREMENTS]  # unknown ones
    may_bring_more = requirements or any(name.endswith((".zip", ".whl", ".egg")) for name in names)
    modules = ProgramModules(entry, names)
    at_hand = {"__main__", *sys.stdlib_module_names, *INTERFACE_PACKAGES, *STAND_INS}
    started, network = _started_files(entry, files), {*_NETWORK.split()}
    for file in files:
        if file.fault:
            is_certain = file.name == entry or (file.name in started and file.is_read)
            yield (error if is_certain else warning)(file.place, file.fault)
        for line, name in file.functions if file.name == entry else ():
            text = f"gives run_evaluation the function {name}; give it a subclass of TrialLoop with this as its `run`"
            yield error(f"{file.name}:{line}", text)
        for module, line in file.imports.items():
            is_absent = not ("." in module or module in at_hand or module in file.tries or modules.finds(module))
            is_elsewhere = is_absent and modules.is_elsewhere(module)  # the program may add its folder to sys.path
            is_missing = is_absent and not (is_elsewhere or may_bring_more)
            if module in network:
                text = f"imports {module}: there is no network; ask the model through chat_with_llm only"
            elif is_missing:
                text = f"imports {module}, which is neither part of Python nor a file here{modules.remedy(module)}"
            elif is_elsewhere and not may_bring_more and file.name in started:
                text = f"imports {module}{modules.remedy(module)}"
            else:
                continue
            is_certain = is_missing and file.name in started and module in file.needs
            yield (error if is_certain else warning)(f"{file.name}:{line}", text)


def _started_files(entry: str, files: Sequence[PythonFile]) -> set[str]:
    """Return the names of the files that every start of a program imports, from its entry on."""
    folder = PurePosixPath(entry).parent  # where Python looks for modules first
    by_name = {file.name: file for file in files}
    started, waiting = set[str](), [entry]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in started:
            started.add(name)
            paths = [folder.joinpath(*module.split(".")) for module in by_name[name].needs - by_name[name].tries]
            waiting += [place.as_posix() for path in paths for place in (path.with_suffix(".py"), path / "__init__.py")]
    return started


def _readme_findings(folder: Path) -> Iterator[SubmissionFinding]:
    """Yield what is wrong with the README: the rules ask for one that describes the approach and how to run it."""
    remedy = "describe the team, the approach and how to run it"
    readme = find_readme(folder)
    try:
        if readme is None:
            yield error("", f"has no README.md; {remedy}")
        elif not read_text(readme, MAX_README_BYTES).strip("\ufeff \t\r\n"):
            yield error(readme.name, f"is empty; {remedy}")
    except UntrustedFileError as fault:
        yield error(readme.name if readme else "", f"{fault.reason}. {fault.remedy}")
