from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.levels.calls import read_calls
from pcgeval.levels.grid import drop
from pcgeval.levels.xml import LevelError, level_blocks, level_xml

CELL = Decimal("0.2401")
SIZES = {"b11": (1, 1), "b13": (1, 3), "b31": (3, 1)}


def plain(number):
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def literal_camera(structure):
    """The official formula with both of its terms: the rows used, and the most used cells in one row."""
    used = set()
    for kind, column, row in structure.blocks:
        width, height = SIZES[kind]
        used |= {(column - width // 2 + right, row + up) for right in range(width) for up in range(height)}
    rows = max((row for _, row in used), default=0) + 1
    most = max((sum(row == each for _, each in used) for row in range(16)), default=0)
    least = max(2 * max(Decimal("1.6") * (Decimal("3.5") + CELL * rows), 2 + CELL * most), Decimal(17))
    return f'<Camera x="2" y="0" minWidth="{plain(least)}" maxWidth="{plain(least + 5)}" />'


def literal_block(kind, column, row):
    width, height = SIZES[kind]
    x = 2 + column * CELL + width * CELL / 2 - (CELL if width > 1 else 0)
    y = Decimal("-3.5") + row * CELL + height * CELL / 2
    name, rotation = {"b11": ("SquareTiny", 0), "b13": ("RectSmall", 90), "b31": ("RectSmall", 0)}[kind]
    return f'    <Block type="{name}" material="wood" x="{plain(x)}" y="{plain(y)}" rotation="{rotation}" />'


@given(st.lists(st.tuples(st.sampled_from(["b11", "b13", "b31"]), st.integers(1, 18)), max_size=80))
def test_agrees_with_the_literal_formulas(drops):
    code = "".join(f"drop_block('{kind}', {column})\n" for kind, column in drops)
    try:
        xml = level_xml(code)
    except LevelError:
        return
    structure = drop(read_calls(code))
    lines = xml.split("\n")
    assert lines[2].strip() == literal_camera(structure)
    assert lines[8:-2] == [
        literal_block(kind, column - structure.first_column, row) for kind, column, row in structure.blocks
    ]
    assert [block.type == "SquareTiny" for block in level_blocks(xml)] == [kind == "b11" for kind, _ in drops]


@given(st.lists(st.tuples(st.sampled_from(["b11", "b13", "b31"]), st.integers(1, 9)), max_size=20), st.integers(0, 9))
def test_moving_a_structure_sideways_changes_nothing(drops, shift):
    def code(by):
        return "".join(f"drop_block('{kind}', {column + by})\n" for kind, column in drops)

    try:
        xml = level_xml(code(0))
    except LevelError as error:
        with pytest.raises(LevelError, match=str(error)):
            level_xml(code(shift))
    else:
        assert level_xml(code(shift)) == xml


def test_no_call_gives_an_empty_level():
    assert (
        level_xml("")
        == level_xml("# nothing")
        == (
            '<?xml version="1.0" encoding="utf-16"?>\n<Level width="3">\n'
            '  <Camera x="2" y="0" minWidth="17" maxWidth="22" />\n'
            '  <Birds>\n    <Bird type="BirdRed" />\n  </Birds>\n'
            '  <Slingshot x="-9" y="-2.5" />\n  <GameObjects>\n  </GameObjects>\n</Level>'
        )
    )


@pytest.mark.parametrize(("blocks", "least"), [(7, "17"), (8, "17.34656"), (16, "23.49312")])
def test_the_camera_grows_with_the_height(blocks, least):
    assert f'minWidth="{least}"' in level_xml("drop_block('b11', 3)\n" * blocks)


def test_a_full_grid():
    xml = level_xml("".join(f"drop_block('b11', {column})\n" * 16 for column in range(20)))
    assert xml.count("<Block ") == 320
    assert 'minWidth="23.49312"' in xml
