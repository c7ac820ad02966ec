"""The stage classify: official files, one inference per distinct picture, and pictures that are no pictures."""

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
from params_for_tests import contents, file_states, small_params
from PIL import Image
from soak import SOAK

from pcgeval import Classifier, Predictions, Similarity
from pcgeval.core.errors import FileError
from pcgeval.core.layout import DATA, Trial, stage_dir, trial_file
from pcgeval.similarity.source import ClassifierError
from pcgeval.similarity.stage import PACKAGES, TORCH_PACKAGES, classify_stage

TEAM = "team"
TRIALS = [Trial(letter, number) for letter in "AB" for number in (1, 2, 3)]
IMAGES, SIMILARITY = stage_dir("images", "m", TEAM), stage_dir("similarity", "m", TEAM)


class Folders:
    """One team's pictures, and the classifier that is to name them."""

    def __init__(self, root: Path, classifier: Path) -> None:
        self.root, self.images, self.cache = root, root / IMAGES, root / ".cache" / "predictions"
        self.settings = Similarity(model=str(classifier), batch=2)

    def picture(self, trial: Trial, seed: int, team: str = TEAM, model: str = "m") -> Path:
        noise = np.random.default_rng(seed).integers(0, 2, (16, 16), dtype=np.uint8) * 255
        image = Image.fromarray(noise).resize((1024, 1024), Image.Resampling.NEAREST)
        path = trial_file(self.root / stage_dir("images", model, team), "images", team, trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        return path

    def run(self, *teams: str, models: tuple[str, ...] = ("m",)) -> None:
        similarity = self.settings.model_dump()
        classify_stage(small_params("AB", 3, teams=teams or (TEAM,), models=models, similarity=similarity), self.root)

    def written(self) -> dict[str, bytes]:
        return contents(self.root / SIMILARITY)

    def letter(self, letter: str) -> Any:
        return json.loads(self.written()[f"{letter}.json"])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, tiny_classifier: Path) -> Path:
    """Six trials, of which A 2 and B 1 show the same picture, and the predictions of all."""
    made = Folders(tmp_path_factory.mktemp("drawn"), tiny_classifier)
    for trial, seed in zip(TRIALS, (1, 2, 3, 2, 5, 6), strict=True):
        made.picture(trial, seed)
    made.run()
    return made.root


@pytest.fixture
def folders(drawn: Path, tmp_path: Path, tiny_classifier: Path) -> Folders:
    """A copy of the pictures alone."""
    shutil.copytree(drawn / IMAGES, tmp_path / IMAGES)
    return Folders(tmp_path, tiny_classifier)


@pytest.fixture
def predicted(drawn: Path, folders: Folders) -> Folders:
    """A copy of the pictures with their predictions."""
    shutil.copytree(drawn / ".cache", folders.root / ".cache")
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
    content = folders.letter("A")
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
    packages = {name: version(name).split("+")[0] for name in PACKAGES}
    made_by = {"name": folders.settings.model, "revision": None, "sha256": classifier.sha256, "precision": "float64"}
    assert json.loads(folders.written()["classifier.json"]) == {**made_by, "packages": packages}
    assert sorted(folders.written()) == ["A.json", "B.json", "classifier.json"]


def test_one_picture_is_inferred_once(folders: Folders, inferred: list[int]) -> None:
    for trial in TRIALS:
        folders.picture(trial, 1, "twin", "n")
    folders.run(TEAM, "twin", models=("m", "n"))
    assert sum(inferred) == 5
    first = folders.written()
    shutil.rmtree(folders.root / DATA / "similarity")
    folders.run(TEAM, "twin", models=("m", "n"))
    assert sum(inferred) == 5
    assert folders.written() == first
    shutil.rmtree(folders.cache)
    folders.run()
    assert sum(inferred) == 10
    assert folders.written() == first


def test_another_classifier_shares_nothing(predicted: Folders, inferred: list[int], tmp_path: Path) -> None:
    predicted.settings = Similarity(model=str(save_vit(tmp_path / "other", width=32)))
    predicted.run()
    assert sum(inferred) == 5


def test_another_precision_shares_nothing_and_is_recorded(folders: Folders, inferred: list[int]) -> None:
    folders.run()
    folders.settings = folders.settings.model_copy(update={"precision": "float32"})
    folders.run()
    assert sum(inferred) == 10
    named = json.loads(folders.written()["classifier.json"])
    assert named["precision"] == "float32"
    assert list(named["packages"]) == sorted(TORCH_PACKAGES)


