"""Published result tables: read the measurements in them, compute everything anew, and compare digit by digit.

A folder of tables holds `trial_scores.csv` and `constants.json` as the official script writes them, and optionally
`character_scores.csv`, `prompt_scores_ranks.csv` and the `result.json` of the competition's web page, whose ranks also
say who was a baseline (-1) or disqualified (-2).
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from pcgeval.core.stage_files import plain, read_stage_file, refusal
from pcgeval.scoring.formulas import ModelScores, PromptScore
from pcgeval.scoring.inputs import Entry, LetterResults, ScoringError, ScoringRules, TeamResults
from pcgeval.scoring.official_files import (
    CHARACTER_SCORES,
    CONSTANTS,
    PROMPT_SCORES,
    TRIAL_SCORES,
    UNRANKED,
    ModelRank,
    OfficialFiles,
)

RESULT = "result.json"
DISQUALIFIED = -2  # the rank of a disqualified team in the published result.json
_SHOWN = 20  # differences that are kept as texts; all are counted
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,1200})?")
_MEASURED = ("teamName", "character", "trial", "stabilityScore", "similarityScore", "diversityScore")


def _plain_decimal(text: object) -> Decimal:
    """Return a number as it is printed in a table, all its digits kept; an exponent could make it endless."""
    if not isinstance(text, str) or not _PLAIN_NUMBER.fullmatch(text):
        raise ValueError(f"{str(text)[:50]!r} is no plain decimal number")
    return Decimal(text)


PlainDecimal = Annotated[Decimal, BeforeValidator(_plain_decimal)]


class PublishedRank(BaseModel):
    """One team in result.json, its numbers with the digits that are printed there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    team: str = Field(alias="teamName")
    normalised: PlainDecimal = Field(alias="normalizedPromptScore")
    score: PlainDecimal = Field(alias="promptScore")
    rank: int


_PUBLISHED = TypeAdapter(tuple[PublishedRank, ...])


