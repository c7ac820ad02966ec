"""Audit a competition: run its stages again in an empty folder, from the inputs alone, and compare the files.

No model is asked: the replies are those that are recorded. Nothing in the competition's folder is changed.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from pcgeval import pipeline
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import unsynced
from pcgeval.core.layout import (
    CALLS,
    DVC_IGNORED,
    RANKING_JSON,
    REPLAYS,
    RUN_LOCK,
    STAGE_DIRS,
    SUBMISSIONS,
    TRIALS,
    generation_lock,
    is_ignored,
    own_or_packaged,
    stage_dir,
    summaries_file,
    trials,
)
from pcgeval.core.locks import lock_holder
from pcgeval.core.params import PARAMS_FILE, Execution, Model, load_params
from pcgeval.core.stage_files import RankingFile
from pcgeval.generation.summaries import summarise_trials
from pcgeval.llm.protocol import Backend, LlmError
from pcgeval.proof.differences import Difference, compare_files
from pcgeval.proof.release import Findings, check_release, check_repository
from pcgeval.proof.replies import logged_calls, repeat_trials
from pcgeval.scoring.seal import seal_differences
from pcgeval.similarity.source import check_source
from pcgeval.submissions.load import load_submission, submission_sha256

INPUTS = (
    PARAMS_FILE,
    "stages",
    "src/pcgeval",
    "data/submissions",
    "data/recordings",
    "data/rubrics",
    "results/seal.json",
)
NOT_BUNDLED = ("data/images", "data/replays", "results/report")  # they follow from the levels and the results


class AuditError(PcgevalError):
    """A folder holds nothing that can be audited."""


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
    models: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """Everything that an audit found.

    Attributes:
        competition: Its name, edition and round.
        result: The result hash of the published ranking.
        teams: The lines of the published ranking.
        winners: The winners by the audit; None where it came to no ranking.
        differences: The published files that are not what the inputs give, by stage, one place of each.
        faults: What else is not as it should be, a sentence each.
        not_run: What was not run again, and why, a sentence each.
        unpublished: What is not committed, a sentence each.
        notes: What a reader should know, a sentence each.
    """

    competition: str
    result: str | None
    teams: tuple[TeamLine, ...]
    winners: tuple[str, ...] | None
    differences: tuple[Difference, ...]
    faults: tuple[str, ...]
    not_run: tuple[str, ...]
    unpublished: tuple[str, ...]
    notes: tuple[str, ...]

    def passed(self, *, strict: bool = False) -> bool:
        """Tell whether nothing differs; `strict` also asks that everything was run again and committed."""
        return not (self.differences or self.faults or (strict and (self.not_run or self.unpublished)))


def audit(root: Path, *, trust: Collection[str] = (), is_bundle: bool = False) -> Audit:
    """Audit a competition's folder, with its repository and dvc.lock.

    Args:
        root: The folder of params.yaml and dvc.yaml.
        trust: Stages whose output is copied instead of made again.
        is_bundle: It is an unpacked bundle, which has neither a repository nor pictures and pages.

    Raises:
        AuditError: Nothing was evaluated here yet, or there is no such stage.
        PcgevalError: params.yaml or the ranking cannot be read.
    """
    findings = Findings()
    rerun = _Rerun(root, trust, findings, NOT_BUNDLED if is_bundle else ())
    rerun.run()
    check_release(root, findings)
    if not is_bundle:
        check_repository(root, rerun.left_over, findings)
    return rerun.result()


@dataclass
class _Rerun:
    """The stages of a competition, run again in a temporary folder."""

    root: Path
    trust: Collection[str]
    findings: Findings
    without: Collection[str]  # outputs that are not published
    differences: list[Difference] = field(default_factory=list)
    left_over: list[Path] = field(default_factory=list)  # files of teams and models that take no part
    not_run: list[str] = field(default_factory=list)
    again: RankingFile | None = None

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        if unknown := [stage for stage in self.trust if stage not in pipeline.OUTPUTS]:
            raise AuditError(f"{unknown[0]}: is no stage. The stages are {', '.join(pipeline.OUTPUTS)}.")
        params = load_params(self.root / PARAMS_FILE)
        self.params = params.model_copy(update={"execution": Execution()})  # nothing elsewhere is asked to compute
        for lock in (RUN_LOCK, *map(generation_lock, params.models)):
            if holder := lock_holder(self.root / lock):
                raise AuditError(f"process {holder[0]} evaluates this competition. Audit it when it has ended.")
        if not (self.root / RANKING_JSON).is_file():
            raise AuditError(f"{RANKING_JSON}: is missing. Run `make final-eval` to its end first.")
        self.published = RankingFile.read(self.root / RANKING_JSON)

    def run(self) -> None:
        """Run every stage again and compare its output with what is published."""
        with TemporaryDirectory(prefix="pcgeval-audit-") as folder, unsynced():
            work = Path(folder).resolve()
            self._copy_inputs(work)
            self._generate(work)
            self._compare("generate", work)
            for stage in (stage.__name__ for stage in pipeline.STAGES):
                if not set(pipeline.OUTPUTS[stage]) <= set(self.without):
                    self._run_stage(stage, work)
                    self._compare(stage, work)
            if (work / RANKING_JSON).is_file():
                self.again = RankingFile.read(work / RANKING_JSON)
        self.findings.faults += seal_differences(self.params, self.root)

    def _copy_inputs(self, work: Path) -> None:
        for name in INPUTS:
            self._copy(name, work)
        if (self.root / CALLS).is_dir():
            (work / CALLS).parent.mkdir(parents=True)
            (work / CALLS).symlink_to(self.root / CALLS)
        model = self.params.similarity.model
        classifier = self.root / model if (self.root / model).is_dir() else own_or_packaged(Path(model))
        if classifier.is_dir() and not Path(model).is_absolute() and ".." not in Path(model).parts:
            (work / model).parent.mkdir(parents=True, exist_ok=True)
            (work / model).symlink_to(classifier.resolve())

    def _copy(self, name: str, work: Path) -> None:
        source, target = self.root / name, work / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*DVC_IGNORED), dirs_exist_ok=True)
        elif source.is_file():
            shutil.copy2(source, target)

    def _trust_stage(self, stage: str, reason: str, work: Path) -> None:
        self.not_run.append(f"{stage}: {reason}; its published output was taken as it is.")
        for output in pipeline.OUTPUTS[stage]:
            self._copy(output, work)

    def _generate(self, work: Path) -> None:
        """Do the trials again on the known replies; where a program cannot be run, its trials are taken as they are."""
        if "generate" in self.trust:
            self._trust_stage("generate", "trusted", work)
            return
        logged = {model: logged_calls(settings, self.root) for model, settings in self.params.models.items()}
        for team, model in product(self.params.teams, self.params.models):
            try:
                for kind, sentence in repeat_trials(self.params, model, team, self.root, work, logged[model]):
                    (self.findings.faults if kind == "fault" else self.findings.notes).append(sentence)
            except (PcgevalError, OSError) as error:
                reason = str(error).partition(". ")[0]
                self.not_run.append(f"generate: the trials of {team} with {model} were taken as they are: {reason}.")
                shutil.rmtree(work / stage_dir("raw", model, team), ignore_errors=True)
                self._copy(str(stage_dir("raw", model, team)), work)
            raw, summaries = work / stage_dir("raw", model, team), work / summaries_file(model, team)
            try:
                summarise_trials(summaries, raw, load_submission(work / SUBMISSIONS / team), trials(self.params))
            except PcgevalError as error:
                self.findings.faults.append(str(error).replace(f"{work}{os.sep}", ""))

    def _run_stage(self, stage: str, work: Path) -> None:
        if stage in self.trust:
            self._trust_stage(stage, "trusted", work)
            return
        try:
            if stage == "classify":
                check_source(self.params.similarity.model, self.params.similarity.revision, work)
            if stage == "grade":
                if not (self.root / CALLS).is_dir():  # then the judge's replies are known from its grades alone
                    self._copy("data/judgements", work)
                pipeline.grade(self.params, work, open_backend=_refuse)
            else:
                getattr(pipeline, stage)(self.params, work)
        except (PcgevalError, OSError) as error:
            text = str(error).replace(f"{work}{os.sep}", "")
            self.findings.faults.append(f"{stage}: cannot be run again: {text}")
            self._trust_stage(stage, "could not be run again", work)

    def _compare(self, stage: str, work: Path) -> None:
        """Compare what a stage published with what it made now."""
        for output in pipeline.OUTPUTS[stage]:
            if output in self.without:
                continue
            names = {*_files(self.root, output), *_files(work, output)}
            for name in sorted(names, key=os.fsencode):
                if self._is_left_over(Path(name)):
                    self.left_over.append(Path(name))
                    continue
                difference = compare_files(self.root / name, work / name, name)
                if difference:
                    self.differences.append(difference)

    def _is_left_over(self, path: Path) -> bool:
        """Tell whether a file is of a team or model that takes no part any more."""
        models, teams = self.params.models, self.params.teams
        place, names = path.parts[1], [Path(part).stem for part in path.parts[2:4]]
        by_model = (*STAGE_DIRS, REPLAYS.name, TRIALS.name)
        owners: dict[str, tuple[Collection[str], ...]] = dict.fromkeys(by_model, (models, teams))
        owners |= {"evidence": (teams, models), "judgements": (teams,), "grades": (teams,), "official": (models,)}
        return any(name not in known for name, known in zip(names, owners.get(place, ()), strict=False))

    def result(self) -> Audit:
        """Return what was found."""
        competition, ranking = self.params.competition, self.published
        totals = {team.team: team.total for team in self.again.teams} if self.again else {}
        lines = tuple(
            TeamLine(
                team=team.team,
                status="winner" if team.winner else team.status,
                rank=team.rank,
                submission=self._submission(team.team),
                trials=len(team.models) * len(ranking.rules.letters) * ranking.rules.trials,
                failed=sum(model.failed_trials for model in team.models.values()),
                total=team.total,
                again=totals.get(team.team),
                models=tuple(team.models),
            )
            for team in ranking.teams
        )
        return Audit(
            competition=f"{competition.name} {competition.edition}, {competition.round}",
            result=ranking.result.sha256 if ranking.result else None,
            teams=lines,
            winners=self.again.winners if self.again else None,
            differences=tuple(self.differences),
            faults=tuple(self.findings.faults),
            not_run=tuple(self.not_run),
            unpublished=tuple(self.findings.unpublished),
            notes=tuple(self.findings.notes),
        )

    def _submission(self, team: str) -> str:
        try:
            return submission_sha256(self.root / SUBMISSIONS / team)
        except (PcgevalError, OSError):
            return "missing"


def _files(root: Path, output: str) -> Iterator[str]:
    """Yield the files of an output; compiled files and what a file manager leaves are no part of it."""
    if not (root / output).is_dir():
        yield output
    for place, folders, names in os.walk(root / output):
        folders[:] = [name for name in folders if not is_ignored(name)]
        yield from (Path(place, name).relative_to(root).as_posix() for name in names if not is_ignored(name))


def _refuse(model: Model) -> Backend:
    raise LlmError(f"{model.name}: an audit asks no model")
