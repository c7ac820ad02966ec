"""A few trials of one submission through the same steps that the competition runs.

Everything goes into one folder: responses, calls, levels, pictures and scores, with the official file names. Finished
trials are kept, so a second rehearsal of the same submission in the same folder asks for nothing twice. A marker file
lists what pcgeval wrote there: no other file is removed or replaced.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from pcgeval.core.errors import PcgevalError
from pcgeval.core.exclusion import only_run
from pcgeval.core.files import files_below, read_json, write_bytes, write_json
from pcgeval.core.layout import STAGE_DIRS, TRIALS_FILE, StageDir, Trial, tag, trial_file, trials
from pcgeval.core.params import Params
from pcgeval.core.stage_files import read_outcomes
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.generation.generate import Report, generate_step
from pcgeval.generation.records import TrialRecord, read_record, record_path
from pcgeval.levels.stages import convert_stage, extract_stage
from pcgeval.llm.protocol import Backend
from pcgeval.scoring.inputs import LetterResults, ScoringRules, first_by_trial
from pcgeval.scoring.results import TeamFolders, read_letter
from pcgeval.similarity.diversity import diversity_stage
from pcgeval.similarity.stage import classify_stage
from pcgeval.submissions.load import Submission

MARKER = ".pcgeval-try.json"  # in the folder of a rehearsal: whose it is, and the files that pcgeval wrote there


class OutputFolderError(PcgevalError):
    """A rehearsal may not write into this folder."""


class OutputFolder:
    """A folder of one team and model in which pcgeval replaces and removes only the files that it wrote itself."""

    def __init__(self, folder: Path, team: str, model: str) -> None:
        """Take a folder that is new, empty, or of an earlier rehearsal of the same team and model.

        Raises:
            OutputFolderError: It is none of them.
        """
        self.folder, self._owner = folder, {"team": team, "model": model}
        self._files: set[str] = set()  # relative to the folder
        if (folder / MARKER).is_file():
            marker = read_json(folder / MARKER)
            try:
                self._files, owner = set(marker.pop("files")), marker
            except (AttributeError, KeyError, TypeError) as error:
                raise OutputFolderError(f"{folder / MARKER}: was altered. Name another folder with --out.") from error
            if owner != self._owner:
                raise OutputFolderError(
                    f"{folder}: holds {owner.get('team')} with {owner.get('model')}, not {team} with {model}. "
                    "Name another folder with --out."
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputFolderError(
                f"{folder}: already exists and `pcgeval try` did not make it. Name a new or empty folder with --out."
            )

    def claim(self, files: Iterable[str]) -> None:
        """List files as pcgeval's own before they are written.

        Raises:
            OutputFolderError: Somebody else's file has one of the names.
        """
        new = set(files) - self._files
        for name in sorted(new):
            if os.path.lexists(self.folder / name):
                raise OutputFolderError(f"{self.folder / name}: pcgeval did not write this file. Move it elsewhere.")
        self._files |= new
        self._write_marker()

    def publish(self, made: Path, letters: str) -> None:
        """Copy the files below a folder to the same names here; older results of the same letters are removed."""
        names = [path.relative_to(made).as_posix() for path in files_below(made)]
        self.claim(names)
        stale = {name for name in self._files - set(names) if _letter(name) in letters and not name.startswith("raw/")}
        for name in sorted(stale):
            (self.folder / name).unlink(missing_ok=True)
        for name in names:
            write_bytes(self.folder / name, (made / name).read_bytes())
        self._files -= stale
        self._write_marker()

    def _write_marker(self) -> None:
        write_json(self.folder / MARKER, {**self._owner, "files": sorted(self._files)})


def _letter(name: str) -> str:
    """Return the letter of `<step>/<letter>/...` or `<step>/<letter>.json`, or another word."""
    return name.split("/")[1].removesuffix(".json")


@dataclass(frozen=True)
class RehearsedTrial:
    """One trial: what it scored, or the step in which it failed and why."""

    trial: Trial
    record: TrialRecord
    stability: Decimal | None
    similarity: Decimal | None
    failed_step: str | None
    reason: str | None
    picture: Path | None  # 1024 x 1024 PNG; None where no level was simulated

    @property
    def score(self) -> Decimal | None:
        """Stability times similarity; None where the trial failed."""
        if self.stability is None or self.similarity is None:
            return None
        return self.stability * self.similarity

    @property
    def seconds(self) -> float:
        """Seconds that the model took for all calls of the trial."""
        return sum(exchange.reply.seconds for exchange in self.record.exchanges)


@dataclass(frozen=True)
class Rehearsal:
    """What a submission came to with one model."""

    trials: tuple[RehearsedTrial, ...]
    diversity: dict[str, Decimal]  # by letter; not for a letter with a single trial

    def seconds_of_full_run(self, full_trials: int) -> float:
        """Return the model's time for so many trials, at the mean of the rehearsed ones."""
        return full_trials * sum(each.seconds for each in self.trials) / len(self.trials)


