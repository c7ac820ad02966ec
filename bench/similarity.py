"""Pictures per CPU second through the embedded classifier, its cache, and a ViT-B/16.

The ViT-B/16 has the shape of the competition's classifier and random weights. Its peer is a loop as in the official
script: one picture after the other, in single precision.
"""

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

from pcgeval.evaluator.image import png_bytes
from pcgeval.formats.layout import LETTERS, stage_dir, trial_file
from pcgeval.formats.params import ANY_CLASSIFIER, parse_params
from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.source import Precision
from pcgeval.similarity.stage import classify_stage

PRECISIONS: tuple[Precision, ...] = ("float64", "float32", "bfloat16")
LARGE_PICTURES = 16
CLASSIFIER = Path(__file__).parents[1] / "data" / "classifier"
PARAMS = parse_params(
    {
        "competition": {"name": "bench", "edition": "1", "characters": "ABCD", "trials": 16, "seed": 1},
        "teams": {"bench": {}},
        "models": {"m": {"backend": "recorded", "name": "m"}},
        "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
        **{section: {} for section in ("physics", "diversity", "scoring", "rubric")},
        "similarity": {"model": str(CLASSIFIER)},
    },
    "bench",
    context=ANY_CLASSIFIER,
)


def main() -> None:
    torch.set_num_threads(1)
    began = time.process_time()
    classifier = Classifier.load(CLASSIFIER, device="cpu")
    print(f"similarity.load {time.process_time() - began:.1f} cpu_s")
    images = [picture(seed) for seed, _ in enumerate(PARAMS.trials())]
    began = time.process_time()
    classifier.predict(images)
    print(f"similarity.predict {len(images) / (time.process_time() - began):.0f} pictures/cpu_s")
    with tempfile.TemporaryDirectory() as folder:
        print_stage(Path(folder), images)
    print_precisions(images)
    with tempfile.TemporaryDirectory() as folder:
        print_large(Path(folder), images[:LARGE_PICTURES])
        if torch.cuda.is_available():
            print_gpu(Path(folder), images)


def print_precisions(images: list[Image.Image]) -> None:
    exact = Classifier.load(CLASSIFIER, device="cpu").predict(images)
    for precision in ("float32", "bfloat16"):
        other = Classifier.load(CLASSIFIER, device="cpu", precision=precision).predict(images)
        for name, one, two in (
            ("probability", exact.probabilities, other.probabilities),
            ("embedding", exact.embeddings, other.embeddings),
        ):
            print(f"similarity.{precision} {np.abs(one - two).max():.1e} largest difference of a {name} to float64")


def print_large(folder: Path, images: list[Image.Image]) -> None:
    labels = dict(enumerate(LETTERS))
    torch.manual_seed(0)
    config = ViTConfig(id2label=labels, label2id={label: index for index, label in labels.items()})
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor().save_pretrained(folder)
    processor = AutoImageProcessor.from_pretrained(folder)
    network = AutoModelForImageClassification.from_pretrained(folder).eval()

    def official() -> None:
        for image in images:
            with torch.no_grad():
                answer = network(**processor(images=image.convert("RGB"), return_tensors="pt"))
            torch.softmax(answer.logits, dim=-1)

    loop = cpu_seconds(official) / len(images)
    print(f"similarity.vit_b16_loop {1 / loop:.2f} pictures/cpu_s")
    for precision in PRECISIONS:
        print_speed(Classifier.load(folder, device="cpu", precision=precision), precision, images, loop)


def print_speed(classifier: Classifier, precision: str, images: list[Image.Image], loop: float) -> None:
    batches = [images[start : start + 8] for start in range(0, len(images), 8)]
    pixels = [classifier._network.pixels(batch) for batch in batches]  # noqa: SLF001 - the forward pass alone
    whole = cpu_seconds(lambda: [classifier.predict(batch) for batch in batches]) / len(images)
    forward = cpu_seconds(lambda: [classifier._network(pixel) for pixel in pixels]) / len(images)  # noqa: SLF001
    print(
        f"similarity.vit_b16_{precision} {1 / whole:.2f} pictures/cpu_s, {loop / whole:.2f} times the loop, "
        f"{whole / forward:.2f} times the forward pass alone"
    )


def print_gpu(folder: Path, images: list[Image.Image]) -> None:
    """Print the speed of the ViT-B/16 on a GPU, and how far its results are from those of the processor."""
    exact = Classifier.load(folder, device="cpu").predict(images[:LARGE_PICTURES])
    for precision in PRECISIONS:
        classifier = Classifier.load(folder, device="cuda", precision=precision)
        same = classifier.predict(images[:LARGE_PICTURES])
        began = time.perf_counter()
        classifier.predict(images)
        speed = len(images) / (time.perf_counter() - began)
        differences = (
            np.abs(getattr(exact, name) - getattr(same, name)).max() for name in ("probabilities", "embeddings")
        )
        largest = " and ".join(f"{difference:.1e}" for difference in differences)
        print(
            f"similarity.vit_b16_gpu_{precision} {speed:.0f} pictures/s on {torch.cuda.get_device_name()}, {largest} "
            "largest differences of a probability and an embedding to the processor's float64"
        )


def cpu_seconds(work: Callable[[], object]) -> float:
    work()
    began = time.process_time()
    work()
    return time.process_time() - began


def picture(seed: int) -> Image.Image:
    choice = random.Random(seed)  # noqa: S311 - a picture, no secret
    image = Image.new("L", (1024, 1024), 255)
    for _ in range(13):
        x, y = choice.randrange(100, 744), choice.randrange(100, 864)
        ImageDraw.Draw(image).rectangle((x, y, x + 180, y + 60), fill=0)
    return image


def print_stage(root: Path, images: list[Image.Image]) -> None:
    for trial, image in zip(PARAMS.trials(), images, strict=True):
        path = trial_file(root / stage_dir("images", "m", "bench"), "images", "bench", trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_bytes(image))
    for name in ("new", "cached"):
        began = time.process_time()
        classify_stage(PARAMS, root)
        print(f"similarity.stage_{name} {len(images) / (time.process_time() - began):.0f} pictures/cpu_s")


if __name__ == "__main__":
    main()
