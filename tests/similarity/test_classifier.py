"""The classifier against transformers used by hand, its refusals, and its bytes under other threads and batches."""

import json
import os
import random
import shutil
import string

import numpy as np
import pytest
from PIL import Image, ImageDraw
from threadpoolctl import threadpool_limits

from pcgeval import Classifier, PcgevalError
from pcgeval.core.layout import PACKAGED_DATA
from pcgeval.similarity.preprocessing import Preprocessing
from pcgeval.similarity.source import FILES

EMBEDDED = PACKAGED_DATA / "classifier"
LETTERS, HEAD, BIAS = string.ascii_uppercase, "classifier.weight", "classifier.bias"
STROKES = {  # letters that a person draws with a few strokes, in eighths from the top left
    "L": [(1, 0, 1, 8), (1, 8, 6, 8)],
    "T": [(0, 0, 8, 0), (4, 0, 4, 8)],
    "H": [(1, 0, 1, 8), (7, 0, 7, 8), (1, 4, 7, 4)],
    "E": [(1, 0, 1, 8), (1, 0, 6, 0), (1, 4, 6, 4), (1, 8, 6, 8)],
    "Z": [(0, 0, 8, 0), (8, 0, 0, 8), (0, 8, 8, 8)],
    "N": [(0, 8, 0, 0), (0, 0, 8, 8), (8, 8, 8, 0)],
}


def picture(seed):
    """Black boxes on white, as a level looks."""
    choice = random.Random(seed)
    image = Image.new("1", (1024, 1024), 1)
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y = choice.randrange(100, 800), choice.randrange(100, 800)
        draw.rectangle((x, y, x + choice.choice([60, 180]), y + 60), fill=0)
    return image


def letter(strokes):
    image = Image.new("L", (1024, 1024), 255)
    for stroke in strokes:
        points = [tuple(150 + 90 * value for value in stroke[i : i + 2]) for i in (0, 2)]
        ImageDraw.Draw(image).line(points, fill=0, width=100)
        for x, y in points:
            ImageDraw.Draw(image).rectangle((x - 50, y - 50, x + 50, y + 50), fill=0)
    return image


def content(predictions):
    """Return the bytes of predictions."""
    return predictions.probabilities.tobytes(), predictions.embeddings.tobytes()


@pytest.fixture(params=["numpy", "torch"])
def network(request, monkeypatch):
    """Either of the two that compute a small ViT in double precision; a large one only torch does."""
    if request.param == "torch":
        monkeypatch.setattr("pcgeval.similarity.numpy_vit.MAX_BYTES", 0)


@pytest.fixture
def copy(tiny_classifier, tmp_path):
    return shutil.copytree(tiny_classifier, tmp_path / "copy")


def change_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


def configured(**values):
    return lambda folder: change_json(folder / "config.json", **values)


def weighing(change):
    def changed(folder):
        from safetensors.torch import load_file, save_file

        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return changed


def reweighted(rows):
    """Return a change of a classifier: its outputs are those of these rows."""
    return weighing(lambda weights: weights.update({name: weights[name][rows].clone() for name in (HEAD, BIAS)}))


@pytest.mark.usefixtures("network")
def test_agrees_with_transformers_by_hand(tiny_classifier):
    import torch
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    images = [picture(seed).convert("RGB") for seed in range(3)]
    processor = AutoImageProcessor.from_pretrained(tiny_classifier)
    model = AutoModelForImageClassification.from_pretrained(tiny_classifier, dtype=torch.float64).eval()
    ours = Classifier.load(tiny_classifier).predict(images)
    for row, image in enumerate(images):
        values = processor(images=image, return_tensors="pt")["pixel_values"].double()
        with torch.no_grad():
            output = model(values, output_hidden_states=True)
        assert np.allclose(ours.probabilities[row], torch.softmax(output.logits, -1)[0], atol=1e-7)
        assert np.allclose(ours.embeddings[row], output.hidden_states[-1][0, 0], atol=1e-5)
    assert np.allclose(ours.probabilities.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["tiny", "embedded"])
def test_numpy_and_torch_give_the_same_bytes_and_single_precision_near_ones(folder, tiny_classifier, monkeypatch):
    images = [picture(seed) for seed in range(6)] + [letter(strokes) for strokes in STROKES.values()]
    small = Classifier.load(folder or tiny_classifier).predict(images)
    single = Classifier.load(folder or tiny_classifier, precision="float32").predict(images)
    monkeypatch.setattr("pcgeval.similarity.numpy_vit.MAX_BYTES", 0)
    assert content(Classifier.load(folder or tiny_classifier).predict(images)) == content(small)
    assert np.abs(small.embeddings - single.embeddings).max() < 1e-3
    assert np.abs(small.probabilities - single.probabilities).max() < 1e-5


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "P", "RGBA", "LA"])
@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["ViT", "DeiT"])
def test_pictures_are_prepared_as_transformers_does(folder, tiny_classifier, mode):
    from transformers import AutoImageProcessor

    noise = np.random.default_rng(1).integers(0, 256, (90, 110, 4), dtype=np.uint8)
    images = [Image.fromarray(noise).convert(mode), picture(1).convert(mode)]
    processor = AutoImageProcessor.from_pretrained(folder or tiny_classifier, backend="pil")
    expected = processor(images=[image.convert("RGB") for image in images], return_tensors="np")["pixel_values"]
    assert np.array_equal(Preprocessing.of_folder(folder or tiny_classifier).pixels(images), expected)


