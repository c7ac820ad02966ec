"""Read everything that the page shows from the files of the stages, and check that the files belong together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_file
from pcgeval.core.layout import (
    CLASSIFIER_FILE,
    GRADE_FILE,
    GRADES,
    OFFICIAL_RESULTS,
    RANKING_JSON,
    SIMULATIONS_FILE,
    SUBMISSIONS,
    TRIALS_FILE,
    Trial,
    letter_file,
    replays_file,
    stage_dir,
    summaries_file,
    trial_file,
)
from pcgeval.core.level_table import engine_sha256
from pcgeval.core.params import Params
from pcgeval.core.stage_files import (
    ClassifierFile,
    ConstantsFile,
    LetterRow,
    OfficialWeight,
    RankedTeam,
    RankingFile,
    ReplaysFile,
    SimilarityFile,
    SimulationsFile,
    StabilityFile,
    TrialOutcome,
    TrialRow,
    by_trial,
    read_csv,
    read_outcomes,
)
from pcgeval.core.trials import read_record, read_summaries, record_path
from pcgeval.core.untrusted import UntrustedFileError, read_start
from pcgeval.report.conversation import ConversationMessage, conversation
from pcgeval.report.formats import shortened
from pcgeval.report.results import (
    FAILURE_WORDS,
    Evaluation,
    Failure,
    LetterResult,
    ModelResult,
    ProgramSource,
    SourceFile,
    TeamResult,
    TrialResult,
)
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.grades import GradeError
from pcgeval.scoring.official_files import CHARACTER_SCORES, CONSTANTS, TRIAL_SCORES
from pcgeval.scoring.seal import read_seal, seal_differences
from pcgeval.submissions.load import Program, Submission, load_submission, submission_sha256
from pcgeval.submissions.sources import find_readme

REPLIES = 400_000  # characters of all replies on a team's page together: a large competition shows less of each
LONGEST_REPLY = 2_000  # characters
LONGEST_CODE = 4_000
MOST_MESSAGES = 12  # of a flagged trial's conversation
LONGEST_REASON = 240  # characters
LONGEST_SOURCE = 50_000  # characters of a program's entry and of its README
_AGAIN = "Run `dvc repro` to make it again."
_Key = TypeVar("_Key")
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class _OfficialResults:
    """The official result files of one model by team, letter and trial."""

    folder: Path
    weights: Mapping[str, OfficialWeight]
    letters: Mapping[tuple[str, str], LetterRow]
    trials: Mapping[tuple[str, str, int], TrialRow]

    @classmethod
    def read(cls, folder: Path) -> "_OfficialResults":
        """Read the files of a folder such as `results/official/MODEL`."""
        return cls(
            folder,
            {weight.letter: weight for weight in ConstantsFile.read(folder / CONSTANTS).weights},
            {(row.team, row.letter): row for row in read_csv(LetterRow, folder / CHARACTER_SCORES)},
            {(row.team, row.letter, row.trial): row for row in read_csv(TrialRow, folder / TRIAL_SCORES)},
        )


def collect(params: Params, root: Path) -> Evaluation:
    """Read a competition's folder after its stages ran.

    Raises:
        FileError: A file is missing, is broken, or is about other teams, models or trials.
        SubmissionError: A team's submission cannot be read.
    """
    path = root / RANKING_JSON
    ranking = RankingFile.read(path)
    _check_same(path, "teams", [team.team for team in ranking.teams], params.teams)
    for team in ranking.teams:
        if team.status != "disqualified":
            _check_same(path, f"models of team {team.team!r}", team.models, params.models)
    official = {model: _OfficialResults.read(root / OFFICIAL_RESULTS / model) for model in params.models}
    teams = tuple(_team(params, root, row, official) for row in ranking.teams)
    return Evaluation(params, ranking, teams, read_seal(root), tuple(seal_differences(params, root)))


def _check_same(path: Path, what: str, present: Iterable[str], expected: Iterable[str]) -> None:
    if sorted(present) != sorted(expected):
        names = ", ".join(present)[:400] or "none"
        raise FileError(f"{path}: the {what} are {names}, in params.yaml they are others. Run `dvc repro`.")


def _team(params: Params, root: Path, row: RankedTeam, official: Mapping[str, _OfficialResults]) -> TeamResult:
    folder = root / SUBMISSIONS / row.team
    submission = load_submission(folder)
    try:
        grade = read_grade(root / GRADES / row.team / GRADE_FILE)
    except (FileError, GradeError) as error:
        raise FileError(f"{error} {_AGAIN}") from error
    if grade.rubric is None:
        raise FileError(f"the grade of {row.team} has no 'rubric'. {_AGAIN}")
    team = TeamResult(
        row=row,
        submission=submission,
        submission_sha256=submission_sha256(folder),
        program=read_program(submission.work) if isinstance(submission.work, Program) else None,
        grade=grade,
        models=tuple(_model(params, root, row, model, official[model]) for model in params.models),
    )
    return replace(team, conversations=dict(_conversations(root, team, submission)))


def _conversations(
    root: Path, team: TeamResult, submission: Submission
) -> Iterator[tuple[tuple[str, Trial], tuple[ConversationMessage, ...]]]:
    """Yield the conversations of the flagged trials that the page names."""
    for flag in team.flags:
        for result in flag.details.values():
            folder = root / stage_dir("raw", flag.model, team.name)
            record = read_record(record_path(folder, team.name, result.trial))
            messages = conversation(submission, result.trial, record, MOST_MESSAGES)
            yield (flag.model, result.trial), tuple(messages)


def read_program(program: Program) -> ProgramSource:
    """Read what the page shows of a program; links are left out.

    Raises:
        FileError: A file cannot be read.
    """
    sources = []
    for name in program.files():
        path = program.folder / name
        try:
            sources.append(SourceFile(name, path.stat().st_size, sha256_file(path)))
        except OSError as error:
            raise FileError(f"{path}: cannot be read ({error.strerror}). Make it a readable file.") from error
    readme = find_readme(program.folder)
    return ProgramSource(
        entry=program.entry,
        entry_text=_start_of(program.folder / program.entry, LONGEST_SOURCE),
        readme=_start_of(readme, LONGEST_SOURCE) if readme else None,
        files=tuple(sources),
    )


def _model(params: Params, root: Path, row: RankedTeam, model: str, official: _OfficialResults) -> ModelResult:
    """Read one team's results with one model; a trial that failed is absent from the files that it did not reach."""
    raw, code_dir, stability_dir, similarity_dir = (
        root / stage_dir(name, model, row.team) for name in ("raw", "intermediate", "stability", "similarity")
    )
    outcomes, summaries = read_outcomes(stability_dir), read_summaries(root / summaries_file(model, row.team))
    simulations = SimulationsFile.read(stability_dir / SIMULATIONS_FILE)
    levels = {Trial(level.letter, level.trial): level for level in simulations.trials}
    path = root / replays_file(model, row.team)
    paths = {Trial(replay.letter, replay.trial): replay.paths for replay in ReplaysFile.read(path).trials}
    competition, is_scored = params.competition, row.status != "disqualified"
    replies = len(params.models) * len(competition.characters) * competition.trials
    letters = []
    for letter in competition.characters:
        stabilities = by_trial(StabilityFile.read(letter_file(stability_dir, letter)).levels)
        file = SimilarityFile.read(letter_file(similarity_dir, letter))
        similarities, predictions = by_trial(file.trials), by_trial(file.predictions)
        trials = []
        for number in range(1, competition.trials + 1):
            trial, key = Trial(letter, number), (row.team, letter, number)
            what = f"team {row.team}, letter {letter}, trial {number}"
            outcome = _entry(outcomes, trial, stability_dir / TRIALS_FILE, what)
            stability, similarity = stabilities.get(number), similarities.get(number)
            score = _entry(official.trials, key, official.folder / TRIAL_SCORES, what).score if is_scored else None
            has_code = outcome.failed_stage not in {"generate", "extract"}
            code = trial_file(code_dir, "intermediate", row.team, trial)
            result = TrialResult(
                trial=trial,
                failure=failure(outcome) if outcome.failed_stage else None,
                level=levels.get(trial),
                paths=paths.get(trial, ()),
                stability=stability.score if stability else None,
                similarity=similarity.similarity if similarity else None,
                probabilities=predictions[number].likeliest if number in predictions else (),
                score=score,
                reply=_start_of(trial_file(raw, "raw", row.team, trial), min(LONGEST_REPLY, REPLIES // replies)),
                code=_start_of(code, LONGEST_CODE) if has_code else "",
                usage=summaries[trial].usage if trial in summaries else None,
            )
            if not result.failure and None in (result.level, stability, similarity, result.top_label):
                raise FileError(
                    f"{similarity_dir}, {stability_dir}: {what} did not fail, but lacks its simulation, stability or "
                    f"similarity. {_AGAIN}"
                )
            blocks = len(result.level.types) if result.level else 0
            if any(replay.block >= blocks for replay in result.paths):
                raise FileError(f"{path}: {what} has a replay of more blocks than its level. {_AGAIN}")
            trials.append(result)
        what, table = f"team {row.team}, letter {letter}", official.folder / CHARACTER_SCORES
        scores = _entry(official.letters, (row.team, letter), table, what) if is_scored else None
        weight = _entry(official.weights, letter, official.folder / CONSTANTS, f"letter {letter}")
        letters.append(LetterResult(letter, weight, scores, tuple(trials)))
    made_by = similarity_dir / CLASSIFIER_FILE
    return ModelResult(
        name=model,
        score=row.models[model].score if is_scored else None,
        letters=tuple(letters),
        engine_sha256=engine_sha256(simulations.engine, simulations.packages, simulations.physics),
        classifier_sha256=ClassifierFile.read(made_by).sha256 if made_by.exists() else None,
    )


def _entry(rows: Mapping[_Key, _Row], key: _Key, path: Path, what: str) -> _Row:
    if key not in rows:
        raise FileError(f"{path}: has nothing about {what}. {_AGAIN}")
    return rows[key]


def failure(outcome: TrialOutcome) -> Failure:
    """Return where and why a trial failed; the reason does not repeat the page's words for the stage."""
    stage = outcome.failed_stage or ""
    reason = (outcome.reason or "no reason was recorded").removeprefix(f"{FAILURE_WORDS.get(stage, stage)}: ")
    return Failure(stage, shortened(reason, LONGEST_REASON))


def _start_of(path: Path, characters: int) -> str:
    """Return a text, cut to so many characters and an ellipsis; U+FFFD stands for bytes that are not UTF-8."""
    try:
        text = read_start(path, 4 * (characters + 1), follow_link=True).decode("utf-8", errors="replace")
    except UntrustedFileError as error:
        raise FileError(f"{path}: {error.reason}. Run `dvc repro` to restore it or to make it again.") from error
    return text if len(text) <= characters else f"{text[:characters]}…"
