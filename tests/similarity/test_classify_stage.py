"""The classify step: official files, one inference per distinct picture, and pictures that are no pictures."""

import json
import shutil
import struct
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from classifiers_for_tests import save_vit
from PIL import Image
from soak import SOAK

from pcgeval.core.errors import FileError
from pcgeval.core.layout import Trial, trial_file
from pcgeval.core.params import Similarity
from pcgeval.core.stage_files import TrialOutcome, failed, read_outcomes, succeeded, write_outcomes
from pcgeval.similarity.classifier import Classifier, Predictions
from pcgeval.similarity.source import ClassifierError
from pcgeval.similarity.stage import PACKAGES, TORCH_PACKAGES, classify_stage

TEAM = "team"
TRIALS = [Trial(letter, number) for letter in "AB" for number in (1, 2, 3)]


class Folders:
    """One team's pictures, and the classifier that is to name them."""

    def __init__(self, root: Path, classifier: Path) -> None:
        self.root, self.images, self.cache = root, root / "images", root / "cache"
        self.settings = Similarity(model=str(classifier), batch=2)

    def picture(self, trial: Trial, seed: int) -> Path:
        noise = np.random.default_rng(seed).integers(0, 2, (16, 16), dtype=np.uint8) * 255
        image = Image.fromarray(noise).resize((1024, 1024), Image.Resampling.NEAREST)
        path = trial_file(self.images, "images", TEAM, trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        return path

    def run(self, name: str = "similarity") -> list[TrialOutcome]:
        return classify_stage(self.images, self.root / name, TEAM, TRIALS, self.settings, self.cache)

    def written(self, name: str = "similarity") -> dict[str, bytes]:
        folder = self.root / name
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, tiny_classifier: Path) -> Path:
    """Six trials, of which A 2 and B 1 show the same picture, and the predictions of all."""
    made = Folders(tmp_path_factory.mktemp("drawn"), tiny_classifier)
    for trial, seed in zip(TRIALS, (1, 2, 3, 2, 5, 6), strict=True):
        made.picture(trial, seed)
    write_outcomes(made.images, [succeeded(trial) for trial in TRIALS])
    made.run()
    return made.root


@pytest.fixture
def folders(drawn: Path, tmp_path: Path, tiny_classifier: Path) -> Folders:
    """A copy of the pictures alone."""
    shutil.copytree(drawn / "images", tmp_path / "images")
    return Folders(tmp_path, tiny_classifier)


@pytest.fixture
def predicted(drawn: Path, folders: Folders) -> Folders:
    """A copy of the pictures with their predictions."""
    shutil.copytree(drawn / "cache", folders.cache)
    return folders


