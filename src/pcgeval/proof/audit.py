"""Audit a competition: run its stages again in an empty folder, from the inputs alone, and compare the files.

It asks no model: the recorded replies answer. It changes nothing in the competition's folder.
"""

import csv
import filecmp
import io
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pcgeval import pipeline
from pcgeval.core.console import Progress, print_stderr
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import copy_files
from pcgeval.core.locks import lock_holder
from pcgeval.core.text import printable_line
from pcgeval.formats.layout import (
    CALLS,
    CLASSIFIER,
    DATA,
    GENERATION_LOCK,
    RANKING_JSON,
    RUN_LOCK,
    SUBMISSIONS,
    competition_files,
    grade_file,
    stage_dir,
    summaries_file,
)
from pcgeval.formats.params import PARAMS_FILE, Execution, Model, Params, load_params
from pcgeval.formats.results import RankingFile
from pcgeval.generation.summaries import summarise_trials
from pcgeval.llm.call_log import RecordedModel, known_calls
from pcgeval.llm.protocol import Backend, LlmError
from pcgeval.proof.commitment import changes_since, check_repository, full_commit
from pcgeval.proof.parts import OUTPUTS, PARTS, Finding, Kind, check_release, classifier_folder, parts_for
from pcgeval.proof.replies import LONGEST, cut_to_difference, repeat_trials, unlikely_figures
from pcgeval.rubric.output import read_grade
from pcgeval.sandbox.process import SandboxError
from pcgeval.similarity.source import check_source
from pcgeval.submissions.load import load_submissions, submission_sha256
from pcgeval.submissions.packages import InstallError, LockError

ABSENT = "absent"
_MOST_BYTES = 2**24  # of a file whose values are compared
# the fields that name an entry of a list
_NAMES = ("team", "teamName", "letter", "character", "trial", "tag", "id", "key")

_NOT_BUNDLED = [str(part.path) for part in PARTS if part.stage and "bundle" not in part.uses]
# this machine cannot run programs; any other error is a fault of the competition's files
_MACHINE_ERRORS = (SandboxError, InstallError, OSError)


class AuditError(PcgevalError):
    """A folder holds nothing that can be audited."""


@dataclass(frozen=True)
class Difference:
    """The first place in which a published file differs from that of a new run."""

    path: str  # relative to the competition's folder
    place: str  # such as `teams[beta].total` or `line 3`; empty for the whole file
    published: str  # the value as text, cut if it is long
    again: str  # the value of the new run

    def __str__(self) -> str:
        """Return the difference in a line."""
        place = f": {self.place}" if self.place else ""
        return f"{self.path}{place}: published {self.published}, again {self.again}"


@dataclass(frozen=True)
class TeamLine:
    """A team of the ranking, with the SHA-256 of its submission as `pcgeval submit` and bundles name it.

    `again` is the total that the audit came to; None where it came to none.
    """

    team: str
    status: str
    rank: int | None
    submission: str
    trials: int
    failed: int
    total: Decimal | None
    again: Decimal | None


