"""The second test set of the classifier: its figures are of the classifier and the frozen pictures in git."""

import gzip
import importlib
import json
from pathlib import Path

import pytest

from pcgeval.similarity.source import resolve_source

ROOT = Path(__file__).parents[2]
SECOND = ROOT / "training" / "second"


@pytest.fixture
def second_set(tmp_path, monkeypatch):
    """The module, with a set of one level instead of the real one."""
    monkeypatch.syspath_prepend(str(ROOT / "training"))
    module = importlib.import_module("second_set")
    monkeypatch.setattr(module, "FONT_KINDS", ())
    monkeypatch.setattr(module, "LEVELS", tmp_path / "levels.jsonl.gz")
    monkeypatch.setattr(module, "FROZEN", tmp_path / "frozen.json")
    return module


def write_level(path, letters, x):
    blocks = [["RectSmall", x, 0.12, 0.0]] * 2 + [["SquareTiny", 0, 0.5, 0]]
    row = {"part": "real", "name": "one", "letters": letters, "blocks": blocks}
    path.write_bytes(gzip.compress(json.dumps(row).encode()))


@pytest.mark.parametrize(("letters", "x"), [("J", 0.0), ("L", 0.3)])
def test_a_frozen_set_is_not_frozen_again_and_another_letter_or_picture_is_refused(second_set, letters, x):
    write_level(second_set.LEVELS, "L", 0.0)
    second_set.main()
    second_set.check_frozen()
    with pytest.raises(SystemExit, match="is frozen"):
        second_set.main()
    write_level(second_set.LEVELS, letters, x)
    with pytest.raises(second_set.ChangedSetError, match="real are not those that were frozen"):
        second_set.check_frozen()


def test_the_figures_in_git_are_of_the_classifier_and_the_set_in_git():
    frozen, metrics = (json.loads((SECOND / f"{name}.json").read_text("utf-8")) for name in ("frozen", "metrics"))
    measured = {part: value["n"] for part, value in metrics["parts"].items() if part in frozen["parts"]}
    measured["real"] += metrics["real_without_letter"]["n"]
    assert measured == {part: value["pictures"] for part, value in frozen["parts"].items()}
    assert metrics["classifier_sha256"] == resolve_source(ROOT / "data" / "classifier", None).sha256
