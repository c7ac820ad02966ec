"""Simulate what the cap that label smoothing puts on similarity does to a ranking.

    python saturation.py fit                     # on the first set's held-out fonts: probabilities, and temperatures
    pcgeval export official /tmp/official        # in an evaluated competition
    python saturation.py rank /tmp/official /tmp/other TEMPERATURE...

A temperature below 1 sharpens the softmax (p ** (1 / T), normalised), so that right answers reach nearly 1; above 1 it
flattens. It changes no order of letters, so this shows the cap's effect only, not that of another classifier's answers.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from evaluate import archived
from pcgeval import diversity
from pcgeval.core.files import write_json
from pcgeval.scoring.inputs import ScoringRules
from pcgeval.scoring.rescore import Rescored, rescore
from pcgeval.similarity.classifier import Classifier
from second_evaluate import quantiles
from settings import DATA, HERE, INSTALLED, LETTERS

Floats = npt.NDArray[np.float64]
TEMPERATURES = np.round(np.arange(0.3, 2.501, 0.01), 2)
SATURATED = 0.999  # median probability of right answers of a classifier without the cap
OFFICIAL_HIGHEST = 0.846  # the highest of the 2 600 similarities published with the 2024 final


def tempered(probabilities: Floats, temperature: float) -> Floats:
    """Return softmax(log p / temperature) of probabilities (n, 26)."""
    logits = np.log(np.maximum(probabilities, 1e-9)) / temperature
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def first_held_out() -> Iterator[tuple[Floats, Floats]]:
    """Yield probabilities and indices of the letters of the first set's held-out fonts, in batches."""
    classifier = Classifier.load(INSTALLED, device="cpu")
    labelled = archived(DATA / "held_out_fonts.zip")
    while batch := list(islice(labelled, 64)):
        yield (
            classifier.predict([each.picture for each in batch]).probabilities,
            np.array([LETTERS.index(each.letter) for each in batch]),
        )


def fit() -> None:
    """Print the probabilities of right answers, and the temperatures that calibrate, saturate and flatten them."""
    probabilities, letters = (np.concatenate(parts) for parts in zip(*first_held_out(), strict=True))
    rows = np.arange(len(letters))
    right = probabilities.argmax(1) == letters

    def of_letter(temperature: float) -> Floats:
        return tempered(probabilities, temperature)[rows, letters]

    losses = [-np.log(np.maximum(of_letter(each), 1e-12)).mean() for each in TEMPERATURES]
    medians = np.array([np.median(of_letter(each)[right]) for each in TEMPERATURES])
    highest = np.array([of_letter(each).max() for each in TEMPERATURES])
    chosen = {
        "as it is": 1.0,
        "calibrated": float(TEMPERATURES[np.argmin(losses)]),
        "saturated": float(TEMPERATURES[medians >= SATURATED].max()),
        "as flat as the official one": float(TEMPERATURES[highest >= OFFICIAL_HIGHEST].max()),
    }
    for name, temperature in chosen.items():
        print(name, temperature, json.dumps(quantiles(of_letter(temperature)[right])))


def rewrite(source: Path, out: Path, temperature: float, trials: int) -> None:
    """Copy one model's official files with tempered similarities and the diversities that follow from them."""
    shutil.copytree(source, out)
    for path in sorted(out.glob("*/similarity/?.json")):
        content = json.loads(path.read_text("utf-8"))
        probabilities = {}
        for each in content["similarities"]:
            given = np.array([[raw["softmax_prob"] for raw in each["raws"]]])
            probabilities[each["id"]] = tempered(given, temperature)[0]
        for each in content["trials"]:
            each["similarity"] = float(probabilities[each["id"]][LETTERS.index(each["label"])])
        write_json(path, content)
        where = path.parent.parent / "diversity" / path.name
        measured = json.loads(where.read_text("utf-8"))
        measured["diversityRate"] = diversity(list(probabilities.values()), trials) if probabilities else 0.0
        write_json(where, measured)


def ranking(folder: Path, out: Path, rules: ScoringRules, baselines: list[str]) -> Rescored:
    """Score the models below a folder."""
    return rescore(sorted(path for path in folder.iterdir() if path.is_dir()), out, rules, baselines=baselines)


def compare(source: Path, out: Path, temperatures: list[float]) -> None:
    """Print each team's normalised total and the mean letter weight of each model, by temperature."""
    params = yaml.safe_load((HERE.parent / "params.yaml").read_text("utf-8"))
    rules = ScoringRules(params["competition"]["characters"], params["competition"]["trials"])
    for temperature in [1.0, *temperatures]:
        folder = out / f"{temperature}"
        for model in sorted(path for path in source.iterdir() if path.is_dir()):
            rewrite(model, folder / "official" / model.name, temperature, rules.trials)
        scored = ranking(folder / "official", folder / "scores", rules, [params["scoring"]["baseline"]])
        totals = {total.team: round(float(total.normalised), 2) for total in scored.scores.totals}
        weights = [float(weight.weight) for model in scored.scores.models for weight in model.weights]
        print(f"T={temperature}", json.dumps(totals), "mean letter weight", round(float(np.mean(weights)), 4))


def main() -> None:
    """Do one of the two steps."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    steps = arguments.add_subparsers(dest="step", required=True)
    steps.add_parser("fit")
    ranked = steps.add_parser("rank")
    ranked.add_argument("official", type=Path)
    ranked.add_argument("out", type=Path)
    ranked.add_argument("temperatures", type=float, nargs="+")
    given = arguments.parse_args()
    if given.step == "fit":
        fit()
    else:
        compare(given.official, given.out, given.temperatures)


if __name__ == "__main__":
    main()
