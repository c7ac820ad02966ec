"""Whether the stages run what they declare: one script each, among its deps, and all source that it loads."""

import importlib.util
import os
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from pcgeval.audit.imports import SourceTree
from pcgeval.audit.pipeline import PIPELINE_FILE, Pipeline, PipelineStage
from pcgeval.audit.status import AGAIN, AuditFinding, finding, named
from pcgeval.audit.workspace import is_below, printable
from pcgeval.core.errors import FileError
from pcgeval.core.layout import DVC_LOCK, is_ignored
from pcgeval.core.params import Params

_COMMAND = re.compile(r"python (stages/[A-Za-z_][A-Za-z0-9_]*\.py)((?: [A-Za-z0-9_][A-Za-z0-9_-]*)*)")
_STAGES, _SOURCE = "stages", "src"
_RESTORE = f"Restore it (`git restore {PIPELINE_FILE}`)"


def script_of(stage: PipelineStage) -> str | None:
    """Return the script that a stage runs; None if it runs anything else than one of stages/ with plain arguments."""
    command = _COMMAND.fullmatch(stage.commands[0]) if len(stage.commands) == 1 else None
    return command[1] if command else None


def commands_run(pipeline: Pipeline, params: Params) -> dict[str, int]:
    """Return the different commands of dvc.yaml, in its order, and how many stages run each.

    MODEL and TEAM stand for the names of models and teams.
    """
    words = {**dict.fromkeys(params.teams, "TEAM"), **dict.fromkeys(params.models, "MODEL")}
    counts: dict[str, int] = defaultdict(int)
    for stage in pipeline.stages:
        counts["; ".join(" ".join(words.get(word, word) for word in each.split(" ")) for each in stage.commands)] += 1
    return dict(counts)


def check_definition(root: Path, pipeline: Pipeline) -> Iterator[AuditFinding]:
    """Yield what stages run or load without declaring it, and what DVC was told not to see."""
    yield from _check_commands(root, pipeline)
    yield from _check_source(root, pipeline)
    yield from _check_neighbours(root, pipeline)
    yield from _check_hidden(root, pipeline)
    yield from _check_other_pipelines(root, pipeline)


def _check_commands(root: Path, pipeline: Pipeline) -> Iterator[AuditFinding]:
    undeclared: dict[str, list[str]] = defaultdict(list)
    for stage in pipeline.stages:
        script, who = script_of(stage), named([stage.name])
        if script is None or stage.folder != root:
            where = f" in {stage.folder}" if stage.folder != root else ""
            shown = printable("; ".join(stage.commands)[:200])
            message = (
                f"{who} runs `{shown}`{printable(where)}. A stage runs `python {_STAGES}/NAME.py` with names as "
                f"arguments, and nothing else. {_RESTORE}."
            )
            yield finding("command", None, message)
        elif script not in {dep.path for dep in stage.deps}:
            undeclared[script].append(stage.name)
        if stage.frozen:
            message = f"{who} is frozen, so that DVC never runs it again: `dvc unfreeze {printable(stage.name)}`."
            yield finding("command", None, message)
    for script, stages in undeclared.items():
        message = f"is run by {named(stages)}, whose deps do not name it. Add it there in {PIPELINE_FILE}"
        yield finding("command", script, f"{message}, then {AGAIN}.")


def _check_source(root: Path, pipeline: Pipeline) -> Iterator[AuditFinding]:
    """Yield each module of pcgeval that a stage loads and that none of its deps covers."""
    source = SourceTree(root / _SOURCE)
    missing: dict[str, list[str]] = defaultdict(list)
    for stage in pipeline.stages:
        script = script_of(stage)
        if script is None or not (root / script).is_file():  # named already
            continue
        try:
            modules = source.loaded_by(root / script)
        except FileError as error:
            yield finding("source", None, printable(str(error).replace(f"{root}{os.sep}", "")))
            continue
        for path in (source.modules[each].relative_to(root).as_posix() for each in sorted(modules)):
            if not any(is_below(path, dep.path) for dep in stage.deps):
                missing[path].append(stage.name)
    for path, stages in missing.items():
        message = f"is loaded by {named(stages)}, whose deps do not name it. Add it there in {PIPELINE_FILE}"
        yield finding("source", path, f"{message}, then {AGAIN}.")


