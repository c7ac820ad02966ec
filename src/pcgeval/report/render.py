"""Write the report, `results/report`, from the files of the stages: an index, a page per team; they need no network.

`.cache/report` keeps the teams' pages, the table of levels and the hand-made letters with the hash of what they were
made from, so a run makes what changed. You may delete the folder.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter

from pcgeval.bulk.level_table import (
    CARD,
    LevelRow,
    dataset_card,
    engine_sha256,
    import_pyarrow,
    level_table,
    parquet_bytes,
)
from pcgeval.core.errors import FileError
from pcgeval.core.files import cached, sha256_bytes, write_bytes
from pcgeval.core.packages import MEASURING, installed_release, installed_versions, source_sha256
from pcgeval.core.text import shortened
from pcgeval.core.untrusted import UntrustedFileError, read_bytes, read_text
from pcgeval.formats.layout import (
    CLASSIFIER_FILE,
    EXAMPLE_LETTERS,
    LETTERS,
    OFFICIAL_RESULTS,
    RANKING_CSV,
    RANKING_JSON,
    RESULTS,
    SUBMISSIONS,
    TRIALS_FILE,
    grade_file,
)
from pcgeval.formats.params import Params
from pcgeval.formats.results import ConstantsFile, LetterRow, RankedTeam, RankingFile, TrialRow, read_csv
from pcgeval.formats.stages import REMAKE, ClassifierFile, SimulatedLevel, read_stage_file
from pcgeval.formats.trial_view import TrialFiles, TrialView
from pcgeval.report.markup import SCRIPT, STYLE, asset, render_template, shown_tree
from pcgeval.report.results import Evaluation, LetterResult, ModelResult, ProgramSource, ReferenceLevel, TeamResult
from pcgeval.rubric.grades import GradeError
from pcgeval.rubric.output import read_grade
from pcgeval.scoring.stages import CHARACTER_SCORES, CONSTANTS, OFFICIAL_NAMES, TRIAL_SCORES
from pcgeval.similarity.source import resolve_source
from pcgeval.submissions.load import Program, Submission, find_readme, load_submissions, submission_sha256

INDEX = "index.html"
TEAMS = "teams"  # the folder of the teams' pages
TABLES = "tables"  # the folder of what the index links to
LEVELS = "levels.parquet"  # there: all trials, a row each
REPLIES = 400_000  # characters of all replies on a team's page together: a large competition shows less of each
LONGEST_REPLY = 2_000  # characters, as are the next three
LONGEST_CODE = 4_000
LONGEST_SOURCE = 50_000  # of a program's entry, and of its README
LONGEST_TITLE = 100
MAX_LETTER_BYTES = 100_000  # of a hand-made letter
CACHE = Path(".cache", "report")
_MODELS = TypeAdapter(tuple[ModelResult, ...], config=ConfigDict(defer_build=True))
_REFERENCE = TypeAdapter(dict[str, ReferenceLevel])
_shown_tree = partial(shown_tree, answers=400_000, longest=2_000)  # a team's page has more to show
_Key = TypeVar("_Key")
_Row = TypeVar("_Row")


def write_report(params: Params, root: Path, out: Path) -> Path:
    """Write the report of an evaluated round and return its index.

    The tables that the pages link to lie beside them. The same arguments and files give the same bytes.

    Args:
        params: The competition, as in its params.yaml.
        root: The competition's folder, with `data/` and `results/`.
        out: The folder for the pages, usually `results/report`.

    Raises:
        MissingPackageError: pyarrow is not installed.
        FileError: A file of an earlier stage is missing or broken, or belongs to other teams or models.
        SubmissionError: A team's submission cannot be read.
    """
    evaluation, cache = collect(params, root), root / CACHE
    tables = [RANKING_CSV, RANKING_JSON]
    tables += [OFFICIAL_RESULTS / model / name for model in params.models for name in OFFICIAL_NAMES]
    files = {out / TABLES / table.relative_to(RESULTS): read_stage_file(root / table, bytes) for table in tables}
    code = (installed_release(), installed_versions("jinja2", "markupsafe", "pyarrow"))
    measured = {team.name: sha256_bytes(_MODELS.dump_json(team.models)) for team in evaluation.teams}
    files[out / TABLES / LEVELS] = cached(cache / LEVELS, (measured, code), partial(_levels_parquet, evaluation))
    files[out / TABLES / CARD] = dataset_card(params.competition.name, LEVELS).encode("utf-8")
    files |= {out / name: asset(name).encode("utf-8") for name in (STYLE, SCRIPT)}
    pages = {team.name: f"{TEAMS}/{team.name}.html" for team in evaluation.teams}
    files[out / INDEX] = _page("index.html.j2", "", evaluation, pages)
    ranking = evaluation.ranking.model_copy(update={"result": None})  # no page shows its hash
    for team in evaluation.teams:
        made_from = (replace(team, models=()), measured[team.name], ranking, params, code)
        render = partial(_page, "team.html.j2", "../", evaluation, pages, team=team)
        files[out / pages[team.name]] = cached(cache / f"{team.name}.html", made_from, render)
    for path, content in files.items():
        write_bytes(path, content)
    return out / INDEX


def single_page(params: Params) -> str:
    """Return the report as one page that needs nothing beside it: the index, and the page of each team folded below."""
    return render_template("index.html.j2", evaluation=collect(params, Path()), pages={}, shown_tree=_shown_tree)


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
            program=_program_source(submission.work) if isinstance(submission.work, Program) else None,
            grade=grade,
            models=tuple(_model_result(params, root, row, model, official[model]) for model in params.models),
        )
        teams.append(team)
    return Evaluation(params, ranking, tuple(teams), _reference_levels(params, root))


def _page(template: str, beside: str, evaluation: Evaluation, pages: Mapping[str, str], **values: Any) -> bytes:
    values |= {"evaluation": evaluation, "pages": pages, "shown_tree": _shown_tree}
    return render_template(template, beside=beside, **values).encode("utf-8")


def _levels_parquet(evaluation: Evaluation) -> bytes:
    """Return all trials as the table of levels, a row each, with a competition's columns behind the common ones."""
    pa = import_pyarrow()
    text, count = pa.string(), pa.int32()
    tables = []
    for team in evaluation.teams:
        for model in team.models:
            table = level_table(
                [_level_row(team, model, trial) for trial in model.trials], model.engine_sha256, model.classifier_sha256
            )
            usages = [trial.usage for trial in model.trials]
            columns: dict[str, tuple[Any, list[Any]]] = {
                "model": (text, [model.name] * len(usages)),
                "team": (text, [team.name] * len(usages)),
                "trial": (count, [trial.trial.number for trial in model.trials]),
                "calls": (count, [usage.calls if usage else None for usage in usages]),
                "tokens": (pa.int64(), [usage.tokens if usage else None for usage in usages]),
                "supplied": (pa.float64(), [usage.supplied.share if usage else None for usage in usages]),
                "flags": (pa.list_(text), [list(trial.flags) for trial in model.trials]),
            }
            for name, (kind, values) in columns.items():
                table = table.append_column(name, pa.array(values, kind))
            tables.append(table)
    return parquet_bytes(pa.concat_tables(tables))


def _level_row(team: TeamResult, model: ModelResult, result: TrialView) -> LevelRow:
    letter, level = result.trial.letter, result.level
    by_label = {probability.label: probability.probability for probability in result.probabilities}
    row = LevelRow.failed(result.failure) if result.failure else LevelRow()
    return replace(
        row,
        id=f"{model.name}/{team.name}/{letter}/{result.trial.number}",
        letter=letter,
        blocks=len(level.types) if level else None,
        moved=sum(level.moved) if level else None,
        stability=result.stability,
        starts=level.starts if level else None,
        similarity=result.similarity,
        score=None if result.score is None else float(result.score),
        probabilities=[by_label[label] for label in LETTERS] if by_label.keys() >= set(LETTERS) else None,
    )


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


def _program_source(program: Program) -> ProgramSource:
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


def _model_result(params: Params, root: Path, row: RankedTeam, model: str, official: _OfficialResults) -> ModelResult:
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


def _reference_levels(params: Params, root: Path) -> dict[str, ReferenceLevel]:
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
    return _REFERENCE.validate_json(cached(root / CACHE / "letters.json", made_from, measure))


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
    return _REFERENCE.dump_json(letters)
