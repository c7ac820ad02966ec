"""Provide the Python that runs a program, with the packages of its requirements.txt and nothing of ours.

Versions are resolved once and locked with the SHA-256 of each wheel; what is installed is what the lock names. In a
competition the lock lies beside requirements.txt, so it is one of the files that a trial's fingerprint covers.

Only wheels are installed: they are unpacked, and nothing in them runs. Their `.pth` files may run when Python starts:
once packages are in an environment, its Python is started in the sandbox alone.
"""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock
from pydantic import ValidationError

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import read_text, sha256_json, write_json, write_text
from pcgeval.core.untrusted import printable_line
from pcgeval.sandbox.disk import DiskLimits, disk_use
from pcgeval.sandbox.process import MEGABYTE
from pcgeval.submissions.requirements import (
    LOCK,
    REQUIREMENTS,
    LockedPackage,
    RequirementsError,
    RequirementsLock,
    read_lock,
    read_requirements,
)

ENVIRONMENT_BYTES = 1_000 * MEGABYTE  # of an environment, and of its downloads: the competition's limit of a program
ENVIRONMENT_FILES = 200_000
INSTALL_SECONDS = 3_600
READABLE_TO_ALL = 0o022  # the umask: root runs programs as another user
_WATCH_SECONDS = 0.2
# pip's words where the index or this machine failed, verbose ones too; a package that is not there has none of them
_OTHER_VERSIONS = re.compile(r" \(from versions: [^)]*\)")  # in pip's words, hundreds
_NOT_THE_PROGRAM = re.compile(
    r"^\s*(WARNING: Retrying|(WARNING: )?Could not fetch URL (?!.*: 404 )|ERROR: HTTP error|ERROR: .*\bOSError\b)",
    re.MULTILINE,
)


class InstallError(PcgevalError):
    """Packages could not be installed here and now, through no fault of the program that asks for them."""


def interpreter_for(folder: Path, original: Path | None = None, *, most_bytes: int = ENVIRONMENT_BYTES) -> Path:
    """Return the Python of the environment with a program's packages, which is made if there is none yet.

    Programs with the same packages share an environment; the interface packages are not among them. A program that
    asks for nothing has the standard library alone, as its Python has none of pcgeval's own packages.

    Args:
        folder: The program's folder.
        original: The folder that messages name, if this one is a copy.
        most_bytes: The most that the environment may take on the disk.

    Raises:
        RequirementsError: The file asks for something that is not allowed, that no index has as a wheel for this
            Python, or that is too large.
        InstallError: The index cannot be reached, or has no longer what the lock names; the message says so.
    """
    shown = original or folder
    lock = _lock_of(folder, shown / REQUIREMENTS, most_bytes)
    packages = [package.model_dump() for package in lock.packages]
    environment = environments_folder() / sha256_json([packages, *_this_machine()])
    python = environment / "bin" / "python"
    record = environment.with_suffix(".json")  # beside the folder: a wheel can put files into it
    environment.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(environment.with_suffix(".lock")):
        if record.is_file() and python.is_file():
            return python
        if environment.exists():  # a killed run left it; it is never started
            shutil.rmtree(environment)
        told = _run_module("venv", "--without-pip", str(environment), scratch=environment, most_bytes=most_bytes)
        if told is not None:
            raise InstallError(f"{environment}: no environment of Python can be made there: {_errors(told)}.")
        settings = environment / "pyvenv.cfg"
        content = settings.read_bytes()
        if packages:
            wanted = environment.with_suffix(".txt")
            lines = [f"{each.name}=={each.version} --hash=sha256:{each.sha256}\n" for each in lock.packages]
            write_text(wanted, "".join(lines))
            install = ("--python", str(python), "install", "--no-deps", "--require-hashes", "-r", str(wanted))
            try:
                told = _run_pip(*install, scratch=environment, most_bytes=most_bytes)
            except _TooLargeError as error:
                shutil.rmtree(environment)
                raise RequirementsError(f"{shown / REQUIREMENTS}: {error}") from error
            finally:
                wanted.unlink()
        if told is not None:
            raise InstallError(
                f"{shown / LOCK}: the packages that it names, resolved for Python {lock.python} on {lock.machine}, "
                f"cannot be installed with Python {platform.python_version()} on {_machine()}: {_errors(told)}. Run "
                "where the package index has them, or remove the lock to resolve the versions again."
            )
        settings.write_bytes(content)  # a wheel may bring its own, which shows the packages of this machine
        write_json(record, {"python": platform.python_version(), "packages": packages})
    return python


def lock_requirements(folder: Path) -> Path | None:
    """Write the lock beside a program's requirements.txt, if that asks for packages and has no lock yet.

    Returns:
        The lock's path; None for a program that asks for no packages.

    Raises:
        RequirementsError: As for `interpreter_for`.
        InstallError: The index cannot be reached.
    """
    lock = _lock_of(folder, folder / REQUIREMENTS, ENVIRONMENT_BYTES)
    if not lock.requirements:
        return None
    path = folder / LOCK
    if lock != read_lock(folder):
        write_json(path, lock.model_dump(mode="json"))
    return path


def environments_folder() -> Path:
    """Return the folder of the environments: `environments` in PCGEVAL_CACHE or in ~/.cache/pcgeval."""
    return Path(os.environ.get("PCGEVAL_CACHE") or Path.home() / ".cache" / "pcgeval").absolute() / "environments"


