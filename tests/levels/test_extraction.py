import re

import pytest
from hypothesis import given, strategies as st

from pcgeval import extract_code
from pcgeval.levels.conversion import why_no_code

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


LEVEL, EMPTY = "```\ndrop_block('b11', 1)\n```\n", "```\ndone\n```\n"


@pytest.mark.parametrize(
    ("response", "kind", "words"),
    [
        (" \n", "empty-response", "empty"),
        ("Sorry.", "no-fence", "no drop_block call"),
        (2 * "drop_block('b11', 1)\n", "no-fence", "2 drop_block calls"),
        ("Here:\n```python\ndrop_block('b11', 1)\n", "open-fence", "line 2"),
        (f"{EMPTY}So:\n```\ndrop_block('b11', 1)\n", "open-fence", "line 5"),
        ("\n```\n# the `I`\ndrop_block('b11', 1)\n```", "backtick", "line 2: .* in line 3"),
        (f"```\n# `I`\ndrop_block('b11', 1)\n```\n{EMPTY}", "backtick", "line 1: .* in line 2"),
        (f"Hi\n{LEVEL}{EMPTY}", "earlier-fence", "1 call, line 2"),
        (f"{LEVEL}```\ndrop_block( 'b11', 1)\n```", "earlier-fence", "1 call, line 1"),
        (f"{EMPTY}{EMPTY}", "no-call", "lines 4 to 6"),
    ],
)
def test_a_response_without_code_has_a_reason(response, kind, words):
    assert extract_code(response) is None
    found = why_no_code(response)
    assert found.kind == kind
    assert re.search(words, found.sentence)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("drop_block( 'b13', 7 )", "blanks inside the brackets"),
        ("drop_block('b13', 7 )", "blanks inside the brackets"),
        ("drop_block(b31, 7)", "no quotes around the type"),
        ("drop_block('b12', 7)", "'b12', which does not exist"),
        ("drop_block('B13', 7)", "capital letter in the type"),
        ("drop_block('b13 ', 7)", "blanks inside the quotes"),
        ("drop_block(\u2018b13\u2019, 7)", "other quotes"),
        ("drop_block('b13', 7.5)", "the column 7.5; write a whole number"),
        ("drop_block('b13', -1)", "negative"),
        ("drop_block('b13', '7')", "quotes around the column"),
        ("drop_block('b13', x + int(1))", "`x + int(1)` in place of a column"),
        ("drop_block('b13', x_position=7)", "names its arguments"),
        ("drop_block(type='b13', x=7)", "names its arguments"),
        ("drop_block(kind, 7)", "`kind` in place of a type"),
        ("drop_block('b13')", "no column"),
        ("drop_block('b13', 7, 2)", "more in its brackets"),
        ("drop_block('b13', 7", "no closing bracket"),
        ("drop_block 'b13', 7", "no brackets"),
        ("drop_block('b13' , 7)", "blank before the comma"),
        ("drop_block('b13',\\t7)", "a tab after the comma"),
        ("drop_block ('b13', 7)", "blank before the bracket"),
        ("Drop_Block('b13', 7)", "another name"),
        ("dropBlock('b13', 7)", "another name"),
        ("drop_block('b13'; 7)", "not written as"),
    ],
)
def test_a_call_that_is_not_read_is_named_with_its_line_and_what_is_read(call, fault):
    text = "Hi\n```\n# drop_block is called\ndef drop_block(block, x):\n" + call.replace("\\t", "\t") + "\n```"
    found = why_no_code(text)
    assert (found.kind, found.sentence.split("`")[:2]) == ("unread-call", ["line 5: ", call])
    assert fault in found.sentence
    assert extract_code(text) is None


@given(texts)
def test_every_response_without_code_has_a_short_printable_reason(text):
    for response in (text, f"```{text}```"):
        if extract_code(response) is None:
            sentence = why_no_code(response).sentence
            assert sentence.isprintable()
            assert len(sentence) < 350
