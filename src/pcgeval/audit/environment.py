"""The environment that also decides a result: Python, the platform and the versions of the installed packages."""

import importlib.metadata
import platform
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from pcgeval.audit.status import AuditFinding, finding
from pcgeval.audit.workspace import printable
from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text

CONSTRAINTS = "constraints.txt"


@dataclass(frozen=True)
class Package:
    """One line of constraints.txt: what it pins and what is installed (None: nothing)."""

    name: str
    pinned: str
    installed: str | None
    agrees: bool


@dataclass(frozen=True)
class Environment:
    """Python, the platform and the pinned packages that concern it."""

    python: str
    platform: str
    packages: tuple[Package, ...]


def read_environment(root: Path) -> tuple[Environment, tuple[AuditFinding, ...]]:
    """Return the environment, and notes where they differ from constraints.txt."""
    found: list[Package] = []
    notes: list[AuditFinding] = []
    try:
        lines = read_text(root / CONSTRAINTS).splitlines()
    except FileError:
        lines = []
        notes.append(finding("packages", CONSTRAINTS, "is missing, so no package version can be compared."))
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text or text.startswith("-"):
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            message = f"{CONSTRAINTS}:{number}: not a requirement: {printable(line[:80])}. Correct or remove the line."
            notes.append(finding("packages", None, message))
            continue
        if requirement.marker is None or requirement.marker.evaluate():
            try:
                installed = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                installed = None
            agrees = installed is not None and requirement.specifier.contains(installed, prereleases=True)
            found.append(Package(requirement.name, str(requirement.specifier).removeprefix("=="), installed, agrees))
    for each in found:
        if each.installed is not None and not each.agrees:
            message = f"{each.name} {each.installed} is installed, {CONSTRAINTS} says {each.pinned}: run `make setup`."
            notes.append(finding("packages", None, message))
    packages = tuple(sorted(found, key=lambda each: each.name))
    return Environment(platform.python_version(), platform.platform(), packages), tuple(notes)
