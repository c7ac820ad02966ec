"""Read a level's XML without entities, document types or network: levels come from teams and from other tools."""

import math
import re
from dataclasses import dataclass
from typing import cast, get_args

from lxml import etree

from pcgeval.core.text import printable_line
from pcgeval.formats.blocks import BlockType
from pcgeval.formats.failures import failure
from pcgeval.levels.conversion import LevelError

MAX_CHARACTERS = 2_000_000  # a full grid needs 40 000
MAX_BLOCKS = 1000  # a full grid holds 320
MAX_NUMBER = 1000.0  # metres or degrees; the grid spans 5 by 4 metres
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_SHOWN = 80  # characters of a hostile value in a message


@dataclass(frozen=True)
class Block:
    """One wooden block: the centre in metres (y upwards) and the rotation in degrees, counter-clockwise."""

    type: BlockType
    x: float
    y: float
    rotation: float


def level_blocks(xml: str | bytes) -> tuple[Block, ...]:
    """Read the blocks of a level in the order of the file, which is the order of dropping.

    The official converter declares UTF-16 and writes UTF-8, so pcgeval ignores the declaration. Document types are
    refused, entities and the network are off.

    Raises:
        LevelError: The text is not XML or not a level, is too large, or has objects other than wooden blocks of the two
            known types at sensible places; the message names the line and the value.
    """
    root = _parse(xml if isinstance(xml, str) else _decode(xml))
    if root.tag != "Level":
        raise LevelError(f"not a level: the root is <{root.tag[:_SHOWN]}>, not <Level>. Give a Science Birds level.")
    objects = root.findall("GameObjects")
    if len(objects) != 1:
        raise LevelError(f"not a level: {len(objects)} <GameObjects> in <Level>, not 1. Make the level again.")
    if len(objects[0]) > MAX_BLOCKS:
        raise LevelError(f"{len(objects[0])} objects in the level, more than {MAX_BLOCKS}. Use fewer blocks.")
    return tuple(_block(element) for element in objects[0])


def _decode(content: bytes) -> str:
    """Turn a file into text: UTF-8 whatever it declares, unless it starts with the byte order mark of UTF-16."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        place = f"{error.reason} at byte {error.start}"
        raise LevelError(f"not a level: no {encoding} text ({place}). Save it as UTF-8.") from error


def _parse(text: str) -> etree._Element:
    if len(text) > MAX_CHARACTERS:
        raise LevelError(f"not a level: {len(text)} characters, more than {MAX_CHARACTERS}. Give a single level.")
    if "<!DOCTYPE" in text:
        raise LevelError("not a level: it declares a document type, which levels do not need. Remove <!DOCTYPE ...>.")
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        return etree.fromstring(text.removeprefix("\ufeff").encode("utf-8"), parser)
    except UnicodeEncodeError as error:
        raise LevelError(f"not XML: half a surrogate pair at character {error.start}. Make the level again.") from error
    except etree.XMLSyntaxError as error:
        words = printable_line(error.msg, 200)  # of another package, which differ between its versions
        because = failure("level-unreadable", detail=words, fault="it is no XML")
        raise LevelError(f"not XML: {words}. Make the level again.", because) from error


def _block(element: etree._Element) -> Block:
    line = f"line {element.sourceline}"
    if element.tag != "Block":
        raise LevelError(f"{line}: <{element.tag[:_SHOWN]}> cannot be simulated. Use <Block> alone.")
    block_type = _attribute(element, "type")
    if block_type not in get_args(BlockType):
        known = " or ".join(get_args(BlockType))
        raise LevelError(f"{line}: unknown block type {block_type[:_SHOWN]!r}. Use {known}.")
    material = _attribute(element, "material")
    if material != "wood":
        raise LevelError(f"{line}: material {material[:_SHOWN]!r} cannot be simulated. Use wood.")
    x, y, rotation = (_number(element, name) for name in ("x", "y", "rotation"))
    return Block(cast("BlockType", block_type), x, y, rotation)


def _attribute(element: etree._Element, name: str) -> str:
    value = element.get(name)
    if value is None:
        raise LevelError(f"line {element.sourceline}: <Block> has no attribute {name!r}. Add it.")
    return value


def _number(element: etree._Element, name: str) -> float:
    text = _attribute(element, name)
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not abs(number) <= MAX_NUMBER:
        field = f"{name}={text[:_SHOWN]!r}"
        raise LevelError(f"line {element.sourceline}: {field} is no number from -{MAX_NUMBER:g} to {MAX_NUMBER:g}.")
    return number
