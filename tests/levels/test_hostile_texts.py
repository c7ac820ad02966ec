"""Ten million characters of everything: linear time, or these tests would not end."""

import pytest

from pcgeval.levels.extraction import extract_code, no_code_reason
from pcgeval.levels.xml import LevelError, level_xml

MANY = 10_000_000


@pytest.mark.parametrize(
    "response",
    [
        "`" * MANY,
        "```" + "a" * MANY,
        "```a" * 1_000_000,
        "```a`" * (MANY // 5),
        "``a" * (MANY // 3),
        "```" + "drop_block('b11'," * (MANY // 17) + "```",
        "```drop_block('b11'," + " " * MANY + "```",
        "```drop_block('b11', " + "1" * MANY + "```",
        "```" + "drop_block('b11', 1" * (MANY // 19) + "```",
        "\x00" * MANY,
        "```" + "\ud800" * MANY + "```",
    ],
    ids=range(11),
)
def test_responses_without_code(response):
    assert extract_code(response) is None
    assert no_code_reason(response).startswith("no code: the")


def test_a_million_fences_around_calls():
    assert extract_code("```drop_block('b11', 1)```\n" * 1_000_000) == "drop_block('b11', 1)\n"


def test_half_a_million_calls():
    code = extract_code("```" + "drop_block('b11', 1)" * 500_000 + "```")
    assert code.count("\n") == 500_000
    with pytest.raises(LevelError, match="Height boundary") as caught:
        level_xml(code)
    assert caught.value.where == "call 17: \"drop_block('b11', 1)\""


@pytest.mark.parametrize(
    "code",
    [
        "\n" * MANY,
        "\x00\ud800" * (MANY // 2),
        "drop_block\n" * (MANY // 11),
        "x" * MANY + "\ndrop_block",
        "\u0130" * MANY,
    ],
    ids=range(5),
)
def test_code_without_calls(code):
    assert level_xml(code) == level_xml("")


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
def test_code_with_one_long_call(code, message):
    with pytest.raises(LevelError, match=message) as caught:
        level_xml(code)
    assert len(caught.value.reason) < 800
