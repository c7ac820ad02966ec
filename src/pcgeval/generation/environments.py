"""Provide the Python that runs a program, with the packages of its requirements.txt and no package of ours.

uv resolves the versions once and locks them with the SHA-256 of their wheels; what is installed is what the lock names.
In a competition the lock lies beside requirements.txt, so it is one of the files that a trial's fingerprint covers.

Only wheels are installed: they are unpacked, and no code in them runs. Their `.pth` files may run when Python starts:
once packages are in an environment, its Python is started in the sandbox alone.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock
from uv import find_uv_bin

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import read_text, sha256_json, write_text
from pcgeval.core.untrusted import printable_line
from pcgeval.submissions.requirements import LOCK, REQUIREMENTS, RequirementsError, read_lock, read_requirements

INSTALL_SECONDS = 3_600
READABLE_TO_ALL = 0o022  # the umask: root runs programs as another user
_WHEELS = ("--only-binary", ":all:", "--quiet", "--color", "never")
_HERE = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
_THIS_MACHINE = (sys.version, platform.machine(), sys.base_prefix)
_UNSOLVABLE = 1  # uv's exit code where no versions do what requirements.txt asks; other failures have others


class InstallError(PcgevalError):
    """Packages could not be installed here and now, through no fault of the program that asks for them."""


def interpreter_for(folder: Path, original: Path | None = None) -> Path:
    """Return the Python of the environment with a program's packages, which is made if there is none yet.

    Programs with the same packages share an environment; the interface packages are not among them. A program that
    asks for nothing has the standard library alone, as its Python has none of pcgeval's packages.

    Args:
        folder: The program's folder.
        original: The folder that messages name, if this one is a copy.

    Raises:
        RequirementsError: The file asks for something that is not allowed, or that no index has as a wheel for this
            Python.
        InstallError: The index cannot be reached, or has no longer what the lock names; the message says so.
    """
    shown = original or folder
    lock = _lock_lines(folder, shown / REQUIREMENTS)
    environment = environments_folder() / sha256_json([lock, *_THIS_MACHINE])
    python, ready = environment / "bin" / "python", environment.with_suffix(".ready")
    environment.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(environment.with_suffix(".lock")):
        if ready.is_file() and python.is_file():
            return python
        shutil.rmtree(environment, ignore_errors=True)  # a killed run left it; it is never started
        command = [sys.executable, "-I", "-m", "venv", "--without-pip", str(environment)]
        subprocess.run(command, check=True, capture_output=True, umask=READABLE_TO_ALL)
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
    """Write the lock beside a program's requirements.txt, if that asks for packages and has no lock yet.

    Returns:
        The lock's path; None for a program that asks for no packages.

    Raises:
        RequirementsError: As for `interpreter_for`.
        InstallError: The index cannot be reached.
    """
    requirements = read_requirements(folder)
    if not requirements:
        return None
    if read_lock(folder, _header(requirements)) is None:
        write_text(folder / LOCK, _header(requirements) + _lock_lines(folder, folder / REQUIREMENTS))
    return folder / LOCK


def environments_folder() -> Path:
    """Return the folder of the environments: `environments` in PCGEVAL_CACHE or in ~/.cache/pcgeval."""
    return Path(os.environ.get("PCGEVAL_CACHE") or Path.home() / ".cache" / "pcgeval").absolute() / "environments"


def _lock_lines(folder: Path, source: Path) -> str:
    """Return the lines of a program's lock: of the file beside its requirements.txt, or as resolved here once."""
    requirements = read_requirements(folder, source)
    if not requirements:
        return ""
    if (beside := read_lock(folder, _header(requirements))) is not None:
        return beside
    resolved = environments_folder() / f"resolved-{sha256_json([requirements, *_THIS_MACHINE])}.txt"
    if not resolved.is_file():
        write_text(resolved, _resolved(requirements, source))
    return read_text(resolved)


def _resolved(requirements: list[str], source: Path) -> str:
    words = ("compile", "--generate-hashes", "--no-annotate", "--no-header")
    done = _uv(*words, python=Path(sys.executable), requirements="".join(f"{line}\n" for line in requirements))
    if done.returncode == _UNSOLVABLE:
        raise RequirementsError(
            f"{source}: its packages cannot be installed from wheels for {_HERE}: {_reason(done)}. Ask for versions "
            "that have such wheels."
        )
    if done.returncode:
        raise InstallError(
            f"{source}: its packages were not found, because the package index cannot be reached or this machine "
            f"failed: {_reason(done)}. Check the network and the disk, and run again."
        )
    return done.stdout


def _header(requirements: list[str]) -> str:
    """Return the first line of a lock, which names what was resolved, for which Python and machine."""
    return f"# {sha256_json(requirements)}, {_HERE}\n"


def _uv(*words: str, python: Path, requirements: str) -> "subprocess.CompletedProcess[str]":
    """Run `uv pip` on wheels alone, in a folder without a project.

    Raises:
        InstallError: It took too long.
    """
    folder = environments_folder()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return subprocess.run(
            [find_uv_bin(), "pip", *words, "--python", str(python), *_WHEELS, "-"],
            cwd=folder,
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