def rehearse(
    params: Params,
    model: str,
    submission: Submission,
    backend: Backend,
    folder: Path,
    report: Report,
    *,
    trust_programs: bool = False,
) -> Rehearsal:
    """Run every trial of params with one model and return what became of it.

    Args:
        params: The competition, with the letters and trials to rehearse.
        model: The model's key in params.
        submission: The prompt or program.
        backend: Where the model is asked.
        folder: Where all files go, `<step>/<letter>/...`; replies and pictures of other letters in it are kept.
        report: Called after each trial's response.
        trust_programs: Run a program without a sandbox where there is none.

    Raises:
        OutputFolderError: The folder, or a file in it, is not of an earlier rehearsal of this team and model.
        BusyError: Another rehearsal works on the same folder.
        LlmError: The model cannot be asked.
        SandboxError: There is no sandbox for a program.
        ClassifierError: The classifier of params cannot be had.
    """
    wanted, team, competition = list(trials(params)), submission.team, params.competition
    raw, state = folder / "raw", folder / "unfinished"
    output = OutputFolder(folder, team, model)
    output.claim(
        [f"raw/{trial.letter}/{tag(team, trial)}{suffix}" for trial in wanted for suffix in (".txt", ".json")]
        + [f"raw/{TRIALS_FILE}"]
    )
    with only_run(folder, state / "try.lock"), TemporaryDirectory(prefix="pcgeval-try-") as made:
        generate_step(
            params,
            model,
            submission,
            backend,
            raw,
            report,
            state=state,
            trust_programs=trust_programs,
            keep_others=True,
        )
        place: dict[StageDir, Path] = {step: Path(made, step) for step in STAGE_DIRS}
        extract_stage(raw, place["intermediate"], team, wanted)
        convert_stage(place["intermediate"], place["levels"], team, wanted)
        simulate_stage(place["levels"], place["stability"], place["images"], team, wanted, physics=params.physics)
        classify_stage(place["images"], place["similarity"], team, wanted, params.similarity, folder / "predictions")
        if competition.trials > 1:
            vectors = params.diversity.vectors
            diversity_stage(
                place["similarity"], place["diversity"], team, competition.trials, competition.characters, vectors
            )
        output.publish(Path(made), competition.characters)
        return _read(params, team, {**place, "raw": raw, "images": folder / "images"})


def _read(params: Params, team: str, place: dict[StageDir, Path]) -> Rehearsal:
    rules = ScoringRules(params.competition.characters, params.competition.trials)
    folders = TeamFolders(place["stability"], place["similarity"], place["diversity"])
    letters = {letter: read_letter(folders, letter, rules) for letter in rules.letters}
    rehearsed = tuple(_trial(trial, team, place, letters[trial.letter]) for trial in trials(params))
    return Rehearsal(rehearsed, {key: each.diversity for key, each in letters.items() if each.diversity is not None})


def _trial(trial: Trial, team: str, place: dict[StageDir, Path], results: LetterResults) -> RehearsedTrial:
    outcome = read_outcomes(place["similarity"])[trial]
    picture = trial_file(place["images"], "images", team, trial)
    return RehearsedTrial(
        trial,
        read_record(record_path(place["raw"], team, trial)),
        first_by_trial(results.stability).get(trial.number),
        first_by_trial(results.similarity).get(trial.number),
        outcome.failed_stage,
        outcome.reason,
        picture if picture.is_file() else None,
    )
