"""Stage `evaluate`: accuracy on held-out fonts, held-out block letters and, as a sanity check, on other levels.

The classifier is used exactly as the competition uses it: level-sized pictures through `pcgeval.similarity`.
"""

import gzip
import io
import json
import math
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean

import torch
from PIL import Image

from pcgeval.core.files import write_json
from pcgeval.evaluator.image import render
from pcgeval.evaluator.physics import simulate
from pcgeval.formats.params import PhysicsParams
from pcgeval.levels.conversion import level_xml
from pcgeval.similarity.classifier import Classifier
from settings import CLASSIFIER, DATA, HERE, LETTERS, METRICS, load_settings

OTHER_LEVELS = HERE.parent / "tests" / "golden" / "physics" / "physics.jsonl.gz"


@dataclass(frozen=True)
class Accuracy:
    """How many of n pictures were named right, with Wilson's 95 % interval of the share."""

    n: int
    right: int
    accuracy: float
    low: float
    high: float
    per_letter: dict[str, float]


Labelled = Iterator[tuple[str, Image.Image]]  # letters, and level-sized pictures that show them


def archived(path: Path) -> Labelled:
    """Yield the pictures of an archive `<letter>/<name>.png`."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name[0], Image.open(io.BytesIO(archive.read(name)))


def other_levels() -> Labelled:
    """Yield levels that another generator made of letters and gravity pulled down; most are past recognition."""
    with gzip.open(OTHER_LEVELS, "rt", encoding="utf-8", newline="\n") as lines:
        for level in map(json.loads, lines):
            if level["kind"] == "letter":
                calls = "\n".join(f"drop_block('{kind}', {column})" for kind, column in level["drops"])
                yield level["tag"], render(simulate(level_xml(calls), PhysicsParams(trials=1)))


def accuracy(classifier: Classifier, labelled: Labelled) -> Accuracy:
    """Classify pictures in batches and count."""
    right, total = dict.fromkeys(LETTERS, 0), dict.fromkeys(LETTERS, 0)
    while batch := list(islice(labelled, 64)):
        answers = classifier.predict([picture for _, picture in batch]).probabilities.argmax(1)
        for (letter, _), answer in zip(batch, answers, strict=True):
            total[letter] += 1
            right[letter] += LETTERS[answer] == letter
    return summary(right, total)


def summary(right: dict[str, int], total: dict[str, int]) -> Accuracy:
    """Turn counts per letter into shares; Wilson's interval with z = 1.96."""
    n, hits, z = sum(total.values()), sum(right.values()), 1.96
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    per_letter = {letter: round(right[letter] / total[letter], 3) for letter in LETTERS if total.get(letter)}
    return Accuracy(n, hits, round(share, 4), round(middle - half, 4), round(middle + half, 4), per_letter)


def together(parts: list[Accuracy]) -> Accuracy:
    """Return the accuracy over all pictures of several sets; per letter, the mean of the sets."""
    whole = summary({"A": sum(part.right for part in parts)}, {"A": sum(part.n for part in parts)})
    shares = {letter: [part.per_letter[letter] for part in parts if letter in part.per_letter] for letter in LETTERS}
    return replace(whole, per_letter={letter: round(fmean(values), 3) for letter, values in shares.items()})


def main() -> None:
    """Measure and write the metrics."""
    torch.set_num_threads(load_settings().train.threads)
    classifier = Classifier.load(CLASSIFIER, device="cpu")
    designs, levels = (accuracy(classifier, archived(DATA / f"held_out_{name}.zip")) for name in ("designs", "levels"))
    measured = {
        "held_out_fonts": accuracy(classifier, archived(DATA / "held_out_fonts.zip")),
        "held_out_block_letters": together([designs, levels]),
        "held_out_block_letters_as_designed": designs,
        "held_out_block_letters_simulated": levels,
        "other_collapsed_levels": accuracy(classifier, other_levels()),
    }
    figures = {name: asdict(value) for name, value in measured.items()}
    write_json(METRICS, {"classifier_sha256": classifier.sha256, **figures})
    for name, value in measured.items():
        print(f"{name}: {100 * value.accuracy:.1f} % of {value.n} ({100 * value.low:.1f} to {100 * value.high:.1f})")


if __name__ == "__main__":
    main()
