"""Installed packages: their versions, which results carry, and the extras of pcgeval that bring missing ones."""

import functools
import importlib.metadata
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import tree_files, tree_sha256

# the extra of pyproject.toml that brings a module
EXTRAS = {
    "Box2D": "box2d",
    "distributed": "cluster",
    "dpath": "pipeline",
    "dvc": "pipeline",
    "huggingface_hub": "classifier",
    "inspect_ai": "inspect",
    "openai": "openai",
    "pyarrow": "parquet",
    "pymunk": "levels",
    "ruamel": "pipeline",
    "torch": "classifier",
    "transformers": "classifier",
    "verifiers": "verifiers",
    "voluptuous": "pipeline",
    "xllamacpp": "local-llm",
}
# what a measurement is computed with, where it is installed
MEASURING = ("Box2D", "lxml", "numpy", "pillow", "pydantic", "pymunk", "safetensors", "torch", "transformers")


class MissingPackageError(PcgevalError, ModuleNotFoundError):
    """A package of an extra of pcgeval is not installed; `name` is the package."""


def missing_package(error: ModuleNotFoundError, user: str) -> MissingPackageError | None:
    """Return an error that says who needs the missing package and which extra brings it; None if no extra does."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    remedy = f"Run `{install_command(EXTRAS[package])}`."
    return MissingPackageError(f"{user} needs the package {package}, which is not installed. {remedy}", name=package)


def install_command(extra: str) -> str:
    """Return the command that installs pcgeval with an extra from where it came: the index, or a checkout's folder."""
    try:
        origin = json.loads(importlib.metadata.distribution("pcgeval").read_text("direct_url.json") or "{}")
    except importlib.metadata.PackageNotFoundError:
        origin = {}
    if "dir_info" not in origin:
        return f"pip install 'pcgeval[{extra}]'"
    folder = Path(unquote(urlsplit(origin["url"]).path))
    place = "." if folder == Path.cwd() else folder
    return f"pip install {'-e ' if origin['dir_info'].get('editable') else ''}'{place}[{extra}]'"


@contextmanager
def packages_for(user: str) -> Iterator[None]:
    """Import packages of an extra inside this context; raise MissingPackageError if one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_package(error, user) or error from None


@functools.cache
def installed_version(name: str) -> str | None:
    """Return the installed version of a package without a local label such as `+cpu`; None if it is not installed."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_versions(*names: str) -> dict[str, str]:
    """Return the versions of the packages that are installed, by name."""
    return {name: version for name in names if (version := installed_version(name)) is not None}


@functools.cache
def source_sha256(*packages: str) -> str:
    """Return one SHA-256 over the modules of packages of pcgeval, such as `evaluator`; "" is all of it."""
    source = Path(__file__).parents[1]
    names = (name for package in packages for name in tree_files(source, package))
    return tree_sha256(source, (name for name in names if name.endswith(".py")))


@functools.cache
def installed_release() -> dict[str, str | None]:
    """Return the content of pcgeval.json: the version, and one SHA-256 over the files of the package.

    Its `data` is left out, which a checkout has elsewhere: a wheel and its checkout have the same hash.
    """
    package = Path(__file__).parents[1]
    sha256 = tree_sha256(package, (name for name in tree_files(package) if not name.startswith("data/")))
    return {"sha256": sha256, "version": installed_version("pcgeval")}
