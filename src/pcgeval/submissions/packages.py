"""Read the packages that a program requires, lock their versions, and provide the Python that has them.

A requirements.txt names packages of the index, with versions, and nothing else. uv resolves the versions once and locks
them with the SHA-256 of their wheels; it installs what the lock names. In a competition the lock lies beside
requirements.txt, so a trial's fingerprint covers it.

Only wheels are installed: they are unpacked, and no code in them runs. Their `.pth` files may run when Python starts,
so a Python with packages starts in the sandbox alone. It has no package of ours.
"""

import codecs
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import read_text, sha256_json, write_text
from pcgeval.core.untrusted import UntrustedFileError, printable_line, printable_name, read_bounded
from pcgeval.submissions.sources import INTERFACE_PACKAGES

REQUIREMENTS = "requirements.txt"
LOCK = "requirements-lock.txt"  # beside it: what it was resolved to, written by the organiser's `pcgeval check`
MAX_LOCK_BYTES = 1_000_000
MAX_BYTES = 100_000
_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".tlz")  # pip looks for such files
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"hash=sha(256|384|512):[0-9a-f]{64,128}\s*")
_LOCK = re.compile(  # a header, then lines as uv writes them
    r"# [0-9a-f]{64}, .*\n(?:[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n)+"
)
_ENCODINGS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))

INSTALL_SECONDS = 3_600
READABLE_TO_ALL = 0o022  # the umask: root runs programs as another user
_HERE = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
_THIS_MACHINE = (sys.version, platform.machine(), sys.base_prefix)
_UNSOLVABLE = 1  # uv's exit code where no versions do what requirements.txt asks; other failures have others


class RequirementsError(PcgevalError):
    """A requirements.txt names what is not allowed, or packages that cannot be installed: the team's fault."""


class InstallError(PcgevalError):
    """Packages could not be installed here and now, through no fault of the program that requires them."""


def read_requirements(folder: Path, shown: Path | None = None) -> list[str]:
    """Return the packages that a program requires, without the interface packages.

    Messages name the file `shown`, if the folder is a copy.

    Raises:
        RequirementsError: Lines name something else than a package of the index; the message lists them.
    """
    path = shown or folder / REQUIREMENTS
    try:
        content = read_bounded(folder / REQUIREMENTS, MAX_BYTES)
        encoding = next((encoding for mark, encoding in _ENCODINGS if content.startswith(mark)), "utf-8")
        text = content.decode(encoding)
    except UntrustedFileError as fault:
        if fault.kind == "missing":
            return []
        raise RequirementsError(str(fault)) from fault
    except UnicodeDecodeError as fault:
        raise RequirementsError(f"{path}: not UTF-8 text ({fault.reason}). Save it as UTF-8.") from fault
    requirements: list[str] = []
    refused: list[str] = []
    begun = ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        begun += _COMMENT.sub("", line).strip()
        if begun.endswith("\\"):
            begun = f"{begun[:-1]} "
            continue
        try:
            requirements += _parsed(begun.strip())
        except ValueError as fault:
            refused.append(f"{path}:{number}: {printable_name(begun, 80)!r} {fault}")
        begun = ""
    if refused:
        raise RequirementsError("\n".join(refused))
    return requirements


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


