"""The score of one level: the competition's own stages, in memory."""

import math
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from params_for_tests import small_params

from pcgeval import Classifier, LevelError, PhysicsParams, pipeline, render, score_level
from pcgeval.core.files import write_text
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import PACKAGED_DATA, Trial, stage_dir, trial_file

EXAMPLES = sorted((Path(__file__).parents[2] / "data/examples/letters").glob("*.txt"))
CALLS = "drop_block('b13', 5)\ndrop_block('b13', 5)"
STANDING = f"An I:\n```python\n{CALLS}\n```"
FALLING = "```\n" + "\n".join(f"drop_block('b31', {4 + row})" for row in range(6)) + "\n```"

pytestmark = pytest.mark.slow  # the stage simulate starts processes


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_letter_stands_also_when_jittered_and_is_recognised(path):
    assert len(EXAMPLES) == 26
    level = score_level(path.read_text("utf-8"), path.stem, physics=PhysicsParams(starts=4))
    assert level.stability == 1
    assert level.to_dict()["starts"] == [1.0] * 4
    assert level.likeliest[0][0] == path.stem
    assert level.recognised
    assert level.verdict.endswith(", recognised")
    assert level.similarity > 0.85


@pytest.mark.parametrize(("letter", "reply"), [("I", STANDING), ("Z", FALLING)])
def test_a_reply_scores_as_in_the_stages(tmp_path, letter, reply):
    params = small_params(letter)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/classifier").symlink_to(PACKAGED_DATA / "classifier")
    write_text(trial_file(tmp_path / stage_dir("raw", "m", "team"), "raw", "team", Trial(letter, 1)), reply)
    for stage in (pipeline.extract, pipeline.convert, pipeline.simulate, pipeline.classify):
        stage(params, tmp_path)
    stability, similarity = (tmp_path / stage_dir(name, "m", "team") for name in ("stability", "similarity"))
    score = score_level(reply, letter, Classifier.load())
    assert score.stability == pytest.approx(read_json(stability / f"{letter}.json")["raws"][0]["score"])
    assert score.similarity == read_json(similarity / f"{letter}.json")["trials"][0]["similarity"]
    assert (score.score, score.reason) == (score.stability * score.similarity, None)
    assert score.recognised is score.to_dict()["recognised"] is (letter == "I")


def test_a_reply_without_a_level_scores_0_and_says_why():
    score = score_level(CALLS, "A", read_as="response")  # a model is not paid for bare calls
    assert (score.score, score.stability, score.similarity, score.blocks, score.probabilities) == (0, 0, 0, (), {})
    assert (score.failed_stage, score.recognised) == ("extract", False)
    assert "no fenced block" in score.reason
    with pytest.raises(LevelError):
        score.image()


def test_a_response_its_calls_and_its_level_score_alike():
    thought = f"<think>An I is a column.</think>\n{STANDING}"
    response, calls = score_level(thought, "I"), score_level(CALLS, "I")
    level = score_level(calls.xml, "I")
    assert [score.read_as for score in (response, calls, level)] == ["response", "calls", "level"]
    assert response.xml == calls.xml == level.xml
    assert response.score == calls.score == level.score > 0
    assert [block.call for block in calls.blocks] == CALLS.split("\n")
    assert [block.call for block in level.blocks] == ["RectSmall", "RectSmall"]


def test_a_level_that_is_not_classified_has_no_similarity():
    simulated = score_level(STANDING, "I", classify=False)
    assert (simulated.stability, simulated.similarity, simulated.score, simulated.recognised) == (1, None, None, None)
    assert simulated.verdict == "stability 1.000, not classified"
    assert {key: simulated.to_dict()[key] for key in ("score", "similarity")} == {"score": None, "similarity": None}


def test_a_replay_and_the_blocks_go_from_the_level_as_written_to_the_end_of_its_simulation():
    score = score_level(FALLING, "I", classify=False)
    end, paths = score.simulated, {path.block: path.keys for path in score.simulated.paths}
    assert score.image().tobytes() == render(end).tobytes()
    assert len(etree.fromstring(score.svg()).findall(".//{*}path")) == 2  # the living that stayed, and that moved
    assert len(etree.fromstring(score.replay_svg()).findall(".//{*}animateTransform")) == 2 * len(paths) > 0
    black = [(np.asarray(picture) == 0).sum() for picture in score.before_and_after()]  # at one scale
    assert black[0] / 6 == pytest.approx(black[1] / (6 - sum(end.dead)), rel=0.1)
    fates = [block.fate for block in score.blocks]
    assert [fate != "stayed" for fate in fates] == list(end.moved)
    assert [fate == "broke" for fate in fates] == list(end.dead)
    assert {"broke", "moved"} <= set(fates)
    for number in (number for number, fate in enumerate(fates) if fate == "moved"):
        before, block, (x, y, angle) = score.before[number], score.blocks[number], end.positions[number]
        turned = abs((math.degrees(angle) - before.rotation + 180) % 360 - 180)
        distances = (math.dist((before.x, before.y), (x, y)), before.y - y, turned)
        assert (block.distance, block.fell, block.turned) == pytest.approx(distances, abs=1e-3)
        assert paths[number][0] == pytest.approx((0, 1000 * before.x, 1000 * before.y, before.rotation), abs=1)
        assert paths[number][-1][1:] == pytest.approx((1000 * x, 1000 * y, math.degrees(angle)), abs=1)
