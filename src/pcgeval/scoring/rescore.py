"""`pcgeval rescore`: scores and ranking from folders of the official layout, or from published tables.

A folder of tables holds `trial_scores.csv` and `constants.json` as the official script writes them, and optionally
`character_scores.csv`, `prompt_scores_ranks.csv` and the `result.json` of the competition's web page, whose ranks also
say who was a baseline (-1) or disqualified (-2). The measurements in the tables are read, everything is computed anew
and compared digit by digit.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pcgeval.core.errors import FileError
from pcgeval.core.stage_files import (
    ConstantsFile,
    Exact,
    LetterRow,
    PromptRow,
    TrialRow,
    plain,
    read_csv,
    read_stage_file,
    refusal,
)
from pcgeval.scoring.formulas import CompetitionScores, ModelScores, score_competition
from pcgeval.scoring.inputs import (
    CompetitionResults,
    Entry,
    LetterResults,
    ScoringError,
    ScoringRules,
    TeamResults,
    byte_order,
    read_source,
)
from pcgeval.scoring.official_files import (
    CHARACTER_SCORES,
    CONSTANTS,
    PROMPT_SCORES,
    TRIAL_SCORES,
    UNRANKED,
    OfficialFiles,
    official_files,
)
from pcgeval.scoring.ranking import Entrant, Ranking, rank, ranking_file, write_ranking

OFFICIAL_RESULTS_FOLDER = "result"  # the official tools write there and do not take it for a team
RESULT = "result.json"
DISQUALIFIED = -2  # the rank of a disqualified team in the published result.json
_SHOWN = 20  # differences that are kept as texts; all are counted


class PublishedRank(BaseModel):
    """One team in result.json, its numbers with the digits that are printed there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    team: str = Field(alias="teamName")
    normalised: Exact = Field(alias="normalizedPromptScore")
    score: Exact = Field(alias="promptScore")
    rank: int


_PUBLISHED = TypeAdapter(tuple[PublishedRank, ...])


@dataclass(frozen=True)
class Tables:
    """A folder of published tables: the measurements by team, and the ranking of the web page."""

    folder: Path
    teams: dict[str, TeamResults]
    published: tuple[PublishedRank, ...]

    @property
    def disqualified(self) -> frozenset[str]:
        """The teams that the published ranking marks as disqualified."""
        return frozenset(row.team for row in self.published if row.rank == DISQUALIFIED)


@dataclass
class Reproduction:
    """The comparison of published tables with what was computed from their measurements.

    Attributes:
        folder: The tables.
        compared: Number of compared values by kind, such as 2 600 trial scores.
        differing: How many of them differ in any published digit.
        differences: The first of them, a line each.
    """

    folder: Path
    compared: dict[str, int] = field(default_factory=dict)
    differing: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, kind: str, published: Mapping[str, str], computed: Mapping[str, str]) -> None:
        """Compare all values of one kind, by name."""
        for name in dict.fromkeys((*computed, *published)):
            self.compared[kind] = self.compared.get(kind, 0) + 1
            theirs, ours = published.get(name, "none"), computed.get(name, "none")
            if theirs != ours:
                self.differing += 1
                if len(self.differences) < _SHOWN:
                    self.differences.append(f"{kind} {name}: published {theirs[:200]}, computed {ours[:200]}")


@dataclass(frozen=True)
class Rescored:
    """The result of a rescoring; `reproductions` has an entry for each folder of published tables."""

    scores: CompetitionScores
    ranking: Ranking
    reproductions: tuple[Reproduction, ...]

    @property
    def reproduced(self) -> bool:
        """Whether every published number came out the same (true if none was given)."""
        return not any(reproduction.differing for reproduction in self.reproductions)


