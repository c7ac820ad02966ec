"""The classifier against transformers used by hand, its refusals, and its bytes under other threads and batches."""

import gzip
import io
import json
import os
import random
import shutil
import string
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from levels_for_tests import dropped
from PIL import Image, ImageDraw
from threadpoolctl import threadpool_limits

from pcgeval import Classifier, PcgevalError, PhysicsParams, simulate
from pcgeval.evaluator.image import level_png, png_bytes, white_rows
from pcgeval.formats.layout import PACKAGED_DATA
from pcgeval.similarity.preprocessing import RowRuns, pixels_of
from pcgeval.similarity.source import FILES, Preprocessing

EMBEDDED = PACKAGED_DATA / "classifier"
GOLDEN, IMAGES = (
    Path(__file__).parents[1] / "golden/physics/physics.jsonl.gz",
    Path(__file__).parents[2] / "data/images",
)
SECOND = Path(__file__).parents[2] / "training" / "second"  # the second test set
LETTERS, HEAD, BIAS = string.ascii_uppercase, "classifier.weight", "classifier.bias"


def picture(seed):
    """Black boxes on white, as a level looks."""
    choice = random.Random(seed)
    image = Image.new("1", (1024, 1024), 1)
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y = choice.randrange(100, 800), choice.randrange(100, 800)
        draw.rectangle((x, y, x + choice.choice([60, 180]), y + 60), fill=0)
    return image


def content(predictions):
    return predictions.probabilities.tobytes(), predictions.embeddings.tobytes()


@pytest.fixture(params=["numpy", "torch"])
def network(request, monkeypatch):
    """Either of the two that compute a small ViT; a large one only torch does."""
    if request.param == "torch":
        monkeypatch.setattr("pcgeval.similarity.source.MAX_BYTES", 0)


@pytest.fixture
def copy(tiny_classifier, tmp_path):
    return shutil.copytree(tiny_classifier, tmp_path / "copy")


def change_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


def configured(name="config.json", **values):
    return lambda folder: change_json(folder / name, **values)


def reweighted(change):
    def changed(folder):
        from safetensors.torch import load_file, save_file

        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return changed


def rows_of_head(rows):
    """Return a change of the weights: the outputs are those of these rows."""
    return lambda weights: weights.update({name: weights[name][rows].clone() for name in (HEAD, BIAS)})


def test_an_embedding_has_no_negative_zeros_whose_sign_is_noise(copy):
    def almost_zero(weights):
        for name, values in weights.items():
            values.fill_(-1e-9 if name == "vit.embeddings.cls_token" else 0)

    reweighted(almost_zero)(copy)
    embeddings = Classifier.load(copy).predict([picture(0)]).embeddings
    assert embeddings.tobytes() == np.zeros_like(embeddings).tobytes()


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


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "P", "RGBA"])
@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["ViT", "DeiT"])
def test_pictures_are_prepared_as_transformers_does(folder, tiny_classifier, mode):
    from transformers import AutoImageProcessor

    noise = np.random.default_rng(1).integers(0, 256, (90, 110, 4), dtype=np.uint8)
    images = [Image.fromarray(noise).convert(mode), picture(1).convert(mode)]
    processor = AutoImageProcessor.from_pretrained(folder or tiny_classifier, backend="pil")
    expected = processor(images=[image.convert("RGB") for image in images], return_tensors="np")["pixel_values"]
    assert np.array_equal(pixels_of(images, Preprocessing.of_folder(folder or tiny_classifier)), expected)


def test_labels_may_stand_in_any_order(tiny_classifier, copy):
    order = random.Random(1).sample(range(26), 26)
    reweighted(rows_of_head(order))(copy)
    change_json(copy / "config.json", id2label={column: LETTERS[index] for column, index in enumerate(order)})
    images = [picture(seed) for seed in range(4)]
    predictions = [Classifier.load(folder).predict(images) for folder in (copy, tiny_classifier)]
    assert content(predictions[0]) == content(predictions[1])


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_weights_of_half_the_size_are_read_as_torch_reads_them(kind, copy, monkeypatch):
    import torch

    def halve(weights):
        weights.update({name: weight.to(getattr(torch, kind)) for name, weight in weights.items()})

    reweighted(halve)(copy)
    by_numpy = Classifier.load(copy).predict([picture(1)])
    monkeypatch.setattr("pcgeval.similarity.source.MAX_BYTES", 0)
    assert content(by_numpy) == content(Classifier.load(copy).predict([picture(1)]))


