"""Levels that the tests of this folder share."""

from pcgeval.levels.conversion import level_xml


def level(*blocks):
    """A level of (type, x, y, rotation) blocks."""
    lines = "".join(
        f'<Block type="{kind}" material="wood" x="{x}" y="{y}" rotation="{rotation}" />'
        for kind, x, y, rotation in blocks
    )
    return f'<Level width="3"><GameObjects>{lines}</GameObjects></Level>'


def dropped(drops):
    return level_xml("".join(f"drop_block('{kind}', {column})\n" for kind, column in drops))
