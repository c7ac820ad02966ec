"""Calls and blocks against literal versions: the reading of a line, the fall in the grid, the level's XML."""

import pickle
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pcgeval import LevelError, level_xml
from pcgeval.levels.blocks import level_blocks
from pcgeval.levels.calls import read_calls

JAVASCRIPT_SPACE = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
JAVASCRIPT_SPACE += "\u2028\u2029\u202f\u205f\u3000\ufeff"
DIGITS = "0123456789"
CELL = Decimal("0.2401")
SIZES = {"b11": (1, 1), "b13": (1, 3), "b31": (3, 1)}
EMPTY = (
    '<?xml version="1.0" encoding="utf-16"?>\n<Level width="3">\n'
    '  <Camera x="2" y="0" minWidth="17" maxWidth="22" />\n'
    '  <Birds>\n    <Bird type="BirdRed" />\n  </Birds>\n'
    '  <Slingshot x="-9" y="-2.5" />\n  <GameObjects>\n  </GameObjects>\n</Level>'
)


# --- one line of code ---


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
    column = column if column is not None and 0 <= column < 20 else None
    return (kind if kind in SIZES else None), column


def one(line):
    (call,) = read_calls(line)
    return call.kind, call.column if call.column is not None and call.column < 20 else None


quotes = st.one_of(st.sampled_from("'\"|(), "), st.characters(exclude_characters="\n")) | st.just("")
kinds = st.sampled_from(["b11", "b13", "b31", "B31", "b33", "b|1", "b1\u0661", "", "tostring", "0"])
blanks = st.text(st.sampled_from(JAVASCRIPT_SPACE.replace("\n", "") + "\x1c\x1f\x85\u180e\u200b\x00"), max_size=3)
ODD = ["-0", "+0", "--1", "+-1", "", "1e1", "0x9", "1_0", "7.9", "(4)", "\u0665", "5\u0665", "NaN", ".5", "5)6"]
numbers = st.integers(-25, 25).map(str) | st.sampled_from(ODD) | st.text("0123456789+-", max_size=6)
ends = st.sampled_from([")", "", " )", ")x)"])
parts = st.tuples(
    st.just("drop_block("), quotes, kinds, quotes, st.sampled_from([",", ",,", ";", ""]), blanks, numbers, ends
)


@given(parts.map("".join).map(str.lower).filter(lambda line: "\n" not in line))
@example("drop_block(\U0001f60ab11', 3)")  # a quote is one unit of UTF-16
def test_a_line_is_read_as_the_literal_rules_say(line):
    kind, column = literal_call(line)
    assert one(line) == (kind, column if kind else None)


def test_every_character_before_the_column_is_space_or_not_as_in_javascript():
    lines = [f"drop_block('b11',{character}5)" for character in map(chr, range(0x10000)) if character != "\n"]
    lines = [line for line in lines if line == line.lower()]
    assert [line for line in lines if one(line) != literal_call(line)] == []


def test_a_long_line_is_not_shown_whole():
    (call,) = read_calls("drop_block('b11', 5)" + "x" * 100_000)
    assert call.text == "drop_block('b11', 5)" + "x" * 44


# --- the fall ---


def literal_level(drops):
    """Every cell of the grid is kept; a block falls row by row from the top until a cell in its way is used.

    Return the lines of the level that hold the camera and the blocks, or the message of the first fault.
    """
    cells, placed = set(), []
    for kind, column in drops:
        if kind not in SIZES:
            return "BlockType does not exist."
        width, height = SIZES[kind]
        if not 0 <= column <= 19 or (column, 15) in cells:
            return "Height boundary is intruded."
        if width == 3 and column in (0, 19):
            return "Width boundary is intruded."
        under = [column] if width == 1 else [column - 1, column, column + 1]
        row = 15
        while row > 0 and not any((across, below) in cells for across in under for below in (row, row - 1)):
            row -= 1
        if row + height > 16:
            return "Height boundary is intruded."
        cells |= {(across, row + up) for across in under for up in range(height)}
        placed.append((kind, column, row))
    first = min((column for column, _ in cells), default=0)
    return [literal_camera(cells), *(literal_block(kind, column - first, row) for kind, column, row in placed)]


