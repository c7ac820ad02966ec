"""`pcgeval rescore`: scores and ranking from folders of the official layout, or from published tables.

A folder of tables holds `trial_scores.csv` and `constants.json` as the official script writes them, and optionally
`character_scores.csv`, `prompt_scores_ranks.csv` and the `result.json` of the competition's web page, where the ranks
-1 and -2 mark baselines and disqualified teams. The scores are computed from the measurements in the tables and
compared digit by digit.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from pcgeval.core.errors import FileError
from pcgeval.core.text import listed, plain
from pcgeval.formats.layout import trial_number
from pcgeval.formats.results import ConstantsFile, LetterRow, PromptRow, TrialRow, read_csv
from pcgeval.formats.stages import Exact, other_remedy, read_stage_file
from pcgeval.scoring.formulas import CompetitionScores, ModelScores, PromptScore, score_competition
from pcgeval.scoring.inputs import (
    LARGEST_SHARE,
    CompetitionResults,
    Entry,
    LetterResults,
    ScoringError,
    ScoringRules,
    TeamResults,
    byte_order,
    read_source,
)
from pcgeval.scoring.ranking import Entrant, Ranking, rank, ranking_file, with_disqualified, write_ranking
from pcgeval.scoring.stages import (
    CHARACTER_SCORES,
    CONSTANTS,
    PROMPT_SCORES,
    TRIAL_SCORES,
    UNRANKED,
    OfficialFiles,
    official_files,
)

OFFICIAL_RESULTS_FOLDER = "result"  # the official tools write there and do not take it for a team
RESULT = "result.json"
DISQUALIFIED = -2  # the rank of a disqualified team in the published result.json
_REMEDY = "Take it from its source again."
_LARGEST, _PLACES = 1000, 324  # of a diversity, and of any measurement, which is a float written as a decimal


class _PublishedRank(BaseModel):
    """One team in result.json, its numbers with the digits that are printed there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    team: str = Field(alias="teamName")
    normalised: Exact = Field(alias="normalizedPromptScore")
    score: Exact = Field(alias="promptScore")
    rank: int


_PUBLISHED = TypeAdapter(tuple[_PublishedRank, ...])


@dataclass
class Reproduction:
    """The comparison of a folder of published tables with the scores computed from their measurements."""

    folder: Path
    compared: dict[str, int] = field(default_factory=dict)  # number of values by kind, such as 2 600 trial scores
    differences: list[str] = field(default_factory=list)  # values that differ in any published digit, a line each

    def add(self, kind: str, published: Mapping[str, str], computed: Mapping[str, str]) -> None:
        """Compare all values of one kind, by name."""
        names = dict.fromkeys((*computed, *published))
        self.compared[kind] = self.compared.get(kind, 0) + len(names)
        for name in names:
            theirs, ours = published.get(name, "none"), computed.get(name, "none")
            if theirs != ours:
                self.differences.append(f"{kind} {name}: published {theirs[:200]}, computed {ours[:200]}")


@dataclass(frozen=True)
class Rescored:
    """The result of a rescoring, with a reproduction for each folder of published tables."""

    scores: CompetitionScores
    ranking: Ranking
    reproductions: tuple[Reproduction, ...]

    @property
    def reproduced(self) -> bool:
        """Whether the computed numbers equal all published ones."""
        return not any(reproduction.differences for reproduction in self.reproductions)


@other_remedy(_REMEDY)
def measured_letters_and_trials(folders: Iterable[Path]) -> tuple[str, int]:
    """Return the letters and the number of trials that folders hold.

    A table has a line for every trial, and `<TEAM>/raw` a response, also if the trial failed. Without both, assume the
    official A to Z and ten trials.
    """
    trials: set[tuple[str, int]] = set()
    for folder in folders:
        if _holds_tables(folder):
            trials |= {(row.letter, row.trial) for row in read_csv(TrialRow, folder / TRIAL_SCORES)}
        else:
            responses = folder.glob("*/raw/[A-Z]/*.txt")
            trials |= {(path.parent.name, trial_number(path.name) or 1) for path in responses}
    letters = "".join(sorted({letter for letter, _ in trials}))
    rules = ScoringRules()
    return letters or rules.letters, max((number for _, number in trials), default=rules.trials)


