"""A few trials of one submission: asked for as the competition asks, and each level scored as soon as it is there.

Everything goes into one folder: responses, calls, levels and pictures with the official file names, and what a program
printed. Finished trials are kept: a second try of the same submission in the same folder asks for nothing twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pcgeval.cli.output_folder import LOCK, PRINTED, OutputFolder
from pcgeval.core.files import read_text
from pcgeval.core.layout import OFFICIAL_RESULTS, StageDir, Trial, tag, trial_file, trials
from pcgeval.core.locks import lock_folder
from pcgeval.core.params import Model, Params
from pcgeval.core.stage_files import TrialRow, read_csv
from pcgeval.core.trials import SuppliedBlocks, TrialRecord
from pcgeval.core.untrusted import printable_text
from pcgeval.evaluator.image import png_bytes
from pcgeval.evaluator.level_score import LevelScore, score_level
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.generation.summaries import supplied_blocks
from pcgeval.generation.tasks import TrialObserver
from pcgeval.llm.protocol import Backend
from pcgeval.scoring.official_files import TRIAL_SCORES
from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.diversity import diversity
from pcgeval.submissions.load import Submission

_DIGITS = 7  # of a diversity, as in the official files


@dataclass(frozen=True)
class TriedTrial:
    """One trial: its level with all its scores, or the reason why there is none.

    Attributes:
        trial: Its letter and number.
        record: How the response came about.
        response: The file with it.
        level: What the response is worth; one that failed in `generate` if there is no response.
        picture: The evaluator's picture, 1024 x 1024; None where no level was simulated.
        printed: The file with what the program printed; None if it printed nothing.
        supplied: How many blocks of the response the submission told the model before the model named them.
        is_new: Whether the trial was done just now.
    """

    trial: Trial
    record: TrialRecord
    response: Path
    level: LevelScore
    picture: Path | None
    printed: Path | None
    supplied: SuppliedBlocks
    is_new: bool

    @property
    def seconds(self) -> float:
        """Seconds that the model took for all calls of the trial."""
        return sum(exchange.reply.seconds for exchange in self.record.exchanges)


@dataclass(frozen=True)
class LetterSummary:
    """The means over all trials of a letter, failed ones counted as 0.

    Attributes:
        team: Whose trials these are.
        letter: The letter.
        trials: The number of trials.
        failed: How many of them failed; None where that is not known.
        stability: The mean share of blocks that stayed.
        similarity: The mean probability of the letter.
        score: The mean of stability times similarity.
        diversity: The mean distance of the trials; None for a single one.
    """

    team: str
    letter: str
    trials: int
    failed: int | None
    stability: float
    similarity: float
    score: float
    diversity: float | None


def try_submission(
    params: Params,
    model: str,
    submission: Submission,
    backend: Backend,
    classifier: Classifier,
    folder: Path,
    report: Callable[[TriedTrial], None],
    *,
    observer: TrialObserver | None = None,
    trust_programs: bool = False,
) -> None:
    """Run every trial of params with one model.

    Args:
        params: The competition, with the letters and trials to run.
        model: The model's key in params.
        submission: The prompt or program.
        backend: Where the model is asked.
        classifier: Tells which letter a level shows.
        folder: Where all files go, `<stage>/<letter>/...`; those of other letters in it are kept.
        report: Called with each trial once it is scored.
        observer: Is told of trials while they run.
        trust_programs: Run a program without a sandbox where there is none.

    Raises:
        OutputFolderError: The folder, or a file in it, was not written by an earlier try of this team and model.
        FolderBusyError: Another process works on the same folder.
        LlmError: The model cannot be asked.
        SandboxError: There is no sandbox for a program.
        TrialFaultError: Trials failed through no fault of the submission.
    """
    team, raw, output = submission.team, folder / "raw", OutputFolder(folder, submission.team, model)

    def score(trial: Trial, record: TrialRecord, is_new: bool) -> None:
        response = trial_file(raw, "raw", team, trial)
        text = read_text(response)
        if record.reason is None:
            level = score_level(text, trial.letter, classifier, params.physics, read_as="response")
        else:
            level = LevelScore(
                letter=trial.letter,
                read_as="response",
                physics=params.physics,
                failed_stage="generate",
                reason=record.reason,
            )
        output.put(_level_files(team, trial, level))
        picture = trial_file(folder / "images", "images", team, trial) if level.simulated else None
        printed = folder / printed_name(team, trial)
        supplied = supplied_blocks(submission.work, trial.letter, text, record)
        report(
            TriedTrial(
                trial, record, response, level, picture, printed if printed.is_file() else None, supplied, is_new
            )
        )

    with lock_folder(folder, folder / LOCK):
        output.claim(name for trial in trials(params) for name in _names(team, trial))
        do_trials(
            params,
            model,
            [TeamTrials(submission, backend, raw)],
            score,
            state=folder / "unfinished",
            trust_programs=trust_programs,
            observer=_KeptOutput(output, team, observer),
        )


@dataclass(frozen=True)
class _KeptOutput:
    """Keep what programs print."""

    output: OutputFolder
    team: str
    observer: TrialObserver | None

    def asking(self, trial: Trial, call: int) -> None:
        """Pass on that a trial asks the model."""
        if self.observer:
            self.observer.asking(trial, call)

    def ended(self, trial: Trial, printed: str) -> None:
        """Write what a trial's program printed; an empty text removes what an earlier one did."""
        lines = printable_text(
            printed.replace("\r\n", "\n").replace("\r", "\n")
        )  # progress bars return to their line's start
        self.output.put({printed_name(self.team, trial): lines.encode() if printed else None})
        if self.observer:
            self.observer.ended(trial, printed)


