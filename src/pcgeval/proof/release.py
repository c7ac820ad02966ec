"""Compare the code of a competition with the installed release, and its files with DVC and git."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from pcgeval.core.files import sha256_bytes, sha256_file, to_json, tree_files
from pcgeval.core.packages import installed_release
from pcgeval.core.text import listed, printable_line
from pcgeval.formats.layout import (
    CLASSIFIER,
    DVC_LOCK,
    EXAMPLE_LETTERS,
    PACKAGE_FILE,
    RELEASED_PIPELINE,
    own_or_packaged,
)
from pcgeval.formats.params import Params
from pcgeval.proof.parts import PARTS
from pcgeval.similarity.source import FILES, SHIPPED_SHA256, Source

_SOURCE_DEPS = re.compile(r"src/pcgeval/[^\s,\]]+(,\s+src/pcgeval/[^\s,\]]+)*")

_IN_GIT = sorted({part.path.parts[0] for part in PARTS if part.uses != ("init",)})
# findings beside differences of files: faults, notes for readers, and two kinds that fail only a strict audit: what was
# not run again, and what is not committed
Kind = Literal["faults", "not_run", "unpublished", "notes"]
Finding = tuple[Kind, str]
_MOST = 5  # names in a sentence


def check_release(root: Path, params: Params) -> Iterator[Finding]:
    """Name the code and the classifier that are not those of the release that runs this audit."""
    package = Path(__file__).parents[1]
    source = root / "src" / "pcgeval"
    if source.is_dir() and source.samefile(package):
        yield "notes", "the audit ran the code of this folder; the `pcgeval audit` of a release compares it with that."
    elif names := _altered(root, package):
        yield "faults", f"the code is not that of the installed release: {listed(names, _MOST)}."
    classifier = Source("", None, classifier_folder(root))
    is_used = params.similarity.model == str(CLASSIFIER) and all((classifier.folder / name).is_file() for name in FILES)
    if is_used and classifier.sha256 != SHIPPED_SHA256:
        hashes = f"their SHA-256 is {classifier.sha256}, and {SHIPPED_SHA256} is shipped"
        yield "faults", f"{CLASSIFIER}: these are not the weights that pcgeval ships: {hashes}."


def classifier_folder(root: Path) -> Path:
    """Return the folder of the classifier: the competition's, else that of the working directory or the package."""
    return folder if (folder := root / CLASSIFIER).is_dir() else own_or_packaged(CLASSIFIER).resolve()


def _altered(root: Path, package: Path) -> list[str]:
    """Return the files of the code that differ from those of the release."""
    if (root / PACKAGE_FILE).is_file():  # `pcgeval init` made the folder
        released = {name: sha256_bytes(content) for name, content in pipeline_files().items()}
    else:
        released = {"dvc.yaml": sha256_file(RELEASED_PIPELINE / "dvc.yaml")}
        released |= _modules(RELEASED_PIPELINE / "stages", "stages/") | _modules(package, "src/pcgeval/")
    names = [*released, *_modules(root / "stages", "stages/"), *_modules(root / "src/pcgeval", "src/pcgeval/")]
    present = {name: sha256_file(root / name) for name in names if (root / name).is_file()}
    return [name for name in sorted({*names}) if present.get(name) != released.get(name)]


def _modules(folder: Path, above: str) -> dict[str, str]:
    """Return the SHA-256 of every module below a folder, by its name with what is above it."""
    return {above + name: sha256_file(folder / name) for name in tree_files(folder) if name.endswith(".py")}


def check_repository(root: Path) -> Iterator[Finding]:
    """Name the files that differ from dvc.lock, by DVC, and those that are not committed, by git."""
    if not (root / DVC_LOCK).is_file():
        yield "faults", f"{DVC_LOCK}: is missing, so nothing says which files the stages wrote."
    else:
        yield from _dvc_faults(root)
    status = _run(root, "git", "status", "--porcelain", "--", *_IN_GIT)
    if status is None:
        yield "unpublished", "the folder is no git repository: nothing says who published which code and params."
    elif status:
        names = listed([printable_line(line[3:]) for line in status.splitlines()], _MOST)
        yield "unpublished", f"changed since the last commit: {names}."


def _dvc_faults(root: Path) -> Iterator[Finding]:
    # without DVC's records of sizes and times, and by -P without modules of the folder
    with TemporaryDirectory(prefix="pcgeval-dvc-") as state:
        text = _run(root, sys.executable, "-P", "-m", "dvc", "status", "--json", DVC_SITE_CACHE_DIR=state)
    if text is None:
        yield "faults", f"DVC cannot compare the files with {DVC_LOCK}. Run `dvc status` to see why."
        return
    for stage, changes in json.loads(text or "{}").items():
        reasons = []
        for change in changes:  # a clause such as `changed command`, or {"changed outs": {path: status}}
            kinds = {change: {"": ""}} if isinstance(change, str) else change
            reasons += [f"{kind} {path} {status}" for kind, paths in kinds.items() for path, status in paths.items()]
        reason = printable_line("; ".join(reasons))
        yield "faults", f"stage {stage}: differs from {DVC_LOCK}: {reason}"


def _run(root: Path, *words: str, **variables: str) -> str | None:
    """Run a program in the folder and return its output; None if it failed or is not installed."""
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1", "GIT_OPTIONAL_LOCKS": "0", **variables}
    try:
        done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def pipeline_files() -> dict[str, bytes]:
    """Return the files of a competition's folder of the release: stages, dvc.yaml, .dvcignore, pcgeval.json.

    They are those of the repository, but for the dependencies on `src/pcgeval` and on the example letters in dvc.yaml.
    """
    stages = sorted((RELEASED_PIPELINE / "stages").glob("*.py"))
    pipeline = (RELEASED_PIPELINE / "dvc.yaml").read_text("utf-8").replace(f"{EXAMPLE_LETTERS}, ", "")
    return {
        ".dvcignore": (RELEASED_PIPELINE / ".dvcignore").read_bytes(),
        "dvc.yaml": _SOURCE_DEPS.sub(str(PACKAGE_FILE), pipeline).encode(),
        str(PACKAGE_FILE): f"{to_json(installed_release())}\n".encode(),
        **{f"stages/{path.name}": path.read_bytes() for path in stages},
    }