@other_remedy(_REMEDY)
def rescore(
    folders: Sequence[Path],
    out: Path,
    rules: ScoringRules | None = None,
    *,
    baselines: Collection[str] = (),
    disqualified: Collection[str] = (),
) -> Rescored:
    """Score and rank from folders, and write the official files and the ranking.

    Args:
        folders: One per model, with the model's name: `<SOURCE>` of the official layout, or published tables, which
            are compared with the computed scores.
        out: The folder for the results; nothing is written before everything is computed.
        rules: Letters, trials, quirks and the baseline to beat; default: 26 letters and ten trials.
        baselines: Teams that are scored but not ranked, beside `rules.baseline`.
        disqualified: Teams that are left out and listed as disqualified.

    Raises:
        ScoringError: A folder, a file or a value is refused, or the folders have different teams.
    """
    rules = rules or ScoringRules()
    sources = _folders_by_model(folders, out)
    published = {model: _read_published(folder / RESULT) for model, folder in sources.items() if _holds_tables(folder)}
    teams = {
        model: _read_tables(folder / TRIAL_SCORES, rules) if model in published else read_source(folder, rules)
        for model, folder in sources.items()
    }
    present = sorted({team for model_teams in teams.values() for team in model_teams}, key=byte_order)
    if absent := sorted({*baselines, *disqualified}.difference(present)):
        raise ScoringError(f"the team {absent[0]!r} is in none of the folders. Their teams: {listed(present, 20)}.")
    excluded = {*disqualified, *(row.team for rows in published.values() for row in rows if row.rank == DISQUALIFIED)}
    if unprintable := sorted(name for name in {*present, *excluded} if not name.isprintable()):
        raise ScoringError(f"the name {unprintable[0][:50]!r} in the folders is no team name. Rename or remove it.")
    results = CompetitionResults(teams)
    scores = score_competition(results.of({*present} - excluded), rules)
    unranked = {*baselines, *([rules.baseline] if rules.baseline else [])}
    names = {model.model: _table_names(published.get(model.model, ()), model) for model in scores.models}
    for model, rows in published.items():
        unranked |= {names[model][row.team] for row in rows if row.rank == UNRANKED}
    entrants = [
        *(Entrant(total.team, role="baseline" if total.team in unranked else "participant") for total in scores.totals),
        *(Entrant(team, disqualified="named as disqualified") for team in sorted(excluded, key=byte_order)),
    ]
    ranking = with_disqualified(rank(scores, entrants), results, rules, entrants)
    files = {model.model: official_files(model, rules, unranked) for model in scores.models}
    reproductions = tuple(
        _compare(sources[model], rows, names[model], files[model]) for model, rows in published.items()
    )
    for model, content in files.items():
        content.write(out / model)
    write_ranking(out, ranking_file(ranking, scores))
    return Rescored(scores, ranking, reproductions)


def _folders_by_model(folders: Sequence[Path], out: Path) -> dict[str, Path]:
    """Return the folders by the names of their models; of two folders with one name, the parent gives the name."""
    try:
        resolved = [folder.resolve(strict=True) for folder in folders]
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise ScoringError(f"{error}. Name one model's folder of results, or of published tables.") from error
    out = out.resolve()
    for folder in resolved:  # the next run would read the results as a team or as published tables
        is_inside = out.is_relative_to(folder) and out.relative_to(folder).parts[:1] != (OFFICIAL_RESULTS_FOLDER,)
        if is_inside or out == folder.parent:
            raise ScoringError(f"{out}: would write into the results of {folder}. Choose a folder beside it.")
    folders_by_model = {folder.name: folder for folder in resolved}
    if len(folders_by_model) < len(resolved):
        folders_by_model = {f"{folder.parent.name}_{folder.name}": folder for folder in resolved}
    if len(folders_by_model) < len(resolved) or not folders_by_model:
        raise ScoringError("the folders do not tell the models apart. Name a folder with the model's name for each.")
    return dict(sorted(folders_by_model.items(), key=lambda item: byte_order(item[0])))


def _holds_tables(folder: Path) -> bool:
    return (folder / TRIAL_SCORES).is_file() and (folder / CONSTANTS).is_file()


