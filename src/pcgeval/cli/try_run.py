"""A few trials of one submission through the same steps that the competition runs.

Everything goes into one folder: responses, calls, levels, pictures and scores, with the official file names. Finished
trials are kept, so a second rehearsal of the same submission in the same folder asks for nothing twice.
"""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from pcgeval.core.layout import STEPS, Step, Trial, trial_file, trials
from pcgeval.core.outcomes import read_outcomes
from pcgeval.core.params import Params
from pcgeval.evaluator.step import simulate_step
from pcgeval.generation.generate import Report, generate_step
from pcgeval.generation.records import TrialRecord, read_record, record_path
from pcgeval.levels.steps import convert_step, extract_step
from pcgeval.llm.protocol import Backend
from pcgeval.scoring.inputs import LetterResults, ScoringRules, first_by_trial
from pcgeval.scoring.results import TeamFolders, read_letter
from pcgeval.similarity.diversity import diversity_step
from pcgeval.similarity.step import classify_step
from pcgeval.submissions.load import Submission


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
        folder: Where all files go, `<step>/<letter>/...`.
        report: Called after each trial's response.
        trust_programs: Run a program without a sandbox where there is none.

    Raises:
        LlmError: The model cannot be asked.
        SandboxError: There is no sandbox for a program.
        ClassifierError: The classifier of params cannot be had.
    """
    place: dict[Step, Path] = {step: folder / step for step in STEPS}
    wanted, team, competition = list(trials(params)), submission.team, params.competition
    generate_step(
        params,
        model,
        submission,
        backend,
        place["raw"],
        report,
        state=folder / "unfinished",
        trust_programs=trust_programs,
    )
    extract_step(place["raw"], place["intermediate"], team, wanted)
    convert_step(place["intermediate"], place["levels"], team, wanted)
    simulate_step(place["levels"], place["stability"], place["images"], team, wanted, physics=params.physics)
    classify_step(place["images"], place["similarity"], team, wanted, params.similarity, folder / "predictions")
    if competition.trials > 1:
        vectors = params.diversity.vectors
        diversity_step(
            place["similarity"], place["diversity"], team, competition.trials, competition.characters, vectors
        )
    return _read(params, team, place)


def _read(params: Params, team: str, place: dict[Step, Path]) -> Rehearsal:
    rules = ScoringRules(params.competition.characters, params.competition.trials)
    folders = TeamFolders(place["stability"], place["similarity"], place["diversity"])
    letters = {letter: read_letter(folders, letter, rules) for letter in rules.letters}
    rehearsed = tuple(_trial(trial, team, place, letters[trial.letter]) for trial in trials(params))
    return Rehearsal(rehearsed, {key: each.diversity for key, each in letters.items() if each.diversity is not None})


def _trial(trial: Trial, team: str, place: dict[Step, Path], results: LetterResults) -> RehearsedTrial:
    outcome = read_outcomes(place["similarity"])[trial]
    picture = trial_file(place["images"], "images", team, trial)
    return RehearsedTrial(
        trial,
        read_record(record_path(place["raw"], team, trial)),
        first_by_trial(results.stability).get(trial.number),
        first_by_trial(results.similarity).get(trial.number),
        outcome.failed_step,
        outcome.reason,
        picture if picture.is_file() else None,
    )
