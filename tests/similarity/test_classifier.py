"""The classifier: loading, refusing what is none, and results that do not depend on batch or threads."""

import json
import shutil
import string
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.source import ClassifierError, check_source

EMBEDDED = Path(__file__).parents[2] / "data" / "classifier"
LETTERS = string.ascii_uppercase


def save_random(folder: Path, labels: str = LETTERS, width: int = 24, seed: int = 0) -> Path:
    """Save an untrained vision transformer whose outputs stand for `labels` in that order."""
    torch.manual_seed(seed)
    names = dict(enumerate(labels))
    config = ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * width,
        id2label=names,
        label2id={label: column for column, label in names.items()},
    )
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def pictures(count: int) -> list[Image.Image]:
    """Draw different black-and-white pictures."""
    made = []
    for index in range(count):
        image = Image.new("1", (1024, 1024), 1)
        draw = ImageDraw.Draw(image)
        for block in range(5 + index):
            left, top = 100 + 37 * block, 100 + (53 * block * (index + 1)) % 700
            draw.rectangle((left, top, left + 90, top + 60), fill=0)
        made.append(image)
    return made


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random(tmp_path_factory.mktemp("untrained"))


def test_shapes_and_rounding(untrained: Path):
    found = Classifier.load(untrained, device="cpu").predict(pictures(3))
    assert found.probabilities.shape == (3, 26)
    assert found.embeddings.shape == (3, 24)
    assert np.allclose(found.probabilities.sum(axis=1), 1, atol=26e-7)
    assert np.array_equal(found.probabilities, np.round(found.probabilities, 7))
    assert np.array_equal(found.embeddings, np.round(found.embeddings, 5))


def test_no_pictures_give_empty_results(untrained: Path):
    found = Classifier.load(untrained, device="cpu").predict([])
    assert (found.probabilities.shape, found.embeddings.shape) == ((0, 26), (0, 24))


def test_columns_follow_the_labels_whatever_their_order(untrained: Path, tmp_path: Path):
    straight = Classifier.load(untrained, device="cpu").predict(pictures(2)).probabilities
    turned = save_random(tmp_path, labels=LETTERS[::-1])
    assert np.array_equal(Classifier.load(turned, device="cpu").predict(pictures(2)).probabilities, straight[:, ::-1])


def test_probabilities_are_the_softmax_of_the_model(untrained: Path):
    image = pictures(1)[0]
    model = ViTForImageClassification.from_pretrained(untrained, dtype=torch.float64).eval()
    processor = ViTImageProcessor.from_pretrained(untrained)
    pixels = torch.tensor(np.asarray(processor(images=image.convert("RGB"), return_tensors="np")["pixel_values"]))
    with torch.no_grad():
        output = model(pixels.double(), output_hidden_states=True)
    found = Classifier.load(untrained, device="cpu").predict([image])
    assert np.allclose(found.probabilities, torch.softmax(output.logits, -1).numpy(), atol=1e-7)
    assert np.allclose(found.embeddings, output.hidden_states[-1][:, 0].numpy(), atol=1e-5)


@pytest.mark.parametrize("source", ["untrained", "embedded"])
def test_batch_size_and_threads_change_no_byte(untrained: Path, source: str):
    classifier = Classifier.load(untrained if source == "untrained" else EMBEDDED, device="cpu")
    images = pictures(7)
    threads = torch.get_num_threads()
    try:
        seen = set()
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            whole = classifier.predict(images)
            single = [classifier.predict([image]) for image in images]
            seen.add(whole.probabilities.tobytes() + whole.embeddings.tobytes())
            seen.add(
                b"".join(each.probabilities.tobytes() for each in single)
                + b"".join(each.embeddings.tobytes() for each in single)
            )
    finally:
        torch.set_num_threads(threads)
    assert len(seen) == 1


def test_the_hash_is_of_the_bytes_and_not_of_the_place(untrained: Path, tmp_path: Path):
    copy = shutil.copytree(untrained, tmp_path / "elsewhere")
    assert Classifier.load(copy, device="cpu").sha256 == Classifier.load(untrained, device="cpu").sha256
    assert (
        Classifier.load(save_random(tmp_path / "other", seed=1), device="cpu").sha256
        != Classifier.load(untrained).sha256
    )


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "preprocessor_config.json"])
def test_a_missing_file_is_named(untrained: Path, tmp_path: Path, missing: str):
    copy = shutil.copytree(untrained, tmp_path / "copy")
    (copy / missing).unlink()
    with pytest.raises(ClassifierError, match=missing):
        Classifier.load(copy)


def test_other_labels_are_refused(tmp_path: Path):
    with pytest.raises(ClassifierError, match="25 different labels"):
        Classifier.load(save_random(tmp_path / "few", labels=LETTERS[:25]))
    with pytest.raises(ClassifierError, match="not the letters A to Z"):
        Classifier.load(save_random(tmp_path / "small", labels=LETTERS.lower()))


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"{}", (2**60).to_bytes(8, "little") + b"{}"])
def test_broken_weights_are_refused(untrained: Path, tmp_path: Path, content: bytes):
    copy = shutil.copytree(untrained, tmp_path / "copy")
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(ClassifierError, match=r"cannot|can load"):
        Classifier.load(copy)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"id2label": 5}', json.dumps({"id2label": {"0": "A"}})])
def test_a_broken_configuration_is_refused(untrained: Path, tmp_path: Path, content: str):
    copy = shutil.copytree(untrained, tmp_path / "copy")
    (copy / "config.json").write_text(content)
    with pytest.raises(ClassifierError, match=r"config\.json"):
        Classifier.load(copy)


@pytest.mark.parametrize("revision", [None, "main", "v1.0", "a" * 39])
def test_a_hub_id_needs_the_commit_that_pins_it(revision: str | None):
    with pytest.raises(ClassifierError, match="does not pin"):
        Classifier.load("pittawat/vit-base-uppercase-english-characters", revision)


def test_a_pinned_hub_id_passes_the_check_before_the_run():
    check_source("pittawat/vit-base-uppercase-english-characters", "a" * 40)
