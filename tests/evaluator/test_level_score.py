"""The score of one level: the competition's own stages, in memory."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl
from lxml import etree
from params_for_tests import small_params

from pcgeval import Classifier, LevelError, PhysicsParams, Similarity, render, score_level
from pcgeval.core.files import read_json, write_text
from pcgeval.core.layout import Trial, stage_dir, trial_file
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.levels.stages import convert_stage, extract_stage
from pcgeval.similarity.classifier import loaded_classifier
from pcgeval.similarity.stage import classify_stage

SETTINGS = Similarity(model=str(Path(__file__).parents[2] / "data" / "classifier"))
PHYSICS = PhysicsParams()
STANDING = "An I:\n```python\ndrop_block('b13', 5)\ndrop_block('b13', 5)\n```"
FALLING = "```\n" + "\n".join(f"drop_block('b31', {4 + row})" for row in range(6)) + "\n```"

pytestmark = pytest.mark.slow  # torch is loaded


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return loaded_classifier(SETTINGS.model)


@pytest.mark.parametrize(
    ("letter", "reply"), [("I", STANDING), ("L", STANDING), ("I", FALLING), ("Z", FALLING)], ids="ILFZ"
)
def test_a_reply_scores_what_the_stages_give_it(tmp_path, classifier, letter, reply):
    params = small_params(letter, similarity=SETTINGS.model_dump(), physics=PHYSICS.model_dump())
    write_text(trial_file(tmp_path / stage_dir("raw", "m", "team"), "raw", "team", Trial(letter, 1)), reply)
    for stage in (extract_stage, convert_stage, simulate_stage, classify_stage):
        stage(params, tmp_path)
    stability, similarity = (tmp_path / stage_dir(name, "m", "team") for name in ("stability", "similarity"))
    found = score_level(reply, letter, classifier, PHYSICS)
    assert found.stability == pytest.approx(read_json(stability / f"{letter}.json")["raws"][0]["score"])
    assert found.similarity == read_json(similarity / f"{letter}.json")["trials"][0]["similarity"]
    assert found.score == found.stability * found.similarity
    assert sum(found.probabilities.values()) == pytest.approx(1, abs=1e-5)
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
    found = score_level(reply, "A", classifier, PHYSICS, read_as="response")
    assert (found.score, found.stability, found.similarity, found.blocks, found.probabilities) == (0, 0, 0, (), {})
    assert found.failed_stage in {"extract", "convert"}
    assert reason in found.reason


def test_letters_are_told_apart(classifier):
    by_letter = {letter: score_level(STANDING, letter, classifier, PHYSICS).similarity for letter in "IOW"}
    assert all(by_letter["I"] > by_letter[other] for other in "OW")
    assert len(set(by_letter.values())) == 3


CALLS = "drop_block('b13', 5)\ndrop_block('b13', 5)"


def test_a_response_its_calls_and_its_level_score_alike(classifier):
    response = score_level(STANDING, "I", classifier)
    calls = score_level(CALLS, "I", classifier)
    level = score_level(calls.xml, "I", classifier)
    assert [each.read_as for each in (response, calls, level)] == ["response", "calls", "level"]
    assert response.xml == calls.xml == level.xml
    assert response.score == calls.score == level.score > 0
    assert response.grid == calls.grid == (".....2" + "." * 14,) * 3 + (".....1" + "." * 14,) * 3
    assert level.code is None
    assert level.grid == ()
    assert [block.call for block in calls.blocks] == CALLS.split("\n")
    assert [block.call for block in level.blocks] == ["RectSmall", "RectSmall"]


def test_a_model_is_not_paid_for_bare_calls(classifier):
    assert score_level(CALLS, "I", classifier, read_as="response").failed_stage == "extract"


def test_every_block_that_moved_is_named(classifier):
    found = score_level(FALLING, "I", classifier)
    moved = [block.number for block in found.blocks if block.fate != "stayed"]
    assert [number for number, fell in enumerate(found.simulated.moved, start=1) if fell] == moved
    assert found.stability == pytest.approx(1 - len(moved) / 6)
    assert all(block.distance >= PHYSICS.moved_distance for block in found.blocks if block.fate == "moved")


def test_pictures_of_before_and_after(classifier):
    found = score_level(FALLING, "I", classifier)
    assert found.image().tobytes() == render(found.simulated).tobytes()
    assert found.image(before=True).tobytes() != found.image().tobytes()
    for svg in (found.svg(), found.svg(before=True), found.replay_svg()):
        root = etree.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    replay = etree.fromstring(found.replay_svg())
    assert len(replay.findall(".//{*}g")) == 6
    assert len(replay.findall(".//{*}animateTransform")) == 2 * len(found.simulated.paths) > 0
    assert found._repr_html_().count("<svg") == 2


def test_before_and_after_can_be_drawn_to_one_scale():
    found = score_level(FALLING, "I", classify=False)
    blocks = len(found.before), sum(not dead for dead in found.simulated.dead)

    def pixels_of_a_block(*pictures):
        black = [(np.asarray(picture) == 0).sum() for picture in pictures]
        return [pixels / number for pixels, number in zip(black, blocks, strict=True)]

    before, after = pixels_of_a_block(found.image(before=True), found.image())
    assert before != pytest.approx(after, rel=0.1)
    before, after = pixels_of_a_block(*found.before_and_after())
    assert before == pytest.approx(after, rel=0.1)


def test_linear_algebra_takes_one_thread(classifier):
    picture = score_level(STANDING, "I", classify=False).image()
    classifier.predict([picture])
    before = [each["num_threads"] for each in threadpoolctl.threadpool_info()]
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(10):
        classifier.predict([picture])
    assert time.process_time() - cpu < 1.5 * (time.perf_counter() - wall)
    assert [each["num_threads"] for each in threadpoolctl.threadpool_info()] == before


def test_without_a_classifier_the_default_one_tells_the_letter(classifier):
    assert score_level(STANDING, "I").to_dict() == score_level(STANDING, "I", classifier).to_dict()
    simulated = score_level(STANDING, "I", classify=False)
    assert simulated.stability == 1
    assert math.isnan(simulated.similarity)
    assert simulated.to_dict()["similarity"] is None


def test_a_replay_begins_as_written_and_ends_where_the_simulation_ended():
    found = score_level(FALLING, "I", classify=False)
    end, ways = found.simulated, {path.block: path.keys for path in found.simulated.paths}
    assert 0 < sum(end.dead) < len(end.dead)
    for number, (before, after) in enumerate(zip(found.before, end.positions, strict=True)):
        if end.dead[number] or end.moved[number]:
            first, last = ways[number][0], ways[number][-1]
            assert first == pytest.approx((0, 1000 * before.x, 1000 * before.y, before.rotation), abs=1)
            if not end.dead[number]:
                assert last[1:3] == pytest.approx(1000 * after[:2], abs=1)
                assert last[3] == pytest.approx(math.degrees(after[2]), abs=1)


def test_everything_is_json_and_nothing_of_it_is_markup(classifier):
    found = score_level(FALLING, "I", classifier)
    values = json.loads(json.dumps(found.to_dict()))
    assert values["score"] == found.score
    assert len(values["likeliest"]) == 5
    assert values["likeliest"][0][1] == max(values["probabilities"].values())
    failed = score_level("```\ndrop_block('b31', 0)<script>\n```", "I", classifier)
    assert "<script" not in failed._repr_html_()
    assert failed.to_dict()["reason"]
    with pytest.raises(LevelError):
        failed.image()


@pytest.mark.parametrize("letter", ["", "a", "AB", "1", "Ä"])
def test_a_letter_is_a_capital(letter):
    with pytest.raises(ValueError, match="letter"):
        score_level(CALLS, letter)
