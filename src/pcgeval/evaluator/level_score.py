"""Score one level: the competition's stages from a text to its similarity, in memory."""

import html
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from PIL import Image

from pcgeval.core.params import PhysicsParams
from pcgeval.core.stage_files import StageName
from pcgeval.core.untrusted import printable_line
from pcgeval.evaluator.drawing import CalledBlock, called_blocks, level_svg, replay_svg
from pcgeval.evaluator.image import render
from pcgeval.evaluator.physics import SimulationError, simulate
from pcgeval.evaluator.stability import Stability
from pcgeval.levels.blocks import Block, level_blocks
from pcgeval.levels.calls import read_calls
from pcgeval.levels.errors import LevelError
from pcgeval.levels.extraction import extract_code, no_code_reason
from pcgeval.levels.grid import COLUMNS, SHAPES, drop
from pcgeval.levels.xml import level_xml
from pcgeval.similarity.classifier import Classifier, loaded_classifier
from pcgeval.similarity.source import LABELS

LIKELIEST = 5
TextKind = Literal["response", "calls", "level"]
_CALL_LINE = re.compile(r"^\s*drop_block\(", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, eq=False)
class LevelScore:
    """Everything known about one level.

    Attributes:
        letter: The letter that was asked for.
        read_as: What the text was taken for: a model's `response`, whose last fenced block counts; bare `calls`; or a
            Science Birds `level` in XML.
        physics: The physics it is simulated with.
        code: The calls as read, one a line; None if there are none.
        xml: The level; None if there is none.
        before: The blocks as the level has them.
        simulated: The end of its simulation; None if there is none.
        blocks: Each call, or each block of a level in XML, with what became of it.
        probabilities: What the classifier gives each letter, A to Z; empty without a picture or without a classifier.
        failed_stage: The stage in which the level failed; None if it did not.
        reason: Why it failed.
        embedding: The classifier's vector of the picture; empty without a picture or without a classifier.
    """

    letter: str
    read_as: TextKind
    physics: PhysicsParams
    code: str | None = None
    xml: str | None = None
    before: tuple[Block, ...] = ()
    simulated: Stability | None = None
    blocks: tuple[CalledBlock, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    failed_stage: StageName | None = None
    reason: str | None = None
    embedding: tuple[float, ...] = ()

    @property
    def stability(self) -> float:
        """The share of blocks that stayed, 0 to 1; 0 for a level that failed, as the rules say."""
        return self.simulated.score if self.simulated else 0.0

    @property
    def similarity(self) -> float:
        """The probability of the letter, 0 to 1; 0 for a level that failed, as the rules say; nan if it is unknown."""
        return self.probabilities.get(self.letter, 0.0 if self.reason else math.nan)

    @property
    def score(self) -> float:
        """Stability times similarity: a trial's score before the letter's weight; nan if the similarity is unknown."""
        return self.stability * self.similarity

    @property
    def verdict(self) -> str:
        """The scores in a line, or why there are none."""
        if self.reason is not None:
            return f"0, failed in {self.failed_stage}: {printable_line(self.reason)}"
        return f"{self.score:.4f} = stability {self.stability:.3f} x similarity {self.similarity:.4f}"

    @property
    def likeliest(self) -> tuple[tuple[str, float], ...]:
        """The five likeliest letters with their probabilities, the likeliest first."""
        ordered = sorted(self.probabilities.items(), key=lambda each: (-each[1], each[0]))
        return tuple(ordered[:LIKELIEST])

    @cached_property
    def grid(self) -> tuple[str, ...]:
        """The grid of 20 columns after all calls, the top used row first: a block's number modulo 10, or `.`."""
        if self.code is None or self.xml is None:
            return ()
        placed = drop(read_calls(self.code))
        rows = [["."] * COLUMNS for _ in range(placed.rows)]
        for number, (kind, column, row) in enumerate(placed.blocks, start=1):
            width, height = SHAPES[kind]
            for line in rows[row : row + height]:
                line[column - width // 2 : column + width // 2 + 1] = [str(number % 10)] * width
        return tuple("".join(line) for line in reversed(rows))

    def image(self, *, before: bool = False) -> Image.Image:
        """Return the evaluator's picture, 1024 x 1024 and grey: of the end, or of the level as it was written.

        Raises:
            LevelError: There is no level to draw.
        """
        return render(self._drawn(before=before))

    def before_and_after(self) -> tuple[Image.Image, Image.Image]:
        """Return pictures of the level as it was written and of the end, like `image`, but both at one scale.

        Raises:
            LevelError: There is no level to draw.
        """
        before, after = self._drawn(before=True), self._drawn(before=False)
        return render(before, also=after), render(after, also=before)

    def svg(self, *, before: bool = False) -> str:
        """Return a drawing as an SVG document: blocks that stayed dark, those that moved orange, broken ones left out.

        Raises:
            LevelError: There is no level to draw.
        """
        return level_svg(self._drawn(before=before))

    def replay_svg(self) -> str:
        """Return the simulation that counts as an animated SVG document.

        Raises:
            LevelError: There is no simulation to show.
        """
        end = self._drawn(before=False)
        return replay_svg(end, end.paths)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pictures as values for JSON."""
        end = self.simulated
        return {
            "letter": self.letter,
            "read_as": self.read_as,
            "score": None if math.isnan(self.score) else self.score,
            "stability": self.stability,
            "similarity": None if math.isnan(self.similarity) else self.similarity,
            "failed_stage": self.failed_stage,
            "reason": self.reason,
            "likeliest": [list(each) for each in self.likeliest],
            "probabilities": dict(self.probabilities),
            "code": self.code,
            "grid": list(self.grid),
            "blocks": [asdict(each) for each in self.blocks],
            "before": [asdict(each) for each in self.before],
            "after": None if end is None else end.positions.tolist(),
            "best_of": None if end is None else end.trial,
            "starts": [] if end is None else list(end.starts),
            "xml": self.xml,
        }

    def _repr_html_(self) -> str:
        """Return both drawings and the scores, for notebooks."""
        words = f"{self.letter}: {self.verdict}"
        pictures = (self.svg(before=True) + self.svg()) if self.simulated and self.before else ""
        return f'<div style="display:flex;gap:1em">{pictures}</div><p>{html.escape(words)}</p>'

    def _drawn(self, *, before: bool) -> Stability:
        if self.simulated is None:
            raise LevelError(self.reason or "there is no level")
        if not before:
            return self.simulated
        places = np.array([(block.x, block.y, math.radians(block.rotation)) for block in self.before]).reshape(-1, 3)
        still = (False,) * len(self.before)
        return Stability(tuple(block.type for block in self.before), places, still, still)


def score_level(
    text: str,
    letter: str,
    classifier: Classifier | None = None,
    physics: PhysicsParams | None = None,
    *,
    read_as: TextKind | None = None,
    classify: bool = True,
) -> LevelScore:
    """Score a level that a model or a person wrote: extract, convert, simulate, draw, classify.

    A level that fails in a stage is a result too: its scores are 0, and `reason` says why.

    Args:
        text: A model's response, bare calls, or a level in XML.
        letter: The capital letter that it is to look like.
        classifier: Tells how much it does; default: pcgeval's own, loaded once.
        physics: Settings of the simulation; default: those of `params.yaml` as published.
        read_as: What to take the text for; default: as it looks. A competition counts responses alone.
        classify: Without it the level is only simulated: `probabilities` is empty, and the similarity unknown.

    Raises:
        ValueError: The letter is none of A to Z.
        ClassifierError: The default classifier cannot be loaded.
    """
    if letter not in LABELS:
        raise ValueError(f"letter {letter!r} is none of {LABELS[0]} to {LABELS[-1]}")
    physics = physics or PhysicsParams()
    read_as = read_as or text_kind(text)
    before: tuple[Block, ...] = ()
    code = None

    def failed(stage: StageName, reason: str) -> LevelScore:
        return LevelScore(letter, read_as, physics, code, before=before, failed_stage=stage, reason=reason)

    try:
        code = code_of(text, read_as)
    except LevelError as error:
        return failed("extract", error.reason)
    try:
        xml = text if code is None else level_xml(code)
        before = level_blocks(xml)
    except LevelError as error:
        return failed("convert", error.reason)
    try:
        end = simulate(xml, physics)
    except SimulationError as error:
        return failed("simulate", str(error))
    names = [call.text for call in read_calls(code)] if code is not None else [block.type for block in before]
    probabilities: dict[str, float] = {}
    embedding: tuple[float, ...] = ()
    if classify:
        classifier = classifier or loaded_classifier()
        found = classifier.predict([render(end)])
        probabilities = dict(zip(classifier.labels, found.probabilities[0].tolist(), strict=True))
        embedding = tuple(found.embeddings[0].tolist())
    blocks = tuple(called_blocks(names, before, end))
    return LevelScore(letter, read_as, physics, code, xml, before, end, blocks, probabilities, embedding=embedding)


def text_kind(text: str) -> TextKind:
    """Return what a text is: a level begins with `<`, calls stand on lines of their own and not in a fenced block."""
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return "level"
    if "```" not in text and _CALL_LINE.search(text):
        return "calls"
    return "response"


def level_of(text: str) -> str:
    """Return the level that a text describes, whatever kind of text it is.

    Raises:
        LevelError: It holds no calls, or they cannot be carried out.
    """
    code = code_of(text, text_kind(text))
    return text if code is None else level_xml(code)


def code_of(text: str, kind: TextKind) -> str | None:
    """Return the calls of a text, one a line, bare ones as if they stood in a fenced block; None for a level.

    Raises:
        LevelError: It holds none.
    """
    if kind == "level":
        return None
    response = text if kind == "response" else f"```\n{text}\n```"
    code = extract_code(response)
    if code is None:
        raise LevelError(no_code_reason(response))
    return code
