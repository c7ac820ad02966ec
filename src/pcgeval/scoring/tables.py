"""Published result tables: read the measurements in them, compute everything anew, and compare digit by digit.

A folder of tables holds `trial_scores.csv` and `constants.json` as the official script writes them, and optionally
`character_scores.csv`, `prompt_scores_ranks.csv` and the `result.json` of the competition's web page, whose ranks also
say who was a baseline (-1) or disqualified (-2).
"""

import json
from collections.abc import Sequence
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
    Row,
    TrialRow,
    plain,
    read_csv,
    read_stage_file,
    refusal,
)
from pcgeval.scoring.formulas import ModelScores
from pcgeval.scoring.inputs import Entry, LetterResults, ScoringError, ScoringRules, TeamResults
from pcgeval.scoring.official_files import (
    CHARACTER_SCORES,
    CONSTANTS,
    PROMPT_SCORES,
    TRIAL_SCORES,
    UNRANKED,
    OfficialFiles,
)

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
        return frozenset(each.team for each in self.published if each.rank == DISQUALIFIED)


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

    def add(self, kind: str, name: str, published: str, computed: str) -> None:
        """Compare one value."""
        self.compared[kind] = self.compared.get(kind, 0) + 1
        if published != computed:
            self.differing += 1
            if len(self.differences) < _SHOWN:
                self.differences.append(f"{kind} {name}: published {published[:200]}, computed {computed[:200]}")


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
            elif sorted(each.trial for each in found) != list(range(1, rules.trials + 1)):
                fault = f"letter {letter}: has {len(found)} lines, not trials 1 to {rules.trials}"
            elif len({each.diversity for each in found}) > 1:
                fault = f"letter {letter}: a trial has another diversity than the first"
            if fault is not None:
                raise ScoringError(f"{path}: team {team!r}, {fault}. Take the table from its source again.")
        results = {
            letter: LetterResults(
                tuple(Entry(each.trial, each.stability) for each in found),
                tuple(Entry(each.trial, each.similarity) for each in found),
                found[0].diversity,
            )
            for letter, found in letters.items()
        }
        teams[team] = TeamResults(results, sum(not each.similarity for found in letters.values() for each in found))
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
    names = {each.team: each.team for each in tables.published if each.team in tables.teams}
    for each in tables.published:
        same = [
            prompt.team
            for prompt in scores.prompts
            if prompt.team not in names.values()
            and _to_digits(prompt.normalised, each.normalised) == each.normalised
            and _to_digits(prompt.score, each.score) == each.score
        ]
        if each.team not in names and len(same) == 1:
            names[each.team] = same[0]
    return names


def published_baselines(tables: Tables, scores: ModelScores) -> frozenset[str]:
    """Return the teams, as the tables name them, that the published ranking marks as baselines."""
    names = table_names(tables, scores)
    return frozenset(names[each.team] for each in tables.published if each.rank == UNRANKED and each.team in names)


def compare(tables: Tables, scores: ModelScores, computed: OfficialFiles) -> Reproduction:
    """Compare every published number with the computed one, in all its published digits."""
    comparison = Reproduction(tables.folder)
    _compare_rows(comparison, tables.folder / TRIAL_SCORES, TrialRow, computed.trials, "trial score", 3)
    _compare_rows(comparison, tables.folder / CHARACTER_SCORES, LetterRow, computed.letters, "letter score", 2)
    _compare_rows(comparison, tables.folder / PROMPT_SCORES, PromptRow, computed.prompts, "place", 1)
    published = ConstantsFile.read(tables.folder / CONSTANTS)
    weights = {each.letter: each for each in published.weights}
    for each in computed.constants.weights:
        found = ", ".join(_fields(weights[each.letter])) if each.letter in weights else "none"
        comparison.add("weight", each.letter, found, ", ".join(_fields(each)))
    comparison.add("sum", "of the scores", plain(published.total), plain(computed.constants.total))
    _compare_published(comparison, tables.published, table_names(tables, scores), computed.prompts)
    return comparison


def _compare_rows(
    comparison: Reproduction, path: Path, row_type: type[Row], computed: Sequence[Row], kind: str, keys: int
) -> None:
    """Compare line by line, by the first columns; an absent table is not compared."""
    if not path.exists():
        return
    published = {fields[:keys]: fields[keys:] for fields in map(_fields, read_csv(row_type, path))}
    for fields in map(_fields, computed):
        found = published.pop(fields[:keys], ("no line",))
        comparison.add(kind, " ".join(fields[:keys]), ", ".join(found), ", ".join(fields[keys:]))
    for left in published:
        comparison.add(kind, " ".join(left), "a line", "no line")


def _fields(row: BaseModel) -> tuple[str, ...]:
    return tuple(str(value) for value in row.model_dump().values())


def _compare_published(
    comparison: Reproduction, published: tuple[PublishedRank, ...], names: dict[str, str], prompts: Sequence[PromptRow]
) -> None:
    computed = {each.team: each for each in prompts}
    for each in published:
        if each.rank == DISQUALIFIED:
            continue
        place, found = computed.pop(names.get(each.team, each.team), None), "none"
        if place is not None:
            normalised, score = _to_digits(place.normalised, each.normalised), _to_digits(place.score, each.score)
            found = f"rank {place.rank}, {plain(normalised)}, {plain(score)}"
        comparison.add("place", each.team, f"rank {each.rank}, {plain(each.normalised)}, {plain(each.score)}", found)
    if published:
        for team, place in computed.items():
            comparison.add("place", team, "none", f"rank {place.rank}")


def _to_digits(computed: Decimal, published: Decimal) -> Decimal:
    """Round to as many decimal places as are published."""
    return computed.quantize(published, rounding=ROUND_HALF_UP, context=Context(prec=5000))
