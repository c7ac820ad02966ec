"""Recompute what the stages made, from the replies to the ranking, with the stages' own functions.

Each stage is run on the files that are there, into a folder of its own, and what it made is compared with what is there
value by value. So every difference is named where it was brought in, and if there is none, the ranking follows from the
replies. Replies, levels, diversity, evidence, scores, ranking and grades take seconds and are compared in full; of the
simulations and the classifications, which take minutes, a sample is repeated.

What is not there, such as the levels in a bundle, is made from what is, as far as that takes no more than this.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from pcgeval.audit.differences import Difference, compare_files, compare_folders
from pcgeval.audit.measurements import (
    Derivation,
    Group,
    classify_again,
    derive_similarity,
    derive_stability,
    sample_levels,
    simulate_again,
)
from pcgeval.audit.regrading import grade_again
from pcgeval.audit.replies import read_logged_replies, replay_trials
from pcgeval.checks.gathering import gather_model
from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import unsynced, write_json
from pcgeval.core.layout import (
    CALLS,
    DATA,
    METRICS,
    OFFICIAL_RESULTS,
    RANKING_CSV,
    RANKING_JSON,
    RECORDINGS,
    REPORT,
    RESULTS,
    RUBRICS,
    STAGE_DIRS,
    SUBMISSIONS,
    StageDir,
    Trial,
    evidence_file,
    grade_file,
    replays_file,
    stage_dir,
    trial_file,
    trials,
)
from pcgeval.core.params import Params
from pcgeval.core.stage_files import RankingFile, read_outcomes
from pcgeval.core.untrusted import printable_line
from pcgeval.levels.stages import convert_stage, extract_stage
from pcgeval.scoring.stages import rank_stage, score_stage
from pcgeval.similarity.diversity import diversity_stage
from pcgeval.submissions.load import load_submission

Render = Callable[[Params, Path, Path], object]  # renders the report of a competition in one folder into another


@dataclass(frozen=True)
class Recomputed:
    """How much was recomputed and compared.

    Attributes:
        replies: Replies of models, each with its trial's response and record.
        levels: Trials whose code and level were made again from the response.
        simulations: Levels that were simulated and drawn again; of `all_levels`.
        classifications: Pictures that were classified again.
        all_levels: The levels that there are.
        diversities: Letters of a model and a team.
        scores: Trial scores, from which letter scores, totals and ranks were computed again.
        leaves: Leaves of the teams' grades.
        pages: Pages of the report.
    """

    replies: int = 0
    levels: int = 0
    simulations: int = 0
    classifications: int = 0
    all_levels: int = 0
    diversities: int = 0
    scores: int = 0
    leaves: int = 0
    pages: int = 0


@dataclass(frozen=True)
class Recomputation:
    """The result of a recomputation.

    Attributes:
        recomputed: How much was compared.
        differences: Values that are not those that were recomputed, in the order of the stages.
        faults: What is there and cannot be recomputed, a sentence each.
        notes: What was not compared because it is not here, and how to get it, a sentence each.
    """

    recomputed: Recomputed
    differences: tuple[Difference, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def recompute(
    root: Path,
    params: Params,
    *,
    sample: int | None = 20,
    seed: int = 0,
    physics: bool = True,
    classifier: bool = True,
    without: Collection[StageDir] = (),
    render: Render | None = None,
) -> Recomputation:
    """Recompute a competition's folder, in which nothing is changed.

    Args:
        root: The folder.
        params: Its params.yaml.
        sample: How many levels are simulated, drawn and classified again; None means all, 0 none.
        seed: Which levels these are; the same seed chooses the same ones everywhere.
        physics: Whether levels are simulated again; it needs pymunk.
        classifier: Whether pictures are classified again; it needs torch.
        without: Outputs that are left out on purpose, which no note names.
        render: Renders the report, which is then compared too; it lies above this package.
    """
    with unsynced(), TemporaryDirectory(prefix="pcgeval-recompute-") as folder:
        work = _Recomputing(root, params, Path(folder), without)
        work.replies()
        work.levels()
        work.measurements(sample, seed, physics=physics, classifier=classifier)
        work.diversities()
        if work.is_measured():
            whole = work.whole_competition()
            work.evidence(whole)
            work.scores(whole)
            work.grades(whole)
        if render is not None:
            work.report(render)
        return work.found()


def recompute_results(root: Path, params: Params) -> Recomputation:
    """Recompute only the files of results/ and data/grades, which git keeps, from the measurements; about a second."""
    with unsynced(), TemporaryDirectory(prefix="pcgeval-recompute-") as folder:
        work = _Recomputing(root, params, Path(folder))
        if work.is_measured() and all((root / evidence_file(*group)).is_file() for group in work.groups):
            work.scores(root)
            work.grades(root)
        return work.found()


class _Recomputing:
    """A recomputation under way; `made` is the temporary folder in which it works."""

    def __init__(self, root: Path, params: Params, made: Path, without: Collection[StageDir] = ()) -> None:
        self.root, self.params, self.made, self.without = root, params, made, without
        self.groups = [Group(*each) for each in product(params.models, params.teams)]
        self.trials = list(trials(params))
        self.recomputed = Recomputed()
        self.differences: list[Difference] = []
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.missing: list[Path] = []  # results that are not there

    def found(self) -> Recomputation:
        """Return what was found."""
        absent = [
            DATA / name
            for name in STAGE_DIRS
            if name not in self.without and not all(self._is_there(name, each) for each in self.groups)
        ]
        absent += [Path(*path.parts[:2]) for path in self.missing]
        if absent:
            shown = ", ".join(path.as_posix() for path in dict.fromkeys(absent))
            self.notes.insert(0, f"not compared, because it is not here or not whole: {shown}. Run `make final-eval`.")
        differences = tuple(dict.fromkeys(self.differences))
        return Recomputation(self.recomputed, differences, tuple(dict.fromkeys(self.faults)), tuple(self.notes))

    def folder(self, name: StageDir, group: Group) -> Path:
        """Return where a stage's output lies: in the competition's folder, else where it was made again."""
        return self.root / stage_dir(name, *group) if self._is_there(name, group) else self.made_folder(name, group)

    def _is_there(self, name: StageDir, group: Group) -> bool:
        return (self.root / stage_dir(name, *group)).is_dir()

    def made_folder(self, name: StageDir, group: Group) -> Path:
        """Return where a stage's output is made again, all of it."""
        return self.made / stage_dir(name, *group)

    def sampled_folder(self, name: StageDir, group: Group) -> Path:
        """Return where a part of a stage's output is made again."""
        return self.made / "sample" / stage_dir(name, *group)

    def _pictures(self, name: StageDir, group: Group) -> Path:
        """Return a stage's folder; of pictures that are not there, those that were drawn again."""
        folder = self.folder(name, group)
        return folder if name != "images" or folder.is_dir() else self.sampled_folder(name, group)

    def replies(self) -> None:
        """Make data/raw again from recordings and the call log."""
        was_asked = any(each.backend != "recorded" for each in self.params.models.values())
        logged = read_logged_replies(self.root / CALLS) if was_asked else {}
        unknown, not_run = 0, 0
        for group in self.groups:
            with self._attempt(f"the trials of {group.team} with {group.model}"):
                submission = load_submission(self.root / SUBMISSIONS / group.team)
                made = self.made_folder("raw", group)
                done = replay_trials(self.root, self.params, group.model, submission, logged, made)
                self.differences += done.differences
                self._count(replies=done.replies)
                unknown, not_run = unknown + len(done.unknown), not_run + len(done.not_run)
                if done.unknown:  # what is here of it is no output
                    shutil.rmtree(made)
        if unknown:
            where = f"{CALLS} of the machine that asked" if not (self.root / CALLS).is_dir() else CALLS
            self.notes.append(
                f"{unknown} trials have replies that are neither recorded nor in the call log, so that they were not "
                f"compared. Copy {where} here, or keep them with `pcgeval record`."
            )
        if not_run:
            self.notes.append(
                f"{not_run} trials of programs were compared by their calls and replies; what a program made of them "
                "is not recomputed."
            )

    def levels(self) -> None:
        """Make code and levels again from the responses."""
        for group in self.groups:
            with self._attempt(f"the levels of {group.team} with {group.model}"):
                if not self.folder("raw", group).is_dir():
                    continue
                code, levels = self.made_folder("intermediate", group), self.made_folder("levels", group)
                extract_stage(self.folder("raw", group), code, group.team, self.trials)
                extracted = self._compare_with("intermediate", group, "extract")
                convert_stage(self.folder("intermediate", group), levels, group.team, self.trials)
                if self._compare_with("levels", group, "convert") or extracted:
                    self._count(levels=len(self.trials))

    def measurements(self, sample: int | None, seed: int, *, physics: bool, classifier: bool) -> None:
        """Repeat simulations and classifications, and derive what follows from them."""
        there = []
        for group in self.groups:
            with self._attempt(f"the levels of {group.team} with {group.model}"):
                if (folder := self.folder("levels", group)).is_dir():
                    outcomes = read_outcomes(folder)
                    there += [
                        (group, trial) for trial in self.trials if trial in outcomes and not outcomes[trial].reason
                    ]
        self._count(all_levels=len(there))
        chosen = sample_levels(there, sample, seed)
        if physics and chosen:
            self._simulate(chosen, whole=sample is None)
        if classifier and chosen:
            self._classify(chosen, whole=sample is None)
        derivations: dict[StageDir, Derivation] = {"stability": derive_stability, "similarity": derive_similarity}
        for group in self.groups:
            for name, derive in derivations.items():
                with self._attempt(f"the {name} of {group.team} with {group.model}"):
                    if self._is_there(name, group):
                        made = self.made / "derived" / stage_dir(name, *group)
                        self.differences += derive(group, self.trials, self.folder, made)

    def _simulate(self, chosen: Mapping[Group, list[Trial]], *, whole: bool) -> None:
        made = self.made_folder if whole else self.sampled_folder
        for group in self.groups if whole else chosen:
            if not whole and not self._is_there("stability", group):  # there is nothing to compare with
                continue
            with self._attempt(f"the simulations of {group.team} with {group.model}"):
                picked = self.trials if whole else chosen[group]
                path = replays_file(*group)
                replays = self.root / path, (self.made if whole else self.made / "sample") / path
                self.differences += simulate_again(
                    group, picked, self.folder, made, replays, self.params.physics, whole=whole
                )
                self._count(simulations=len(chosen.get(group, ())))

    def _classify(self, chosen: Mapping[Group, list[Trial]], *, whole: bool) -> None:
        from pcgeval.similarity.stage import predict_pictures  # noqa: PLC0415 - only here is the classifier needed

        settings = self.params.similarity.model_copy(update={"device": "cpu"})
        made, cache = self.made_folder if whole else self.sampled_folder, self.made / "predictions"
        groups = [each for each in (self.groups if whole else chosen) if whole or self._is_there("similarity", each)]
        with self._attempt("the classifications"):
            pictures = [
                trial_file(self._pictures("images", group), "images", group.team, trial)
                for group in groups
                for trial in chosen.get(group, ())
            ]
            predict_pictures(pictures, settings, cache, self.root)
            for group in groups:
                picked = self.trials if whole else chosen[group]
                self.differences += classify_again(
                    group, picked, self._pictures, made, settings, cache, self.root, whole=whole
                )
                self._count(classifications=len(chosen.get(group, ())))

    def diversities(self) -> None:
        """Compare the trials of each letter with each other again."""
        rules, vectors = self.params.competition, self.params.diversity.vectors
        for group in self.groups:
            with self._attempt(f"the diversity of {group.team} with {group.model}"):
                if (similarity := self.folder("similarity", group)).is_dir():
                    made = self.made_folder("diversity", group)
                    diversity_stage(similarity, made, group.team, rules.trials, rules.characters, vectors)
                    if self._compare_with("diversity", group, "diversity"):
                        self._count(diversities=len(rules.characters))

    def is_measured(self) -> bool:
        """Tell whether everything is there, or was made again, that the results follow from."""
        needed: tuple[StageDir, ...] = ("raw", "stability", "similarity", "diversity")
        return all(self.folder(name, group).is_dir() for name in needed for group in self.groups)

    def evidence(self, whole: Path) -> None:
        """Gather again what the checks look at; what of it is not there is put into the whole competition's folder."""
        for group in self.groups:
            with self._attempt(f"the evidence of {group.team} with {group.model}"):
                path = evidence_file(*group)
                write_json(self.made / path, asdict(gather_model(self.params, group.model, group.team, whole)))
                self._compare_result(path, f"evidence@{group.model}-{group.team}")
                _link(whole / path, self.root / path if (self.root / path).is_file() else self.made / path)

    def scores(self, whole: Path) -> None:
        """Score and rank again; in a folder with links, whose source is not there, the result hash is not derived."""
        for model in self.params.models:
            with self._attempt(f"the scores with {model}"):
                score_stage(self.params, model, self.made / OFFICIAL_RESULTS / model, whole)
                if self._compare_result(OFFICIAL_RESULTS / model, f"score@{model}"):
                    self._count(scores=len(self.params.teams) * len(self.trials))
        with self._attempt("the ranking"):
            rank_stage(self.params, self.made / RESULTS, whole, with_hash=whole == self.root)
            if whole != self.root:
                self._take_result_hash()
            for path in (RANKING_JSON, RANKING_CSV, METRICS):
                self._compare_result(path, "rank")

    def _take_result_hash(self) -> None:
        """Give the ranking that was made again the result hash that is there: the audit derives that for itself."""
        there, made = self.root / RANKING_JSON, self.made / RANKING_JSON
        if there.exists():
            with suppress(FileError):  # the comparison says what is wrong with it
                result = RankingFile.read(there).result
                RankingFile.read(made).model_copy(update={"result": result}).write(made)

    def grades(self, whole: Path) -> None:
        """Grade every team again, by its checks and by the replies of a judge that are there."""
        for team in self.params.teams:
            with self._attempt(f"the grade of {team}"):
                output, note = grade_again(self.root, self.params, team, whole, self.made / CALLS)
                self.notes += [note] if note else []
                write_json(self.made / grade_file(team), output.to_json())
                if self._compare_result(grade_file(team), f"grade@{team}"):
                    self._count(leaves=output.num_leaf_nodes)

    def report(self, render: Render) -> None:
        """Render the page again from the files that are there, which were compared before."""
        if not (self.root / REPORT).is_dir():
            self.missing.append(REPORT)
            return
        with self._attempt("the report"):
            render(self.params, self.root, self.made / REPORT)
            self._compare_result(REPORT, "report")
            self._count(pages=sum(1 for _ in (self.made / REPORT).rglob("*.html")))

    def whole_competition(self) -> Path:
        """Return a competition's folder in which nothing is missing: links to what is there and to what was made."""
        whole = self.made / "whole"
        links = {stage_dir(name, *group): self.folder(name, group) for name in STAGE_DIRS for group in self.groups}
        inputs = (SUBMISSIONS, RECORDINGS, RUBRICS, Path("src"), Path("stages"))
        links |= {path: self.root / path for path in inputs if (self.root / path).is_dir()}
        for path, target in links.items():
            _link(whole / path, target)
        return whole

    def _compare_with(self, name: StageDir, group: Group, stage: str) -> bool:
        """Compare a stage's folder with the one that was made again; tell whether it is there."""
        return self._compare_result(stage_dir(name, *group), f"{stage}@{group.model}-{group.team}")

    def _compare_result(self, path: Path, stage: str) -> bool:
        """Compare a file or folder with the one that was made again; tell whether it is there."""
        found, made = self.root / path, self.made / path
        if not found.exists():
            self.missing.append(path)
            return False
        compare = compare_folders if found.is_dir() else compare_files
        self.differences += compare(found, made, path.as_posix(), stage)
        return True

    def _count(self, **more: int) -> None:
        self.recomputed = replace(
            self.recomputed, **{name: getattr(self.recomputed, name) + count for name, count in more.items()}
        )

    @contextmanager
    def _attempt(self, what: str) -> Iterator[None]:
        """Turn an error into a statement that something could not be recomputed."""
        try:
            yield
        except ImportError as error:
            self.notes.append(f"{what} were not repeated: {printable_line(str(error))}. Run `make setup`.")
        except PcgevalError as error:
            self.faults.append(f"{what} cannot be recomputed: {self._relative(str(error))}")
        except OSError as error:
            self.faults.append(f"{what} cannot be recomputed: {self._relative(str(error))}. Make it readable.")

    def _relative(self, text: str) -> str:
        for folder in (self.made / "whole", self.made, self.root):
            text = text.replace(f"{folder}{os.sep}", "")
        return text


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target.resolve())