def interpreter_for(folder: Path, original: Path | None = None) -> Path:
    """Return the Python with a program's packages; make its environment if there is none yet.

    Programs with the same packages share an environment, which has no interface package. A program that requires
    nothing has the standard library alone.

    Messages name the folder `original`, if this one is a copy.

    Raises:
        RequirementsError: The file requires something that is not allowed, or that no index has as a wheel for this
            Python.
        InstallError: The index cannot be reached, or no longer has the packages of the lock.
    """
    shown = original or folder
    lock = _lock(folder, shown)
    environment = environments_folder() / sha256_json([lock, *_THIS_MACHINE])
    python, ready = environment / "bin" / "python", environment.with_suffix(".ready")
    environment.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(environment.with_suffix(".lock")):
        if ready.is_file() and python.is_file():
            return python
        shutil.rmtree(environment, ignore_errors=True)  # a killed run left it; it is never started
        command = [sys.executable, "-I", "-m", "venv", "--without-pip", str(environment)]
        venv = subprocess.run(command, check=False, capture_output=True, text=True, umask=READABLE_TO_ALL)
        if venv.returncode:
            raise InstallError(f"{environment}: cannot be made: {_reason(venv)}. Check its disk, then run again.")
        if lock:
            settings = environment / "pyvenv.cfg"
            content = settings.read_bytes()
            done = _uv("sync", "--require-hashes", "--link-mode", "copy", python=python, requirements=lock)
            if done.returncode:
                raise InstallError(
                    f"{shown / LOCK}: the packages that it names cannot be installed ({_HERE}): {_reason(done)}. Run "
                    "where the package index has them, or remove the lock to resolve the versions again."
                )
            settings.write_bytes(content)  # a wheel may bring another, which shows the packages of this machine
        write_text(ready, "")
    return python


def lock_requirements(folder: Path) -> Path | None:
    """Write the lock beside a program's requirements.txt and return its path; None if it requires no packages.

    It raises the errors of `interpreter_for`.
    """
    lock = _lock(folder, folder)
    if not lock:
        return None
    write_text(folder / LOCK, lock)
    return folder / LOCK


def environments_folder() -> Path:
    """Return the folder of the environments: `environments` in PCGEVAL_CACHE or in ~/.cache/pcgeval."""
    return Path(os.environ.get("PCGEVAL_CACHE") or Path.home() / ".cache" / "pcgeval").absolute() / "environments"


def _lock(folder: Path, shown: Path) -> str:
    """Return the lock of a program's packages: the file beside it, or one resolved here; empty without packages.

    A lock of the same requirements for another Python or machine counts: it may name wheels for this one, too.
    """
    requirements = read_requirements(folder, shown / REQUIREMENTS)
    if not requirements:
        return ""
    digest = f"# {sha256_json(requirements)}"
    try:
        lock = read_bounded(folder / LOCK, MAX_LOCK_BYTES).decode("utf-8", errors="replace")
        if not _LOCK.fullmatch(lock):
            remedy = "Remove it and run `pcgeval check`, which resolves the versions again."
            raise RequirementsError(f"{shown / LOCK}: is no lock of packages. {remedy}")
        if lock.startswith(f"{digest},"):
            return lock
    except UntrustedFileError as fault:
        if fault.kind != "missing":
            raise RequirementsError(str(fault)) from fault
    resolved = environments_folder() / f"resolved-{sha256_json([requirements, *_THIS_MACHINE])}.txt"
    if not resolved.is_file():
        write_text(resolved, f"{digest}, {_HERE}\n{_resolve(requirements, shown / REQUIREMENTS)}")
    return read_text(resolved)


def _resolve(requirements: list[str], source: Path) -> str:
    """Return the lines that uv locks the requirements to; `source` is the file that messages name."""
    command = ("compile", "--generate-hashes", "--no-annotate", "--no-header")
    done = _uv(*command, python=Path(sys.executable), requirements="".join(f"{line}\n" for line in requirements))
    if done.returncode == _UNSOLVABLE:
        text = f"{source}: its packages cannot be installed from wheels for {_HERE}: {_reason(done)}."
        raise RequirementsError(f"{text} Ask for versions that have such wheels.")
    if done.returncode:
        text = f"{source}: the package index cannot be reached, or this machine failed: {_reason(done)}."
        raise InstallError(f"{text} Check the network and the disk, and run again.")
    return done.stdout


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
        raise InstallError(f"installing packages took more than {INSTALL_SECONDS} s. Run again.") from error


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    return printable_line(done.stderr.replace("error: ", "").replace("cause: ", ""), 1_000).rstrip(".")
