"""Read everything that the page shows from the files of the stages."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from pcgeval.bulk.level_table import engine_sha256
from pcgeval.core.errors import FileError
from pcgeval.core.files import cached
from pcgeval.core.packages import MEASURING, installed_versions, source_sha256
from pcgeval.core.text import shortened
from pcgeval.core.untrusted import UntrustedFileError, read_bytes, read_text
from pcgeval.formats.layout import (
    CLASSIFIER_FILE,
    EXAMPLE_LETTERS,
    OFFICIAL_RESULTS,
    RANKING_JSON,
    SUBMISSIONS,
    TRIALS_FILE,
    grade_file,
)
from pcgeval.formats.params import Params
from pcgeval.formats.results import ConstantsFile, LetterRow, RankedTeam, RankingFile, TrialRow, read_csv
from pcgeval.formats.stages import REMAKE, ClassifierFile, SimulatedLevel
from pcgeval.formats.trial_view import TrialFiles
from pcgeval.report.results import Evaluation, LetterResult, ModelResult, ProgramSource, ReferenceLevel, TeamResult
from pcgeval.rubric.grades import GradeError
from pcgeval.rubric.output import read_grade
from pcgeval.scoring.stages import CHARACTER_SCORES, CONSTANTS, TRIAL_SCORES
from pcgeval.similarity.source import resolve_source
from pcgeval.submissions.load import Program, Submission, find_readme, load_submissions, submission_sha256

REPLIES = 400_000  # characters of all replies on a team's page together: a large competition shows less of each
LONGEST_REPLY = 2_000  # characters, as are the next three
LONGEST_CODE = 4_000
LONGEST_SOURCE = 50_000  # of a program's entry, and of its README
LONGEST_TITLE = 100
MAX_LETTER_BYTES = 100_000  # of a hand-made letter
CACHE = Path(".cache", "report")
_Key = TypeVar("_Key")
_Row = TypeVar("_Row")
_LETTERS = TypeAdapter(dict[str, ReferenceLevel])


def collect(params: Params, root: Path) -> Evaluation:
    """Read the results of a round from a competition's folder.

    Raises:
        FileError: A file is missing or broken, or the ranking is of other teams, models, letters or trials.
        SubmissionError: A team's submission cannot be read.
    """
    ranking, competition = RankingFile.read(root / RANKING_JSON), params.competition
    models = [set(team.models) for team in ranking.teams if team.models]
    if (
        {team.team for team in ranking.teams} != {*params.teams}
        or any(names != {*params.models} for names in models)
        or (ranking.rules.letters, ranking.rules.trials) != (competition.characters, competition.trials)
    ):
        raise FileError(f"{RANKING_JSON}: has other teams, models, letters or trials than params.yaml. {REMAKE}")
    official = {model: _OfficialResults(root / OFFICIAL_RESULTS / model) for model in params.models}
    submissions = load_submissions(params.teams, root / SUBMISSIONS)
    titles = _titles(submissions.values())
    teams = []
    for row in ranking.teams:
        try:
            grade = read_grade(root / grade_file(row.team))
        except (FileError, GradeError) as error:
            raise FileError(f"{error} {REMAKE}") from error
        submission = submissions[row.team]
        team = TeamResult(
            row=row,
            title=titles[row.team],
            submission=submission,
            submission_sha256=submission_sha256(root / SUBMISSIONS / row.team),
            program=_program(submission.work) if isinstance(submission.work, Program) else None,
            grade=grade,
            models=tuple(_model(params, root, row, model, official[model]) for model in params.models),
        )
        teams.append(team)
    return Evaluation(params, ranking, tuple(teams), _reference(params, root))


class _Rows(dict[_Key, _Row]):
    """The rows of a file by their keys; a row that is missing is a fault of the file."""

    def __init__(self, path: Path, rows: Iterable[tuple[_Key, _Row]]) -> None:
        super().__init__(rows)
        self._path = path

    def __missing__(self, key: _Key) -> _Row:
        raise FileError(f"{self._path}: has nothing about {key}. {REMAKE}")


class _OfficialResults:
    """The official result files of one model by team, letter and trial."""

    def __init__(self, folder: Path) -> None:
        constants, letters, trials = (folder / name for name in (CONSTANTS, CHARACTER_SCORES, TRIAL_SCORES))
        self.weights = _Rows(constants, ((row.letter, row) for row in ConstantsFile.read(constants).weights))
        self.letters = _Rows(letters, (((row.team, row.letter), row) for row in read_csv(LetterRow, letters)))
        self.trials = _Rows(trials, (((row.team, row.letter, row.trial), row) for row in read_csv(TrialRow, trials)))


def _titles(submissions: Collection[Submission]) -> dict[str, str]:
    """Return a title for each team; the team's name follows one that is blank, or another team's name or title."""
    claims = Counter(
        text for submission in submissions for text in {submission.title.casefold(), submission.team.casefold()}
    )
    titles = {}
    for submission in submissions:
        title = shortened(submission.title, LONGEST_TITLE)
        is_clear = claims[submission.title.casefold()] == 1 and any(map(str.isalnum, title))
        titles[submission.team] = title if is_clear else f"{title} ({submission.team})"
    return titles


def _program(program: Program) -> ProgramSource:
    readme = find_readme(program.folder)
    sizes = [(program.folder / name).stat().st_size for name in program.files()]
    return ProgramSource(
        entry=_start_of(program.folder / program.entry, LONGEST_SOURCE),
        readme=_start_of(readme, LONGEST_SOURCE) if readme else None,
        files=len(sizes),
        size=sum(sizes),
    )


def _start_of(path: Path, characters: int) -> str:
    """Return a text, cut to so many characters and an ellipsis; U+FFFD replaces bytes that are not UTF-8."""
    try:
        text = read_bytes(path, 4 * (characters + 1), follow_link=True, cut=True).decode("utf-8", errors="replace")
    except UntrustedFileError as error:
        raise FileError(f"{path}: {error.reason}. Run `dvc repro` to restore it or to make it again.") from error
    return text if len(text) <= characters else f"{text[:characters]}…"


def _model(params: Params, root: Path, row: RankedTeam, model: str, official: _OfficialResults) -> ModelResult:
    """Read one team's results with one model; a trial that failed is absent from the files that it did not reach."""
    team, competition, is_scored = row.team, params.competition, row.status != "disqualified"
    files = TrialFiles(model, team, root)
    longest = min(LONGEST_REPLY, REPLIES // (len(params.models) * len(competition.characters) * competition.trials))
    letters = []
    for letter in competition.characters:
        trials = []
        for view in map(files.view, params.trials(letter)):
            place = f"team {team}, letter {letter}, trial {view.trial.number}"
            if view.outcome is None:
                raise FileError(f"{files.folders['stability'] / TRIALS_FILE}: has nothing about {place}. {REMAKE}")
            measured = (view.level, view.stability, view.similarity, view.probabilities or None)
            if not view.failure and None in measured:
                folders = f"{files.folders['similarity']}, {files.folders['stability']}"
                raise FileError(f"{folders}: {place} did not fail, but it lacks a measurement. {REMAKE}")
            paths, has_code = files.official(view.trial), view.outcome.failed_stage not in {"generate", "extract"}
            reply = _start_of(paths["raw"], longest)
            code = _start_of(paths["intermediate"], LONGEST_CODE) if has_code else ""
            score = official.trials[team, letter, view.trial.number].score if is_scored else None
            trials.append(replace(view, score=score, reply=reply, code=code))
        scores = official.letters[team, letter] if is_scored else None
        letters.append(LetterResult(letter, official.weights[letter], scores, tuple(trials)))
    classifier_file = files.folders["similarity"] / CLASSIFIER_FILE
    simulations = files.simulations
    return ModelResult(
        name=model,
        score=row.models[model].score if is_scored else None,
        letters=tuple(letters),
        engine_sha256=engine_sha256(simulations.engine, simulations.packages, simulations.physics),
        classifier_sha256=ClassifierFile.read(classifier_file).sha256 if classifier_file.exists() else None,
    )


def _reference(params: Params, root: Path) -> dict[str, ReferenceLevel]:
    """Simulate and classify the hand-made letters in `data/examples/letters`, if there are any, as the stages do."""
    letters = [root / EXAMPLE_LETTERS / f"{letter}.txt" for letter in params.competition.characters]
    texts = {path: read_text(path, MAX_LETTER_BYTES) for path in letters if path.is_file()}
    if not texts:
        return {}
    settings = params.similarity
    source = resolve_source(settings.model, settings.revision, root)
    code = (source_sha256("evaluator", "levels", "preview", "similarity"), installed_versions(*MEASURING))
    made_from = (texts, params.physics, source.sha256, settings.precision, settings.device, code)
    measure = partial(_measured_letters, texts, source.folder, params)
    return _LETTERS.validate_json(cached(root / CACHE / "letters.json", made_from, measure))


def _measured_letters(texts: Mapping[Path, str], folder: Path, params: Params) -> bytes:
    from pcgeval.preview.level_score import score_level  # noqa: PLC0415 - they are measured once
    from pcgeval.similarity.classifier import Classifier  # noqa: PLC0415

    classifier = Classifier.load(folder, device=params.similarity.device, precision=params.similarity.precision)
    letters = {}
    for path, text in texts.items():
        score = score_level(text, path.stem, classifier, params.physics)
        if score.simulated is None or score.similarity is None:
            raise FileError(f"{path}: is not a level: {score.reason}. Correct it, or remove it.")
        end = score.simulated
        places = tuple((x, y, angle) for x, y, angle in end.positions.tolist())
        level = SimulatedLevel(types=end.types, positions=places, moved=end.moved, dead=end.dead)
        letters[score.letter] = ReferenceLevel(stability=score.stability, similarity=score.similarity, simulated=level)
    return _LETTERS.dump_json(letters)
