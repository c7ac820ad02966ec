"""Calls and blocks against literal versions: the reading of a line, the fall in the grid, the level's XML."""

import re
from decimal import Decimal

from hypothesis import example, given, strategies as st

from pcgeval import LevelError, level_xml
from pcgeval.levels.blocks import level_blocks
from pcgeval.levels.conversion import read_calls

TYPOGRAPHIC = "".join(map(chr, range(0x2000, 0x200B)))
JAVASCRIPT_SPACE = f"\t\n\v\f\r \u00a0\u1680{TYPOGRAPHIC}\u2028\u2029\u202f\u205f\u3000\ufeff"
CELL = Decimal("0.2401")
SIZES = {"b11": (1, 1), "b13": (1, 3), "b31": (3, 1)}
DRAWN = {"b11": ("SquareTiny", 0), "b13": ("RectSmall", 90), "b31": ("RectSmall", 0)}
LEVEL = """\
<?xml version="1.0" encoding="utf-16"?>
<Level width="3">
  <Camera x="2" y="0" minWidth="{least}" maxWidth="{most}" />
  <Birds>
    <Bird type="BirdRed" />
  </Birds>
  <Slingshot x="-9" y="-2.5" />
  <GameObjects>
{blocks}  </GameObjects>
</Level>"""
BLOCK = '    <Block type="{}" material="wood" x="{}" y="{}" rotation="{}" />\n'


def parse_int(text):
    """JavaScript's parseInt with radix 10, None for NaN."""
    number = re.match("[+-]?[0-9]+", text.lstrip(JAVASCRIPT_SPACE))
    return int(number[0]) if number else None


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
@example("drop_block('b11',-0)")  # a column of 0
def test_a_line_is_read_as_the_literal_rules_say(line):
    kind, column = literal_call(line)
    assert one(line) == (kind, column if kind else None)


def test_every_character_before_the_column_is_space_or_not_as_in_javascript():
    lines = [f"drop_block('b11',{character}5)" for character in map(chr, range(0x10000)) if character != "\n"]
    lines = [line for line in lines if line == line.lower()]
    assert [line for line in lines if one(line) != literal_call(line)] == []


def literal_row(kind, column, cells):
    """Let a block fall row by row from the top until a cell in its way is used; return its row or the fault."""
    if kind not in SIZES:
        return "BlockType does not exist."
    width, height = SIZES[kind]
    if not 0 <= column <= 19 or (column, 15) in cells:
        return "Height boundary is intruded."
    if width == 3 and column in (0, 19):
        return "Width boundary is intruded."
    under = columns_of(kind, column)
    row = 15
    while row > 0 and not any((across, below) in cells for across in under for below in (row, row - 1)):
        row -= 1
    return row if row + height <= 16 else "Height boundary is intruded."


def columns_of(kind, column):
    return [*range(column - SIZES[kind][0] // 2, column + SIZES[kind][0] // 2 + 1)]


def literal_level(drops):
    """Keep every used cell of the grid; return the level, or the first fault and its place."""
    cells, placed = set(), []
    for kind, column in drops:
        row = literal_row(kind, column, cells)
        if isinstance(row, str):
            return f"{row} (call {len(placed) + 1}: `{repr(call_of(kind, column))[1:-1]}`"
        cells |= {(across, row + up) for across in columns_of(kind, column) for up in range(SIZES[kind][1])}
        placed.append((kind, column, row))
    first = min((column for column, _ in cells), default=0)
    least = literal_view(cells)
    blocks = "".join(literal_block(kind, column - first, row) for kind, column, row in placed)
    return LEVEL.format(least=plain(least), most=plain(least + 5), blocks=blocks)


def plain(number):
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def literal_view(cells):
    """The official formula with both of its terms: the rows used, and the most used cells in one row."""
    rows = max((row for _, row in cells), default=0) + 1
    most = max(sum(row == number for _, row in cells) for number in range(16))
    return max(2 * max(Decimal("1.6") * (Decimal("3.5") + CELL * rows), 2 + CELL * most), Decimal(17))


def literal_block(kind, column, row):
    width, height = SIZES[kind]
    x = 2 + column * CELL + width * CELL / 2 - (CELL if width > 1 else 0)
    y = Decimal("-3.5") + row * CELL + height * CELL / 2
    name, rotation = DRAWN[kind]
    return BLOCK.format(name, plain(x), plain(y), rotation)


def call_of(kind, column):
    return f"drop_block('{kind}', {column})"


def convert(drops):
    try:
        return level_xml("".join(f"{call_of(kind, column)}\n" for kind, column in drops))
    except LevelError as error:
        return error.failure.sentence.partition(";")[0]


known = st.sampled_from(list(SIZES))
anywhere = st.lists(st.tuples(known, st.integers(0, 19)), max_size=60)
narrow = st.lists(st.tuples(known, st.integers(8, 10)), max_size=40)  # reaches the top
wild = st.lists(st.tuples(known | st.just("b33"), st.integers(-1, 30)), max_size=10)


@given(st.one_of(anywhere, narrow, wild))
@example([])
@example([("b11", column) for column in range(20) for _ in range(16)])
@example([("b11", 5)] * 16 + [("b31", 6)] * 2)  # a wide block beside a full column stays in the top row, once
@example([("\x1b[2j\ud800", 1)])  # shown escaped
def test_a_level_or_the_first_fault_is_that_of_the_cell_by_cell_simulation(drops):
    converted = convert(drops)
    assert converted == literal_level(drops)
    if converted.startswith("<"):
        assert [block.type for block in level_blocks(converted)] == [DRAWN[kind][0] for kind, _ in drops]
