"""The walk of one level in memory: from a text through calls, XML and simulation to its similarity and score."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image

from pcgeval.core.text import printable_line
from pcgeval.evaluator.image import render
from pcgeval.evaluator.physics import simulate_or_reason
from pcgeval.evaluator.world import Stability
from pcgeval.formats.failures import Failure, FailureStage
from pcgeval.formats.layout import LETTERS
from pcgeval.formats.params import PhysicsParams
from pcgeval.formats.stages import is_recognised
from pcgeval.levels.blocks import Block, level_blocks
from pcgeval.levels.conversion import (
    CALL,
    LevelError,
    extract_code,
    find_calls,
    last_block,
    level_xml,
    quoted,
    read_calls,
    unread_calls,
    why_no_calls,
    why_no_code,
)
from pcgeval.preview.drawing import (
    TEXT_COLUMNS,
    CalledBlock,
    block_text,
    called_blocks,
    level_svg,
    replay_svg,
    text_drawing,
)
from pcgeval.similarity.classifier import Classifier, loaded_classifier

LIKELIEST = 5
_GAP = 4  # columns between two drawings
TextKind = Literal["response", "calls", "level"]
_CALL_LINE = re.compile(r"^\s*drop_block\(", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Walk:
    """The results of the steps; None for a step that the text did not reach."""

    code: str | None = None  # the calls, one a line
    xml: str | None = None  # the level
    before: tuple[Block, ...] = ()  # the blocks of the level
    simulated: Stability | None = None  # the end of its simulation
    failure: Failure | None = None  # of the step that the text did not pass

    @property
    def failed_stage(self) -> FailureStage | None:
        """The stage in which the level failed; None if it did not."""
        return self.failure.type.stage if self.failure else None

    @property
    def reason(self) -> str | None:
        """Why the level failed, in a sentence; None if it did not."""
        return str(self.failure) if self.failure else None


def check_text_kind(kind: str | None) -> None:
    """Raise ValueError if a text cannot be read as this; None stands for the kind that it looks like."""
    if kind not in {None, *get_args(TextKind)}:
        raise ValueError(f"read_as {kind!r} must be {', '.join(get_args(TextKind))} or None")


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
            code = extract_code(text) if kind == "response" else find_calls(text)
            if code is None:
                return Walk(failure=why_no_code(text) if kind == "response" else why_no_calls(text))
            xml = level_xml(code)
        return Walk(code=code, xml=xml, before=level_blocks(xml))
    except LevelError as error:
        return Walk(code=code, failure=error.failure)


@dataclass(frozen=True, eq=False, kw_only=True)
class LevelScore(Walk):
    """The measurements of one level, and the results of all steps to them.

    Attributes:
        read_as: The kind of the text: a model's `response` (only its last fenced block counts); bare `calls`; or a
            Science Birds `level` in XML.
        blocks: Each call, or each block of a level in XML, with its fate.
        probabilities: The probability of each letter, A to Z; empty without a picture or without a classifier.
        embedding: The classifier's vector of the picture; empty like the probabilities.
    """

    letter: str
    read_as: TextKind
    physics: PhysicsParams
    blocks: tuple[CalledBlock, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    embedding: tuple[float, ...] = ()

    @property
    def stability(self) -> float:
        """The share of blocks that stayed, 0 to 1; 0 for a level that failed."""
        return self.simulated.score if self.simulated else 0.0

    @property
    def similarity(self) -> float | None:
        """The probability of the letter, 0 to 1; 0 for a level that failed, None without a classifier."""
        return self.probabilities.get(self.letter, 0.0 if self.failure else None)

    @property
    def score(self) -> float | None:
        """Stability times similarity: a trial's score before the letter's weight; None without a classifier."""
        return None if self.similarity is None else self.stability * self.similarity

    @property
    def recognised(self) -> bool | None:
        """Whether its letter is the likeliest and at least 90 % of the blocks stayed; None without a classifier."""
        if self.similarity is None:
            return None
        return is_recognised(self.stability, self.similarity, self.probabilities.values())

    @property
    def verdict(self) -> str:
        """The scores in a line, or the reason of the failure."""
        if self.failure is not None:
            return f"0, failed in {self.failed_stage}: {printable_line(str(self.failure))}"
        if self.similarity is None:
            return f"stability {self.stability:.3f}, not classified"
        product = f"stability {self.stability:.3f} x similarity {self.similarity:.4f}"
        return f"{self.score:.4f} = {product}, {'recognised' if self.recognised else 'not recognised'}"

    @property
    def likeliest(self) -> tuple[tuple[str, float], ...]:
        """The five likeliest letters with their probabilities."""
        return tuple(sorted(self.probabilities.items(), key=lambda item: (-item[1], item[0]))[:LIKELIEST])

    @property
    def fallen(self) -> list[CalledBlock]:
        """The blocks that moved or broke."""
        return [block for block in self.blocks if block.fate != "stayed"]

    def image(self) -> Image.Image:
        """Return the evaluator's picture of the level after the simulation, 1024 x 1024 and grey.

        Raises:
            LevelError: There is no level to draw; the other drawings raise it too.
        """
        return render(self._end())

    def before_and_after(self) -> tuple[Image.Image, Image.Image]:
        """Return pictures of the level before and after the simulation, at one scale."""
        end, blocks = self._end(), self.before
        places = np.array([(block.x, block.y, math.radians(block.rotation)) for block in blocks]).reshape(-1, 3)
        start = Stability(end.types, places, (False,) * len(blocks), (False,) * len(blocks))
        return render(start, also=end), render(end, also=start)

    def svg(self) -> str:
        """Return the end as an SVG document: blocks that stayed dark, moved ones orange, broken ones left out."""
        return level_svg(self._end())

    def replay_svg(self) -> str:
        """Return the best simulation as an animated SVG document."""
        return replay_svg(self._end(), self._end().paths)

    def _end(self) -> Stability:
        if self.simulated is None:
            raise LevelError(self.reason or "there is no level", self.failure)
        return self.simulated

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pictures as values for JSON."""
        end = self.simulated
        return {
            "letter": self.letter,
            "read_as": self.read_as,
            "score": self.score,
            "stability": self.stability,
            "similarity": self.similarity,
            "recognised": self.recognised,
            "failed_stage": self.failed_stage,
            "kind": self.failure and self.failure.kind,
            "reason": self.reason,
            "likeliest": [list(item) for item in self.likeliest],
            "probabilities": dict(self.probabilities),
            "code": self.code,
            "blocks": [asdict(block) for block in self.blocks],
            "before": [asdict(block) for block in self.before],
            "after": None if end is None else end.positions.tolist(),
            "best_of": None if end is None else end.trial,
            "starts": [] if end is None else list(end.starts),
            "xml": self.xml,
        }


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

    A level that fails in a stage scores 0, and `failure` says why.

    Args:
        text: A model's response, bare calls, or a level in XML.
        letter: The capital letter that the level should look like.
        classifier: Default: the one of the package, loaded once.
        physics: Settings of the simulation; default: those of `params.yaml` as published.
        read_as: The kind of the text; default: the kind it looks like. A competition accepts responses only.
        classify: With False, only simulate the level: `probabilities` is empty; similarity and score are None.

    Raises:
        ValueError: The letter is not one of A to Z, or `read_as` is no kind of text.
        ClassifierError: The default classifier cannot be loaded.
    """
    if letter not in {*LETTERS}:
        raise ValueError(f"letter {letter!r} must be A to Z")
    check_text_kind(read_as)
    physics, read_as = physics or PhysicsParams(), read_as or text_kind(text)
    score = LevelScore(letter=letter, read_as=read_as, physics=physics, **vars(walk_to_level(text, read_as)))
    if score.xml is None:
        return score
    end = simulate_or_reason(score.xml, physics)
    if isinstance(end, Failure):
        return replace(score, failure=end)
    calls = end.types if score.code is None else [call.text for call in read_calls(score.code)]
    score = replace(score, simulated=end, blocks=tuple(called_blocks(calls, score.before, end)))
    if not classify:
        return score
    classifier = classifier or loaded_classifier()
    predictions = classifier.predict([score.image()])
    return replace(
        score,
        probabilities=dict(zip(classifier.labels, predictions.probabilities[0].tolist(), strict=True)),
        embedding=tuple(predictions.embeddings[0].tolist()),
    )


def level_lines(scored: LevelScore, width: int) -> Iterator[str]:
    """Yield a level for a terminal of so many columns: drawn before and after, the blocks that fell, likeliest letters.

    A level that failed yields nothing: its verdict says why.
    """
    if scored.failure:
        return
    before, after = map(text_drawing, scored.before_and_after())
    yield ""
    if width >= 2 * TEXT_COLUMNS + _GAP:
        yield f"{'before':{TEXT_COLUMNS + _GAP}}after"
        height = max(len(before), len(after))
        sides = ([""] * (height - len(side)) + side for side in (before, after))  # both stand on the ground
        yield from (f"{left:{TEXT_COLUMNS + _GAP}}{right}".rstrip() for left, right in zip(*sides, strict=True))
    else:
        yield from ("before", *before, "", "after", *after)
    yield ""
    stayed = len(scored.blocks) - len(scored.fallen)
    yield f"{stayed} of {len(scored.blocks)} blocks stayed{':' if scored.fallen else ''}"
    yield from (f"  {block_text(block)}" for block in scored.fallen)
    if scored.simulated and (starts := scored.simulated.starts):
        spread = f"{min(starts):.3f} to {max(starts):.3f}, {fmean(starts):.3f} on average"
        yield f"{len(starts)} starts up to {1000 * scored.physics.jitter:g} mm beside: stability {spread}"
    if scored.probabilities:
        yield "likeliest letters: " + ", ".join(f"{letter} {value:.4f}" for letter, value in scored.likeliest)


def level_line(scored: LevelScore) -> str:
    """Return why a level that did not fail has its score: the first block that fell, and the likeliest letter."""
    fell = f"{len(scored.fallen)} of {len(scored.blocks)} blocks fell"
    first = f" (first {block_text(scored.fallen[0]).lstrip()})" if scored.fallen else ""
    read = "; read as {} {:.4f}".format(*scored.likeliest[0]) if scored.probabilities else ""
    return f"{fell}{first}{read}"


def ignored_lines(text: str, scored: LevelScore) -> Iterator[str]:
    """Yield a sentence about each line that holds what is nearly a call, or in bare calls none, but for comments.

    Of a response the last fenced block is looked at. The sentence of a failure is not repeated.
    """
    block = last_block(text) if scored.read_as == "response" else None
    first = text.count("\n", 0, block.start(1)) + 1 if block else 1
    lines = block[1] if block else text if scored.read_as == "calls" else ""
    for number, line in enumerate(lines.split("\n"), first):
        if line.lstrip().startswith("#"):
            continue
        faults = [f"`{quoted(call)}` {why}" for _, call, why in unread_calls(line)]
        if scored.read_as == "calls" and line.strip() and not faults and not CALL.search(line):
            faults = [f"`{quoted(line.strip())}` holds no call"]
        for fault in faults:
            if f"line {number}: {fault}" != scored.reason:
                yield f"line {number} is ignored: {fault}"