@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["tiny", "embedded"])
def test_torch_other_batches_and_threads_give_the_same_bytes_and_single_precision_near_ones(
    folder, tiny_classifier, monkeypatch
):
    import torch

    images, threads = [picture(seed) for seed in range(8)], torch.get_num_threads()
    by_numpy, single = (Classifier.load(folder or tiny_classifier, precision=name) for name in ("float64", "float32"))
    monkeypatch.setattr("pcgeval.similarity.source.MAX_BYTES", 0)
    by_torch, whole = Classifier.load(folder or tiny_classifier), by_numpy.predict(images)
    for classifier, count, batch in product((by_numpy, by_torch), (1, 4), (1, 3, 8)):
        with threadpool_limits(count):  # of numpy
            torch.set_num_threads(count)
            parts = [content(classifier.predict(images[i : i + batch])) for i in range(0, len(images), batch)]
        assert tuple(map(b"".join, zip(*parts, strict=True))) == content(whole)
    torch.set_num_threads(threads)
    assert np.abs(single.predict(images).probabilities - whole.probabilities).max() < 1e-5
    assert by_numpy.predict([]).embeddings.shape == (0, whole.embeddings.shape[1])


@pytest.mark.parametrize("folder", [None, EMBEDDED], ids=["tiny", "embedded"])
def test_a_gpu_gives_the_same_bytes(folder, tiny_classifier):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    images = [picture(seed) for seed in range(8)]
    whole = Classifier.load(folder or tiny_classifier, device="cpu").predict(images)
    on_gpu = Classifier.load(folder or tiny_classifier, device="cuda")
    assert on_gpu.device == "cuda"
    for batch in (1, 3, 8):
        parts = [content(on_gpu.predict(images[i : i + batch])) for i in range(0, len(images), batch)]
        assert tuple(map(b"".join, zip(*parts, strict=True))) == content(whole)
    single = Classifier.load(folder or tiny_classifier, device="cuda", precision="float32").predict(images)
    assert np.abs(single.embeddings - whole.embeddings).max() < 1e-4, "not rounded to TF32"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (configured(id2label=dict(enumerate(LETTERS[:-1]))), "A to Z"),
        (configured(id2label=dict(enumerate("A" + LETTERS[:-1]))), "A to Z"),
        (configured(id2label=dict(enumerate(LETTERS.lower()))), "A to Z"),
        *((lambda folder, name=name: (folder / name).unlink(), f"{name}: is missing") for name in FILES),
        (lambda folder: os.truncate(folder / "model.safetensors", 1000), "image classifier"),
        (configured(hidden_size="x"), "image classifier"),
        (configured(model_type="timm_wrapper"), "image classifier"),
        (reweighted(lambda weights: weights.pop(HEAD)), r"lacks classifier\.weight"),
        (reweighted(lambda weights: weights.update({HEAD: weights[HEAD][:, 1:].clone()})), "image classifier"),
        (reweighted(lambda weights: weights[BIAS].fill_(float("nan"))), "not finite"),
        (reweighted(rows_of_head([*range(25)])), "image classifier"),
        (configured("preprocessor_config.json", size={"height": 40, "width": 40}), r"preprocessor_config\.json"),
    ],
)
@pytest.mark.usefixtures("network")
def test_a_broken_classifier_is_refused(change, complaint, copy):
    import torch

    torch.save({}, copy / "pytorch_model.bin")  # pickled weights, which are never loaded
    change(copy)
    with pytest.raises(PcgevalError, match=complaint):
        Classifier.load(copy).predict([picture(1)])


@pytest.mark.parametrize("revision", [None, "main", "0" * 39, "0" * 40 + "\n"])
def test_a_hub_id_needs_a_commit_and_a_folder_must_exist(revision, tmp_path):
    with pytest.raises(PcgevalError, match="revision"):
        Classifier.load("pittawat/vit-base-uppercase-english-characters", revision=revision)
    with pytest.raises(PcgevalError, match="nowhere"):
        Classifier.load(tmp_path / "nowhere")


