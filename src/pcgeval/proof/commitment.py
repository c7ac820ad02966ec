"""The commitment: what decides a ranking and stands before the run, in a git commit that is published.

`check_repository` also compares the results with dvc.lock and the last commit.

git compares the commit with the working files by a temporary index, so that staged files and the flags of the
repository's own index hide nothing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import yaml

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import is_ignored
from pcgeval.core.text import listed, printable_line, printable_name
from pcgeval.core.untrusted import parse_yaml, read_text
from pcgeval.formats.layout import DVC_LOCK, SUBMISSIONS
from pcgeval.formats.params import ANY_CLASSIFIER, PARAMS_FILE, ParamsError, parse_params
from pcgeval.formats.results import NOT_DECIDING
from pcgeval.proof.parts import PARTS, Finding, parts_for

_COMMITTED = [str(part.path) for part in parts_for("commit")]
_IN_GIT = sorted({part.path.parts[0] for part in PARTS if part.uses != ("init",)})
_LONGEST_VALUE = 100  # characters
_SHOWN_HASH = 12  # digits
_PLACES_OF_MODELS = {*NOT_DECIDING["models"]["__all__"], "backend"}  # a live run and its replay differ in `backend`
_UNPINNED = "unpinned:"  # before the hash of a recorded model's name, in place of a digest


class CommitmentError(PcgevalError):
    """A folder is in no git repository, or the repository has no such commit."""


class Commitment(NamedTuple):
    """What is committed: the last commit, if there is one, and the files that differ from it."""

    commit: str | None
    uncommitted: list[str]


def read_commitment(root: Path) -> Commitment:
    """Compare the inputs with the last commit; raise CommitmentError outside a git repository."""
    try:
        git(root, "rev-parse", "--git-dir")
    except CommitmentError as error:
        remedy = "Make one with `git init`, and commit and publish the inputs before the run."
        raise CommitmentError(f"the folder is in no git repository that can be read ({error}). {remedy}") from error
    try:
        commit = full_commit(root, "HEAD")
    except CommitmentError:  # before the first one
        commit = None
    return Commitment(commit, _differing(root, commit))


def full_commit(root: Path, name: str) -> str:
    """Return the full hash of a commit by any of its names; raise CommitmentError if there is none."""
    try:
        return git(root, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").strip()
    except CommitmentError as error:
        fault = f"commit {printable_name(name)}: git does not know it here ({error})"
        raise CommitmentError(f"{fault}. Give a commit of this repository; `git log` lists them.") from error


def changes_since(root: Path, commit: str) -> Iterator[str]:
    """Yield a sentence for each input that differs from a commit.

    Args:
        root: The competition's folder.
        commit: Its full hash, as `full_commit` returns it.

    Raises:
        CommitmentError: The folder is in no git repository, or git cannot read the commit.
        FileError: params.yaml cannot be read.
    """
    names = _differing(root, commit)
    shown = commit[:_SHOWN_HASH]
    if PARAMS_FILE in names:
        yield from _changed_settings(root, commit, shown)
    committed = _committed_teams(root, commit)
    for team in sorted({_team(name) for name in names if name.startswith(f"{SUBMISSIONS}/")}):
        place = f"{SUBMISSIONS}/{team}"
        files = [name.removeprefix(f"{place}/") for name in names if name == place or name.startswith(f"{place}/")]
        if team not in committed:
            change = "was added"
        elif not os.path.lexists(root / place):
            change = "was removed"
        else:
            change = f"was changed ({listed(files)})"
        yield f"{SUBMISSIONS}: team {printable_name(team)} {change} after the commit {shown}."
    for folder in _COMMITTED:
        files = [name.removeprefix(f"{folder}/") for name in names if name.startswith(f"{folder}/")]
        if folder in names and folder != PARAMS_FILE:
            yield f"{folder}: is no folder that git knows after the commit {shown}, but a file or a link."
        elif files and folder != str(SUBMISSIONS):
            yield f"{folder}: changed after the commit {shown}: {listed(files)}."


def _team(name: str) -> str:
    return PurePosixPath(name).relative_to(SUBMISSIONS).parts[0]


def _committed_teams(root: Path, commit: str) -> set[str]:
    names = git(root, "ls-tree", "--name-only", "-z", commit, "--", f"{SUBMISSIONS}/")
    return {_team(name) for name in names.split("\0") if name}


def _differing(root: Path, commit: str | None) -> list[str]:
    """Return the files of the inputs that differ from a commit, that it lacks, or that are gone; without one all."""
    with TemporaryDirectory(prefix="pcgeval-index-") as folder:
        index = str(Path(folder, "index"))
        if commit is not None:
            git(root, "read-tree", commit, GIT_INDEX_FILE=index)
        kinds = ("--modified", "--deleted", "--others")  # others: ignored ones too
        names = git(root, "ls-files", "-z", *kinds, "--", *_COMMITTED, GIT_INDEX_FILE=index).split("\0")
    return sorted({name for name in names if name and _counts(name)})


def _counts(name: str) -> bool:
    """Tell whether a file is an input: of a submission each one is, elsewhere none that DVC ignores."""
    return name.startswith(f"{SUBMISSIONS}/") or not any(map(is_ignored, PurePosixPath(name).parts))


def _changed_settings(root: Path, commit: str, shown: str) -> Iterator[str]:
    if not os.path.lexists(root / PARAMS_FILE):
        yield f"{PARAMS_FILE}: was removed after the commit {shown}."
        return
    try:
        before = git(root, "show", f"{commit}:./{PARAMS_FILE}")
    except CommitmentError:
        yield f"{PARAMS_FILE}: was added after the commit {shown}."
        return
    try:
        now = read_text(root / PARAMS_FILE, follow_link=True)
        values = [parse_yaml(text, allow_aliases=True) for text in (before, now)]
    except ValueError as error:
        yield f"{PARAMS_FILE}: was changed after the commit {shown}, and one is no YAML: {printable_line(str(error))}"
        return
    with suppress(ParamsError):  # defaults stand for what is left out, unless a file has the form of another release
        models = [parse_params(value, PARAMS_FILE, context=ANY_CLASSIFIER) for value in values]
        values = [params.model_dump(mode="json") for params in models]
    for place, former, present in _changed_values("", *map(_deciding, values)):
        yield f"{PARAMS_FILE}: {place} is {_short(present)}, and was {_short(former)} in the commit {shown}."


def _deciding(values: Any) -> Any:
    """Return the settings without those of where and how fast something is computed; a replay is as its live run."""
    if not isinstance(values, dict):
        return values
    kept = {name: value for name, value in values.items() if name != "execution"}
    if isinstance(kept.get("models"), dict):
        kept["models"] = {name: _without(model, _PLACES_OF_MODELS) for name, model in kept["models"].items()}
    if isinstance(kept.get("rubric"), dict):
        kept["rubric"] |= {"model": _without(kept["rubric"].get("model"), _PLACES_OF_MODELS)}
    for section in ("similarity", "limits"):
        kept[section] = _without(kept.get(section), NOT_DECIDING[section])
    return kept


def _without(values: Any, names: Collection[str]) -> Any:
    if not isinstance(values, dict):
        return values
    kept = {name: value for name, value in values.items() if name not in names}
    if str(kept.get("digest")).startswith(_UNPINNED):
        del kept["digest"]
    return kept


def _changed_values(place: str, former: Any, present: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each value that differs, with both; a digest that was pinned afterwards is no difference."""
    if isinstance(former, dict) and isinstance(present, dict):
        for name in sorted({*map(str, former), *map(str, present)}):
            values = [_named(values, name) for values in (former, present)]
            if values[0] is not None or name != "digest":
                yield from _changed_values(f"{place}.{printable_name(name)}".lstrip("."), *values)
    elif _written(former) != _written(present):
        yield place or "the whole", former, present


