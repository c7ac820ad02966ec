"""Read the packages that a program requires, lock their versions, and provide the Python that has them.

`ProgramModules` says why Python does not find a module that a program imports.

A requirements.txt names packages of the index, with versions, and nothing else. uv resolves the versions once and locks
them with the SHA-256 of their wheels; it installs what the lock names. In a competition the lock is
data/locks/TEAM.txt, which a trial's fingerprint covers.

Messages name requirements.txt and its lines and no path, host or version: they are the same on every machine. What uv
said stands beside them.

Only wheels are installed: they are unpacked, and no code in them runs. Their `.pth` files may run when Python starts,
so a Python with packages starts in the sandbox alone. It has no package of ours.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from filelock import FileLock
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_json, write_text
from pcgeval.core.text import printable_line, printable_name
from pcgeval.core.untrusted import UntrustedFileError, decoded, read_bytes, read_text
from pcgeval.formats.layout import LOCKS, user_cache
from pcgeval.submissions.load import INTERFACE_PACKAGES

REQUIREMENTS = "requirements.txt"
MAX_LOCK_BYTES = 1_000_000
MAX_BYTES = 100_000
_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".tlz")  # pip looks for such files
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"hash=sha(256|384|512):[0-9a-f]{64,128}\s*")
_LOCK = re.compile(  # a header, then lines as uv writes them
    r"# [0-9a-f]{64}, .*\n(?:[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n)+"
)

INSTALL_SECONDS = 3_600
READABLE_TO_ALL = 0o022  # the umask: root runs programs as another user
_HERE = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
_THIS_MACHINE = (sys.version, platform.machine(), sys.base_prefix)
# uv's words where the index answered and lacks something, and where it did not answer after all
_LACKS = re.compile(r"No solution found|\(404 Not Found\)|Hash mismatch")
_BROKEN = re.compile(r"The wheel is invalid|URL dependencies must be expressed")  # of a package that the index has
_NO_ANSWER = re.compile(r"network was disabled|lookups were disabled|authentication|403 Forbidden")

# packages that have another name than their module
_PACKAGES = {"PIL": "pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless"}
_PACKAGES |= {"skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml"}


class ProgramModules:
    """The files and folders of a program that can be modules. Python finds those beside the file that starts it."""

    def __init__(self, entry: str, names: Collection[str]) -> None:
        """Take the file that starts the program, and the names of all its files."""
        folder = PurePosixPath(entry).parent
        files = {PurePosixPath(name) for name in names}
        sources = {file for file in files if file.suffix in {".py", ".so"}}
        packages = {parent for file in sources for parent in file.parents[:-1]}
        folders = {parent for file in files for parent in file.parents[:-1]}  # of any, Python makes a module
        self._entry = entry
        self._beside = {_module_name(path): path for path in sorted(sources | folders) if path.parent == folder}
        self._elsewhere = {_module_name(path): path for path in sorted(sources | packages, reverse=True)}
        self._by_lower_case = {name.lower(): path for name, path in self._beside.items()}
        self._requirements = next((name for name in names if name.lower() == REQUIREMENTS), REQUIREMENTS)

    def finds(self, module: str) -> bool:
        """Whether Python finds a module among the program's files."""
        return module in self._beside

    def is_elsewhere(self, module: str) -> bool:
        """Whether a module is there, and Python finds it only if the program adds its folder to sys.path."""
        return module in self._elsewhere and not self.finds(module)

    def remedy(self, module: str) -> str:
        """Return what to do about a module that Python does not find, in words that follow its name."""
        top, _, rest = module.partition(".")
        if top in INTERFACE_PACKAGES:
            return "; the competition's interface has no such module"
        if rest:  # of a package that Python finds
            return ""
        if self.is_elsewhere(module):
            text = f"; {self._elsewhere[module]} is not beside {self._entry}, where Python looks"
            return f"{text}: move it there, import it as seen from there, or add its folder to sys.path"
        if similar := self._by_lower_case.get(module.lower()):
            return f"; {similar} differs only in case: correct the import, or rename it"
        if self._requirements != REQUIREMENTS:
            return f"; rename {self._requirements} to {REQUIREMENTS}"
        return f"; write the package that has it into {REQUIREMENTS}, such as `{_PACKAGES.get(module, module)}`"


def _module_name(path: PurePosixPath) -> str:
    return path.name.partition(".")[0]


class PackagesError(PcgevalError):
    """A program has no Python with its packages; `detail` is what uv said."""

    def __init__(self, text: str, detail: str = "") -> None:
        """Say what is wrong and what to do, in words that are the same on every machine."""
        super().__init__(text)
        self.detail = detail

    @property
    def full_text(self) -> str:
        """The message, and what uv said in brackets."""
        return f"{self} ({self.detail})" if self.detail else str(self)


