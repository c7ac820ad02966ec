import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.levels import calls
from pcgeval.levels.calls import Call, read_calls

JAVASCRIPT_SPACE = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
JAVASCRIPT_SPACE += "\u2028\u2029\u202f\u205f\u3000\ufeff"
DIGITS = "0123456789"


def parse_int(text):
    """JavaScript's parseInt with radix 10, None for NaN."""
    text = text.lstrip(JAVASCRIPT_SPACE)
    sign = -1 if text[:1] == "-" else 1
    text = text[1:] if text[:1] in ("+", "-") else text
    value = None
    for character in text:
        if character not in DIGITS:
            break
        value = 10 * (value or 0) + DIGITS.index(character)
    return None if value is None else sign * value


def units(text):
    """A string as JavaScript sees it: its UTF-16 units, each as one character."""
    content = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(int.from_bytes(content[at : at + 2], "little")) for at in range(0, len(content), 2))


def literal_call(line):
    """Kind and column by the official rules: substring from 12 to before the comma, parseInt of the rest up to `)`."""
    line = units(line)
    comma = line.find(",")
    kind = line[12 : comma - 1] if comma >= 13 else None
    column = parse_int(line[comma + 1 :].split(")")[0])
    return (kind if kind in ("b11", "b13", "b31") else None), (
        column if column is not None and 0 <= column < 20 else None
    )


def one(line):
    (call,) = read_calls(line)
    column = call.column if call.column is not None and call.column < 20 else None
    return call.kind, column


quotes = st.one_of(st.sampled_from("'\"|(), "), st.characters(exclude_characters="\n")) | st.just("")
kinds = st.sampled_from(["b11", "b13", "b31", "B31", "b33", "b|1", "b1\u0661", "", "tostring", "0"])
blanks = st.text(st.sampled_from(JAVASCRIPT_SPACE.replace("\n", "") + "\x1c\x1f\x85\u180e\u200b\x00"), max_size=3)
numbers = st.one_of(
    st.integers(-25, 25).map(str),
    st.sampled_from(
        ["-0", "+0", "--1", "+-1", "", "1e1", "0x9", "1_0", "7.9", "(4)", "\u0665", "5\u0665", "NaN", ".5", "5)6"]
    ),
    st.text("0123456789+-", max_size=6),
)


ends = st.sampled_from([")", "", " )", ")x)"])
parts = st.tuples(
    st.just("drop_block("), quotes, kinds, quotes, st.sampled_from([",", ",,", ";", ""]), blanks, numbers, ends
)


@given(parts.map("".join).map(str.lower).filter(lambda line: "\n" not in line))
def test_agrees_with_the_literal_reading(line):
    got_kind, got_column = one(line)
    kind, column = literal_call(line)
    assert got_kind == kind
    if kind:
        assert got_column == column


def test_every_character_before_the_column_is_space_or_not_as_in_javascript():
    lines = [f"drop_block('b11',{character}5)" for character in map(chr, range(0x10000)) if character != "\n"]
    lines = [line for line in lines if line == line.lower()]
    assert [line for line in lines if one(line) != literal_call(line)] == []


def test_only_lines_that_start_like_a_call_count():
    code = "drop_block\n drop_block('b11', 1)\n\ufeffdrop_block('b11', 1)\n# drop_block('b11', 1)\n\r"
    assert list(read_calls(code)) == []


def test_only_a_line_feed_ends_a_line():
    code = (
        "drop_block('b11', 1)\u2028drop_block('b13', 2)\x85\x0b\x0c\r\x1cdrop_block('b13', 2)\ndrop_block('b31', 3)\r"
    )
    assert [(call.kind, call.column) for call in read_calls(code)] == [("b11", 1), ("b31", 3)]


def test_lower_case_is_unicode_lower_case():
    assert one("DROP_BLOC\u212a('B13', 4)") == ("b13", 4)
    assert list(read_calls("\u0130drop_block('b11', 1)")) == []


@pytest.mark.parametrize(
    ("quote", "kind"),
    [("X", "b11"), ("\ufeff", "b11"), ("\ud83d", "b11"), ("\u03a3", "b11"), ("\u0130", None), ("\U0001f60a", None)],
)
def test_a_quote_is_one_utf_16_unit(quote, kind):
    assert one(f"drop_block({quote}b11', 3)") == (kind, 3 if kind else None)


def test_columns_of_any_length():
    assert one(f"drop_block('b11', {'0' * 100_000}7)") == ("b11", 7)
    assert one(f"drop_block('b11', -{'0' * 100_000})") == ("b11", 0)
    assert one(f"drop_block('b11', {'9' * 100_000})") == ("b11", None)


def test_a_long_line_is_neither_kept_nor_shown_whole():
    calls._read_short.cache_clear()
    (call,) = read_calls("drop_block('b11', 5)" + "x" * 100_000)
    assert call == Call(("drop_block('b11', 5)" + "x" * 44), "b11", 5)
    assert calls._read_short.cache_info().currsize == 0