def _named(values: dict[Any, Any], name: str) -> Any:
    return next((value for key, value in values.items() if str(key) == name), None)


def _written(value: Any) -> str:
    """Return a value as YAML on one line, in which 1, true and "1" differ, as they do in Python's `==` not."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return text.removesuffix("...\n").strip()


def _short(value: Any) -> str:
    return printable_line(_written(value), _LONGEST_VALUE)


def git(root: Path, *words: str, **variables: str) -> str:
    """Run git in a folder and return its output; raise CommitmentError with git's words if it fails."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **variables}
    try:
        done = subprocess.run(["git", *words], cwd=root, env=environment, capture_output=True, check=False)
    except OSError as error:
        raise CommitmentError(f"git cannot be run ({error.strerror})") from error
    if done.returncode:
        raise CommitmentError(printable_line(os.fsdecode(done.stderr)) or f"git {words[0]} failed")
    return os.fsdecode(done.stdout)


def check_repository(root: Path) -> Iterator[Finding]:
    """Name the files that differ from dvc.lock, by DVC, and those that are not committed, by git."""
    if not (root / DVC_LOCK).is_file():
        yield "faults", f"{DVC_LOCK}: is missing, so nothing says which files the stages wrote."
    else:
        yield from _dvc_faults(root)
    try:
        changed = git(root, "status", "--porcelain", "--", *_IN_GIT).splitlines()
    except CommitmentError:
        yield "unpublished", "the folder is no git repository: nothing says who published which code and params."
        return
    if changed:
        names = listed([printable_line(line[3:]) for line in changed])
        yield "unpublished", f"changed since the last commit: {names}."


def _dvc_faults(root: Path) -> Iterator[Finding]:
    command = [sys.executable, "-P", "-m", "dvc", "status", "--json"]  # -P: without modules of the folder
    with TemporaryDirectory(prefix="pcgeval-dvc-") as state:  # without DVC's records of sizes and times
        environment = {**os.environ, "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": state}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        yield "faults", f"DVC cannot compare the files with {DVC_LOCK}. Run `dvc status` to see why."
        return
    for stage, changes in json.loads(done.stdout or "{}").items():
        reasons = []
        for change in changes:  # a clause such as `changed command`, or {"changed outs": {path: status}}
            kinds = {change: {"": ""}} if isinstance(change, str) else change
            reasons += [f"{kind} {path} {status}" for kind, paths in kinds.items() for path, status in paths.items()]
        reason = printable_line("; ".join(reasons))
        yield "faults", f"stage {stage}: differs from {DVC_LOCK}: {reason}"
