"""The classifier against transformers used by hand, its refusals, and its bytes under other threads and batches."""

import json
import random
import shutil
import string
from pathlib import Path

import numpy as np
import pytest
from classifiers_for_tests import save_vit
from PIL import Image, ImageDraw

from pcgeval import Classifier
from pcgeval.similarity.preprocessing import Preprocessing
from pcgeval.similarity.source import ClassifierError

EMBEDDED = Path(__file__).parents[2] / "data" / "classifier"
STROKES = {  # letters that a person draws with a few strokes, in eighths from the top left
    "L": [(1, 0, 1, 8), (1, 8, 6, 8)],
    "T": [(0, 0, 8, 0), (4, 0, 4, 8)],
    "H": [(1, 0, 1, 8), (7, 0, 7, 8), (1, 4, 7, 4)],
    "E": [(1, 0, 1, 8), (1, 0, 6, 0), (1, 4, 6, 4), (1, 8, 6, 8)],
    "X": [(0, 0, 8, 8), (0, 8, 8, 0)],
    "Z": [(0, 0, 8, 0), (8, 0, 0, 8), (0, 8, 8, 8)],
    "N": [(0, 8, 0, 0), (0, 0, 8, 8), (8, 8, 8, 0)],
    "V": [(0, 0, 4, 8), (4, 8, 8, 0)],
}


def picture(seed: int) -> Image.Image:
    """Black boxes on white, as a level looks."""
    choice = random.Random(seed)
    image = Image.new("1", (1024, 1024), 1)
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y = choice.randrange(100, 800), choice.randrange(100, 800)
        draw.rectangle((x, y, x + choice.choice([60, 180]), y + 60), fill=0)
    return image


def letter(strokes: list[tuple[int, int, int, int]]) -> Image.Image:
    image = Image.new("L", (1024, 1024), 255)
    for stroke in strokes:
        points = [tuple(150 + 90 * value for value in stroke[i : i + 2]) for i in (0, 2)]
        ImageDraw.Draw(image).line(points, fill=0, width=100)
        for x, y in points:
            ImageDraw.Draw(image).rectangle((x - 50, y - 50, x + 50, y + 50), fill=0)
    return image