def _check_neighbours(root: Path, pipeline: Pipeline) -> Iterator[AuditFinding]:
    """Yield files that Python would load in place of the modules that a stage names: it looks beside the script first.

    After that it looks in `src`, or first there where PYTHONPATH says so.
    """
    scripts = {script for stage in pipeline.stages if (script := script_of(stage))}
    for name in _names(root / _STAGES):
        path = f"{_STAGES}/{name}"
        if path in scripts and _is_module(PurePosixPath(name).stem):
            message = "has the name of another module, which every script beside it would load instead. Rename it"
            yield finding("source", path, f"{message} here and in {PIPELINE_FILE}.")
        elif not any(path in command for stage in pipeline.stages for command in stage.commands):
            message = "no stage runs it, and scripts beside it would load it as a module. Delete it or move it away."
            yield finding("source", path, message)
    deps = {dep.path for stage in pipeline.stages for dep in stage.deps}
    for name in _names(root / _SOURCE):
        path = f"{_SOURCE}/{name}"
        if name.partition("_")[0] != "pcgeval" and path not in deps:
            message = "no stage names it, and Python may load it as a module. Delete it or move it away."
            yield finding("source", path, message)


def _names(folder: Path) -> list[str]:
    """Return the names in a folder that Python may take for modules: also compiled ones, which DVC ignores."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [name for name in names if not is_ignored(name) or (name.endswith(".pyc"))]


def _is_module(name: str) -> bool:
    """Tell whether Python finds a module of this name, the folder of the stages left out."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return name in sys.stdlib_module_names or (spec is not None and _STAGES not in Path(spec.origin or "").parts)


def _check_hidden(root: Path, pipeline: Pipeline) -> Iterator[AuditFinding]:
    """Yield the files and folders of deps and outs that a rule of some .dvcignore keeps out of their hashes."""
    paths = {each.path for stage in pipeline.stages for each in (*stage.deps, *stage.outs)}
    nested = {path for path in paths if any(str(parent) in paths for parent in PurePosixPath(path).parents)}
    for path in sorted(paths - nested):
        place = root / path
        if pipeline.ignores(place):
            hidden = [path]
        else:
            seen = {each: (folders, files) for each, folders, files in pipeline.walk(place)} if place.is_dir() else {}
            hidden = [each.relative_to(root).as_posix() for each in _unseen(place, seen)]
        for each in hidden:
            message = "a rule in a .dvcignore hides it from DVC, so that no hash covers it. Remove that rule, then"
            yield finding("hidden", each, f"{message} {AGAIN}.")


def _unseen(place: Path, seen: dict[Path, tuple[list[str], list[str]]]) -> Iterator[Path]:
    """Yield what lies below a folder, and not in what DVC saw of it; nothing below a folder that it did not see."""
    for parent, folders, files in os.walk(place):
        known_folders, known_files = map(set[str], seen.get(Path(parent), ((), ())))
        folders[:] = sorted(name for name in folders if not is_ignored(name) and name != ".dvc")
        unseen = [name for name in folders if name not in known_folders and not Path(parent, name).is_symlink()]
        unseen += [name for name in sorted(files) if not is_ignored(name) and name not in known_files | {".dvcignore"}]
        folders[:] = [name for name in folders if name in known_folders]
        yield from (Path(parent, name) for name in unseen)


def _check_other_pipelines(root: Path, pipeline: Pipeline) -> Iterator[AuditFinding]:
    """Yield other files that define stages of this DVC repository: DVC runs those that ours depend on."""
    made = {out.path for stage in pipeline.stages for out in stage.outs}
    for parent, folders, files in os.walk(root):
        here = Path(parent).relative_to(root)
        folders[:] = [
            name for name in folders if _may_define_stages(Path(parent, name), (here / name).as_posix(), made)
        ]
        for name in sorted(files):
            path = (here / name).as_posix()
            if (name == "dvc.yaml" and path != PIPELINE_FILE) or (
                name.endswith(".dvc") and path != DVC_LOCK.as_posix()
            ):
                message = "defines stages or data of DVC that are not looked at here. Delete it or move it away."
                yield finding("command", path, message)


def _may_define_stages(folder: Path, path: str, made: Collection[str]) -> bool:
    is_repository = (folder / ".dvc").is_dir()  # of its own, as of a round
    is_environment = (folder / "pyvenv.cfg").is_file()
    return not (is_repository or is_environment or path in made or path in {".git", ".dvc"})
