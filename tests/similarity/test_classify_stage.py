"""The stage classify: official files, one inference per distinct picture, and pictures that are no pictures."""

import json
import shutil
from importlib.metadata import version

import numpy as np
import pytest
from classifiers_for_tests import save_vit
from params_for_tests import contents, small_params
from PIL import Image

from pcgeval import Classifier, PcgevalError
from pcgeval.core.layout import DATA, Trial, stage_dir, trial_file
from pcgeval.similarity.stage import PACKAGES, TORCH_PACKAGES, classify_stage

TEAM = "team"
TRIALS = [Trial(letter, number) for letter in "AB" for number in (1, 2, 3)]
IMAGES, SIMILARITY = stage_dir("images", "m", TEAM), stage_dir("similarity", "m", TEAM)


class Folders:
    """One team's pictures, and their classifier."""

    def __init__(self, root, classifier):
        self.root, self.images, self.cache = root, root / IMAGES, root / ".cache" / "predictions"
        self.settings = {"model": str(classifier), "batch": 2}

    def picture(self, trial, seed, team=TEAM, model="m"):
        noise = np.random.default_rng(seed).integers(0, 2, (16, 16), dtype=np.uint8) * 255
        image = Image.fromarray(noise).resize((1024, 1024), Image.Resampling.NEAREST)
        path = trial_file(self.root / stage_dir("images", model, team), "images", team, trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)

    def run(self, teams=(TEAM,), models=("m",), **changed):
        """Run the stage with some settings changed, and return what it wrote."""
        similarity = self.settings | changed
        classify_stage(small_params("AB", 3, teams=teams, models=models, similarity=similarity), self.root)
        return contents(self.root / SIMILARITY)


@pytest.fixture
def folders(tmp_path, tiny_classifier):
    """Six trials, of which A 2 and B 1 show the same picture."""
    folders = Folders(tmp_path, tiny_classifier)
    for trial, seed in zip(TRIALS, (1, 2, 3, 2, 5, 6), strict=True):
        folders.picture(trial, seed)
    return folders


@pytest.fixture
def predicted(folders):
    """The same with their predictions."""
    folders.run()
    return folders


@pytest.fixture
def inferred(monkeypatch):
    """The sizes of the batches that the classifier sees."""
    sizes = []
    predict = Classifier.predict

    def counted(self, images):
        sizes.append(len(images))
        return predict(self, images)

    monkeypatch.setattr(Classifier, "predict", counted)
    return sizes


def test_writes_the_official_file(folders):
    written = folders.run()
    content = json.loads(written["A.json"])
    classifier = Classifier.load(folders.settings["model"])
    images = [Image.open(trial_file(folders.images, "images", TEAM, trial)) for trial in TRIALS[:3]]
    expected = classifier.predict(images)
    similarities, names = expected.probabilities[:, 0], [f"team_A_{n}.png" for n in (1, 2, 3)]
    assert (content["count"], content["similarityRate"]) == (3, pytest.approx(similarities.mean(), abs=1e-12))
    trials = [{"id": name, "label": "A", "similarity": value} for name, value in zip(names, similarities, strict=True)]
    assert content["trials"] == trials
    for entry, row, embedding in zip(content["similarities"], expected.probabilities, expected.embeddings, strict=True):
        labels = zip(range(26), "ABCDEFGHIJKLMNOPQRSTUVWXYZ", row.tolist(), strict=True)
        assert [(raw["id"], raw["label"], raw["softmax_prob"]) for raw in entry["raws"]] == list(labels)
        assert entry["cls_embedding"] == embedding.tolist()
    packages = {name: version(name).split("+")[0] for name in PACKAGES}
    made_by = {"name": folders.settings["model"], "revision": None, "sha256": classifier.sha256, "precision": "float64"}
    assert json.loads(written["classifier.json"]) == {**made_by, "packages": packages}
    assert sorted(written) == ["A.json", "B.json", "classifier.json"]


def test_one_picture_is_inferred_once_and_neither_cache_nor_batch_changes_a_byte(folders, inferred):
    for trial in TRIALS:
        folders.picture(trial, 1, "twin", "n")
    first = folders.run((TEAM, "twin"), ("m", "n"))
    assert sum(inferred) == 5
    shutil.rmtree(folders.root / DATA / "similarity")
    assert folders.run((TEAM, "twin"), ("m", "n")) == first
    assert sum(inferred) == 5
    shutil.rmtree(folders.cache)
    assert folders.run(batch=5) == first
    assert sum(inferred) == 10
    entries = [path for path in folders.cache.rglob("*") if path.is_file()]
    for entry, damage in zip(entries, (b"", b"{", b"\xff\x00", b'{"probabilities": [1]}', b"[" * 9999), strict=True):
        entry.write_bytes(damage)
    assert folders.run() == first
    assert sum(inferred) == 15
    with pytest.raises(PcgevalError, match="no-such-classifier"):
        folders.run(model="data/no-such-classifier")
    assert contents(folders.root / SIMILARITY) == first


def test_another_classifier_precision_package_or_code_shares_nothing(predicted, inferred, tmp_path, monkeypatch):
    single = json.loads(predicted.run(precision="float32")["classifier.json"])
    assert (single["precision"], list(single["packages"])) == ("float32", sorted(TORCH_PACKAGES))
    assert sum(inferred) == 5
    predicted.run(model=str(save_vit(tmp_path / "other", width=32)))
    assert sum(inferred) == 10
    with monkeypatch.context() as patched:
        patched.setattr("pcgeval.similarity.stage.installed_versions", lambda *_: {"torch": "3.0"})
        predicted.run()
    assert sum(inferred) == 15
    monkeypatch.setattr("pcgeval.similarity.stage.source_sha256", lambda *packages: f"other code of {packages}")
    predicted.run()
    assert sum(inferred) == 20


def test_a_trial_without_a_picture_has_no_entry_and_a_broken_picture_is_refused(predicted):
    trial_file(predicted.images, "images", TEAM, TRIALS[1]).unlink()
    content = json.loads(predicted.run()["A.json"])
    assert content["count"] == 2
    for key in ("trials", "similarities"):
        assert [entry["id"] for entry in content[key]] == ["team_A_1.png", "team_A_3.png"]
    trial_file(predicted.images, "images", TEAM, TRIALS[0]).write_bytes(b"no PNG")
    with pytest.raises(PcgevalError, match="data/images: a picture is no PNG"):
        predicted.run()
    shutil.rmtree(predicted.images)
    empty = {"count": 0, "similarityRate": 0, "trials": [], "similarities": []}
    assert json.loads(predicted.run()["B.json"]) == empty
