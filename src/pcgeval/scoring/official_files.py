"""The four result files of the official scoring script, byte for byte."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.files import write_text
from pcgeval.core.stage_files import ConstantsFile, LetterRow, OfficialWeight, PromptRow, TrialRow, csv_text
from pcgeval.scoring.formulas import ModelScores, PromptScore
from pcgeval.scoring.inputs import ScoringRules

CONSTANTS = "constants.json"
TRIAL_SCORES = "trial_scores.csv"
CHARACTER_SCORES = "character_scores.csv"
PROMPT_SCORES = "prompt_scores_ranks.csv"
UNRANKED = -1  # how the published tables of 2024 mark a baseline


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
    """Return the official files of one model; `baselines` are the teams that are listed unranked (-1)."""
    weights = tuple(
        OfficialWeight(
            letter=each.letter,
            weight=each.weight,
            stability=each.stability,
            similarity=each.similarity,
            diversity=each.diversity,
        )
        for each in scores.weights
    )
    trial_rows = [
        TrialRow(
            team=prompt.team,
            letter=letter.letter,
            trial=each.trial,
            score=each.score,
            stability=each.stability,
            similarity=each.similarity,
            diversity=letter.diversity,
        )
        for prompt in scores.prompts
        for letter in prompt.letters
        for each in letter.trials
    ]
    letter_rows = [
        LetterRow(
            team=prompt.team,
            letter=each.letter,
            score=each.score,
            stability=each.mean_stability,
            similarity=each.mean_similarity,
            diversity=each.diversity,
        )
        for prompt in scores.prompts
        for each in prompt.letters
    ]
    prompt_rows = [
        PromptRow(team=each.prompt.team, normalised=each.prompt.normalised, score=each.prompt.score, rank=each.rank)
        for each in model_ranks(scores, rules, baselines)
    ]
    return OfficialFiles(
        constants=ConstantsFile(total=scores.total, weights=weights).to_text(),
        trial_scores=csv_text(TrialRow, trial_rows),
        character_scores=csv_text(LetterRow, letter_rows),
        prompt_scores=csv_text(PromptRow, prompt_rows),
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