@dataclass
class Audit:
    """The findings of an audit, a sentence each."""

    competition: str  # its name, edition and round
    result: str | None  # the result hash of the published ranking
    teams: list[TeamLine] = field(default_factory=list)  # of the published ranking
    winners: tuple[str, ...] | None = None  # by the audit; None where it came to no ranking
    differences: list[Difference] = field(default_factory=list)  # by stage
    faults: list[str] = field(default_factory=list)  # everything else that is wrong
    not_run: list[str] = field(default_factory=list)  # stages, with the reason
    unpublished: list[str] = field(default_factory=list)  # files that are not committed
    notes: list[str] = field(default_factory=list)  # for readers

    def add(self, findings: Iterable[Finding]) -> None:
        """Take findings of all kinds."""
        for kind, sentence in findings:
            getattr(self, kind).append(sentence)

    def passed(self, *, strict: bool = False) -> bool:
        """Tell whether nothing differs; `strict` also asks that everything was run again, and that it is committed."""
        return not (self.differences or self.faults or (strict and (self.not_run or self.unpublished)))

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for JSON; exact figures are texts."""
        values = asdict(self)
        for team in values["teams"]:
            team |= {name: None if team[name] is None else str(team[name]) for name in ("total", "again")}
        return values


def audit(root: Path, *, trust: Collection[str] = (), since: str | None = None, is_bundle: bool = False) -> Audit:
    """Audit a competition's folder, with its repository and dvc.lock.

    Args:
        root: The folder of params.yaml and dvc.yaml.
        trust: Stages that do not run; the audit copies their published output.
        since: The commit that was published before the run: each input that changed after it is a fault.
        is_bundle: The folder is an unpacked bundle, without repository, pictures and pages.

    Raises:
        AuditError: The folder holds no ranking, or a stage of `trust` does not exist.
        CommitmentError: `since` is no commit of the folder's repository.
        PcgevalError: params.yaml or the ranking cannot be read.
    """
    root = root.resolve()
    if unknown := [stage for stage in trust if stage not in OUTPUTS]:
        raise AuditError(f"{unknown[0]}: is no stage. The stages are {', '.join(OUTPUTS)}.")
    commit = None if since is None else full_commit(root, since)
    # no cluster is asked to compute
    params = load_params(root / PARAMS_FILE).model_copy(update={"execution": Execution()})
    for lock in (RUN_LOCK, GENERATION_LOCK):
        if holder := lock_holder(root / lock):
            raise AuditError(f"process {holder[0]} is evaluating this competition. Audit it when that has ended.")
    if not (root / RANKING_JSON).is_file():
        raise AuditError(f"{RANKING_JSON}: is missing. Run `make final-eval` to its end first.")
    if not is_bundle and not any((root / DATA / "raw").glob("*/*")):
        raise AuditError("data/raw: is missing, so there is nothing to compare. Run `dvc pull`, or `make final-eval`.")
    submissions = {team: submission_sha256(root / SUBMISSIONS / team) for team in params.teams}  # refuses links
    published, competition = RankingFile.read(root / RANKING_JSON), params.competition
    result = Audit(
        f"{competition.name} {competition.edition}, {competition.round}",
        published.result.sha256 if published.result else None,
    )
    with TemporaryDirectory(prefix="pcgeval-audit-") as folder:
        again = _Rerun(params, root, Path(folder).resolve(), trust, _NOT_BUNDLED if is_bundle else (), result).run()
    totals = {team.team: team.total for team in again.teams} if again else {}
    result.winners = again.winners if again else None
    for team in published.teams:
        line = TeamLine(
            team=team.team,
            status="winner" if team.winner else team.status,
            rank=team.rank,
            submission=submissions.get(team.team, "missing"),
            trials=len(team.counted.models) * len(competition.characters) * competition.trials,
            failed=team.counted.failed_trials,
            total=team.total,
            again=totals.get(team.team),
        )
        result.teams.append(line)
    if commit is not None:
        result.faults += changes_since(root, commit)
    result.add(check_release(root, params))
    if not is_bundle:
        result.add(check_repository(root))
    return result


@dataclass
class _Rerun:
    """The stages of a competition, run again in a temporary folder."""

    params: Params
    root: Path
    work: Path  # the temporary folder
    trust: Collection[str]
    left_out: Collection[str]  # outputs that are not published
    result: Audit

    def run(self) -> RankingFile | None:
        """Run every stage again, compare its output with the published one, and return the ranking."""
        self._copy_inputs()
        for number, (stage, outputs) in enumerate(OUTPUTS.items(), start=1):
            print_stderr(f"audit: {stage} ({number} of {len(OUTPUTS)} stages)")
            if set(outputs) <= set(self.left_out):
                continue
            if stage in self.trust:
                self._trust_stage(stage, "trusted")
            elif stage == "generate":
                self._generate()
            else:
                self._run_stage(stage)
            self.result.differences += self._compare(output for output in outputs if output not in self.left_out)
        ranking = self.work / RANKING_JSON
        return RankingFile.read(ranking) if ranking.is_file() else None

    def _copy_inputs(self) -> None:
        for part in parts_for("audit"):
            self._copy(part.path)
        if (self.root / CALLS).is_dir():
            (self.work / CALLS).parent.mkdir(parents=True)
            (self.work / CALLS).symlink_to(self.root / CALLS)
        (self.work / CLASSIFIER).symlink_to(classifier_folder(self.root))

    def _copy(self, name: str | Path) -> None:
        copy_files(self.root, self.work, competition_files(self.root, Path(name)), follow_link=True)

    def _trust_stage(self, stage: str, reason: str) -> None:
        self.result.not_run.append(f"{stage}: {reason}; the audit took its published output.")
        for output in OUTPUTS[stage]:
            self._copy(output)

    def _generate(self) -> None:
        """Repeat the trials on the known replies; take those of a program that cannot run here as they are."""
        submissions = load_submissions(self.params.teams, self.root / SUBMISSIONS)
        progress = Progress("teams and models", len(self.params.models) * len(submissions))
        for model, settings in self.params.models.items():
            logged = known_calls(settings, self.root)
            for team, submission in submissions.items():
                raw = stage_dir("raw", model, team)
                try:
                    self.result.add(repeat_trials(self.params, model, submission, self.root, self.work, logged))
                except (PcgevalError, OSError) as error:
                    reason = str(error).replace(f"{self.root}/", "").partition(". ")[0]
                    is_here = isinstance(error, _MACHINE_ERRORS) and not isinstance(error, LockError)
                    kind: Kind = "not_run" if is_here else "faults"
                    finding = f"generate: the trials of {team} with {model} were taken as they are: {reason}."
                    self.result.add([(kind, finding)])
                    shutil.rmtree(self.work / raw, ignore_errors=True)
                    self._copy(raw)
                try:
                    summaries = self.work / summaries_file(model, team)
                    summarise_trials(summaries, self.work / raw, submission, self.params.trials(), settings)
                except PcgevalError as error:
                    self.result.faults.append(str(error).replace(f"{self.work}/", ""))
                progress.step(f"{team} with {model}")
            self.result.add(unlikely_figures(self.params, model, submissions, self.root))

    def _run_stage(self, stage: str) -> None:
        try:
            if stage == "classify":
                check_source(self.params.similarity.model, self.params.similarity.revision, self.work)
            if stage == "grade":
                if not (self.root / CALLS).is_dir():  # then only the grades have the judge's replies
                    self._copy("data/judgements")
                pipeline.grade(self.params, self.work, open_backend=self._open_judge)
            else:
                getattr(pipeline, stage)(self.params, self.work)
        except (PcgevalError, OSError) as error:
            reason = str(error).replace(f"{self.work}/", "")
            self.result.faults.append(f"{stage}: cannot be run again: {reason}")
            self._trust_stage(stage, "could not be run again")

    def _open_judge(self, model: Model) -> Backend:
        """Return a backend with the digest of the published grades: the keys of logged replies depend on it."""
        for team in self.params.teams:
            if digest := read_grade(self.root / grade_file(team)).model_digest:
                return RecordedModel((), digest, "an audit asks no model")
        raise LlmError(f"{model.name}: no published grade names its digest")

    def _compare(self, outputs: Iterable[str]) -> Iterator[Difference]:
        """Yield the differences of files and of folders, without what DVC ignores in these."""
        names = {
            name
            for output in outputs
            for root in (self.root, self.work)
            for name in ([output] if not (root / output).is_dir() else competition_files(root, Path(output)))
        }
        for name in sorted(names, key=os.fsencode):
            if difference := compare_files(self.root / name, self.work / name, name):
                yield difference


def compare_files(published: Path, again: Path, path: str) -> Difference | None:
    """Return the first difference of two files, one of which may be missing; None if they have the same bytes."""
    sizes = [file.stat().st_size if file.is_file() else None for file in (published, again)]
    if sizes == [None, None] or (None not in sizes and filecmp.cmp(published, again, shallow=False)):
        return None
    if None in sizes:
        return Difference(path, "", *(ABSENT if size is None else f"a file of {size} bytes" for size in sizes))
    place, value, value_again = "", f"{sizes[0]} bytes", f"{sizes[1]} other bytes"
    if sum(filter(None, sizes)) <= _MOST_BYTES:
        with suppress(ValueError, RecursionError, csv.Error, StopIteration):  # malformed, or the same values
            texts = published.read_bytes().decode(), again.read_bytes().decode()
            place, value, value_again = next(_differences(path, *texts))
    return Difference(path, place, *cut_to_difference(value, value_again))


def _differences(path: str, one: str, other: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places in which two texts differ: values where the file has such, then lines."""
    if path.endswith(".json"):
        yield from _values("", json.loads(one), json.loads(other))
    elif path.endswith(".csv"):
        yield from _values("", *(list(csv.DictReader(io.StringIO(text, newline=""))) for text in (one, other)))
    for number, (line, line_again) in enumerate(zip_longest(one.splitlines(), other.splitlines()), start=1):
        if line != line_again:
            yield f"line {number}", line, line_again


def _values(place: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places in which two values differ, depth first."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=str):
            yield from _values(f"{place}.{key}".lstrip("."), one.get(key, ABSENT), other.get(key, ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for number, (entry, entry_again) in enumerate(zip_longest(one, other, fillvalue=ABSENT)):
            names = [str(entry[name]) for name in _NAMES if name in entry] if isinstance(entry, dict) else []
            name = printable_line(" ".join(names), LONGEST) or str(number)
            yield from _values(f"{place}[{name}]", entry, entry_again)
    elif one != other:
        yield place, one, other