@pytest.fixture
def inferred(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that reach the real network."""
    sizes: list[int] = []
    answer = Classifier._answer

    def counted(self: Classifier, pixels: Any) -> Predictions:
        sizes.append(len(pixels))
        return answer(self, pixels)

    monkeypatch.setattr(Classifier, "_answer", counted)
    return sizes


def test_writes_the_official_file(folders: Folders) -> None:
    folders.run()
    content = json.loads((folders.root / "similarity" / "A.json").read_text("utf-8"))
    classifier = Classifier.load(folders.settings.model)
    images = [Image.open(trial_file(folders.images, "images", TEAM, trial)) for trial in TRIALS[:3]]
    expected = classifier.predict(images)
    assert content["count"] == 3
    assert content["similarityRate"] == pytest.approx(expected.probabilities[:, 0].mean(), abs=1e-12)
    assert [trial["id"] for trial in content["trials"]] == [f"team_A_{n}.png" for n in (1, 2, 3)]
    assert [trial["similarity"] for trial in content["trials"]] == expected.probabilities[:, 0].tolist()
    for entry, row, embedding in zip(content["similarities"], expected.probabilities, expected.embeddings, strict=True):
        assert [raw["label"] for raw in entry["raws"]] == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        assert [raw["id"] for raw in entry["raws"]] == list(range(26))
        assert [raw["softmax_prob"] for raw in entry["raws"]] == row.tolist()
        assert entry["cls_embedding"] == embedding.tolist()
    named = json.loads((folders.root / "similarity" / "classifier.json").read_text("utf-8"))
    packages = {name: version(name).split("+")[0] for name in PACKAGES}
    made_by = {"name": folders.settings.model, "revision": None, "sha256": classifier.sha256, "precision": "float64"}
    assert named == {**made_by, "packages": packages}


def test_one_picture_is_inferred_once(folders: Folders, inferred: list[int]) -> None:
    folders.run()
    assert sum(inferred) == 5
    folders.run("again")
    assert sum(inferred) == 5
    assert folders.written("again") == folders.written()


def test_another_classifier_shares_nothing(predicted: Folders, inferred: list[int], tmp_path: Path) -> None:
    predicted.settings = Similarity(model=str(save_vit(tmp_path / "other", width=32)))
    predicted.run("other_similarity")
    assert sum(inferred) == 5


def test_another_precision_shares_nothing_and_is_recorded(folders: Folders, inferred: list[int]) -> None:
    folders.run()
    folders.settings = folders.settings.model_copy(update={"precision": "float32"})
    folders.run("single")
    assert sum(inferred) == 10
    named = json.loads((folders.root / "single" / "classifier.json").read_text("utf-8"))
    assert named["precision"] == "float32"
    assert list(named["packages"]) == sorted(TORCH_PACKAGES)


def test_another_version_of_a_package_shares_nothing(
    predicted: Folders, inferred: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcgeval.similarity.stage.installed_versions", lambda *_: {"torch": "3.0"})
    predicted.run("again")
    assert sum(inferred) == 5


DAMAGE = (b"", b"{", b"{}", b'{"probabilities": [1], "embedding": [2]}', b"[" * 9999)


def test_damaged_cache_entries_are_made_again(predicted: Folders, inferred: list[int]) -> None:
    predicted.run()
    assert not inferred
    entries = [path for path in predicted.cache.rglob("*") if path.is_file()]
    for entry, damage in zip(entries, DAMAGE, strict=True):
        entry.write_bytes(damage)
    predicted.run("again")
    assert sum(inferred) == 5
    entries[0].write_bytes(b"\xff\x00")
    predicted.run("again")
    assert sum(inferred) == 6
    assert predicted.written("again") == predicted.written()


def test_the_batch_size_changes_no_byte(folders: Folders) -> None:
    folders.run()
    folders.settings, folders.cache = folders.settings.model_copy(update={"batch": 5}), folders.root / "cache2"
    folders.run("again")
    assert folders.written("again") == folders.written()


def png(width: int, height: int, pixels: bytes) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no picture",
        b"GIF89a" + bytes(100),
        png(1023, 1024, bytes(1024 * 1024)),
        png(60_000, 60_000, bytes(1000)),
        png(1024, 1024, bytes(1000)),
        png(1024, 1024, bytes(1025 * 1024))[:300],
        b"\x89PNG\r\n\x1a\n",
        bytes(5 * 2**20),
    ],
    ids=["empty", "text", "gif", "size", "bomb", "too few pixels", "cut off", "signature", "large"],
)
def test_a_broken_picture_is_a_reason(predicted: Folders, content: bytes) -> None:
    trial = TRIALS[1]
    trial_file(predicted.images, "images", TEAM, trial).write_bytes(content)
    predicted.run()
    outcomes = read_outcomes(predicted.root / "similarity")
    assert outcomes[trial].failed_stage == "classify"
    assert "team_A_2.png" in (outcomes[trial].reason or "")
    assert [other for other in TRIALS if outcomes[other].reason] == [trial]
    content_of_a = json.loads((predicted.root / "similarity" / "A.json").read_text("utf-8"))
    assert [entry["id"] for entry in content_of_a["trials"]] == ["team_A_1.png", "team_A_3.png"]


def test_any_damage_is_a_reason_or_a_picture(predicted: Folders) -> None:
    path = trial_file(predicted.images, "images", TEAM, TRIALS[0])
    content = path.read_bytes()
    choice = np.random.default_rng(1)
    for _ in range(60 if SOAK else 30):
        damaged = bytearray(content)
        for place in choice.integers(0, min(200, len(content)), 2):
            damaged[place] = choice.integers(256)
        path.write_bytes(bytes(damaged[: choice.integers(len(damaged)) + 1]))
        assert predicted.run()[0].failed_stage in (None, "classify")


def test_earlier_failures_are_carried_on(predicted: Folders) -> None:
    earlier = failed(TRIALS[4], "convert", "Width boundary is intruded.")
    write_outcomes(predicted.images, [earlier if trial == TRIALS[4] else succeeded(trial) for trial in TRIALS])
    trial_file(predicted.images, "images", TEAM, TRIALS[4]).unlink()
    predicted.run()
    assert read_outcomes(predicted.root / "similarity")[TRIALS[4]] == earlier


def test_a_missing_picture_is_a_reason(predicted: Folders) -> None:
    trial_file(predicted.images, "images", TEAM, TRIALS[5]).unlink()
    predicted.run()
    assert "team_B_3.png" in (read_outcomes(predicted.root / "similarity")[TRIALS[5]].reason or "")


def test_no_picture_at_all(folders: Folders, inferred: list[int]) -> None:
    write_outcomes(folders.images, [failed(trial, "extract", "no code") for trial in TRIALS])
    folders.run()
    assert not inferred
    content = json.loads((folders.root / "similarity" / "B.json").read_text("utf-8"))
    assert content == {"count": 0, "similarityRate": 0, "trials": [], "similarities": []}


def test_nothing_is_half_written_without_a_classifier(predicted: Folders) -> None:
    predicted.run()
    before = predicted.written()
    predicted.settings = Similarity(model="data/no-such-classifier")
    with pytest.raises(ClassifierError):
        predicted.run()
    assert predicted.written() == before


def test_missing_outcomes_are_named(folders: Folders) -> None:
    (folders.images / "trials.json").unlink()
    with pytest.raises(FileError, match=r"trials\.json"):
        folders.run()
