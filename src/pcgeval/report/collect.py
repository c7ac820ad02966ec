"""Everything that the page shows, read from the files of the stages and checked against each other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pcgeval.core.conduct import Conduct, read_conduct
from pcgeval.core.files import FileError
from pcgeval.core.layout import (
    GRADE_FILE,
    GRADES,
    OFFICIAL_RESULTS,
    RANKING_JSON,
    SUBMISSIONS,
    Trial,
    stage_dir,
    trial_file,
    trials,
)
from pcgeval.core.params import Params
from pcgeval.report.measured import Measured, read_measured
from pcgeval.report.program_source import read_program
from pcgeval.report.reading import (
    Constants,
    LetterRow,
    LetterWeight,
    RankingFile,
    ReportError,
    TeamRow,
    TrialRow,
    read_csv_as,
    read_json_as,
    read_start,
)
from pcgeval.report.results import Evaluation, LetterResult, ModelResult, TeamResult, TrialResult
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.grades import GradeError, JudgeOutput
from pcgeval.rubric.history import KeptGrade, changes, kept_before, kept_grade, read_history
from pcgeval.scoring.official_files import CHARACTER_SCORES, CONSTANTS, TRIAL_SCORES
from pcgeval.submissions.load import Program, load_submission

REPLIES = 500_000  # characters of all replies on the page together: a large competition shows less of each
LONGEST_REPLY = 600  # characters

_Key = TypeVar("_Key")
_Line = TypeVar("_Line")


@dataclass(frozen=True)
class _Tables:
    """The official result files of one model, by what a line is about."""

    folder: Path
    weights: Mapping[str, LetterWeight]
    letters: Mapping[tuple[str, str], LetterRow]
    trials: Mapping[tuple[str, str, int], TrialRow]


def collect(params: Params, root: Path) -> Evaluation:
    """Read a competition's folder after its stages ran.

    Raises:
        ReportError: A file is missing, is broken, or is about other teams, models or trials.
        SubmissionError: A team's submission cannot be read.
    """
    path = root / RANKING_JSON
    ranking = read_json_as(path, RankingFile)
    _check_same(path, "teams", [row.team for row in ranking.teams], params.teams)
    for row in ranking.teams:
        if row.status != "disqualified":
            _check_same(path, f"models of team {row.team!r}", row.models, params.models)
    tables = {model: _read_tables(root / OFFICIAL_RESULTS / model) for model in params.models}
    history = _read_history(root)
    return Evaluation(params, ranking, tuple(_team(params, root, row, tables, history) for row in ranking.teams))


def _check_same(path: Path, what: str, found: Iterable[str], wanted: Iterable[str]) -> None:
    if sorted(found) != sorted(wanted):
        names = ", ".join(found)[:400] or "none"
        raise ReportError(f"{path}: the {what} are {names}, in params.yaml they are others. Run `dvc repro`.")


def _read_tables(folder: Path) -> _Tables:
    weights = read_json_as(folder / CONSTANTS, Constants).weights
    letters = read_csv_as(folder / CHARACTER_SCORES, LetterRow)
    rows = read_csv_as(folder / TRIAL_SCORES, TrialRow)
    return _Tables(
        folder,
        {each.letter: each for each in weights},
        {(each.team, each.letter): each for each in letters},
        {(each.team, each.letter, each.trial): each for each in rows},
    )


def _team(
    params: Params, root: Path, row: TeamRow, tables: Mapping[str, _Tables], history: tuple[KeptGrade, ...]
) -> TeamResult:
    submission = load_submission(root / SUBMISSIONS / row.team)
    grade = _read_grade(root / GRADES / row.team / GRADE_FILE, row.team, params.competition.round)
    kept = kept_before(history, grade.state)
    return TeamResult(
        row=row,
        submission=submission,
        program=read_program(submission.work) if isinstance(submission.work, Program) else None,
        grade=grade.output,
        kept_grades=kept,
        grade_change=changes(kept[-1], grade.state) if kept else None,
        models=tuple(_model(params, root, row, model, tables[model]) for model in params.models),
    )


@dataclass(frozen=True)
class _Grade:
    output: JudgeOutput
    state: KeptGrade


def _read_grade(path: Path, team: str, round_: str) -> _Grade:
    try:
        output = read_grade(path)
        return _Grade(output, kept_grade(output, team, round_))
    except (FileError, GradeError) as error:
        raise ReportError(f"{error} Run `dvc repro` to make it again.") from error


def _read_history(root: Path) -> tuple[KeptGrade, ...]:
    try:
        return read_history(root)
    except FileError as error:
        raise ReportError(str(error)) from error


def _model(params: Params, root: Path, row: TeamRow, model: str, tables: _Tables) -> ModelResult:
    measured = read_measured(root, model, row.team, trials(params))
    longest = min(LONGEST_REPLY, REPLIES // (len(params.teams) * len(params.models) * len(list(trials(params)))))
    replies = root / stage_dir("raw", model, row.team)
    scored = row.status != "disqualified"

    def letter_result(letter: str) -> LetterResult:
        weight = _line(tables.weights, letter, tables.folder / CONSTANTS)
        scores = _line(tables.letters, (row.team, letter), tables.folder / CHARACTER_SCORES) if scored else None
        return LetterResult(
            letter, weight, scores, tuple(trial_result(trial) for trial in trials(params) if trial.letter == letter)
        )

    def trial_result(trial: Trial) -> TrialResult:
        key = (row.team, trial.letter, trial.number)
        line = _line(tables.trials, key, tables.folder / TRIAL_SCORES) if scored else None
        reply = read_start(trial_file(replies, "raw", row.team, trial), longest)
        return _trial_result(trial, measured, line, reply, _read_conduct(replies, row.team, trial))

    return ModelResult(model, tuple(letter_result(letter) for letter in params.competition.characters))


def _read_conduct(folder: Path, team: str, trial: Trial) -> Conduct | None:
    try:
        return read_conduct(folder, team, trial)
    except FileError as error:
        raise ReportError(str(error)) from error


def _trial_result(
    trial: Trial, measured: Measured, line: TrialRow | None, reply: str, conduct: Conduct | None
) -> TrialResult:
    failure = measured.failures.get(trial)
    return TrialResult(
        trial=trial,
        failure=failure,
        blocks=measured.blocks.get(trial),
        stability=measured.stability.get(trial),
        similarity=measured.similarity.get(trial),
        seen=measured.seen.get(trial),
        score=line.score if line else None,
        reply=reply,
        conduct=conduct,
    )


def _line(lines: Mapping[_Key, _Line], key: _Key, path: Path) -> _Line:
    if key not in lines:
        raise ReportError(f"{path}: has no line about {key}. Run `dvc repro` to make it again.")
    return lines[key]
