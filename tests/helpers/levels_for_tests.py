"""Levels that the tests of this folder share."""

from hypothesis import strategies as st

from pcgeval.levels.errors import LevelError
from pcgeval.levels.xml import level_xml

SMALL_REST = -3.5 + 0.015 + 0.11  # y of a RectSmall that lies on the ground: half its height and the resting gap above
POST_REST = -3.5 + 0.015 + 0.35  # y of a RectSmall that stands on the ground


def level(*blocks):
    """A level of (type, x, y, rotation) blocks."""
    lines = "".join(
        f'<Block type="{kind}" material="wood" x="{x}" y="{y}" rotation="{rotation}" />'
        for kind, x, y, rotation in blocks
    )
    return f'<Level width="3"><GameObjects>{lines}</GameObjects></Level>'


def dropped(drops):
    """The official level of (type, column) drops."""
    return level_xml("".join(f"drop_block('{kind}', {column})\n" for kind, column in drops))


def _fits(drops):
    try:
        dropped(drops)
    except LevelError:
        return False
    return True


drop = st.tuples(st.sampled_from(["b11", "b13", "b31"]), st.integers(6, 11))
grid_levels = st.lists(drop, min_size=1, max_size=12).filter(_fits).map(dropped)
place = st.tuples(
    st.sampled_from(["RectSmall", "SquareTiny"]),
    st.floats(-1000, 1000) | st.floats(-1, 1),
    st.floats(-1000, 1000) | st.floats(-4, -3),
    st.sampled_from([0, 90]) | st.floats(-1000, 1000),
)
foreign_levels = st.lists(place, max_size=12).map(lambda blocks: level(*blocks))
