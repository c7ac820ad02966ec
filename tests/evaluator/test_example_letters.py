"""The hand-made letters in data/examples/letters: all of them stand, also when jittered, and are recognised."""

from pathlib import Path

import pytest

from pcgeval import PhysicsParams, score_level

LETTERS = sorted((Path(__file__).parents[2] / "data/examples/letters").glob("*.txt"))


@pytest.mark.parametrize("path", LETTERS, ids=lambda path: path.stem)
def test_an_example_letter_stands_and_is_recognised(path: Path) -> None:
    assert len(LETTERS) == 26
    level = score_level(path.read_text("utf-8"), path.stem, physics=PhysicsParams(starts=4))
    assert level.stability == 1
    assert level.to_dict()["starts"] == [1.0] * 4
    assert level.likeliest[0][0] == path.stem
    assert level.similarity > 0.85