def rescore(
    folders: Sequence[Path],
    out: Path,
    rules: ScoringRules | None = None,
    *,
    baselines: Collection[str] = (),
    disqualified: Collection[str] = (),
) -> Rescored:
    """Score and rank from folders, and write `<out>/<model>/` with the official files and the ranking's three files.

    Args:
        folders: One per model: `<SOURCE>` of the official layout, or a folder of published tables (`trial_scores.csv`
            and `constants.json`), which is then compared with what is computed. The folder's name names the model.
        out: Where to write; nothing is written before everything is computed.
        rules: Letters, trials, quirks and the baseline to beat; the 26 letters and ten trials if None.
        baselines: Teams that are scored but not ranked; `rules.baseline` is one of them without being named.
        disqualified: Teams that are left out of everything and shown as disqualified.

    Raises:
        ScoringError: A folder, a file or a value is not as it should be, or the folders have different teams.
    """
    rules = rules or ScoringRules()
    sources = _names(folders, out)
    tables = {name: read_tables(folder, rules) for name, folder in sources.items() if holds_tables(folder)}
    results = CompetitionResults(
        {name: tables[name].teams if name in tables else read_source(sources[name], rules) for name in sources}
    )
    present = sorted({team for teams in results.models.values() for team in teams}, key=byte_order)
    for kind, named in (("baseline", baselines), ("disqualified team", disqualified)):
        if missing := sorted(set(named) - set(present)):
            listed = ", ".join(present[:20]) + (" ..." if len(present) > 20 else "")
            raise ScoringError(f"the {kind} {missing[0]!r} is in none of the folders. Their teams: {listed}.")
    excluded = {*disqualified, *(team for table in tables.values() for team in table.disqualified)}
    results = results.without(excluded)
    scores = score_competition(results, rules)
    unranked = {*baselines, *([rules.baseline] if rules.baseline else [])}
    unranked |= {
        team
        for model in scores.models
        if model.model in tables
        for team in published_baselines(tables[model.model], model)
    }
    entrants = [
        *(Entrant(total.team, role="baseline" if total.team in unranked else "participant") for total in scores.totals),
        *(Entrant(team, disqualified="named as disqualified") for team in sorted(excluded, key=byte_order)),
    ]
    ranking = rank(scores, entrants)
    files = {model.model: official_files(model, rules, unranked) for model in scores.models}
    reproductions = tuple(
        compare(tables[model.model], model, files[model.model]) for model in scores.models if model.model in tables
    )
    for model, content in files.items():
        content.write(out / model)
    write_ranking(out, ranking, scores, ranking_file(ranking, scores))
    return Rescored(scores, ranking, reproductions)


def _names(folders: Sequence[Path], out: Path) -> dict[str, Path]:
    """Name each folder by the fewest last parts of its path that tell it from the others."""
    try:
        resolved = [folder.resolve(strict=True) for folder in folders]
    except (OSError, RuntimeError) as error:
        raise ScoringError(f"{error}. Name one model's folder of results, or of published tables.") from error
    if not folders or len(set(resolved)) < len(resolved):
        raise ScoringError("no folder is named, or one is named twice. Name one folder for each model.")
    out = out.resolve()
    for folder in resolved:  # where the next run would take the results for a team or for published tables
        inside = folder == out or folder in out.parents
        if folder.parent == out or (inside and out.relative_to(folder).parts[:1] != (OFFICIAL_RESULTS_FOLDER,)):
            raise ScoringError(f"{out}: would write into the results of {folder}. Choose a folder beside it.")
    for depth in range(1, max(len(path.parts) for path in resolved) + 1):
        names = ["_".join(path.parts[-depth:]).strip("/\\:_") for path in resolved]
        if len(set(names)) == len(names):
            break
    if unnamed := next((path for path, name in zip(resolved, names, strict=True) if not name), None):
        raise ScoringError(f"{unnamed}: has no name of its own. Put one model's results into a folder of its own.")
    return dict(sorted(zip(names, resolved, strict=True), key=lambda each: byte_order(each[0])))


def holds_tables(folder: Path) -> bool:
    """Return whether a folder holds published tables rather than the official layout."""
    return (folder / TRIAL_SCORES).is_file() and (folder / CONSTANTS).is_file()


def read_tables(folder: Path, rules: ScoringRules) -> Tables:
    """Read the measurements of all teams from `trial_scores.csv`, and the published ranking where there is one.

    The tables do not tell absent trials, so those of similarity 0 count as failed: no classifier gives exactly 0.

    Raises:
        FileError: A table is malformed.
        ScoringError: A table does not have exactly the letters and trials of the rules.
    """
    path = folder / TRIAL_SCORES
    rows: dict[str, dict[str, list[TrialRow]]] = {}
    for row in read_csv(TrialRow, path):
        rows.setdefault(row.team, {}).setdefault(row.letter, []).append(row)
    if not rows:
        raise ScoringError(f"{path}: has no lines. Take the table from its source again.")
    teams = {}
    for team, letters in rows.items():
        for letter in (*rules.letters, *letters):
            found = letters.get(letter, [])
            fault = None
            if letter not in rules.letters:
                fault = f"the letter {letter[:20]!r} is not among {rules.letters}"
            elif sorted(row.trial for row in found) != list(range(1, rules.trials + 1)):
                fault = f"letter {letter}: has {len(found)} lines, not trials 1 to {rules.trials}"
            elif len({row.diversity for row in found}) > 1:
                fault = f"letter {letter}: a trial has another diversity than the first"
            if fault is not None:
                raise ScoringError(f"{path}: team {team!r}, {fault}. Take the table from its source again.")
        results = {
            letter: LetterResults(
                tuple(Entry(row.trial, row.stability) for row in found),
                tuple(Entry(row.trial, row.similarity) for row in found),
                found[0].diversity,
            )
            for letter, found in letters.items()
        }
        teams[team] = TeamResults(results, sum(not row.similarity for found in letters.values() for row in found))
    return Tables(folder, teams, _read_published(folder / RESULT))


