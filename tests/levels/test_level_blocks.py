import pytest
from hypothesis import given, strategies as st

from pcgeval import LevelError
from pcgeval.levels.blocks import Block, level_blocks

BLOCK = '<Block type="RectSmall" material="wood" x="2.5" y="-3.4" rotation="90" />'


def level(objects):
    return f'<?xml version="1.0" encoding="utf-16"?>\n<Level width="3"><GameObjects>{objects}</GameObjects></Level>'


def test_reads_blocks_in_the_order_of_the_file():
    other = '<Block type="SquareTiny" material="wood" x="-1e1" y="+.5" rotation="0"/>'
    xml = level(BLOCK + "<!-- one -->" * 2000 + "<?two?>" + other)
    assert level_blocks(xml) == (Block("RectSmall", 2.5, -3.4, 90.0), Block("SquareTiny", -10.0, 0.5, 0.0))
    assert len(level_blocks(level(BLOCK.replace("2.5", "1000") * 1000))) == 1000


@pytest.mark.parametrize("declared", ["utf-16", "martian", "utf-7"])
def test_the_bytes_decide_how_a_file_is_decoded_and_not_its_declaration(declared):
    xml = level(BLOCK).replace("utf-16", declared)
    for content in (xml, *map(xml.encode, ("utf-8", "utf-8-sig", "utf-16")), b"\xfe\xff" + xml.encode("utf-16-be")):
        assert level_blocks(content) == (Block("RectSmall", 2.5, -3.4, 90.0),)


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("<Level>\ud800</Level>", "not XML: half a surrogate pair at character 7"),
        ("<Level>&secret;</Level>", "not XML: Entity 'secret' not defined"),
        ("<Level>" * 300 + "</Level>" * 300, "not XML: Excessive depth"),
        (b"\x89PNG\r\n", "no utf-8 text (invalid start byte at byte 0)"),
        ("<level/>", "the root is <level>, not <Level>"),
        ("<Level/>", "0 <GameObjects>"),
        ("<Level><GameObjects/><GameObjects/></Level>", "2 <GameObjects>"),
        ('<!DOCTYPE Level SYSTEM "file:///etc/passwd"><Level/>', "document type"),
        (level("<Pig/>"), "line 2: <Pig> cannot be simulated"),
        (level(BLOCK.replace("RectSmall", "RectBig")), "line 2: unknown block type 'RectBig'"),
        (level(BLOCK.replace("wood", "ice")), "line 2: material 'ice'"),
        (level("\n\n" + BLOCK.replace('type="RectSmall"', "")), "line 4: <Block> has no attribute 'type'"),
        (level(BLOCK.replace("2.5", "nan")), "line 2: x='nan' is no number from -1000 to 1000"),
        (level(BLOCK.replace("2.5", "1000.1")), "x='1000.1' is no number"),
        (level(BLOCK.replace("2.5", "9" * 1_000_000)), "is no number"),
        (level(BLOCK * 1001), "1001 objects in the level, more than 1000"),
        (level(" " * 2_000_000), "2000092 characters, more than 2000000"),
    ],
)
def test_a_faulty_level_is_refused_with_the_reason(xml, message):
    with pytest.raises(LevelError) as caught:
        level_blocks(xml)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.binary(max_size=200) | st.text(max_size=200).map(level))
def test_any_text_is_a_level_or_a_level_error(xml):
    try:
        blocks = level_blocks(xml)
    except LevelError:
        return
    assert blocks == ()