class RequirementsError(PackagesError):
    """A requirements.txt names what is not allowed, or what the index lacks (`is_unmet`): the team's fault."""

    def __init__(self, text: str, detail: str = "", *, is_unmet: bool = False) -> None:
        """Say also whether the index answered and lacks a package, a version or a wheel."""
        super().__init__(text, detail)
        self.is_unmet = is_unmet


class InstallError(PackagesError):
    """Packages could not be installed here and now, through no fault of the program that requires them."""


class LockError(InstallError):
    """A lock names packages that the index answers not to have, or is no lock."""


def read_requirements(folder: Path) -> list[str]:
    """Return the packages that a program requires, without the interface packages.

    Raises:
        RequirementsError: Lines name something else than a package of the index; the message lists them.
        InstallError: This machine cannot read the file.
    """
    path = folder / REQUIREMENTS
    try:
        text = decoded(read_bytes(path, MAX_BYTES), path, may_be_utf16=True).removeprefix("\ufeff")
    except UntrustedFileError as fault:
        if fault.kind == "missing":
            return []
        kind = InstallError if fault.kind == "system" else RequirementsError
        raise kind(f"{REQUIREMENTS}: {fault.reason}. {fault.remedy}") from fault
    requirements: list[str] = []
    refused: list[str] = []
    for number, line in _logical_lines(text):
        try:
            requirements += _parsed(line)
        except ValueError as fault:
            refused.append(f"{REQUIREMENTS}:{number}: {printable_name(line, 80)!r} {fault}")
    if refused:
        raise RequirementsError("\n".join(refused))
    return requirements


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with the number of their first one, joined at backslashes and without comments, as pip reads them."""
    begun, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        first = first or number
        is_comment = line.lstrip().startswith("#")  # which ends at its line, whatever its last character
        if line.endswith("\\") and not is_comment:
            begun += line.strip("\\")
            continue
        joined = f"{begun} {line}" if is_comment else begun + line
        yield first, _COMMENT.sub("", joined).strip()
        begun, first = "", 0


def _parsed(line: str) -> list[str]:
    """Return the requirement of a line in its usual form; an empty list for none or an interface package.

    Raises:
        ValueError: It is something else; the message says why it is refused.
    """
    if not line:
        return []
    named, *options = line.split(" --")
    fault = None
    try:
        requirement = Requirement(named)
        if canonicalize_name(requirement.name) in INTERFACE_PACKAGES:
            return []
        if requirement.url is not None:
            fault = "it has an address"
        elif requirement.name.endswith(_ARCHIVES):
            fault = "the name of a file"
        elif "${" in named:  # uv would insert the organiser's environment, and the team reads uv's messages
            fault = "a variable of the environment"
        elif not all(map(_HASH.fullmatch, options)):
            fault = "it has options"
    except InvalidRequirement as invalid:
        fault = printable_name(str(invalid).splitlines()[0])
    except RecursionError:
        fault = "nested too deeply"
    if fault is not None:
        raise ValueError(f"is no package of the package index ({fault}). Write a name, such as `numpy>=2`.")
    return [" ".join([str(requirement), *(f"--{option.strip()}" for option in options)])]


@contextmanager
def _faults_of_this_machine() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = f"{REQUIREMENTS}: this machine failed. Check the disk, then run again."
        raise InstallError(text, printable_line(str(error))) from error


@_faults_of_this_machine()
def interpreter_for(folder: Path, lock: Path | None = None) -> Path:
    """Return the Python with a program's packages; make its environment if there is none yet.

    Programs with the same packages share an environment, which has no interface package. A program that requires
    nothing has the standard library alone.

    Args:
        folder: The folder of the program.
        lock: The lock of its packages in a competition; without it, they are resolved here.

    Raises:
        RequirementsError: requirements.txt asks for something that is not allowed, or that the index lacks as a wheel
            for this Python.
        LockError: The lock is none, or the index lacks its packages.
        InstallError: The index cannot be reached, or this machine failed.
    """
    packages = _locked(folder, lock)
    environment = environments_folder() / sha256_json([packages, *_THIS_MACHINE])
    python, ready = environment / "bin" / "python", environment.with_suffix(".ready")
    environment.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(environment.with_suffix(".lock")):
        if ready.is_file() and python.is_file():
            return python
        shutil.rmtree(environment, ignore_errors=True)  # a killed run left it; it is never started
        command = [sys.executable, "-I", "-m", "venv", "--without-pip", str(environment)]
        venv = subprocess.run(command, check=False, capture_output=True, text=True, umask=READABLE_TO_ALL)
        if venv.returncode:
            raise InstallError("a Python for the program cannot be made. Check the disk, then run again.", _words(venv))
        if packages:
            settings = environment / "pyvenv.cfg"
            content = settings.read_bytes()
            done = _uv("sync", "--require-hashes", "--link-mode", "copy", python=python, requirements=packages)
            if done.returncode and _index_lacks_some(done):
                _resolution(read_requirements(folder)).unlink(missing_ok=True)  # else the same would be locked again
                place = LOCKS / lock.name if lock else REQUIREMENTS
                text = f"{place}: the package index does not have the packages that were locked."
                remedy = "Remove the lock and run `pcgeval check` to resolve them again." if lock else "Run again."
                raise LockError(f"{text} {remedy}", _words(done))
            _check_reached(done)
            settings.write_bytes(content)  # a wheel may bring another, which shows the packages of this machine
        write_text(ready, "")
    return python


@_faults_of_this_machine()
def lock_requirements(folder: Path, lock: Path) -> bool:
    """Write the lock of a program's packages; return whether it requires any, and remove the lock if not.

    It raises the errors of `interpreter_for`.
    """
    if packages := _locked(folder, lock):
        write_text(lock, packages)
    else:
        lock.unlink(missing_ok=True)
    return bool(packages)


def environments_folder() -> Path:
    """Return the folder of the environments of all programs."""
    return user_cache() / "environments"


def _locked(folder: Path, lock: Path | None) -> str:
    """Return the locked packages of a program: those of its lock, or resolved here; empty without packages.

    A lock of the same requirements for another Python or machine counts: it may name wheels for this one, too.
    """
    requirements = read_requirements(folder)
    if not requirements:
        return ""
    digest = f"# {sha256_json(requirements)}"
    if lock and os.path.lexists(lock):
        remedy = "Remove it and run `pcgeval check`, which resolves the versions again."
        try:
            packages = read_bytes(lock, MAX_LOCK_BYTES).decode("utf-8", errors="replace")
        except UntrustedFileError as fault:
            raise LockError(f"{LOCKS / lock.name}: {fault.reason}. {remedy}") from fault
        if not is_lock(packages):
            raise LockError(f"{LOCKS / lock.name}: is no lock of packages. {remedy}")
        if packages.startswith(f"{digest},"):
            return packages
    resolved = _resolution(requirements)
    if not resolved.is_file():
        write_text(resolved, f"{digest}, {_HERE}\n{_resolve(requirements)}")
    packages = read_text(resolved, follow_link=True)
    return packages if is_lock(packages) else ""  # the markers of all requirements exclude this machine


def _resolution(requirements: list[str]) -> Path:
    """Return the file of the lock that requirements had when they were last resolved on this machine."""
    return environments_folder() / f"resolved-{sha256_json([requirements, *_THIS_MACHINE])}.txt"


def is_lock(text: str) -> bool:
    """Tell whether a text has the form of a lock."""
    return _LOCK.fullmatch(text) is not None


def _resolve(requirements: list[str]) -> str:
    """Return the lines that uv locks the requirements to."""
    command = ("compile", "--generate-hashes", "--no-annotate", "--no-header")
    done = _uv(*command, python=Path(sys.executable), requirements="".join(f"{line}\n" for line in requirements))
    if done.returncode and _index_lacks_some(done):
        text = f"{REQUIREMENTS}: the package index has no versions that it asks for as wheels."
        raise RequirementsError(f"{text} Ask for versions that have such wheels.", _words(done), is_unmet=True)
    _check_reached(done)
    return done.stdout


def _index_lacks_some(done: "subprocess.CompletedProcess[str]") -> bool:
    """Tell whether uv failed because the index answered and lacks something; its exit code does not say that."""
    return bool(_LACKS.search(done.stderr)) and not _NO_ANSWER.search(done.stderr)


def _check_reached(done: "subprocess.CompletedProcess[str]") -> None:
    if done.returncode and _BROKEN.search(done.stderr):
        text = f"{REQUIREMENTS}: a package that it asks for cannot be installed. Ask for another version."
        raise RequirementsError(text, _words(done), is_unmet=True)
    if done.returncode:
        text = f"{REQUIREMENTS}: the package index cannot be reached, or this machine failed."
        raise InstallError(f"{text} Check the network and the disk, then run again.", _words(done))


def _uv(*command: str, python: Path, requirements: str) -> "subprocess.CompletedProcess[str]":
    """Run `uv pip` on wheels alone, in a folder without a project."""
    environments_folder().mkdir(parents=True, exist_ok=True)
    options = ("--python", str(python), "--only-binary", ":all:", "--quiet", "--color", "never", "-")
    try:
        return subprocess.run(
            [find_uv_bin(), "pip", *command, *options],
            cwd=environments_folder(),
            env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
            input=requirements,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS,
            umask=READABLE_TO_ALL,
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{REQUIREMENTS}: installing took more than {INSTALL_SECONDS} s. Run again.") from error


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    return printable_line(done.stderr.replace("error: ", "").replace("cause: ", ""), 1_000)