def plain(number):
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def literal_camera(cells):
    """The official formula with both of its terms: the rows used, and the most used cells in one row."""
    rows = max((row for _, row in cells), default=0) + 1
    most = max(sum(row == number for _, row in cells) for number in range(16))
    least = max(2 * max(Decimal("1.6") * (Decimal("3.5") + CELL * rows), 2 + CELL * most), Decimal(17))
    return f'  <Camera x="2" y="0" minWidth="{plain(least)}" maxWidth="{plain(least + 5)}" />'


def literal_block(kind, column, row):
    width, height = SIZES[kind]
    x = 2 + column * CELL + width * CELL / 2 - (CELL if width > 1 else 0)
    y = Decimal("-3.5") + row * CELL + height * CELL / 2
    name, rotation = {"b11": ("SquareTiny", 0), "b13": ("RectSmall", 90), "b31": ("RectSmall", 0)}[kind]
    return f'    <Block type="{name}" material="wood" x="{plain(x)}" y="{plain(y)}" rotation="{rotation}" />'


def code_of(drops):
    return "".join(f"drop_block('{kind}', {column})\n" for kind, column in drops)


def convert(code):
    try:
        return level_xml(code)
    except LevelError as error:
        return str(error)


known = st.sampled_from(list(SIZES))
anywhere = st.lists(st.tuples(known, st.integers(0, 19)), max_size=60)
narrow = st.lists(st.tuples(known, st.integers(8, 10)), max_size=40)  # reaches the top
wild = st.lists(st.tuples(known | st.just("b33"), st.integers(-1, 30)), max_size=10)


@given(st.one_of(anywhere, narrow, wild))
def test_a_level_is_that_of_the_cell_by_cell_simulation(drops):
    literal = literal_level(drops)
    converted = convert(code_of(drops))
    if isinstance(literal, str):
        assert converted == literal
        return
    lines = converted.split("\n")
    assert [lines[2], *lines[8:-2]] == literal
    assert lines[:2] + lines[3:8] + lines[-2:] == EMPTY.split("\n")[:2] + EMPTY.split("\n")[3:]
    assert [block.type == "SquareTiny" for block in level_blocks(converted)] == [kind == "b11" for kind, _ in drops]


def test_no_call_gives_an_empty_level_and_a_full_grid_all_its_blocks():
    assert level_xml("") == level_xml("# nothing") == EMPTY
    assert level_blocks(EMPTY) == ()
    full = level_xml(code_of([("b11", column) for column in range(20) for _ in range(16)]))
    assert full.count("<Block ") == 320
    assert 'minWidth="23.49312"' in full


@pytest.mark.parametrize(
    ("drops", "message", "call"),
    [
        ([("b33", 99)], "BlockType does not exist.", 1),
        ([("b31", 19)], "Width boundary is intruded.", 1),
        ([("b11", 0)] * 16 + [("b31", 0)], "Height boundary is intruded.", 17),
        # a wide block beside a full column stays in the top row, once
        ([("b11", 5)] * 16 + [("b31", 6)] * 2, "Height boundary is intruded.", 18),
        ([("\x1b[2j\ud800", 1)], "BlockType does not exist.", 1),  # shown escaped
    ],
)
def test_the_first_fault_discards_the_level(drops, message, call):
    with pytest.raises(LevelError) as caught:
        level_xml(code_of(drops))
    where = f"call {call}: {code_of(drops).splitlines()[call - 1]!r}"
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes; it survives another process
    assert (str(error), error.where, error.reason) == (message, where, f"{message} ({where})")
