"""The four result files of the official scoring script, byte for byte.

CSV fields that are strings are quoted and numbers are not, lines end in a line feed, and there is none after the last.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.files import write_text
from pcgeval.scoring.decimals import plain
from pcgeval.scoring.formulas import LetterWeight, ModelScores, PromptScore
from pcgeval.scoring.inputs import ScoringRules

CONSTANTS = "constants.json"
TRIAL_SCORES = "trial_scores.csv"
CHARACTER_SCORES = "character_scores.csv"
PROMPT_SCORES = "prompt_scores_ranks.csv"
UNRANKED = -1  # how the published tables of 2024 mark a baseline

_TRIAL_COLUMNS = (
    "teamName",
    "character",
    "trial",
    "trial_score",
    "stabilityScore",
    "similarityScore",
    "diversityScore",
)
_LETTER_COLUMNS = (
    "teamName",
    "character",
    "characterScore",
    "nonWeightedAverageStabilityScore",
    "nonWeightedAverageSimilarityScore",
    "diversityScore",
)
_PROMPT_COLUMNS = ("team", "normalizedPromptScore", "promptScore", "rank")


@dataclass(frozen=True)
class OfficialFiles:
    """The text of the four files of one model."""

    constants: str
    trial_scores: str
    character_scores: str
    prompt_scores: str

    def write(self, folder: Path) -> None:
        """Write the four files into a folder under their official names."""
        write_text(folder / CONSTANTS, self.constants)
        write_text(folder / TRIAL_SCORES, self.trial_scores)
        write_text(folder / CHARACTER_SCORES, self.character_scores)
        write_text(folder / PROMPT_SCORES, self.prompt_scores)


@dataclass(frozen=True)
class ModelRank:
    """A program's place with one model."""

    prompt: PromptScore
    rank: int


def official_files(scores: ModelScores, rules: ScoringRules, baselines: Collection[str] = ()) -> OfficialFiles:
    """Return the official files of one model; `baselines` are the teams that stand in them unranked (-1)."""
    return OfficialFiles(
        constants=_constants(scores),
        trial_scores=_csv(_TRIAL_COLUMNS, _trial_rows(scores)),
        character_scores=_csv(_LETTER_COLUMNS, _letter_rows(scores)),
        prompt_scores=_csv(_PROMPT_COLUMNS, _prompt_rows(model_ranks(scores, rules, baselines))),
    )


def model_ranks(scores: ModelScores, rules: ScoringRules, baselines: Collection[str] = ()) -> tuple[ModelRank, ...]:
    """Rank the programs of one model, the best first and equals in byte order of their names.

    By the rules equals share a rank (1, 2, 2, 4) and baselines have none; the official script counts 1, 2, 3, 4
    through all of them.
    """
    ordered = sorted(scores.prompts, key=lambda each: each.normalised, reverse=True)  # equals stay in byte order
    if rules.official_quirks:
        return tuple(ModelRank(each, place) for place, each in enumerate(ordered, start=1))
    ranked = [each.normalised for each in ordered if each.team not in baselines]
    return tuple(
        ModelRank(each, UNRANKED if each.team in baselines else 1 + ranked.index(each.normalised)) for each in ordered
    )


def _constants(scores: ModelScores) -> str:
    value = {"competitionScore": plain(scores.total), "weights": [_weight_object(each) for each in scores.weights]}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _weight_object(weight: LetterWeight) -> dict[str, str]:
    return {
        "character": weight.letter,
        "weight": plain(weight.weight),
        "weightStability": plain(weight.stability),
        "weightSimilarity": plain(weight.similarity),
        "weightDiversity": plain(weight.diversity),
    }


def _trial_rows(scores: ModelScores) -> Iterable[list[str | int]]:
    for prompt in scores.prompts:
        for letter in prompt.letters:
            for each in letter.trials:
                values = [each.score, each.stability, each.similarity, letter.diversity]
                yield [prompt.team, letter.letter, each.trial, *map(plain, values)]


def _letter_rows(scores: ModelScores) -> Iterable[list[str | int]]:
    for prompt in scores.prompts:
        for each in prompt.letters:
            values = [each.score, each.mean_stability, each.mean_similarity, each.diversity]
            yield [prompt.team, each.letter, *map(plain, values)]


def _prompt_rows(ranks: tuple[ModelRank, ...]) -> Iterable[list[str | int]]:
    for each in ranks:
        yield [each.prompt.team, plain(each.prompt.normalised), plain(each.prompt.score), each.rank]


def _csv(columns: Iterable[str], rows: Iterable[Iterable[str | int]]) -> str:
    return "\n".join(",".join(_field(value) for value in row) for row in (columns, *rows))


def _field(value: str | int) -> str:
    return str(value) if isinstance(value, int) else '"' + value.replace('"', '""') + '"'