@dataclass(frozen=True)
class Tables:
    """A folder of published tables: the measurements by team, and the texts to compare with."""

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

    Raises:
        ScoringError: A table is malformed, or does not have exactly the letters and trials of the rules.
    """
    path = folder / TRIAL_SCORES
    stability: dict[tuple[str, str], list[Entry]] = {}
    similarity: dict[tuple[str, str], list[Entry]] = {}
    diversity: dict[tuple[str, str], Decimal] = {}
    for place, row in _rows(path, _MEASURED):
        key, trial = (row["teamName"], row["character"]), _trial(place, row["trial"])
        stability.setdefault(key, []).append(Entry(trial, _decimal(place, row["stabilityScore"])))
        similarity.setdefault(key, []).append(Entry(trial, _decimal(place, row["similarityScore"])))
        rate = _decimal(place, row["diversityScore"])
        if diversity.setdefault(key, rate) != rate:
            _refuse(place, "has another diversity than the letter's first trial")
    _check_extent(path, stability, rules)
    teams: dict[str, dict[str, LetterResults]] = {}
    for (team, letter), entries in stability.items():
        results = LetterResults(tuple(entries), tuple(similarity[team, letter]), diversity[team, letter])
        teams.setdefault(team, {})[letter] = results
    results_by_team = {team: TeamResults(letters, _absent(letters)) for team, letters in teams.items()}
    return Tables(folder, results_by_team, _read_published(folder / RESULT))


def _check_extent(path: Path, entries: dict[tuple[str, str], list[Entry]], rules: ScoringRules) -> None:
    expected = list(range(1, rules.trials + 1))
    for team in dict.fromkeys(team for team, _ in entries):
        for letter in rules.letters:
            found = sorted(entry.trial or 0 for entry in entries.get((team, letter), []))
            if found != expected:
                _refuse(path, f"team {team!r}, letter {letter}: has {len(found)} lines, not trials 1 to {rules.trials}")
    if strange := sorted({letter for _, letter in entries} - set(rules.letters)):
        _refuse(path, f"has the letter {strange[0][:20]!r}, which is not among {rules.letters}")


def _absent(letters: dict[str, LetterResults]) -> int:
    """Count the trials of similarity 0: the tables do not tell absent trials, and no classifier gives exactly 0."""
    return sum(entry.value == 0 for each in letters.values() for entry in each.similarity or ())


def table_names(tables: Tables, scores: ModelScores) -> dict[str, str]:
    """Return the name in the tables of each team of result.json.

    The web page calls some teams otherwise; such a team is the one that has exactly its published digits, if only one
    has. A team that is in the tables under no name is left out.
    """
    names = {each.team: each.team for each in tables.published if each.team in tables.teams}
    for each in tables.published:
        same = [prompt.team for prompt in scores.prompts if _agrees(prompt, each) and prompt.team not in names.values()]
        if each.team not in names and len(same) == 1:
            names[each.team] = same[0]
    return names


def published_baselines(tables: Tables, scores: ModelScores) -> frozenset[str]:
    """Return the teams, as the tables name them, that the published ranking marks as baselines."""
    names = table_names(tables, scores)
    return frozenset(names[each.team] for each in tables.published if each.rank == UNRANKED and each.team in names)


def _agrees(prompt: PromptScore, published: PublishedRank) -> bool:
    normalised = _to_digits(prompt.normalised, published.normalised) == published.normalised
    return normalised and _to_digits(prompt.score, published.score) == published.score


def compare(tables: Tables, scores: ModelScores, computed: OfficialFiles, ranks: Sequence[ModelRank]) -> Reproduction:
    """Compare every published number with the computed one, in all its published digits."""
    comparison = Reproduction(tables.folder)
    _compare_csv(comparison, tables.folder / TRIAL_SCORES, computed.trial_scores, "trial score", 3)
    _compare_csv(comparison, tables.folder / CHARACTER_SCORES, computed.character_scores, "letter score", 2)
    _compare_csv(comparison, tables.folder / PROMPT_SCORES, computed.prompt_scores, "place", 1)
    _compare_constants(comparison, tables.folder / CONSTANTS, json.loads(computed.constants))
    _compare_published(comparison, tables.published, table_names(tables, scores), ranks)
    return comparison


def _compare_csv(comparison: Reproduction, path: Path, computed: str, kind: str, keys: int) -> None:
    """Compare line by line, by the first columns; an absent table is not compared."""
    if not path.exists():
        return
    header, *lines = list(csv.reader(io.StringIO(computed)))
    published = {tuple(row[name] for name in header[:keys]): row for _, row in _rows(path, tuple(header))}
    for line in lines:
        row = published.pop(tuple(line[:keys]), None)
        found = "no line" if row is None else ", ".join(row[name] for name in header[keys:])
        comparison.add(kind, " ".join(line[:keys]), found, ", ".join(line[keys:]))
    for left in published:
        comparison.add(kind, " ".join(left), "a line", "no line")


def _compare_constants(comparison: Reproduction, path: Path, computed: dict[str, Any]) -> None:
    published = _load(path)
    weights = published.get("weights") if isinstance(published, dict) else None
    if not isinstance(weights, list) or not all(isinstance(each, dict) for each in weights):
        _refuse(path, "has no list 'weights'")
    by_letter = {str(each.get("character")): each for each in weights}
    for each in computed["weights"]:
        found = by_letter.get(each["character"], {})
        comparison.add("weight", each["character"], _values(found, each), _values(each, each))
    comparison.add("sum", "of the scores", str(published.get("competitionScore")), computed["competitionScore"])


def _values(weight: dict[str, Any], keys: dict[str, Any]) -> str:
    return ", ".join(str(weight.get(key)) for key in keys)


def _compare_published(
    comparison: Reproduction, published: tuple[PublishedRank, ...], names: dict[str, str], ranks: Sequence[ModelRank]
) -> None:
    computed = {each.prompt.team: each for each in ranks}
    for each in published:
        if each.rank == DISQUALIFIED:
            continue
        place = computed.pop(names.get(each.team, each.team), None)
        found = f"rank {each.rank}, {plain(each.normalised)}, {plain(each.score)}"
        if place is None:
            comparison.add("place", each.team, found, "none")
            continue
        normalised, score = (
            _to_digits(place.prompt.normalised, each.normalised),
            _to_digits(place.prompt.score, each.score),
        )
        comparison.add("place", each.team, found, f"rank {place.rank}, {plain(normalised)}, {plain(score)}")
    if published:
        for team, place in computed.items():
            comparison.add("place", team, "none", f"rank {place.rank}")


def _to_digits(computed: Decimal, published: Decimal) -> Decimal:
    """Round to as many decimal places as are published."""
    return computed.quantize(published, rounding=ROUND_HALF_UP)


def _read_published(path: Path) -> tuple[PublishedRank, ...]:
    if not path.exists():
        return ()
    try:
        return _PUBLISHED.validate_python(_load(path))
    except ValidationError as error:
        raise refusal(path, error) from error


def _load(path: Path) -> Any:
    """Read JSON whose numbers stay as they are written."""
    try:
        return json.loads(_read_text(path), parse_float=str, parse_int=str, parse_constant=str)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ScoringError(f"{path}: not valid JSON ({error}). Take it from its source again.") from error


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place and the fields of each line of a CSV table that has at least some columns."""
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), strict=True)
    try:
        header = next(reader, [])
        if missing := [name for name in columns if name not in header]:
            _refuse(path, f"has no column {missing[0]!r}")
        for row in reader:
            place = f"{path}:{reader.line_num}"
            if len(row) != len(header):
                _refuse(place, f"has {len(row)} fields, not {len(header)}")
            yield place, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise ScoringError(
            f"{path}:{reader.line_num}: not valid CSV ({error}). Take it from its source again."
        ) from error


def _read_text(path: Path) -> str:
    try:
        return read_stage_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(path, f"is not UTF-8 text ({error.reason} at byte {error.start})")


def _trial(place: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        _refuse(place, f"trial {text[:50]!r} is no whole number")
    return int(text)


def _decimal(place: str, text: str) -> Decimal:
    try:
        return _plain_decimal(text)
    except ValueError as error:
        _refuse(place, str(error))


def _refuse(place: Path | str, what: str) -> NoReturn:
    raise ScoringError(f"{place}: {what}. Take the table from its source again.")
