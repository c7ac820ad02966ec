"""The official tools' own answers, byte for byte, and long hostile texts, which must take linear time."""

import gzip
import json
from pathlib import Path

import pytest

from pcgeval import LevelError, extract_code, level_xml
from pcgeval.levels.blocks import level_blocks
from pcgeval.levels.conversion import why_no_code

GOLDEN = Path(__file__).parents[1] / "golden/levels"
MANY = 10_000_000  # characters


def cases(name):
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8", newline="\n") as file:  # raw U+2028 occurs in texts
        return [json.loads(line) for line in file]


def convert(code):
    try:
        return level_xml(code), None
    except LevelError as error:
        return None, str(error)


def test_extraction_and_conversion_are_the_official_ones_and_every_level_can_be_read_back():
    responses = cases("levels.jsonl.gz")
    assert [case["id"] for case in responses if extract_code(case["response"]) != case["extracted"]] == []
    extracted = [case for case in responses if case["extracted"] is not None]
    assert len(extracted) > 1000
    assert [case["id"] for case in extracted if convert(case["extracted"]) != (case["xml"], case["error"])] == []
    for case in extracted:
        if case["xml"] is not None:
            assert len(level_blocks(case["xml"].encode("utf-8"))) == case["extracted"].count("\n")


def test_conversion_of_any_text_is_the_official_one():
    texts = cases("converter.jsonl.gz")
    assert [case["id"] for case in texts if convert(case["text"]) != (case["xml"], case["error"])] == []


@pytest.mark.parametrize(
    "response",
    [
        "`" * MANY,
        "```" + "a" * MANY,
        "```a" * 1_000_000,
        "```a`" * (MANY // 5),
        "```" + "drop_block('b11'," * (MANY // 17) + "```",
        "```drop_block('b11'," + " " * MANY + "```",
        "```drop_block('b11', " + "1" * MANY + "```",
        "```" + "drop_block('b11', 1" * (MANY // 19) + "```",
        "```" + "drop block drop_block( \u200b" * (MANY // 24) + "```",
        "```" + "def drop_block\n" * (MANY // 15) + "drop_block(" + "\t" * MANY + "```",
    ],
    ids=range(10),
)
def test_long_responses_without_code(response):
    assert extract_code(response) is None
    assert len(why_no_code(response).sentence) < 350


def test_a_million_fences_and_half_a_million_calls():
    assert extract_code("```drop_block('b11', 1)```\n" * 1_000_000) == "drop_block('b11', 1)\n"
    code = extract_code("```" + "drop_block('b11', 1)" * 500_000 + "```")
    assert code.count("\n") == 500_000
    with pytest.raises(LevelError, match="Height boundary"):
        level_xml(code)


def test_a_long_text_without_a_call_is_an_empty_level():
    assert level_xml("\n\x00\ud800\u0130" * (MANY // 4)) == level_xml("x" * MANY + "\ndrop_block") == level_xml("")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("drop_block(" * (MANY // 11), "BlockType"),
        ("drop_block('b11'" + "," * MANY, "Height"),
        ("drop_block('b11'," + "\ufeff" * MANY, "Height"),
        ("drop_block('b11'," + "9" * MANY, "Height"),
        ("drop_block('b31', " + "0" * MANY + ")", "Width"),
    ],
    ids=range(5),
)
def test_a_long_call_is_refused_with_a_short_reason(code, message):
    with pytest.raises(LevelError, match=message) as caught:
        level_xml(code)
    assert len(caught.value.failure.sentence) < 250