def test_another_version_of_a_package_or_other_code_shares_nothing(
    predicted: Folders, inferred: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("pcgeval.similarity.stage.installed_versions", lambda *_: {"torch": "3.0"})
        predicted.run()
    assert sum(inferred) == 5
    monkeypatch.setattr("pcgeval.similarity.stage.source_sha256", lambda *packages: f"other code of {packages}")
    predicted.run()
    assert sum(inferred) == 10


DAMAGE = (b"", b"{", b"{}", b'{"probabilities": [1], "embedding": [2]}', b"[" * 9999)


def test_damaged_cache_entries_are_made_again(predicted: Folders, inferred: list[int]) -> None:
    predicted.run()
    before = predicted.written()
    assert not inferred
    entries = [path for path in predicted.cache.rglob("*") if path.is_file()]
    for entry, damage in zip(entries, DAMAGE, strict=True):
        entry.write_bytes(damage)
    predicted.run()
    assert sum(inferred) == 5
    entries[0].write_bytes(b"\xff\x00")
    predicted.run()
    assert sum(inferred) == 6
    assert predicted.written() == before


def test_the_batch_size_changes_no_byte(folders: Folders) -> None:
    folders.run()
    first = folders.written()
    shutil.rmtree(folders.cache)
    folders.settings = folders.settings.model_copy(update={"batch": 5})
    folders.run()
    assert folders.written() == first


def test_only_what_changed_is_written_again(predicted: Folders) -> None:
    predicted.run()
    before = file_states(predicted.root / SIMILARITY)
    predicted.run()
    assert file_states(predicted.root / SIMILARITY) == before
    predicted.picture(TRIALS[5], 7)
    predicted.run()
    after = file_states(predicted.root / SIMILARITY)
    assert [name for name in after if after[name] != before[name]] == ["B.json"]


def test_what_belongs_to_a_team_or_model_that_left_is_removed(predicted: Folders) -> None:
    predicted.picture(TRIALS[0], 1, "leavers", "n")
    predicted.run(TEAM, "leavers", models=("m", "n"))
    assert len(contents(predicted.root / DATA / "similarity")) == 12
    predicted.run()
    left = [path.relative_to(predicted.root) for path in (predicted.root / DATA / "similarity").rglob("*")]
    assert sorted(left) == [SIMILARITY.parent, SIMILARITY, *(SIMILARITY / name for name in sorted(predicted.written()))]


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
def test_a_broken_picture_is_named_and_nothing_is_written(predicted: Folders, content: bytes) -> None:
    predicted.run()
    before = predicted.written()
    trial_file(predicted.images, "images", TEAM, TRIALS[1]).write_bytes(content)
    with pytest.raises(FileError, match=r"data/images/m/team/A/team_A_2\.png: "):
        predicted.run()
    assert predicted.written() == before


def test_any_damage_is_named_or_a_picture(predicted: Folders) -> None:
    path = trial_file(predicted.images, "images", TEAM, TRIALS[0])
    content = path.read_bytes()
    choice = np.random.default_rng(1)
    for _ in range(60 if SOAK else 30):
        damaged = bytearray(content)
        for place in choice.integers(0, min(200, len(content)), 2):
            damaged[place] = choice.integers(256)
        path.write_bytes(bytes(damaged[: choice.integers(len(damaged)) + 1]))
        try:
            predicted.run()
        except FileError as error:
            assert "team_A_1.png: " in str(error)  # noqa: PT017 - many pictures can still be read


def test_a_trial_without_a_picture_has_no_entry(predicted: Folders) -> None:
    trial_file(predicted.images, "images", TEAM, TRIALS[1]).unlink()
    predicted.run()
    content = predicted.letter("A")
    assert content["count"] == 2
    assert [each["id"] for each in content["trials"]] == ["team_A_1.png", "team_A_3.png"]
    assert [each["id"] for each in content["similarities"]] == ["team_A_1.png", "team_A_3.png"]


def test_no_picture_at_all(folders: Folders, inferred: list[int]) -> None:
    shutil.rmtree(folders.images)
    folders.run()
    assert not inferred
    assert folders.letter("B") == {"count": 0, "similarityRate": 0, "trials": [], "similarities": []}


def test_nothing_is_half_written_without_a_classifier(predicted: Folders) -> None:
    predicted.run()
    before = predicted.written()
    predicted.settings = Similarity(model="data/no-such-classifier")
    with pytest.raises(ClassifierError):
        predicted.run()
    assert predicted.written() == before


def test_without_pictures_folder_nothing_is_removed(predicted: Folders) -> None:
    predicted.run()
    before = predicted.written()
    shutil.rmtree(predicted.root / DATA / "images")
    with pytest.raises(FileError, match=r"data/images: is missing\. Run `dvc repro`"):
        predicted.run()
    assert predicted.written() == before