def _read_published(path: Path) -> tuple[PublishedRank, ...]:
    """Read result.json, whose numbers keep the digits that are printed there; nothing if it is absent."""
    if not path.exists():
        return ()
    try:
        values = json.loads(read_stage_file(path), parse_float=str, parse_int=str, parse_constant=str)
        return _PUBLISHED.validate_python(values)
    except ValidationError as error:
        raise refusal(path, error) from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not valid JSON ({error}). Take it from its source again.") from error


def table_names(tables: Tables, scores: ModelScores) -> dict[str, str]:
    """Return the name in the tables of each team of result.json.

    The web page calls some teams otherwise; such a team is the one that has exactly its published digits, if only one
    has. A team that is in the tables under no name is left out.
    """
    names = {row.team: row.team for row in tables.published if row.team in tables.teams}
    for row in tables.published:
        same = [
            prompt.team
            for prompt in scores.prompts
            if prompt.team not in names.values()
            and _to_digits(prompt.normalised, row.normalised) == row.normalised
            and _to_digits(prompt.score, row.score) == row.score
        ]
        if row.team not in names and len(same) == 1:
            names[row.team] = same[0]
    return names


def published_baselines(tables: Tables, scores: ModelScores) -> frozenset[str]:
    """Return the teams, as the tables name them, that the published ranking marks as baselines."""
    names = table_names(tables, scores)
    return frozenset(names[row.team] for row in tables.published if row.rank == UNRANKED and row.team in names)


def compare(tables: Tables, scores: ModelScores, computed: OfficialFiles) -> Reproduction:
    """Compare every published number with the computed one, in all its published digits; absent tables are left out."""
    comparison, folder = Reproduction(tables.folder), tables.folder
    comparison.add("trial score", _texts(read_csv(TrialRow, folder / TRIAL_SCORES), 3), _texts(computed.trials, 3))
    if (path := folder / CHARACTER_SCORES).exists():
        comparison.add("letter score", _texts(read_csv(LetterRow, path), 2), _texts(computed.letters, 2))
    if (path := folder / PROMPT_SCORES).exists():
        comparison.add("place", _texts(read_csv(PromptRow, path), 1), _texts(computed.prompts, 1))
    constants = ConstantsFile.read(folder / CONSTANTS)
    comparison.add("weight", _texts(constants.weights, 1), _texts(computed.constants.weights, 1))
    comparison.add("sum", {"of the scores": plain(constants.total)}, {"of the scores": plain(computed.constants.total)})
    if tables.published:
        names, prompts = table_names(tables, scores), {prompt.team: prompt for prompt in computed.prompts}
        published, found = {}, {}
        for row in (row for row in tables.published if row.rank != DISQUALIFIED):
            published[row.team] = f"rank {row.rank}, {plain(row.normalised)}, {plain(row.score)}"
            if prompt := prompts.pop(names.get(row.team, row.team), None):
                normalised, score = _to_digits(prompt.normalised, row.normalised), _to_digits(prompt.score, row.score)
                found[row.team] = f"rank {prompt.rank}, {plain(normalised)}, {plain(score)}"
        comparison.add("place", published, found | {team: f"rank {prompt.rank}" for team, prompt in prompts.items()})
    return comparison


def _texts(rows: Iterable[BaseModel], keys: int) -> dict[str, str]:
    """Return the fields of each row, by the first ones."""
    fields = [[str(value) for value in row.model_dump().values()] for row in rows]
    return {" ".join(each[:keys]): ", ".join(each[keys:]) for each in fields}


def _to_digits(computed: Decimal, published: Decimal) -> Decimal:
    """Round to as many decimal places as are published."""
    return computed.quantize(published, rounding=ROUND_HALF_UP, context=Context(prec=5000))
