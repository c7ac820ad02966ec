"""The text of `pcgeval level`, and drawings of levels for terminals."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

import numpy as np
from PIL import Image

from pcgeval.core.untrusted import printable_line
from pcgeval.evaluator.drawing import CalledBlock
from pcgeval.evaluator.level_score import LevelScore
from pcgeval.evaluator.stability import Stability

COLUMNS = 28  # of a drawing, in characters; a character shows two pixels, one above the other
_GAP = 4  # columns between two drawings
_HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
_LEAST = 0.01  # metres that are worth a word
_KINDS = {"response": "a response", "calls": "calls", "level": "a level in XML"}


def drawing(picture: Image.Image | Path) -> list[str]:
    """Return a level's picture as lines of half blocks, without empty lines above and below."""
    with Image.open(picture) if isinstance(picture, Path) else picture as image:
        small = image.convert("L").resize((COLUMNS, COLUMNS), Image.Resampling.BOX)
    ink = np.asarray(small) < 128
    lines = [
        "".join(_HALVES[bool(above), bool(below)] for above, below in zip(*rows, strict=True)).rstrip()
        for rows in zip(ink[::2], ink[1::2], strict=True)
    ]
    full = [number for number, line in enumerate(lines) if line]
    return lines[full[0] : full[-1] + 1] if full else []


def score_lines(scored: LevelScore, name: str, engines: Mapping[str, Stability], width: int) -> Iterator[str]:
    """Yield a level's score as text: drawings, the blocks that fell, and the likeliest letters.

    `name` is that of its file; `engines` are its ends with each physics engine, if engines are compared.
    """
    yield f"{printable_line(name)}: read as {_KINDS[scored.read_as]}"
    verdict = scored.verdict
    if not scored.reason:
        yield from level_lines(scored, width)
        if not scored.probabilities:
            verdict = f"stability {scored.stability:.3f}; similarity is not known without a classifier"
    yield f"{scored.letter}: {verdict}"
    yield from _engine_lines(scored, engines)


def level_lines(scored: LevelScore, width: int) -> Iterator[str]:
    """Yield a level's drawings before and after, the blocks that fell, and the likeliest letters."""
    before, after = map(drawing, scored.before_and_after())
    yield ""
    if width >= 2 * COLUMNS + _GAP:
        yield f"{'before':{COLUMNS + _GAP}}after"
        height = max(len(before), len(after))
        sides = ([""] * (height - len(side)) + side for side in (before, after))  # both stand on the ground
        yield from (f"{left:{COLUMNS + _GAP}}{right}".rstrip() for left, right in zip(*sides, strict=True))
    else:
        yield from ("before", *before, "", "after", *after)
    fallen = [block for block in scored.blocks if block.fate != "stayed"]
    yield ""
    yield f"{len(scored.blocks) - len(fallen)} of {len(scored.blocks)} blocks stayed{':' if fallen else ''}"
    yield from (f"  {block_text(block)}" for block in fallen)
    if scored.simulated and (starts := sorted(scored.simulated.starts)):
        spread = f"{starts[0]:.3f} to {starts[-1]:.3f}, {fmean(starts):.3f} on average"
        yield f"{len(starts)} starts up to {1000 * scored.physics.jitter:g} mm beside: stability {spread}"
    if scored.probabilities:
        yield "likeliest letters: " + ", ".join(f"{letter} {value:.4f}" for letter, value in scored.likeliest)


def _engine_lines(scored: LevelScore, engines: Mapping[str, Stability]) -> Iterator[str]:
    """Yield the result of each physics engine, and the blocks on which they differ."""
    for name, end in engines.items():
        hint = "" if len(engines) > 1 else "; no other engine is installed: `pip install 'pcgeval[box2d]'`"
        yield f"{name:8} stability {end.score:.3f}, {end.moving_blocks} moved{hint}"
    for number, block in enumerate(scored.blocks):
        moving = [name for name, end in engines.items() if end.moved[number]]
        if 0 < len(moving) < len(engines):
            yield f"  {block.number:2} {printable_line(block.call)}  moved with {' and '.join(moving)} only"


def block_text(block: CalledBlock) -> str:
    """Return a call and the fate of its block."""
    text = f"{block.number:2} {printable_line(block.call)}  {block.fate}"
    if block.fate != "moved" or block.distance is None or block.fell is None or block.turned is None:
        return text
    fell = f", {block.fell:.2f} m down" if block.fell >= _LEAST else ""
    return f"{text} {block.distance:.2f} m{fell}{f', turned {block.turned:.0f}°' if block.turned >= 1 else ''}"
