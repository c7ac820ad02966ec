"""Measure a classifier on the second test set, whose pictures must be those that were frozen (second/RULES.md).

    python second_evaluate.py                                                # data/classifier -> second/metrics.json
    python second_evaluate.py --out FILE --classifier pittawat/vit-base-uppercase-english-characters --revision COMMIT

With another classifier, how far its answers agree with data/classifier on the same pictures is measured too. Every
picture goes through `pcgeval.similarity` as in the competition.
"""

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluate import summary
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import write_json
from pcgeval.similarity.classifier import Classifier
from second_set import SECOND, check_frozen, second_set
from settings import INSTALLED, LETTERS

BINS = 10  # of equal width, of the highest probability
BATCH = 64
GROUPS = {  # parts that are also reported together
    "fonts": "fonts_",
    "block_letters": ("layouts_", "terminal_", "hershey_"),
    "block_letters_as_designed": ("layouts_as", "terminal_as", "hershey_as"),
    "block_letters_simulated": ("layouts_sim", "terminal_sim", "hershey_sim"),
}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """The set's parts and letters, and a classifier's probabilities (n, 26)."""

    parts: list[str]
    letters: list[str]
    probabilities: Floats

    def of(self, names: str | tuple[str, ...], *, named: bool = True) -> "Answers":
        """Take the parts with names that start so, and of them the pictures that show a letter, or those without."""
        numbered = enumerate(zip(self.parts, self.letters, strict=True))
        chosen = [number for number, (part, shown) in numbered if part.startswith(names) and bool(shown) == named]
        parts, letters = ([values[number] for number in chosen] for values in (self.parts, self.letters))
        return Answers(parts, letters, self.probabilities[chosen])

    def right(self) -> npt.NDArray[np.bool_]:
        """Tell for each picture whether the likeliest letter is one that it shows."""
        likeliest = self.probabilities.argmax(1).tolist()
        return np.array([LETTERS[top] in letters for top, letters in zip(likeliest, self.letters, strict=True)])

    def of_letter(self) -> Floats:
        """Return the probability of the letter shown, the likelier one of several."""
        rows = zip(self.probabilities, self.letters, strict=True)
        return np.array([max(row[LETTERS.index(letter)] for letter in letters) for row, letters in rows])


def answers(classifier: Classifier) -> Answers:
    """Classify the whole set."""
    parts, letters, probabilities, pictures = [], [], [], second_set()
    while batch := list(islice(pictures, BATCH)):
        parts += [part for part, _, _ in batch]
        letters += [shown for _, shown, _ in batch]
        probabilities.append(classifier.predict([picture for _, _, picture in batch]).probabilities)
    return Answers(parts, letters, np.concatenate(probabilities))


def calibration(found: Answers) -> dict[str, Any]:
    """Return the expected calibration error and, per bin of the highest probability, n, its mean, the share right."""
    top, right = found.probabilities.max(1), found.right()
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    table = [
        {
            "from": number / BINS,
            "n": int((bins == number).sum()),
            "probability": round(float(top[bins == number].mean()), 4),
            "right": round(float(right[bins == number].mean()), 4),
        }
        for number in range(BINS)
        if (bins == number).any()
    ]
    error = sum(row["n"] * abs(row["probability"] - row["right"]) for row in table) / len(top)
    return {"expected_calibration_error": round(error, 4), "bins": table}


def measured(found: Answers) -> dict[str, Any]:
    """Return accuracy, calibration, confusions and how probable the right letter was."""
    named = list(zip(found.letters, found.probabilities.argmax(1), found.right(), strict=True))
    total = Counter(letters[0] for letters, _, _ in named)
    right = Counter(letters[0] for letters, _, hit in named if hit)
    confused = Counter(f"{letters} as {LETTERS[top]}" for letters, top, hit in named if not hit)
    commonest = sorted(confused.items(), key=lambda item: (-item[1], item[0]))[:12]
    return asdict(summary({letter: right[letter] for letter in total}, dict(total))) | {
        "calibration": calibration(found),
        "confusions": [f"{pair}: {number}" for pair, number in commonest],
        "similarity_where_right": quantiles(found.of_letter()[found.right()]),
    }


def quantiles(values: Floats) -> dict[str, float]:
    """Return the spread of probabilities."""
    shares = {"p05": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "highest": 1.0}
    return {name: round(float(np.quantile(values, share)), 4) for name, share in shares.items()}


def letterless(found: Answers) -> dict[str, Any]:
    """Return how sure the classifier is of pictures in which the judge saw no letter."""
    top = found.probabilities.max(1)
    return {
        "n": len(top),
        "highest_probability": quantiles(top),
        "share_above": {str(limit): round(float((top > limit).mean()), 4) for limit in (0.5, 0.8, 0.9)},
        "named": dict(Counter(LETTERS[number] for number in found.probabilities.argmax(1)).most_common(8)),
    }


def ranks(values: Floats) -> Floats:
    """Return ranks; equal values share their mean rank."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[where]


def agreement(first: Answers, second: Answers) -> dict[str, dict[str, float]]:
    """Return, by group, how often two classifiers name the same letter and Spearman's correlation of similarities."""
    found = {}
    for group, names in {**GROUPS, "real": "real"}.items():
        one, other = first.of(names), second.of(names)
        similar = np.corrcoef(ranks(one.of_letter()), ranks(other.of_letter()))[0, 1]
        same = (one.probabilities.argmax(1) == other.probabilities.argmax(1)).mean()
        found[group] = {"same_letter": round(float(same), 4), "spearman": round(float(similar), 4)}
    return found


def main() -> None:
    """Check the hashes, classify, write."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    arguments.add_argument("--classifier", default=str(INSTALLED), help="a folder or a hub id")
    arguments.add_argument("--revision", help="the commit that pins a hub id")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--out", type=Path, default=SECOND / "metrics.json")
    given = arguments.parse_args()
    check_frozen()
    classifier = Classifier.load(given.classifier, given.revision, given.device)
    found = answers(classifier)
    groups = {**GROUPS, **{part: part for part in found.parts}}
    is_ours = given.classifier == str(INSTALLED)
    written = {
        "classifier": "data/classifier" if is_ours else classifier.name,
        "classifier_sha256": classifier.sha256,
        "parts": {group: measured(found.of(names)) for group, names in groups.items()},
        "real_without_letter": letterless(found.of("real", named=False)),
    }
    if not is_ours:
        written["agreement"] = agreement(answers(Classifier.load(INSTALLED, device=given.device)), found)
    write_json(given.out, written)
    for part, value in written["parts"].items():
        error = value["calibration"]["expected_calibration_error"]
        interval = f"{100 * value['low']:.1f} to {100 * value['high']:.1f}"
        print(f"{part}: {100 * value['accuracy']:.1f} % of {value['n']} ({interval}), calibration error {error}")
    print(json.dumps(written.get("agreement", written["real_without_letter"])))


if __name__ == "__main__":
    try:
        main()
    except PcgevalError as error:
        sys.exit(f"{error}")
