"""The stage classify: official files, one inference per distinct picture, and pictures that are no pictures."""

import json
import shutil
from importlib.metadata import version

import numpy as np
import pytest
from levels_for_tests import save_vit
from params_for_tests import contents, small_params
from PIL import Image

from pcgeval import Classifier, PcgevalError
from pcgeval.formats.layout import CLASSIFIER, DATA, Trial, stage_dir, trial_file
from pcgeval.similarity.stage import PACKAGES, TORCH_PACKAGES, classify_stage

TEAM = "team"
TRIALS = [Trial(letter, number) for letter in "AB" for number in (1, 2, 3)]


class Folders:
    """One team's pictures, and their classifier."""

    def __init__(self, root, classifier):
        self.root = root
        self.choose(classifier)

    def choose(self, classifier):
        shutil.copytree(classifier, self.root / CLASSIFIER, dirs_exist_ok=True)

    def path(self, trial, team=TEAM, model="m"):
        return trial_file(self.root / stage_dir("images", model, team), "images", team, trial)

    def picture(self, trial, seed, team=TEAM, model="m"):
        noise = np.random.default_rng(seed).integers(0, 2, (16, 16), dtype=np.uint8) * 255
        image = Image.fromarray(noise).resize((1024, 1024), Image.Resampling.NEAREST)
        self.path(trial, team, model).parent.mkdir(parents=True, exist_ok=True)
        image.save(self.path(trial, team, model))

    def run(self, teams=(TEAM,), models=("m",), letters="AB", **changed):
        similarity = {"batch": 2, **changed}
        classify_stage(small_params(letters, 3, teams=teams, models=models, similarity=similarity), self.root)
        return contents(self.root / stage_dir("similarity", "m", TEAM))


@pytest.fixture
def folders(tmp_path, tiny_classifier):
    """Six trials, of which A 2 and B 1 show the same picture."""
    folders = Folders(tmp_path, tiny_classifier)
    for trial, seed in zip(TRIALS, (1, 2, 3, 2, 5, 6), strict=True):
        folders.picture(trial, seed)
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
    classifier = Classifier.load(folders.root / CLASSIFIER)
    expected = classifier.predict([Image.open(folders.path(trial)) for trial in TRIALS[:3]])
    similarities, names = expected.probabilities[:, 0], [f"team_A_{n}.png" for n in (1, 2, 3)]
    assert (content["count"], content["similarityRate"]) == (3, pytest.approx(similarities.mean(), abs=1e-12))
    trials = [{"id": name, "label": "A", "similarity": value} for name, value in zip(names, similarities, strict=True)]
    assert content["trials"] == trials
    for entry, row, embedding in zip(content["similarities"], expected.probabilities, expected.embeddings, strict=True):
        labels = zip(range(26), "ABCDEFGHIJKLMNOPQRSTUVWXYZ", row.tolist(), strict=True)
        assert [(raw["id"], raw["label"], raw["softmax_prob"]) for raw in entry["raws"]] == list(labels)
        assert entry["cls_embedding"] == embedding.tolist()
    packages = {name: version(name).split("+")[0] for name in PACKAGES}
    made_by = {"name": "data/classifier", "revision": None, "sha256": classifier.sha256, "precision": "float64"}
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
    shutil.rmtree(folders.root / ".cache")
    assert folders.run(batch=5) == first
    assert sum(inferred) == 10
    (kept,) = folders.root.glob(".cache/predictions/*.jsonl")
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join([*lines[:3], lines[3].replace(b"[", b"{"), lines[4], lines[5][:-40]]))  # a killed run
    assert folders.run() == first
    assert sum(inferred) == 12
    assert folders.run() == first
    assert sum(inferred) == 12


def test_another_classifier_precision_package_or_code_shares_nothing(folders, inferred, tmp_path, monkeypatch):
    folders.run()
    single = json.loads(folders.run(precision="float32")["classifier.json"])
    assert (single["precision"], list(single["packages"])) == ("float32", sorted(TORCH_PACKAGES))
    with monkeypatch.context() as without_numpy:
        without_numpy.setattr("pcgeval.similarity.source.MAX_BYTES", 0)
        folders.run()
    assert sum(inferred) == 3 * 5
    folders.choose(save_vit(tmp_path / "other", width=32))
    folders.run()
    assert sum(inferred) == 4 * 5
    for number, name in enumerate(("installed_versions", "source_sha256"), start=5):
        monkeypatch.setattr(f"pcgeval.similarity.stage.{name}", lambda *_: {"torch": "3.0"})
        monkeypatch.setattr("pcgeval.formats.stages.installed_release", lambda number=number: str(number))
        folders.run()
        assert sum(inferred) == number * 5


def test_a_trial_without_a_picture_has_no_entry_and_a_broken_picture_is_refused(folders):
    folders.path(TRIALS[1]).unlink()
    content = json.loads(folders.run()["A.json"])
    assert content["count"] == 2
    assert [entry["id"] for entry in content["similarities"]] == ["team_A_1.png", "team_A_3.png"]
    folders.path(TRIALS[0]).write_bytes(b"no PNG")
    with pytest.raises(PcgevalError, match="data/images: a picture is no PNG"):
        folders.run()
    shutil.rmtree(folders.root / stage_dir("images", "m", TEAM))
    empty = {"count": 0, "similarityRate": 0, "trials": [], "similarities": []}
    assert json.loads(folders.run()["B.json"]) == empty
    assert json.loads(folders.run(letters="ABC")["C.json"]) == empty
