"""Pictures per CPU second through the embedded classifier and through its cache; the accuracies its card states."""

import json
import random
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image, ImageDraw

from pcgeval.core.layout import Trial, trial_file
from pcgeval.core.params import Similarity
from pcgeval.core.stage_files import succeeded, write_outcomes
from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.stage import classify_stage

CLASSIFIER = Path(__file__).parents[1] / "data" / "classifier"
SECOND_SET = Path(__file__).parents[1] / "training" / "second" / "metrics.json"  # the untouched test
TEAM = "bench"
TRIALS = [Trial(letter, number) for letter in "ABCD" for number in range(1, 17)]


def main() -> None:
    torch.set_num_threads(1)
    began = time.process_time()
    classifier = Classifier.load(CLASSIFIER, device="cpu")
    print(f"similarity.load {time.process_time() - began:.1f} cpu_s")
    images = [picture(seed) for seed in range(len(TRIALS))]
    began = time.process_time()
    classifier.predict(images)
    print(f"similarity.predict {len(images) / (time.process_time() - began):.0f} pictures/cpu_s")
    with tempfile.TemporaryDirectory() as folder:
        print_step(Path(folder), images)
    for name, value in json.loads((CLASSIFIER / "metrics.json").read_text("utf-8")).items():
        if name != "classifier_sha256":
            print(f"similarity.{name} {100 * value['accuracy']:.1f} % of {value['n']} pictures")
    for name, value in json.loads(SECOND_SET.read_text("utf-8"))["parts"].items():
        accuracy = f"{100 * value['accuracy']:.1f} ({100 * value['low']:.1f} to {100 * value['high']:.1f}) %"
        error = value["calibration"]["expected_calibration_error"]
        print(f"similarity.second_{name} {accuracy} of {value['n']} pictures, calibration error {error:.3f}")


def picture(seed: int) -> Image.Image:
    choice = random.Random(seed)  # noqa: S311 - a picture, no secret
    image = Image.new("L", (1024, 1024), 255)
    for _ in range(13):
        x, y = choice.randrange(100, 744), choice.randrange(100, 864)
        ImageDraw.Draw(image).rectangle((x, y, x + 180, y + 60), fill=0)
    return image


def print_step(root: Path, images: list[Image.Image]) -> None:
    for trial, image in zip(TRIALS, images, strict=True):
        path = trial_file(root / "images", "images", TEAM, trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    write_outcomes(root / "images", [succeeded(trial) for trial in TRIALS])
    for name in ("new", "cached"):
        began = time.process_time()
        settings = Similarity(model=str(CLASSIFIER))
        classify_stage(root / "images", root / "similarity", TEAM, TRIALS, settings, root / "cache")
        print(f"similarity.step_{name} {len(TRIALS) / (time.process_time() - began):.0f} pictures/cpu_s")


if __name__ == "__main__":
    main()
