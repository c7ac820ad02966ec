"""The four result files of the official scoring script, byte for byte."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.files import write_text
from pcgeval.core.stage_files import ConstantsFile, LetterRow, PromptRow, TrialRow, csv_text
from pcgeval.scoring.formulas import ModelScores
from pcgeval.scoring.inputs import ScoringRules

CONSTANTS = "constants.json"
TRIAL_SCORES = "trial_scores.csv"
CHARACTER_SCORES = "character_scores.csv"
PROMPT_SCORES = "prompt_scores_ranks.csv"
OFFICIAL_NAMES = (CONSTANTS, TRIAL_SCORES, CHARACTER_SCORES, PROMPT_SCORES)
UNRANKED = -1  # how the published tables of 2024 mark a baseline


@dataclass(frozen=True)
class OfficialFiles:
    """The four official files of one model."""

    constants: ConstantsFile
    trials: tuple[TrialRow, ...]
    letters: tuple[LetterRow, ...]
    prompts: tuple[PromptRow, ...]

    def write(self, folder: Path) -> None:
        """Write the four files into a folder under their official names."""
        write_text(folder / CONSTANTS, self.constants.to_text())
        write_text(folder / TRIAL_SCORES, csv_text(TrialRow, self.trials))
        write_text(folder / CHARACTER_SCORES, csv_text(LetterRow, self.letters))
        write_text(folder / PROMPT_SCORES, csv_text(PromptRow, self.prompts))


def official_files(scores: ModelScores, rules: ScoringRules, baselines: Collection[str] = ()) -> OfficialFiles:
    """Return the official files of one model.

    Teams stand in byte order of their names, in the last file by their scores. By the rules, equal teams share a rank
    (1, 2, 2, 4) and baselines have the rank -1; the official script ranks all teams as 1, 2, 3, 4.
    """
    ordered = sorted(scores.prompts, key=lambda prompt: prompt.normalised, reverse=True)  # equals stay in byte order
    ranked = [prompt.normalised for prompt in ordered if prompt.team not in baselines]
    prompts = []
    for place, prompt in enumerate(ordered, start=1):
        rank = UNRANKED if prompt.team in baselines else 1 + ranked.index(prompt.normalised)
        rank = place if rules.official_quirks else rank
        prompts.append(PromptRow(team=prompt.team, normalised=prompt.normalised, score=prompt.score, rank=rank))
    return OfficialFiles(
        constants=ConstantsFile(total=scores.total, weights=scores.weights),
        trials=tuple(trial for prompt in scores.prompts for trial in prompt.trials),
        letters=tuple(letter for prompt in scores.prompts for letter in prompt.letters),
        prompts=tuple(prompts),
    )
