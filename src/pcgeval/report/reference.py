"""Measure hand-made letters like the levels of a team: the reference beside the ranking."""

from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.layout import EXAMPLE_LETTERS
from pcgeval.core.params import Params
from pcgeval.core.untrusted import read_bounded_text
from pcgeval.evaluator.level_score import LevelScore, score_level
from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.source import resolve_source

MAX_BYTES = 100_000  # of a letter


def reference_levels(params: Params, root: Path) -> dict[str, LevelScore]:
    """Simulate and classify the hand-made letters in `data/examples/letters`, if there are any, as the stages do."""
    letters = [root / EXAMPLE_LETTERS / f"{letter}.txt" for letter in params.competition.characters]
    paths = [path for path in letters if path.is_file()]
    if not paths:
        return {}
    settings = params.similarity
    folder = resolve_source(settings.model, settings.revision, root).folder
    classifier = Classifier.load(folder, device=settings.device, precision=settings.precision)
    levels = {}
    for path in paths:
        level = score_level(read_bounded_text(path, MAX_BYTES), path.stem, classifier, params.physics)
        if level.simulated is None:
            raise FileError(f"{path}: is not a level: {level.reason}. Correct it, or remove it.")
        levels[level.letter] = level
    return levels
