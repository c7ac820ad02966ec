"""The environment that also decides a result: Python, the platform and the versions of the installed packages."""

import importlib.metadata
import platform
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from pcgeval.audit.status import AuditFinding, finding
from pcgeval.audit.workspace import printable
from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text, sha256_file
from pcgeval.core.packages import installed_version
from pcgeval.core.params import Params
from pcgeval.core.stage_files import RankingFile, SimulationsFile
from pcgeval.scoring.inputs import UNKNOWN

CONSTRAINTS = "constraints.txt"
LOADED = Path(__file__).parents[1]  # the folder that pcgeval is loaded from
_SAME_VERSION = (
    "Audit with that version (`make setup` installs those of constraints.txt), or evaluate everything again with this "
    "one: `dvc repro --force`."
)


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
    source: str  # the folder that pcgeval is loaded from
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
    return Environment(platform.python_version(), platform.platform(), str(LOADED), packages), tuple(notes)


def check_versions(ranking: RankingFile, params: Params) -> Iterator[AuditFinding]:
    """Yield the packages and the engine that measured the levels of a ranking and are here in another version."""
    for name, versions in ranking.packages.items():
        now = installed_version(name)
        if now is not None and versions != (now,):
            message = (
                f"{printable(name)} {printable(' and '.join(versions))} measured levels of this ranking, here is {now}"
            )
            yield finding("versions", None, f"{message}. {_SAME_VERSION}")
    try:
        from pcgeval.evaluator.stage import installed_engine  # noqa: PLC0415 - whoever audits may have no pymunk
    except ImportError:
        return
    engine = SimulationsFile(engine=installed_engine(params.physics)).engine_line
    if ranking.engine not in {engine, UNKNOWN}:
        message = f"{printable(ranking.engine)} simulated the levels of this ranking, here is {engine}"
        yield finding("versions", None, f"{message}. {_SAME_VERSION}")


def check_loaded_source(root: Path) -> Iterator[AuditFinding]:
    """Yield which code Python loads instead of that of the folder: by PYTHONPATH, another installation or a hook.

    Stages are run by the same Python as the audit, so that they load the same.
    """
    theirs = root / "src" / "pcgeval"
    if theirs.resolve() != LOADED.resolve() and _modules(theirs) != _modules(LOADED):
        message = (
            f"pcgeval is loaded from {printable(str(LOADED))}, which is not the code in src here. Run `make setup`"
        )
        yield finding("loaded", None, f"{message} here, and without PYTHONPATH.")
    hooks = {"sitecustomize", "usercustomize"}
    for name, module in sorted(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or LOADED)
        if name.split(".")[0] == "pcgeval" and not path.is_relative_to(LOADED):
            message = f"{name} is loaded from {printable(str(path))} and not from {printable(str(LOADED))}"
            yield finding("loaded", None, f"{message}. Remove what puts it there.")
        elif name in hooks and not path.is_relative_to(sysconfig.get_path("stdlib")):
            message = f"Python runs {printable(str(path))} before every stage. Remove it, or look at what it does."
            yield finding("loaded", None, message)


def _modules(package: Path) -> dict[str, str]:
    return {path.relative_to(package).as_posix(): sha256_file(path) for path in package.rglob("*.py")}
