"""The audit as a person reads it: the lines of the ranking with their inputs, what all share, and the verdict."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from pcgeval.audit.audit import Audit, Line, ParamUsed
from pcgeval.audit.environment import Environment
from pcgeval.audit.history import GitState
from pcgeval.audit.lineage import Input, Locked
from pcgeval.audit.status import AuditFinding
from pcgeval.audit.workspace import printable
from pcgeval.scoring.decimals import rounded

_HASH = 12  # hexadecimal digits of a hash that are shown
_MOST = 20  # findings of one kind that are shown; --json has all
_CHANGED_SHOWN = 5


def audit_text(audit: Audit) -> str:
    """Return the whole audit as text; hashes are cut to 12 digits."""
    parts = [printable(audit.competition), ""]
    for line in audit.lines:
        parts += [*_line(line), ""]
    if audit.lines:
        parts += ["Shared by all lines", *_shared(audit), ""]
    parts += [*_environment(audit.environment), *_git(audit.git), ""]
    parts += _verdict(audit)
    return "\n".join(parts)


def _line(line: Line) -> Iterator[str]:
    place = "unranked" if line.rank is None else f"rank {line.rank}"
    scores = "no score"
    if line.total is not None and line.normalised is not None:
        scores = f"total {rounded(line.total)}, normalised {rounded(line.normalised, 3)}"
    yield f"{place}  {printable(line.team)}: {scores} ({'winner' if line.winner else printable(line.status)})"
    yield from _files(line.inputs)
    counts = [f"{name} x {len(list(stages))}" for name, stages in groupby(line.stages, lambda name: name.split("@")[0])]
    yield f"  by stages    {', '.join(counts)}"


def _shared(audit: Audit) -> Iterator[str]:
    yield "  Weights and normalised scores are means over all teams, so every line also depends on the others' inputs."
    for model in audit.models:
        settings = ", ".join(_param(each, f"models.{model.model}") for each in model.settings)
        yield f"  model        {printable(model.model)}: {settings}"
    for seed in audit.seeds:
        role = ", from which every trial derives its own" if seed.name == "competition.seed" else ""
        yield f"  seed         {printable(seed.name)} {printable(str(seed.value))}{role}"
    yield from _files([each for each in audit.shared if each.kind != "source"])
    sources = [each for each in audit.shared if each.kind == "source"]
    for locked, files in groupby(sources, key=lambda each: each.locked[:1]):
        folder = f" in {printable(locked[0].path)}" if locked else ""
        yield f"  source       {_counted(len(list(files)), 'file')}{folder}, {_locked(locked)}"
    for section, params in groupby(audit.params, key=lambda each: each.name.split(".")[0]):
        yield f"  params       {printable(section)}: {', '.join(_param(each, section) for each in params)}"


def _locked(entries: Sequence[Locked]) -> str:
    """Return the hash of the entry of dvc.lock that is closest to a file."""
    return f"locked md5 {entries[0].md5[:_HASH]}" if entries else "not in dvc.lock"


def _files(inputs: Iterable[Input]) -> Iterator[str]:
    for each in inputs:
        count = f"{_counted(each.exchanges, 'exchange')}, " if each.exchanges is not None else ""
        now = f"sha256 {each.sha256[:_HASH]}" if each.sha256 else "not there"
        folder = f" of {printable(each.locked[0].path)}" if each.locked and each.locked[0].path != each.path else ""
        yield f"  {each.kind:12} {printable(each.path)}  {count}{now}, {_locked(each.locked)}{folder}"


def _param(param: ParamUsed, section: str) -> str:
    name = param.name.removeprefix(f"{section}.")
    value = ", ".join(str(each) for each in param.value) if isinstance(param.value, list) else str(param.value)
    return printable(f"{name} {value}" if name != section else value)


def _environment(found: Environment) -> Iterator[str]:
    agree = sum(each.agrees for each in found.packages)
    yield f"Python {found.python} on {found.platform}"
    absent = ", ".join(printable(each.name) for each in found.packages if each.installed is None)
    yield f"packages: {agree} of {len(found.packages)} as constraints.txt pins them{absent and f'; not here: {absent}'}"


def _git(git: GitState) -> Iterator[str]:
    if git.commit is None:
        yield f"commit: {git.reason}"
    elif not git.changed:
        yield f"commit {git.commit}, nothing changed since"
    else:
        shown = ", ".join(printable(path) for path in git.changed[:_CHANGED_SHOWN])
        more = f" and {len(git.changed) - _CHANGED_SHOWN} more" if len(git.changed) > _CHANGED_SHOWN else ""
        yield f"commit {git.commit}, with {_counted(len(git.changed), 'uncommitted change')}: {shown}{more}"


def _verdict(audit: Audit) -> Iterator[str]:
    checked = audit.checked
    compared = (
        f"compared {_counted(checked.files, 'file')} and {_counted(checked.cache_objects, 'cache object')}"
        f" with dvc.lock for {_counted(checked.stages, 'stage')}"
    )
    yield from _findings("note", audit.notes)
    if audit.faults:
        yield from _findings("FAULT", audit.faults)
        yield f"{_counted(len(audit.faults), 'fault')}: workspace, dvc.lock and cache do not agree ({compared})"
    else:
        yield f"workspace, dvc.lock and cache agree ({compared})"


def _findings(word: str, findings: Iterable[AuditFinding]) -> Iterator[str]:
    for kind, group in groupby(sorted(findings, key=lambda each: each.kind), key=lambda each: each.kind):
        found = list(group)
        yield from (f"{word}: {each.message}" for each in found[:_MOST])
        if len(found) > _MOST:
            yield f"{word}: ... and {len(found) - _MOST} more of the kind {kind!r}; --json lists all"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