def test_the_figures_in_git_are_of_the_classifier_and_the_test_sets_in_git():
    assert (EMBEDDED / "model.safetensors").stat().st_size <= 12 * 2**20
    paths = (EMBEDDED / "metrics.json", SECOND / "metrics.json", SECOND / "frozen.json")
    first, second, frozen = (json.loads(path.read_text("utf-8")) for path in paths)
    assert first["classifier_sha256"] == second["classifier_sha256"] == Classifier.load(EMBEDDED).sha256
    assert first["held_out_block_letters"]["accuracy"] >= 0.85
    assert first["held_out_fonts"]["accuracy"] >= 0.95
    measured = {part: value["n"] for part, value in second["parts"].items() if part in frozen["parts"]}
    measured["real"] += second["real_without_letter"]["n"]
    assert measured == {part: value["pictures"] for part, value in frozen["parts"].items()}


def official(image, preprocessing):
    """The pixels of a grey picture that is resized as a whole."""
    size = preprocessing.size.width, preprocessing.size.height
    return np.asarray(image.convert("L").resize(size, Image.Resampling(preprocessing.resample)))


def test_every_recorded_level_is_resized_from_its_runs_as_from_its_whole_picture():
    """As drawn, as read from its PNG, and as pillow reads the PNG."""
    preprocessing = Preprocessing.of_folder(EMBEDDED)
    size = preprocessing.size.width, preprocessing.size.height, Image.Resampling(preprocessing.resample)
    recorded = [dropped(json.loads(line)["drops"]) for line in gzip.decompress(GOLDEN.read_bytes()).splitlines()]
    ends = [simulate(xml, PhysicsParams(trials=1), paths=False) for xml in recorded]
    files = [path.read_bytes() for path in sorted(IMAGES.rglob("*.png"))]
    drawn = [(RowRuns.of_runs(*white_rows(end)), level_png(end)) for end in ends]
    for runs, content in [*drawn, *((None, content) for content in dict.fromkeys(files))]:
        whole = Image.open(io.BytesIO(content))
        expected = official(whole, preprocessing).tobytes()
        for part in (runs or RowRuns.of_png(content), RowRuns.of_png(content), RowRuns.of_pixels(np.asarray(whole))):
            assert part.resized(*size).tobytes() == expected
    assert len(drawn) == 310


@given(
    arrays(np.bool_, st.tuples(st.integers(1, 20), st.integers(1, 20))),
    st.lists(st.integers(1, 30), min_size=20, max_size=20),
    st.tuples(st.integers(1, 12), st.integers(1, 12)) | st.integers(1, 30).map(lambda side: (side, side)),
    st.sampled_from(Image.Resampling),
    st.booleans(),
)
def test_runs_of_rows_are_resized_as_the_whole_picture(rows, lengths, size, resampling, is_square):
    """Pillow begins with the columns of a tall picture."""
    height = sum(lengths[: len(rows)])
    rows = np.resize(rows, (len(rows), height)) if is_square else rows
    image = Image.fromarray(np.repeat(rows, lengths[: len(rows)], axis=0)).convert("L")
    expected = np.asarray(image.resize(size, resampling))
    for runs in (RowRuns.of_pixels(np.asarray(image)), RowRuns.of_png(png_bytes(image))):
        assert (np.asarray(runs.image()) == np.asarray(image)).all()
        assert (runs.resized(*size, resampling) == expected).all()


@pytest.mark.parametrize("damage", [slice(0, 30), slice(20, 24), slice(33, 37), slice(60, 70), slice(-20, None)])
def test_a_png_of_another_form_is_left_to_pillow(damage):
    content = bytearray(png_bytes(picture(1).convert("L")))
    assert RowRuns.of_png(bytes(content)) is not None
    content[damage] = b"\xff" * len(content[damage])
    assert RowRuns.of_png(bytes(content)) is None
    for image in (picture(1), picture(1).convert("RGB"), Image.linear_gradient("L")):  # pillow's own filters
        image.save(file := io.BytesIO(), "PNG")
        assert RowRuns.of_png(file.getvalue()) is None