def _read_tables(path: Path, rules: ScoringRules) -> dict[str, TeamResults]:
    """Read the measurements of all teams; trials of similarity 0 count as failed, as no classifier gives exactly 0."""
    teams: dict[str, dict[str, list[TrialRow]]] = {}
    for row in read_csv(TrialRow, path):
        for value, most in ((row.stability, LARGEST_SHARE), (row.similarity, LARGEST_SHARE), (row.diversity, _LARGEST)):
            if not 0 <= value <= most or int(value.as_tuple().exponent) < -_PLACES:
                place = f"{path}: team {row.team!r}, letter {row.letter[:20]!r}, trial {row.trial}"
                raise ScoringError(f"{place}: {str(value)[:50]} is no measurement. {_REMEDY}")
        teams.setdefault(row.team, {}).setdefault(row.letter, []).append(row)
    results = {}
    for team, letters in teams.items():
        for letter in (*rules.letters, *letters):
            rows = letters.get(letter, [])
            is_whole = sorted(row.trial for row in rows) == list(range(1, rules.trials + 1))
            if letter not in rules.letters or not is_whole or len({row.diversity for row in rows}) > 1:
                raise ScoringError(
                    f"{path}: team {team!r}, letter {letter[:20]!r}: expected the letters {rules.letters}, trials 1 to "
                    f"{rules.trials} and one diversity, found {len(rows)} lines. {_REMEDY}"
                )
        measured = {
            letter: LetterResults(
                tuple(Entry(row.trial, row.stability) for row in rows),
                tuple(Entry(row.trial, row.similarity) for row in rows),
                rows[0].diversity,
            )
            for letter, rows in letters.items()
        }
        results[team] = TeamResults(measured, sum(not row.similarity for rows in letters.values() for row in rows))
    if not results:
        raise ScoringError(f"{path}: has no lines. {_REMEDY}")
    return results


def _read_published(path: Path) -> tuple[_PublishedRank, ...]:
    """Read result.json, if there is one, with the digits that are printed there."""
    if not path.exists():
        return ()

    def parse(content: bytes) -> tuple[_PublishedRank, ...]:
        return _PUBLISHED.validate_python(json.loads(content, parse_float=str, parse_int=str, parse_constant=str))

    try:
        return read_stage_file(path, parse)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not valid JSON ({error}). {_REMEDY}") from error


def _table_names(published: Sequence[_PublishedRank], scores: ModelScores) -> dict[str, str]:
    """Return the name in the tables of each team of result.json.

    The web page gives some teams another name; such a team is the only one with its published digits.
    """
    names = {row.team: row.team for row in published}
    unnamed = [prompt for prompt in scores.prompts if prompt.team not in names]
    for row in published:
        alike = [prompt.team for prompt in unnamed if _in_digits(prompt, row) == (row.normalised, row.score)]
        if len(alike) == 1 and row.team not in {prompt.team for prompt in scores.prompts}:
            names[row.team] = alike[0]
    return names


def _in_digits(computed: PromptScore | PromptRow, published: _PublishedRank) -> tuple[Decimal, Decimal]:
    """Round the computed figures to as many decimal places as are published."""
    context = Context(prec=5000, rounding=ROUND_HALF_UP)
    return (
        computed.normalised.quantize(published.normalised, context=context),
        computed.score.quantize(published.score, context=context),
    )


def _compare(
    folder: Path, ranks: Sequence[_PublishedRank], names: Mapping[str, str], computed: OfficialFiles
) -> Reproduction:
    """Compare the published numbers of all tables with the computed ones, in all published digits."""
    comparison = Reproduction(folder)
    comparison.add("trial score", _texts(read_csv(TrialRow, folder / TRIAL_SCORES), 3), _texts(computed.trials, 3))
    if (path := folder / CHARACTER_SCORES).exists():
        comparison.add("letter score", _texts(read_csv(LetterRow, path), 2), _texts(computed.letters, 2))
    if (path := folder / PROMPT_SCORES).exists():
        comparison.add("place", _texts(read_csv(PromptRow, path), 1), _texts(computed.prompts, 1))
    constants = ConstantsFile.read(folder / CONSTANTS)
    comparison.add("weight", _texts(constants.weights, 1), _texts(computed.constants.weights, 1))
    comparison.add("sum", {"of the scores": plain(constants.total)}, {"of the scores": plain(computed.constants.total)})
    if ranks:
        prompts = {prompt.team: prompt for prompt in computed.prompts}
        theirs, ours = {}, {}
        for row in (row for row in ranks if row.rank != DISQUALIFIED):
            theirs[row.team] = f"rank {row.rank}, {plain(row.normalised)}, {plain(row.score)}"
            if prompt := prompts.pop(names[row.team], None):
                ours[row.team] = f"rank {prompt.rank}, {', '.join(map(plain, _in_digits(prompt, row)))}"
        comparison.add("place", theirs, ours | {team: f"rank {prompt.rank}" for team, prompt in prompts.items()})
    return comparison


def _texts(rows: Iterable[BaseModel], keys: int) -> dict[str, str]:
    """Return the fields of each row, by the first ones."""
    lines = [[str(value) for value in row.model_dump().values()] for row in rows]
    return {" ".join(line[:keys]): ", ".join(line[keys:]) for line in lines}
