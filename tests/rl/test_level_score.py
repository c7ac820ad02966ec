"""The score of a reply: the competition's own steps, in memory."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.files import read_json, write_text
from pcgeval.core.layout import Trial, trial_file
from pcgeval.core.params import PhysicsParams, Similarity
from pcgeval.core.stage_files import succeeded, write_outcomes
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.levels.stages import convert_stage, extract_stage
from pcgeval.rl.level_score import loaded_classifier, mean_distances, score_reply
from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.diversity import diversity
from pcgeval.similarity.stage import classify_stage

SETTINGS = Similarity(model=str(Path(__file__).parents[2] / "data" / "classifier"))
PHYSICS = PhysicsParams()
STANDING = "An I:\n```python\ndrop_block('b13', 5)\ndrop_block('b13', 5)\n```"
FALLING = "```\n" + "\n".join(f"drop_block('b31', {4 + row})" for row in range(6)) + "\n```"


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return loaded_classifier(SETTINGS)


@pytest.mark.parametrize(
    ("letter", "reply"), [("I", STANDING), ("L", STANDING), ("I", FALLING), ("Z", FALLING)], ids="ILFZ"
)
def test_a_reply_scores_what_the_stages_give_it(tmp_path, classifier, letter, reply):
    trial = Trial(letter, 1)
    places = [tmp_path / name for name in ("raw", "intermediate", "levels", "stability", "images", "similarity")]
    raw, intermediate, levels, stability, images, similarity = places
    write_text(trial_file(raw, "raw", "team", trial), reply)
    write_outcomes(raw, [succeeded(trial)])
    extract_stage(raw, intermediate, "team", [trial])
    convert_stage(intermediate, levels, "team", [trial])
    simulate_stage(levels, stability, images, "team", [trial], physics=PHYSICS)
    classify_stage(images, similarity, "team", [trial], SETTINGS, tmp_path / "cache")
    found = score_reply(reply, letter, classifier, PHYSICS)
    assert found.stability == pytest.approx(read_json(stability / f"{letter}.json")["raws"][0]["score"])
    assert found.similarity == read_json(similarity / f"{letter}.json")["trials"][0]["similarity"]
    assert found.score == found.stability * found.similarity
    assert sum(found.probabilities) == pytest.approx(1, abs=1e-5)
    assert found.reason is None


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no code: the response is empty"),
        ("drop_block('b11', 3)", "no closed fenced block"),
        ("```\nprint(1)\n```", "holds no drop_block call"),
        ("```\ndrop_block('b13', 20)\n```", "Height boundary is intruded"),
        ("```\ndrop_block('b31', 0)\n```", "Width boundary is intruded"),
        ("```\n" + "drop_block('b11', 3)\n" * 17 + "```", "Height boundary is intruded"),
        ("`" * 10_000_000, "no code"),
        ("```\n" + "drop_block('b11', " * 200_000 + "```", "no code"),
    ],
)
def test_a_reply_without_a_level_scores_0_and_says_why(classifier, reply, reason):
    found = score_reply(reply, "A", classifier, PHYSICS)
    assert (found.score, found.stability, found.similarity, found.blocks, found.probabilities) == (0, 0, 0, 0, ())
    assert reason in found.reason


def literal_distance(one: list[float], other: list[float]) -> float:
    return 1 - float(np.dot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other)))


vectors = st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3) | st.just([]), min_size=2, max_size=6)


@given(vectors)
def test_mean_distances_are_the_parts_of_the_competitions_diversity(group):
    found = mean_distances(group, len(group))
    for place, vector in enumerate(group):
        others = [each for index, each in enumerate(group) if index != place and each]
        literal = sum(literal_distance(vector, other) for other in others) / (len(group) - 1) if vector else 0
        assert found[place] == pytest.approx(literal, abs=1e-9)
    assert np.mean(found) == pytest.approx(diversity([each for each in group if each], len(group)), abs=1e-9)


def test_equal_levels_have_no_distance():
    assert mean_distances([[0.2, 0.8]] * 3, 3) == pytest.approx((0, 0, 0))
    assert mean_distances([[], []], 2) == (0, 0)


def test_letters_are_told_apart(classifier):
    by_letter = {letter: score_reply(STANDING, letter, classifier, PHYSICS).similarity for letter in "IOW"}
    assert all(by_letter["I"] > by_letter[other] for other in "OW")
    assert len(set(by_letter.values())) == 3
