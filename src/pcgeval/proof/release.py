"""Compare the code of a competition with the installed release, and its files with DVC and git."""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pcgeval.core.files import sha256_file
from pcgeval.core.layout import DVC_LOCK, RELEASED_PIPELINE, is_ignored
from pcgeval.core.untrusted import printable_line
from pcgeval.similarity.source import SHIPPED_SHA256, Source

CLASSIFIER = Path("data", "classifier")
CODE = ("src", "stages", "dvc.yaml", "params.yaml", ".dvcignore", "data", "results")  # that belongs into git
_MOST = 5  # names in a sentence
_LONGEST = 200  # characters of what DVC says


@dataclass
class Findings:
    """The findings of an audit beside differences, a sentence each.

    Attributes:
        faults: What is not as it should be.
        unpublished: What nobody can look up in a commit: a fault only for a strict audit.
        notes: What a reader should know.
    """

    faults: list[str] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_release(root: Path, findings: Findings) -> None:
    """Name the code and the classifier that are not those of the release that runs this audit."""
    package = Path(__file__).parents[1]
    source = root / "src" / "pcgeval"
    if source.is_dir() and source.samefile(package):
        findings.notes.append(
            "the audit ran the code of this folder: to compare it with a release, run the installed release's "
            "`pcgeval audit` here."
        )
    else:
        pairs = [(source, package), (root / "stages", RELEASED_PIPELINE / "stages")]
        names = [name for folder, released in pairs if folder.is_dir() for name in _differing(folder, released, root)]
        dvc_yaml = root / "dvc.yaml"
        if not dvc_yaml.is_file() or sha256_file(dvc_yaml) != sha256_file(RELEASED_PIPELINE / "dvc.yaml"):
            names.append("dvc.yaml")
        if names:
            more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
            findings.faults.append(f"other code than the installed release's: {', '.join(names[:_MOST])}{more}.")
    if (root / CLASSIFIER).is_dir() and (found := Source("", None, root / CLASSIFIER).sha256) != SHIPPED_SHA256:
        findings.faults.append(
            f"{CLASSIFIER}: these are not the weights that pcgeval ships: their SHA-256 is {found}, and "
            f"{SHIPPED_SHA256} is shipped."
        )


def _differing(folder: Path, released: Path, root: Path) -> list[str]:
    """Return the modules of a folder that differ from the released ones, are more, or are missing."""
    modules = [
        {name.as_posix() for name in _modules(place) if not any(map(is_ignored, name.parts))}
        for place in (folder, released)
    ]
    return [
        (folder / name).relative_to(root).as_posix()
        for name in sorted(modules[0] | modules[1])
        if name not in modules[0] & modules[1] or sha256_file(folder / name) != sha256_file(released / name)
    ]


def _modules(folder: Path) -> Iterator[Path]:
    return (path.relative_to(folder) for path in folder.rglob("*.py"))


def check_repository(root: Path, left_over: Collection[Path], findings: Findings) -> None:
    """Name what DVC and git find: files that are not those of dvc.lock, or not committed.

    Args:
        root: The competition's folder.
        left_over: Files of teams and models that take no part any more, which DVC counts as changes of a folder.
        findings: Gets a fault for each stage that is not up to date; what is not committed is `unpublished`.
    """
    if not (root / DVC_LOCK).is_file():
        findings.faults.append(f"{DVC_LOCK}: is missing, so nothing says which files the stages wrote.")
    else:
        findings.faults += _dvc_faults(root, left_over)
    listed = _run(root, "git", "status", "--porcelain", "--", *CODE)
    if listed is None:
        findings.unpublished.append(
            "the folder is no git repository: nothing says who published which code and params."
        )
    elif lines := listed.splitlines():
        more = f" and {len(lines) - _MOST} more" if len(lines) > _MOST else ""
        names = ", ".join(printable_line(line[3:]) for line in lines[:_MOST])
        findings.unpublished.append(f"not as in the last commit: {names}{more}.")


def _dvc_faults(root: Path, left_over: Collection[Path]) -> list[str]:
    with TemporaryDirectory(prefix="pcgeval-dvc-") as state:  # DVC's own records of sizes and times are not used
        text = _run(root, sys.executable, "-m", "dvc", "status", "--json", DVC_SITE_CACHE_DIR=state)
    if text is None:
        return [f"DVC cannot compare the files with {DVC_LOCK}. Run `dvc status` to see why."]
    faults = []
    for stage, changes in json.loads(text or "{}").items():
        reasons = []
        for change in changes:
            if not isinstance(change, dict):
                reasons.append(str(change))
                continue
            for kind, paths in change.items():
                changed = {
                    path: what
                    for path, what in (paths.items() if isinstance(paths, dict) else ())
                    if not (what == "modified" and any(Path(path) in file.parents for file in left_over))
                }
                reasons += [f"{kind}: {path} {what}" for path, what in changed.items()]
        if reasons:
            faults.append(f"stage {stage}: not as in {DVC_LOCK}: {printable_line('; '.join(reasons), _LONGEST)}")
    return faults


def _run(root: Path, *words: str, **variables: str) -> str | None:
    """Run a program in the folder and return what it printed; None if it failed or is not there."""
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1", "GIT_OPTIONAL_LOCKS": "0", **variables}
    try:
        done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
