"""The steps from a text to its level and its simulation, for the stages, `score_level` and `evaluate`."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from pcgeval.core.params import PhysicsParams
from pcgeval.core.stage_files import StageName
from pcgeval.evaluator.physics import SimulationError, simulate
from pcgeval.evaluator.stability import Stability
from pcgeval.levels.blocks import Block, level_blocks
from pcgeval.levels.errors import LevelError
from pcgeval.levels.extraction import extract_code, no_code_reason
from pcgeval.levels.xml import level_xml

TextKind = Literal["response", "calls", "level"]
_CALL_LINE = re.compile(r"^\s*drop_block\(", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Walk:
    """The results of the steps; None for a step that the text did not reach."""

    code: str | None = None  # the calls, one a line
    xml: str | None = None  # the level
    before: tuple[Block, ...] = ()  # the blocks of the level
    simulated: Stability | None = None  # the end of its simulation
    failed_stage: StageName | None = None
    reason: str | None = None  # of the failure


def text_kind(text: str) -> TextKind:
    """Return the kind of a text: a response has a fence, a level begins with `<`, and bare calls begin lines."""
    if "```" in text:  # some models begin a response with `<think>`
        return "response"
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return "level"
    return "calls" if _CALL_LINE.search(text) else "response"


def walk_to_level(text: str, kind: TextKind) -> Walk:
    """Extract the calls of a text and convert them to a level."""
    code, xml = None, text
    try:
        if kind != "level":
            response = text if kind == "response" else f"```\n{text}\n```"
            code = extract_code(response)
            if code is None:
                return Walk(failed_stage="extract", reason=no_code_reason(response))
            xml = level_xml(code)
        return Walk(code=code, xml=xml, before=level_blocks(xml))
    except LevelError as error:
        return Walk(code=code, failed_stage="convert", reason=error.reason)


def walk_to_end(walk: Walk, physics: PhysicsParams) -> Walk:
    """Simulate the level of a walk, if there is one."""
    if walk.xml is None:
        return walk
    end = end_of(walk.xml, physics)
    if isinstance(end, str):
        return replace(walk, failed_stage="simulate", reason=end)
    return replace(walk, simulated=end)


def end_of(xml: str | bytes, physics: PhysicsParams, *, paths: bool = True) -> Stability | str:
    """Return the end of a level, or the reason why the simulation failed; `paths` are for replays."""
    try:
        return simulate(xml, physics, paths=paths)
    except LevelError as error:
        return error.reason
    except SimulationError as error:
        return str(error)
