import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval import extract_code
from pcgeval.levels.extraction import no_code_reason

FENCE = "```"
OPEN = "no closed fenced block"
NO_CALL = "holds no drop_block call"
MARKS = ["```", "``", "`", "````", "\n", "prose ", "~~~", "\ud800", "\x00", "\u2028"]
PARTS = ["drop_block(", "'b11'", "'b||'", '"b31"', ", ", ",", ",\t", "7", ")", "\u0663"]
CALLS = ["drop_block('b13', 4)", 'drop_block("b31",)', "Drop_block('b11', 1)"]
texts = st.lists(st.sampled_from(MARKS + PARTS + CALLS), max_size=30).map("".join)


def block_bodies(text):
    """Find what lies between three backticks and the next three, without a backtick and not empty, step by step."""
    bodies, at = [], 0
    while at < len(text):
        if text.startswith(FENCE, at):
            end = at + 3
            while end < len(text) and text[end] != "`":
                end += 1
            if end > at + 3 and text.startswith(FENCE, end):
                bodies.append(text[at + 3 : end])
                at = end + 3
                continue
        at += 1
    return bodies


def literal_extraction(text):
    bodies = block_bodies(text)
    calls = re.findall(r"""drop_block\(['|"]b[1|3][1|3]['|"], *[0-9]*\)""", bodies[-1]) if bodies else []
    return "".join(call.replace('"', "'") + "\n" for call in calls) or None


@given(texts)
def test_agrees_with_the_step_by_step_reading(text):
    assert extract_code(text) == literal_extraction(text)
    assert extract_code(f"```{text}```") == literal_extraction(f"```{text}```")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (" \n", "the response is empty"),
        ("drop_block('b11', 1)", OPEN),
        ("```drop_block('b11', 1) `x` ```", OPEN),
        ("```drop_block('b11', -1)```", NO_CALL),
        ("```drop_block('b11', 1)```\n```done```", f"{NO_CALL}; an earlier one does"),
        ("``` ```drop_block('b11', 1)``` prose ```", NO_CALL),  # a stray fence makes prose the last block
    ],
)
def test_a_response_without_code_has_a_reason(response, reason):
    assert extract_code(response) is None
    assert reason in no_code_reason(response)
