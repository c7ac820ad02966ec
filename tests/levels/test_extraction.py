import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval import extract_code
from pcgeval.levels.unread import why_no_code

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


NOT_READ = {
    "drop_block( 'b13', 7 )": "blanks inside the brackets",
    "drop_block('b13', 7 )": "blanks inside the brackets",
    "drop_block ('b13', 7)": "blanks before the bracket",
    "drop_block(b31, 7)": "no quotes around the type",
    "drop_block(\u2018b31\u2019, 7)": "curly quotes",
    "drop_block('b12', 7)": "no type b11, b13 or b31",
    "drop_block('b13', 7.5)": "no whole number",
    "drop_block('b13', -1)": "a negative column",
    "drop_block('b13', x_position=7)": "names its arguments",
    "drop_block(type='b13', x=7)": "names its arguments",
    "drop_block('b13', x)": "no number",
    "drop_block('b13', '7')": "quotes around the column",
    "drop_block('b13' , 7)": "no comma directly behind the type",
    "drop_block('b13',\t7)": "a tab or a line end",
    "drop_block('b13')": "no column",
    "drop_block('b13', 7, 2)": "more than two arguments",
    "drop_block('b13', 7": "not closed",
    "Drop_Block('b13', 7)": "not spelt",
}


@pytest.mark.parametrize(("call", "fault"), NOT_READ.items())
def test_a_call_that_is_not_read_is_named_with_its_line(call, fault):
    response = f"Sure:\n```python\n# H\n{call}\n```\n"
    assert extract_code(response) is None
    failed = why_no_code(response)
    assert failed.kind == "unread-call"
    assert failed.sentence.startswith(f"line 4: `{' '.join(call.split())}` ")
    assert fault in failed.sentence


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        (" \n", "the response is empty"),
        ("drop_block('b11', 1)", "the response holds no fenced block"),
        ("a\n```\ndrop_block('b11', 1)", "line 2: the fenced block that begins there is never closed"),
        ("```drop_block('b11', 1)```\n```done```", "an earlier fence held the level (1 call, line 1)"),
        ("```done```\n```\ndrop_block('b11', 1)", "line 2: the fenced block that begins there is never closed"),
        ("```done```", "the last fenced block holds no drop_block call"),
    ],
)
def test_a_response_without_code_has_a_reason(response, sentence):
    assert extract_code(response) is None
    assert why_no_code(response).sentence.startswith(sentence)


@given(texts)
def test_every_response_without_code_has_a_printable_reason(text):
    if extract_code(text) is None:
        assert len(why_no_code(text).sentence) < 300
        assert why_no_code(text).sentence.isprintable()
