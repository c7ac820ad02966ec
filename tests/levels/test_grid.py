import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.levels.calls import Call
from pcgeval.levels.errors import LevelError
from pcgeval.levels.grid import drop

SIZES = {"b11": (1, 1), "b13": (1, 3), "b31": (3, 1)}


def call(kind, column):
    return Call(f"drop_block('{kind}', {column})", kind, column)


def literal_drop(calls):
    """Every cell of the grid is kept; a block falls row by row from the top until a cell in its way is used."""
    cells, placed = set(), []
    for each in calls:
        if each.kind is None:
            return "BlockType does not exist."
        width, height = SIZES[each.kind]
        column = each.column
        if column is None or not 0 <= column <= 19 or (column, 15) in cells:
            return "Height boundary is intruded."
        if width == 3 and column in (0, 19):
            return "Width boundary is intruded."
        under = [column] if width == 1 else [column - 1, column, column + 1]
        row = 15
        while row > 0 and not any((each, below) in cells for each in under for below in (row, row - 1)):
            row -= 1
        if row + height > 16:
            return "Height boundary is intruded."
        cells |= {(each, row + up) for each in under for up in range(height)}
        placed.append((each.kind, column, row))
    columns, rows = [column for column, _ in cells], [row for _, row in cells]
    return placed, min(columns, default=0), max(rows, default=-1) + 1


def fast_drop(calls):
    try:
        structure = drop(calls)
    except LevelError as error:
        return str(error)
    return [tuple(block) for block in structure.blocks], structure.first_column, structure.rows


kinds = st.sampled_from(["b11", "b13", "b31"])
anywhere = st.lists(st.builds(call, kinds, st.integers(0, 19)), max_size=60)
narrow = st.lists(st.builds(call, kinds, st.integers(8, 10)), max_size=40)  # reaches the top
wild = st.lists(st.builds(call, kinds | st.none(), st.integers(0, 30) | st.none()), max_size=10)


@given(st.one_of(anywhere, narrow, wild))
def test_agrees_with_the_cell_by_cell_simulation(calls):
    assert fast_drop(calls) == literal_drop(calls)


@pytest.mark.parametrize(
    ("calls", "message", "where"),
    [
        ([Call("drop_block('b33', 99)", None, 99)], "BlockType does not exist.", "call 1: \"drop_block('b33', 99)\""),
        ([call("b11", None)], "Height boundary is intruded.", "call 1: \"drop_block('b11', None)\""),
        ([call("b31", 20)], "Height boundary is intruded.", "call 1: \"drop_block('b31', 20)\""),
        ([call("b31", 0)], "Width boundary is intruded.", "call 1: \"drop_block('b31', 0)\""),
        ([call("b31", 19)], "Width boundary is intruded.", "call 1: \"drop_block('b31', 19)\""),
        ([call("b11", 0)] * 16 + [call("b31", 0)], "Height boundary is intruded.", "call 17: \"drop_block('b31', 0)\""),
        ([call("b13", 4)] * 6, "Height boundary is intruded.", "call 6: \"drop_block('b13', 4)\""),
    ],
)
def test_the_first_fault_discards_the_level(calls, message, where):
    with pytest.raises(LevelError) as caught:
        drop(calls)
    assert (str(caught.value), caught.value.where) == (message, where)
    assert caught.value.reason == f"{message} ({where})"


def test_a_wide_block_beside_a_full_column_stays_in_the_top_row():
    structure = drop([call("b11", 5)] * 16 + [call("b31", 6)])
    assert structure.blocks[-1].row == 15
    with pytest.raises(LevelError, match="Height"):
        drop([call("b11", 5)] * 16 + [call("b31", 6)] * 2)


def test_hostile_text_in_a_message_is_escaped():
    with pytest.raises(LevelError) as caught:
        drop([Call("drop_block(\x1b[2J\ud800", None, None)])
    assert caught.value.reason == r"BlockType does not exist. (call 1: 'drop_block(\x1b[2J\ud800')"


def test_an_error_survives_another_process():
    error = pickle.loads(pickle.dumps(LevelError("message", "place")))  # noqa: S301 - our own bytes
    assert (str(error), error.reason) == ("message", "message (place)")