def printed_name(team: str, trial: Trial) -> str:
    """Return the name of the file with what a trial's program printed, without control characters."""
    return f"{PRINTED}/{trial.letter}/{tag(team, trial)}.txt"


def _names(team: str, trial: Trial) -> Iterator[str]:
    """Yield the names of all files that may be written for a trial."""
    yield from (f"raw/{trial.letter}/{tag(team, trial)}{suffix}" for suffix in (".txt", ".json"))
    yield from (*_level_files(team, trial, None), printed_name(team, trial))


def _level_files(team: str, trial: Trial, level: LevelScore | None) -> Mapping[str, bytes | None]:
    """Return the contents of a level's files by their official names; None for one that must not be there."""
    contents: dict[StageDir, bytes | None] = {
        "intermediate": level.code.encode() if level and level.code is not None else None,
        "levels": level.xml.encode() if level and level.xml is not None else None,
        "images": png_bytes(level.image()) if level and level.simulated else None,
    }
    return {trial_file(Path(stage), stage, team, trial).as_posix(): content for stage, content in contents.items()}


def summary(team: str, tried: Iterable[TriedTrial], vectors: str) -> tuple[LetterSummary, ...]:
    """Return the means of each letter.

    Args:
        team: Whose trials these are.
        tried: The trials.
        vectors: What the diversity compares: `softmax` or `cls`.
    """
    by_letter: dict[str, list[TriedTrial]] = {}
    for trial in tried:
        by_letter.setdefault(trial.trial.letter, []).append(trial)
    return tuple(
        LetterSummary(
            team,
            letter,
            len(group),
            sum(trial.level.reason is not None for trial in group),
            _mean(trial.level.stability for trial in group),
            _mean(trial.level.similarity for trial in group),
            _mean(trial.level.score for trial in group),
            _diversity(group, vectors) if len(group) > 1 else None,
        )
        for letter, group in sorted(by_letter.items())
    )


def baseline_summary(
    params: Params, model: Model, letters: str, results: Path = OFFICIAL_RESULTS
) -> tuple[LetterSummary, ...]:
    """Return the means of the competition's baseline with the same model, as its last evaluation found them.

    Empty where there is no baseline, or no evaluation of it with this model.

    Raises:
        FileError: The results are there and cannot be read.
    """
    keys = (key for key, entry in params.models.items() if (entry.name, entry.options) == (model.name, model.options))
    tables = (results / key / TRIAL_SCORES for key in keys)
    table, team = next((path for path in tables if path.is_file()), None), params.scoring.baseline
    if table is None or team is None:
        return ()
    rows = [row for row in read_csv(TrialRow, table) if row.team == team]
    groups = {letter: [row for row in rows if row.letter == letter] for letter in sorted(letters)}
    return tuple(
        LetterSummary(
            team,
            letter,
            len(group),
            None,
            _mean(float(row.stability) for row in group),
            _mean(float(row.similarity) for row in group),
            _mean(float(row.stability * row.similarity) for row in group),
            float(group[0].diversity),
        )
        for letter, group in groups.items()
        if group
    )


def _diversity(group: list[TriedTrial], vectors: str) -> float:
    levels = [each.level for each in group if each.level.simulated]
    rows = [level.embedding if vectors == "cls" else tuple(level.probabilities.values()) for level in levels]
    return round(diversity(rows, len(group)), _DIGITS)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
