"""Provide the Python that runs a program, with the packages of its requirements.txt, installed once.

Only wheels are installed: they are unpacked, and nothing in them runs. Their `.pth` files may run when Python starts:
once packages are in an environment, its Python is started in the sandbox alone.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from pcgeval.core.files import sha256_json, write_json, write_text
from pcgeval.submissions.requirements import REQUIREMENTS, RequirementsError, read_requirements

INSTALL_SECONDS = 3_600
READABLE_TO_ALL = 0o022  # the umask: root runs programs as another user


def interpreter_for(folder: Path, original: Path | None = None) -> Path:
    """Return the Python for a program: this one, or one with the packages that its requirements.txt names.

    Programs that ask for the same packages share an environment; the interface packages are not among them.

    Args:
        folder: The program's folder.
        original: The folder that messages name, if this one is a copy.

    Raises:
        RequirementsError: The file asks for something that is not allowed, or a package has no wheel for this Python.
    """
    source = (original or folder) / REQUIREMENTS
    requirements = read_requirements(folder, source)
    if not requirements:
        return Path(sys.executable)
    environment = environments_folder() / sha256_json([requirements, sys.version, platform.machine(), sys.base_prefix])
    python = environment / "bin" / "python"
    record = environment.with_suffix(".json")  # beside the folder: a wheel can put files into it
    environment.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(environment.with_suffix(".lock")):
        if not (record.is_file() and python.is_file()):
            if environment.exists():  # a killed run left it; it is never started
                shutil.rmtree(environment)
            wanted = environment.with_suffix(".txt")
            write_text(wanted, "".join(f"{requirement}\n" for requirement in requirements))
            _run_module("venv", "--without-pip", str(environment), source=source)
            pip = ("pip", "--python", str(python), "--disable-pip-version-check", "--no-input", "install")
            only_wheels = ("--only-binary=:all:", "--no-warn-script-location", "-r", str(wanted))
            _run_module(*pip, *only_wheels, source=source)
            wanted.unlink()
            write_json(record, {"python": platform.python_version(), "requirements": requirements})
    return python


def environments_folder() -> Path:
    """Return the folder of the environments: `environments` in PCGEVAL_CACHE or in ~/.cache/pcgeval."""
    return Path(os.environ.get("PCGEVAL_CACHE") or Path.home() / ".cache" / "pcgeval").absolute() / "environments"


def _run_module(*module: str, source: Path) -> None:
    """Run a module of this Python, where no file lies that pip could take for a package of that name."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", *module],
            cwd=environments_folder(),
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=INSTALL_SECONDS,
            check=False,
            umask=READABLE_TO_ALL,
        )
    except subprocess.TimeoutExpired as error:
        raise RequirementsError(f"{source}: installing took more than {error.timeout:g} s. Ask for fewer.") from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).decode("utf-8", errors="replace").strip().splitlines()
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        told = "; ".join(errors[:5] or lines[-1:])[:1_000].rstrip(".")
        raise RequirementsError(
            f"{source}: its packages cannot be installed from wheels for Python {platform.python_version()} "
            f"on {platform.machine()}: {told}. Ask for versions that have such wheels, and run it again where the "
            "package index can be reached."
        )