@pytest.mark.parametrize(
    "change", [{"do_resize": False}, {"size": {"shortest_edge": 48}}, {"image_processor_type": "BeitImageProcessor"}]
)
def test_other_ways_to_prepare_pictures_are_left_to_transformers(change, copy):
    change_json(copy / "preprocessor_config.json", **change)
    assert Preprocessing.of_folder(copy) is None


def test_labels_may_stand_in_any_order(tiny_classifier, copy):
    order = random.Random(1).sample(range(26), 26)
    reweighted(order)(copy)
    change_json(copy / "config.json", id2label={column: LETTERS[index] for column, index in enumerate(order)})
    images = [picture(seed) for seed in range(4)]
    predictions = [Classifier.load(folder).predict(images) for folder in (copy, tiny_classifier)]
    assert content(predictions[0]) == content(predictions[1])


@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["tiny", "embedded"])
@pytest.mark.usefixtures("network")
def test_other_batches_and_threads_give_the_same_bytes(folder, tiny_classifier):
    import torch

    classifier, images = Classifier.load(folder or tiny_classifier), [picture(seed) for seed in range(8)]
    threads = torch.get_num_threads()
    whole = content(classifier.predict(images))
    for predictions, count in ((classifier.predict(images[:1]), 1), (classifier.predict([]), 0)):
        assert predictions.probabilities.shape == (count, 26)
        assert predictions.embeddings.shape == (count, {None: 24}.get(folder, 192))
        assert predictions.probabilities.dtype == predictions.embeddings.dtype == np.float64
    for count, batch in ((1, 1), (2, 3), (4, 5)):
        with threadpool_limits(count):  # of numpy
            torch.set_num_threads(count)
            parts = [content(classifier.predict(images[i : i + batch])) for i in range(0, len(images), batch)]
        assert tuple(map(b"".join, zip(*parts, strict=True))) == whole
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        *(
            (configured(id2label=dict(enumerate(labels))), "A to Z")
            for labels in (LETTERS[:-1], LETTERS.lower(), "A" + LETTERS[:-1])
        ),
        *((lambda folder, name=name: (folder / name).unlink(), f"{name}: is missing") for name in FILES),
        (lambda folder: os.truncate(folder / "model.safetensors", 0), "image classifier"),
        (lambda folder: os.truncate(folder / "model.safetensors", 1000), "image classifier"),
        (configured(image_size=16_000), "image classifier"),
        (configured(patch_size=0), "image classifier"),
        (configured(hidden_size="x"), "image classifier"),
        (configured(model_type="timm_wrapper"), "image classifier"),
        (weighing(lambda weights: weights.pop(HEAD)), r"lacks classifier\.weight"),
        (weighing(lambda weights: weights.update({HEAD: weights[HEAD][:, 1:].clone()})), "image classifier"),
        (weighing(lambda weights: weights[BIAS].fill_(float("nan"))), "not finite"),
        (reweighted([*range(25)]), "image classifier"),
        (reweighted([*range(26), 0]), "image classifier"),
        (
            lambda folder: change_json(folder / "preprocessor_config.json", size={"height": 40, "width": 40}),
            r"preprocessor_config\.json",
        ),
    ],
)
@pytest.mark.usefixtures("network")
def test_a_broken_classifier_is_refused(change, complaint, copy):
    import torch

    torch.save({}, copy / "pytorch_model.bin")  # pickled weights, which are never loaded
    change(copy)
    with pytest.raises(PcgevalError, match=complaint):
        Classifier.load(copy).predict([picture(1)])


@pytest.mark.parametrize("revision", [None, "main", "0123abc", "0" * 39, "0" * 40 + "\n"])
def test_a_hub_id_needs_a_commit_and_a_folder_must_exist(revision, tmp_path):
    with pytest.raises(PcgevalError, match="revision"):
        Classifier.load("pittawat/vit-base-uppercase-english-characters", revision=revision)
    with pytest.raises(PcgevalError, match="nowhere"):
        Classifier.load(tmp_path / "nowhere")


def test_the_embedded_classifier_reads_plain_letters_and_is_the_one_that_was_measured():
    classifier = Classifier.load(EMBEDDED)
    predictions = classifier.predict([letter(strokes) for strokes in STROKES.values()])
    named = [LETTERS[index] for index in predictions.probabilities.argmax(1)]
    assert sum(a == b for a, b in zip(named, STROKES, strict=True)) >= len(STROKES) - 1
    measured = json.loads((EMBEDDED / "metrics.json").read_text("utf-8"))
    assert measured["classifier_sha256"] == classifier.sha256
    assert (EMBEDDED / "model.safetensors").stat().st_size <= 12 * 2**20
    assert measured["held_out_block_letters"]["accuracy"] >= 0.85
    assert measured["held_out_fonts"]["accuracy"] >= 0.95