def _lock_of(folder: Path, source: Path, most_bytes: int) -> RequirementsLock:
    """Return a program's lock: the one beside its requirements.txt, or what this machine resolved that to once."""
    requirements = tuple(read_requirements(folder, source))
    lock = RequirementsLock(
        requirements=requirements, python=platform.python_version(), machine=_machine(), packages=()
    )
    if not requirements:
        return lock
    beside = read_lock(folder)
    if beside is not None and beside.requirements == requirements:
        return beside
    resolved = environments_folder() / f"resolved-{sha256_json([requirements, *_this_machine()])}"
    record = resolved.with_suffix(".json")
    resolved.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(resolved.with_suffix(".lock")):
        if record.is_file():
            return RequirementsLock.model_validate_json(read_text(record))
        wanted, report = resolved.with_suffix(".txt"), resolved.with_suffix(".report")
        write_text(wanted, "".join(f"{requirement}\n" for requirement in requirements))
        resolve = ("install", "--dry-run", "--ignore-installed", "--report", str(report), "-r", str(wanted))
        try:
            told = _run_pip(*resolve, scratch=resolved, most_bytes=most_bytes)
            if told is not None:
                raise _resolution_error(source, told.replace(str(wanted), REQUIREMENTS))  # the team reads it
            lock = lock.model_copy(update={"packages": _packages(report)})
        except (_TooLargeError, ValidationError) as error:
            raise RequirementsError(f"{source}: {error}") from error
        finally:
            wanted.unlink()
            report.unlink(missing_ok=True)
        write_json(record, lock.model_dump(mode="json"))
    return lock


def _packages(report: Path) -> tuple[LockedPackage, ...]:
    """Return the packages of pip's installation report (its format is version 1), by name."""
    packages = [
        LockedPackage(
            name=each["metadata"]["name"],
            version=each["metadata"]["version"],
            sha256=each["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for each in json.loads(read_text(report))["install"]
    ]
    return tuple(sorted(packages, key=lambda package: package.name.lower()))


def _resolution_error(source: Path, told: str) -> PcgevalError:
    if _NOT_THE_PROGRAM.search(told) or "ERROR: " not in told:
        return InstallError(
            f"{source}: its packages were not found, because the package index cannot be reached or this machine "
            f"failed: {_errors(told)}. Check the network and the disk, and run again."
        )
    return RequirementsError(
        f"{source}: its packages cannot be installed from wheels for Python {platform.python_version()} on "
        f"{_machine()}: {_errors(told)}. Ask for versions that have such wheels."
    )


def _errors(told: str) -> str:
    """Return pip's error messages in one line."""
    lines = told.strip().splitlines()
    errors = [_OTHER_VERSIONS.sub("", line.removeprefix("ERROR: ")) for line in lines if line.startswith("ERROR: ")]
    return printable_line("; ".join(errors[:5] or lines[-1:]), 1_000).rstrip(".")


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}"


def _this_machine() -> tuple[str, str, str]:
    return sys.version, platform.machine(), sys.base_prefix


class _TooLargeError(Exception):
    """The packages exceed what an environment may hold; the text follows the name requirements.txt."""


def _run_pip(*words: str, scratch: Path, most_bytes: int) -> str | None:
    """Run pip on wheels alone, without its cache, which nothing would limit; return as `_run_module`."""
    options = ("--disable-pip-version-check", "--no-input", "--no-cache-dir", "-vv")
    wheels = ("--only-binary=:all:", "--no-warn-script-location")
    return _run_module("pip", *options, *words, *wheels, scratch=scratch, most_bytes=most_bytes)


def _run_module(*module: str, scratch: Path, most_bytes: int) -> str | None:
    """Run a module of this Python, where no file lies that pip could take for a package of that name.

    Args:
        module: The module and its arguments.
        scratch: The folder that is filled, if any; downloads lie beside it meanwhile.
        most_bytes: The most that either may take on the disk.

    Returns:
        None if it succeeded, else what it printed.

    Raises:
        _TooLargeError: It was stopped because it filled the disk, or took too long.
    """
    downloads = scratch.with_suffix(".tmp")
    shutil.rmtree(downloads, ignore_errors=True)  # of a killed run
    downloads.mkdir()
    output = downloads / "output"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    most = DiskLimits(most_bytes, ENVIRONMENT_FILES)
    deadline, pause = time.monotonic() + INSTALL_SECONDS, _WATCH_SECONDS
    try:
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-I", "-m", *module],
                cwd=environments_folder(),
                env={**variables, "TMPDIR": str(downloads)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=READABLE_TO_ALL,
            )
        try:
            code = None
            while code is None:
                try:
                    code = process.wait(pause)
                except subprocess.TimeoutExpired:
                    code = None
                started = time.monotonic()
                uses = [disk_use(folder, most) for folder in (scratch, downloads)]
                if any(use.total_bytes > most_bytes or use.files > ENVIRONMENT_FILES for use in uses):
                    raise _TooLargeError(f"its packages take more than {most}, which is the limit. Ask for fewer.")
                if started > deadline:
                    raise _TooLargeError(f"installing took more than {INSTALL_SECONDS:g} s. Ask for fewer packages.")
                pause = max(_WATCH_SECONDS, 10 * (time.monotonic() - started))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return None if code == 0 else output.read_text(encoding="utf-8", errors="replace")
    finally:
        shutil.rmtree(downloads, ignore_errors=True)
