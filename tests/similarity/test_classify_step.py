"""The classify step: official files, reasons for what cannot be classified, and no picture inferred twice."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image
from test_classifier import pictures, save_random

from pcgeval.competition.layout import Trial
from pcgeval.competition.outcomes import failed, read_outcomes, succeeded, write_outcomes
from pcgeval.competition.params import Similarity
from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.step import classify_step

TRIALS = [Trial(letter, number) for letter in "AB" for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random(tmp_path_factory.mktemp("classifier"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Six trials: one failed before, two with the same picture."""
    folder = tmp_path / "images"
    drawn = pictures(5)
    for trial, image in zip(TRIALS[:5], [drawn[0], drawn[1], drawn[0], drawn[2], drawn[3]], strict=True):
        path = folder / trial.letter / f"t_{trial.letter}_{trial.number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    write_outcomes(folder, [*map(succeeded, TRIALS[:5]), failed(TRIALS[5], "extract", "no code")])
    return folder


def run(images: Path, classifier: Path, batch: int = 2) -> Path:
    out = images.parent / "similarity"
    settings = Similarity(model=str(classifier), batch=batch)
    classify_step(images, out, "t", TRIALS, settings, cache_root=images.parent / "cache")
    return out


def read(path: Path):
    return json.loads(path.read_text())


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_official_files(images: Path, classifier: Path):
    out = run(images, classifier)
    letter = read(out / "A.json")
    assert letter["count"] == 3
    assert [trial["id"] for trial in letter["trials"]] == ["t_A_1.png", "t_A_2.png", "t_A_3.png"]
    assert letter["similarityRate"] == pytest.approx(sum(trial["similarity"] for trial in letter["trials"]) / 3)
    assert [raw["label"] for raw in letter["similarities"][0]["raws"]] == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert letter["trials"][0]["similarity"] == letter["similarities"][0]["raws"][0]["softmax_prob"]
    assert letter["similarities"][0]["raws"] == letter["similarities"][2]["raws"]
    assert (
        read(out / "B.json")["trials"][0]["similarity"]
        == read(out / "B.json")["similarities"][0]["raws"][1]["softmax_prob"]
    )
    assert read(out / "classifier.json")["sha256"] == Classifier.load(classifier).sha256


def test_a_failure_keeps_its_step_and_reason(images: Path, classifier: Path):
    outcome = read_outcomes(run(images, classifier))[TRIALS[5]]
    assert (outcome.failed_step, outcome.reason) == ("extract", "no code")


def test_no_picture_is_inferred_twice(images: Path, classifier: Path, monkeypatch: pytest.MonkeyPatch):
    inferred: list[int] = []
    real = Classifier.predict

    def counted(self, batch):
        inferred.append(len(batch))
        return real(self, batch)

    monkeypatch.setattr(Classifier, "predict", counted)
    first = snapshot(run(images, classifier))
    assert sum(inferred) == 4
    assert snapshot(run(images, classifier)) == first
    assert sum(inferred) == 4


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"probabilities": [1], "embedding": [0]}', b"\xff"])
def test_a_damaged_cache_entry_is_computed_again(images: Path, classifier: Path, damage: bytes):
    first = snapshot(run(images, classifier))
    for path in (images.parent / "cache").rglob("*.json"):
        path.write_bytes(damage)
    assert snapshot(run(images, classifier)) == first


def test_the_batch_size_changes_no_byte(images: Path, classifier: Path):
    first = snapshot(run(images, classifier, batch=1))
    for path in (images.parent / "cache").rglob("*.json"):
        path.unlink()
    assert snapshot(run(images, classifier, batch=5)) == first


def png(size: tuple[int, int]) -> bytes:
    stream = io.BytesIO()
    Image.new("1", size, 1).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read"),
        (b"", "broken PNG"),
        (b"GIF89a", "broken PNG"),
        (png((1024, 1024))[:-40], "broken PNG"),
        (png((512, 512)), "512 x 512 pixels"),
        (png((20_000, 20_000)), "broken PNG|20000 x 20000"),
        (b"\x89PNG" + b"\x00" * (4 * 2**20), "larger than"),
    ],
)
def test_a_bad_picture_is_a_failed_trial_with_its_reason(
    images: Path, classifier: Path, content: bytes | None, reason: str
):
    path = images / "A" / "t_A_2.png"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    out = run(images, classifier)
    assert read(out / "A.json")["count"] == 2
    assert any(word in str(read_outcomes(out)[TRIALS[1]].reason) for word in reason.split("|"))
    assert read_outcomes(out)[TRIALS[0]].reason is None
