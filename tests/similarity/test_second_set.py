"""The second test set of the classifier: its figures are of the classifier and the frozen pictures in git."""

import gzip
import importlib
import json
from pathlib import Path

import pytest

from pcgeval.similarity.source import resolve_source

ROOT = Path(__file__).parents[2]
SECOND = ROOT / "training" / "second"


def write_level(path, letters, x):
    blocks = [["RectSmall", x, 0.12, 0.0]] * 2 + [["SquareTiny", 0, 0.5, 0]]
    row = {"part": "real", "name": "one", "letters": letters, "blocks": blocks}
    path.write_bytes(gzip.compress(json.dumps(row).encode()))


def test_a_frozen_set_is_not_frozen_again_and_another_letter_or_picture_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "training"))
    second_set = importlib.import_module("second_set")
    for name, value in (("FONT_KINDS", ()), ("LEVELS", tmp_path / "levels"), ("FROZEN", tmp_path / "frozen.json")):
        monkeypatch.setattr(second_set, name, value)  # a set of one level
    write_level(second_set.LEVELS, "L", 0.0)
    second_set.main()
    second_set.check_frozen()
    with pytest.raises(SystemExit, match="is frozen"):
        second_set.main()
    for letters, x in (("J", 0.0), ("L", 0.3)):
        write_level(second_set.LEVELS, letters, x)
        with pytest.raises(second_set.ChangedSetError, match="real are not those that were frozen"):
            second_set.check_frozen()


def test_the_figures_in_git_are_of_the_classifier_and_the_set_in_git():
    frozen, metrics = (json.loads((SECOND / f"{name}.json").read_text("utf-8")) for name in ("frozen", "metrics"))
    measured = {part: value["n"] for part, value in metrics["parts"].items() if part in frozen["parts"]}
    measured["real"] += metrics["real_without_letter"]["n"]
    assert measured == {part: value["pictures"] for part, value in frozen["parts"].items()}
    assert metrics["classifier_sha256"] == resolve_source(ROOT / "data" / "classifier", None).sha256
