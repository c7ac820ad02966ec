"""A few trials of one submission through the same stages that the competition runs.

Everything goes into one folder: responses, calls, levels, pictures and scores, with the official file names. Finished
trials are kept, so that a second try of the same submission in the same folder asks for nothing twice.
"""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from pcgeval.cli.output_folder import LOCK, OutputFolder
from pcgeval.core.layout import STAGE_DIRS, TRIALS_FILE, StageDir, Trial, tag, trial_file, trials
from pcgeval.core.locks import lock_folder
from pcgeval.core.params import Params
from pcgeval.core.stage_files import read_outcomes
from pcgeval.core.trials import TrialRecord, read_record, record_path
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.generation.generate import Report, generate_stage
from pcgeval.levels.stages import convert_stage, extract_stage
from pcgeval.llm.protocol import Backend
from pcgeval.scoring.inputs import ScoringRules, first_by_trial
from pcgeval.scoring.results import read_letter
from pcgeval.similarity.diversity import diversity_stage
from pcgeval.similarity.stage import classify_stage
from pcgeval.submissions.load import Submission


@dataclass(frozen=True)
class TriedTrial:
    """One trial: its scores, or the stage in which it failed and why."""

    trial: Trial
    record: TrialRecord
    stability: Decimal | None
    similarity: Decimal | None
    failed_stage: str | None
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
class TryResult:
    """The trials of a submission with one model."""

    trials: tuple[TriedTrial, ...]
    diversity: dict[str, Decimal]  # by letter; not for a letter with a single trial

    def seconds_of_full_run(self, full_trials: int) -> float:
        """Return the model's time for so many trials, at the mean of those that were tried."""
        return full_trials * sum(each.seconds for each in self.trials) / len(self.trials)


def try_submission(
    params: Params,
    model: str,
    submission: Submission,
    backend: Backend,
    folder: Path,
    report: Report,
    *,
    trust_programs: bool = False,
) -> TryResult:
    """Run every trial of params with one model.

    Args:
        params: The competition, with the letters and trials to run.
        model: The model's key in params.
        submission: The prompt or program.
        backend: Where the model is asked.
        folder: Where all files go, `<stage>/<letter>/...`; replies and pictures of other letters in it are kept.
        report: Called after each trial's response.
        trust_programs: Run a program without a sandbox where there is none.

    Raises:
        OutputFolderError: The folder, or a file in it, was not written by an earlier try of this team and model.
        FolderBusyError: Another process works on the same folder.
        LlmError: The model cannot be asked.
        SandboxError: There is no sandbox for a program.
        ClassifierError: The classifier of params cannot be loaded.
    """
    wanted, team, competition = list(trials(params)), submission.team, params.competition
    raw, state = folder / "raw", folder / "unfinished"
    output = OutputFolder(folder, team, model)
    with lock_folder(folder, folder / LOCK), TemporaryDirectory(prefix="pcgeval-try-") as made:
        output.claim(
            [f"raw/{trial.letter}/{tag(team, trial)}{suffix}" for trial in wanted for suffix in (".txt", ".json")]
            + [f"raw/{TRIALS_FILE}"]
        )
        generate_stage(
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
        place: dict[StageDir, Path] = {stage: Path(made, stage) for stage in STAGE_DIRS}
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
        place |= {"raw": raw, "images": folder / "images"}
        rules, outcomes = ScoringRules(competition.characters, competition.trials), read_outcomes(place["similarity"])
        letters = {letter: read_letter(place, letter, rules) for letter in rules.letters}
        tried = []
        for trial in wanted:
            results, picture = letters[trial.letter], trial_file(place["images"], "images", team, trial)
            tried.append(
                TriedTrial(
                    trial,
                    read_record(record_path(raw, team, trial)),
                    first_by_trial(results.stability).get(trial.number),
                    first_by_trial(results.similarity).get(trial.number),
                    outcomes[trial].failed_stage,
                    outcomes[trial].reason,
                    picture if picture.is_file() else None,
                )
            )
    return TryResult(tuple(tried), {key: each.diversity for key, each in letters.items() if each.diversity is not None})
