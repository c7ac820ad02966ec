import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval import extract_code
from pcgeval.levels.extraction import no_code_reason

OPEN = "no closed fenced block"
NO_CALL = "holds no drop_block call"
MARKS = ["```", "``", "`", "````", "\n", "prose ", "~~~", "\ud800", "\x00", "\u2028"]
PARTS = ["drop_block(", "'b11'", "'b||'", '"b31"', ", ", ",", ",\t", "7", ")", "\u0663"]
CALLS = ["drop_block('b13', 4)", 'drop_block("b31",)', "Drop_block('b11', 1)"]
texts = st.lists(st.sampled_from(MARKS + PARTS + CALLS), max_size=30).map("".join)


def official_extraction(text):
    """The result of `extractCode` in the competition's JavaScript library, by its patterns as they are."""
    blocks = re.findall("```([^`]+)```", text)
    calls = re.findall(r"""drop_block\(['|"]b[1|3][1|3]['|"], *[0-9]*\)""", blocks[-1]) if blocks else []
    return "".join(call.replace('"', "'") + "\n" for call in calls) or None


@given(texts)
def test_agrees_with_the_official_patterns(text):
    assert extract_code(text) == official_extraction(text)
    assert extract_code(f"```{text}```") == official_extraction(f"```{text}```")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (" \n", "the response is empty"),
        ("drop_block('b11', 1)", OPEN),
        ("```drop_block('b11', -1)```", NO_CALL),
        ("```drop_block('b11', 1)```\n```done```", f"{NO_CALL}; an earlier one does"),
    ],
)
def test_a_response_without_code_has_a_reason(response, reason):
    assert extract_code(response) is None
    assert reason in no_code_reason(response)