@pytest.fixture(params=["numpy", "torch"])
def network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either of the two that compute a small ViT in double precision; a large one only torch does."""
    if request.param == "torch":
        monkeypatch.setattr("pcgeval.similarity.numpy_vit.MAX_BYTES", 0)
    return str(request.param)


@pytest.mark.usefixtures("network")
def test_agrees_with_transformers_by_hand(tiny_classifier: Path) -> None:
    import torch
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    images = [picture(seed).convert("RGB") for seed in range(3)]
    processor = AutoImageProcessor.from_pretrained(tiny_classifier)
    model = AutoModelForImageClassification.from_pretrained(tiny_classifier, dtype=torch.float64).eval()
    found = Classifier.load(tiny_classifier).predict(images)
    for row, image in enumerate(images):
        values = processor(images=image, return_tensors="pt")["pixel_values"].double()
        with torch.no_grad():
            output = model(values, output_hidden_states=True)
        assert np.allclose(found.probabilities[row], torch.softmax(output.logits, -1)[0], atol=1e-7)
        assert np.allclose(found.embeddings[row], output.hidden_states[-1][0, 0], atol=1e-5)
    assert np.allclose(found.probabilities.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["tiny", "embedded"])
def test_numpy_and_torch_give_the_same_bytes(
    folder: Path | None, tiny_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [picture(seed) for seed in range(6)] + [letter(strokes) for strokes in STROKES.values()]
    small = Classifier.load(folder or tiny_classifier).predict(images)
    monkeypatch.setattr("pcgeval.similarity.numpy_vit.MAX_BYTES", 0)
    large = Classifier.load(folder or tiny_classifier).predict(images)
    assert np.array_equal(small.probabilities, large.probabilities)
    assert np.array_equal(small.embeddings, large.embeddings)


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "P", "RGBA", "LA"])
@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["ViT", "DeiT"])
def test_pictures_are_prepared_as_transformers_does(folder: Path | None, tiny_classifier: Path, mode: str) -> None:
    from transformers import AutoImageProcessor

    noise = np.random.default_rng(1).integers(0, 256, (90, 110, 4), dtype=np.uint8)
    images = [Image.fromarray(noise).convert(mode), picture(1).convert(mode)]
    processor = AutoImageProcessor.from_pretrained(folder or tiny_classifier, backend="pil")
    settings = Preprocessing.of_folder(folder or tiny_classifier)
    expected = processor(images=[image.convert("RGB") for image in images], return_tensors="np")["pixel_values"]
    assert settings is not None
    assert np.array_equal(settings.pixels(images), expected)


@pytest.mark.parametrize(
    "change",
    [
        {"do_resize": False},
        {"size": {"shortest_edge": 48}},
        {"image_processor_type": "BeitImageProcessor"},
        {"resample": 9},
    ],
)
def test_other_ways_to_prepare_pictures_are_left_to_transformers(
    change: dict[str, object], tiny_classifier: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(tiny_classifier, tmp_path / "copy")
    values = json.loads((copy / "preprocessor_config.json").read_text("utf-8"))
    (copy / "preprocessor_config.json").write_text(json.dumps({**values, **change}), "utf-8")
    assert Preprocessing.of_folder(copy) is None


def test_single_precision_is_close(tiny_classifier: Path) -> None:
    images = [picture(seed) for seed in range(4)]
    exact = Classifier.load(tiny_classifier).predict(images)
    single = Classifier.load(tiny_classifier, precision="float32").predict(images)
    assert np.abs(exact.probabilities - single.probabilities).max() < 1e-5
    assert np.abs(exact.embeddings - single.embeddings).max() < 1e-3


@pytest.mark.usefixtures("network")
def test_batches_come_in_order(tiny_classifier: Path) -> None:
    classifier = Classifier.load(tiny_classifier)
    images = [picture(seed) for seed in range(11)]
    batches = [images[start : start + 2] for start in range(0, 11, 2)]
    parts = list(classifier.predict_batches(batches, lambda batch: batch))
    assert [len(part.probabilities) for part in parts] == [2, 2, 2, 2, 2, 1]
    expected = classifier.predict(images)
    assert np.array_equal(np.concatenate([part.embeddings for part in parts]), expected.embeddings)


def test_labels_may_stand_in_any_order(tiny_classifier: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    order = list(range(26))
    random.Random(1).shuffle(order)
    shuffled = shutil.copytree(tiny_classifier, tmp_path / "shuffled")
    weights = load_file(shuffled / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name][order].clone()
    save_file(weights, shuffled / "model.safetensors", {"format": "pt"})
    config = json.loads((shuffled / "config.json").read_text("utf-8"))
    config["id2label"] = {str(column): string.ascii_uppercase[index] for column, index in enumerate(order)}
    config["label2id"] = {label: int(column) for column, label in config["id2label"].items()}
    (shuffled / "config.json").write_text(json.dumps(config), "utf-8")
    images = [picture(seed) for seed in range(4)]
    plain, other = Classifier.load(tiny_classifier).predict(images), Classifier.load(shuffled).predict(images)
    assert np.array_equal(plain.probabilities, other.probabilities)
    assert np.array_equal(plain.embeddings, other.embeddings)


def test_a_wide_vit_gives_wide_embeddings(tmp_path: Path) -> None:
    found = Classifier.load(save_vit(tmp_path, string.ascii_uppercase[::-1], width=768)).predict([picture(1)])
    assert found.embeddings.shape == (1, 768)
    assert found.probabilities.dtype == found.embeddings.dtype == np.float64


def test_no_pictures(tiny_classifier: Path) -> None:
    found = Classifier.load(tiny_classifier).predict([])
    assert found.probabilities.shape == (0, 26)
    assert found.embeddings.shape == (0, 24)


@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["tiny", "embedded"])
@pytest.mark.usefixtures("network")
def test_same_bytes_for_other_batches_and_threads(folder: Path | None, tiny_classifier: Path) -> None:
    import torch

    classifier = Classifier.load(folder or tiny_classifier)
    images = [picture(seed) for seed in range(8)]
    threads = torch.get_num_threads()
    results = []
    try:
        for count, batch in ((1, 8), (1, 1), (2, 3), (4, 5)):
            torch.set_num_threads(count)
            parts = [classifier.predict(images[i : i + batch]) for i in range(0, len(images), batch)]
            results.append(b"".join(part.probabilities.tobytes() for part in parts))
            results.append(b"".join(part.embeddings.tobytes() for part in parts))
    finally:
        torch.set_num_threads(threads)
    assert len(set(results[::2])) == len(set(results[1::2])) == 1


def test_the_hash_names_the_bytes_and_not_the_place(tiny_classifier: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_classifier, tmp_path / "copy")
    (copy / "README.md").write_text("a model card", "utf-8")
    assert Classifier.load(copy).sha256 == Classifier.load(tiny_classifier).sha256
    for name in ("config.json", "preprocessor_config.json"):
        changed = shutil.copytree(tiny_classifier, tmp_path / f"changed-{name}")
        (changed / name).write_bytes((changed / name).read_bytes() + b"\n")
        assert Classifier.load(changed).sha256 != Classifier.load(tiny_classifier).sha256


@pytest.mark.parametrize(
    "labels", [string.ascii_uppercase[:-1], string.ascii_lowercase, string.ascii_uppercase[:-1] + "A"]
)
def test_refuses_other_labels(labels: str, tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match="A to Z"):
        Classifier.load(save_vit(tmp_path, labels))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "preprocessor_config.json"])
def test_refuses_a_missing_file(name: str, tiny_classifier: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_classifier, tmp_path / "copy")
    (copy / name).unlink()
    with pytest.raises(ClassifierError, match=name):
        Classifier.load(copy)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
@pytest.mark.usefixtures("network")
def test_refuses_cut_off_weights(share: float, tiny_classifier: Path, tmp_path: Path) -> None:
    weights = shutil.copytree(tiny_classifier, tmp_path / "copy") / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ClassifierError):
        Classifier.load(tmp_path / "copy")


@pytest.mark.usefixtures("network")
def test_refuses_weights_that_lack_a_part(tiny_classifier: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(tiny_classifier, tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(ClassifierError, match="lacks 1 weights"):
        Classifier.load(copy)


@pytest.mark.usefixtures("network")
def test_refuses_weights_that_are_no_numbers(tiny_classifier: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(tiny_classifier, tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    weights["classifier.bias"][3] = float("nan")
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(ClassifierError, match="not finite"):
        Classifier.load(copy).predict([picture(1)])


def test_refuses_pickled_weights(tiny_classifier: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    copy = shutil.copytree(tiny_classifier, tmp_path / "copy")
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(ClassifierError, match=r"model\.safetensors"):
        Classifier.load(copy)


@pytest.mark.parametrize("revision", [None, "main", "v1", "0123abc", "0" * 39, "0" * 40 + "\n"])
def test_a_hub_id_needs_a_commit(revision: str | None) -> None:
    with pytest.raises(ClassifierError, match="revision"):
        Classifier.load("pittawat/vit-base-uppercase-english-characters", revision=revision)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match="nowhere"):
        Classifier.load(tmp_path / "nowhere")


def test_the_embedded_classifier_reads_plain_letters() -> None:
    found = Classifier.load(EMBEDDED).predict([letter(strokes) for strokes in STROKES.values()])
    named = [string.ascii_uppercase[index] for index in found.probabilities.argmax(1)]
    assert sum(a == b for a, b in zip(named, STROKES, strict=True)) >= len(STROKES) - 1


def test_the_embedded_classifier_is_the_one_that_was_measured() -> None:
    measured = json.loads((EMBEDDED / "metrics.json").read_text("utf-8"))
    assert measured["classifier_sha256"] == Classifier.load(EMBEDDED).sha256
    assert (EMBEDDED / "model.safetensors").stat().st_size <= 12 * 2**20


def test_the_embedded_classifier_reads_block_letters_as_well_as_it_should() -> None:
    measured = json.loads((EMBEDDED / "metrics.json").read_text("utf-8"))
    assert measured["held_out_block_letters"]["accuracy"] >= 0.85


def test_the_embedded_classifier_reads_fonts_as_well_as_it_should() -> None:
    measured = json.loads((EMBEDDED / "metrics.json").read_text("utf-8"))
    assert measured["held_out_fonts"]["accuracy"] >= 0.95
