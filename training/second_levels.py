"""Make the block letters and the real levels of the second test set: `second/levels.jsonl.gz`, a picture a line.

    python second_levels.py designs      # draw the designs and sheets of them, for a judge to look at
    python second_levels.py real         # simulate what models answered in data/recordings, and sheets of them
    python second_levels.py write        # take what the judge wrote down, simulate, write levels.jsonl.gz
    python second_levels.py left-out     # afterwards: how the classifier names the designs that the judge could not

The first three were done once, before any picture was classified (second/RULES.md). The file holds where each block
came to rest, so that a later change of the physics cannot change the set.
"""

import gzip
import hashlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from blocks import simulated
from designs import Block, Cells, covered_cells, take_apart, trimmed
from drawing import CELL
from pcgeval.evaluator.image import render
from pcgeval.evaluator.physics import SimulationError, simulate
from pcgeval.evaluator.stability import Stability
from pcgeval.levels.extraction import extract_code
from pcgeval.levels.xml import LevelError, level_xml
from pcgeval.similarity.classifier import Classifier
from second_fonts import FONTS, SHEETS
from second_set import LEVELS, REAL, UNNAMED, Picture, picture_of, pixels_sha256
from settings import HERE, INSTALLED, LETTERS, load_settings

RECORDINGS = HERE.parent / "data" / "recordings"
LAYOUTS = HERE / "second" / "layouts.txt"
SEED = 3
TERMINAL, HERSHEY = 20, 10  # designs of a letter
PLOTTER_FONTS = ("futural", "futuram", "rowmans", "rowmant", "timesr", "timesib")
COLUMNS, ROWS = 20, 16  # of a level
TRIES = 3  # ways in which a design is taken apart until one stands


@dataclass(frozen=True)
class Design:
    """A letter on the grid, and its name `source/letter/number`."""

    name: str
    letter: str
    cells: Cells


def from_rows(rows: list[str]) -> Cells:
    """Turn rows of signs, the top one first, into cells; a space or a dot is none."""
    width = max(map(len, rows))
    return trimmed(np.array([[sign not in " ." for sign in row.ljust(width)] for row in reversed(rows)]))


def scaled(cells: Cells, across: int, up: int) -> Cells:
    """Repeat each cell."""
    return np.kron(cells, np.ones((up, across))).astype(bool)


def layouts() -> Iterator[Design]:
    """Yield the hand-made layouts at each of their scales."""
    letter, alphabet, scales, rows = "", "", [], {}
    for line in [*LAYOUTS.read_text("utf-8").splitlines(), "= end"]:
        if line.startswith("= "):
            for scale in scales:
                for name, drawn in rows.items():
                    cells = scaled(from_rows(drawn), *map(int, scale.split("x")))
                    yield Design(f"layouts/{name}/{alphabet}-{scale}", name, cells)
            _, alphabet, *scales = line.split()
            rows = {}
        elif len(line) == 1 and line in LETTERS:
            letter = line
            rows[letter] = []
        elif not line.startswith("# "):
            rows[letter].append(line)


def terminal_alphabets() -> dict[str, list[list[str]]]:
    """Return the FIGlet fonts whose 26 capitals are different, of one sign, and fit on the grid."""
    sys.path.insert(0, str(FONTS / "pyfiglet"))
    from pyfiglet import Figlet, FigletFont  # noqa: PLC0415 - fetched, not installed

    alphabets = {}
    for font in sorted(FigletFont.getFonts()):
        figlet = Figlet(font, width=200)
        drawn = [figlet.renderText(letter).split("\n") for letter in LETTERS]
        drawn = [[row.rstrip() for row in rows if row.strip()] for rows in drawn]
        signs = set("".join("".join(rows) for rows in drawn)) - {" "}
        sizes = [(len(rows), max(map(len, rows), default=0)) for rows in drawn]
        fits = all(4 <= rows <= ROWS and 3 <= columns <= COLUMNS for rows, columns in sizes)
        if len(signs) == 1 and fits and len({tuple(rows) for rows in drawn}) == len(LETTERS):
            alphabets[font] = drawn
    return alphabets


def terminal(letter: str, alphabets: dict[str, list[list[str]]], choice: np.random.Generator) -> Iterator[Design]:
    """Yield designs of a letter from different alphabets, some with larger cells."""
    seen = set()
    for font in choice.permutation(sorted(alphabets)).tolist():
        cells = from_rows(alphabets[font][LETTERS.index(letter)])
        across, up = ((1, 1), (1, 1), (2, 1), (2, 2))[choice.integers(4)]
        if cells.shape[0] * up > ROWS or cells.shape[1] * across > COLUMNS:
            across, up = 1, 1
        if cells.tobytes() not in seen:
            seen.add(cells.tobytes())
            yield Design(f"terminal/{letter}/{font}-{across}x{up}", letter, scaled(cells, across, up))


def hershey(letter: str, choice: np.random.Generator) -> Iterator[Design]:
    """Yield plotter letters with thickened strokes without end, on grids larger than those of designs.py."""
    sys.path.insert(0, str(FONTS / "Hershey-Fonts"))
    from HersheyFonts import HersheyFonts  # noqa: PLC0415 - fetched, not installed

    for number in range(1000):
        font = HersheyFonts()
        name = PLOTTER_FONTS[choice.integers(len(PLOTTER_FONTS))]
        font.load_default_font(name)
        rows, stroke = int(choice.integers(9, ROWS + 1)), float(choice.choice([1.2, 1.6, 2.2, 3.0]))
        lines = [np.array(line) for line in font.strokes_for_text(letter)]
        low, high = np.concatenate(lines).min(0), np.concatenate(lines).max(0)
        shape = (high[0] - low[0]) / (high[1] - low[1]) * choice.uniform(0.85, 1.4)
        columns = min(COLUMNS, max(3, round(rows * shape)))
        detail = 12
        picture = Image.new("L", (columns * detail, rows * detail))
        draw = ImageDraw.Draw(picture)
        reach = np.array([columns - stroke, rows - stroke]) / np.maximum(high - low, 1e-9)
        for line in lines:
            points = (stroke / 2 + (line - low) * reach) * detail
            draw.line([tuple(point) for point in points.tolist()], fill=255, width=round(stroke * detail))
        cells = covered_cells(np.asarray(picture), columns, rows, 0.4)
        if cells.size:
            yield Design(f"hershey/{letter}/{name}-{number}", letter, cells)


def designs() -> list[Design]:
    """Return all designs, in a fixed order."""
    found = list(layouts())
    alphabets = terminal_alphabets()
    for letter in LETTERS:
        choice = np.random.default_rng((SEED, LETTERS.index(letter)))
        for source, count in ((terminal(letter, alphabets, choice), TERMINAL), (hershey(letter, choice), HERSHEY)):
            found += [next(source) for _ in range(count)]
    return found


def as_designed(blocks: list[Block]) -> Stability:
    """Return the blocks resting where the design has them."""
    places = [
        (
            (block.left + block.size[0] / 2) * CELL,
            (block.row + block.size[1] / 2) * CELL,
            math.pi / 2 * (block.kind == "b13"),
        )
        for block in blocks
    ]
    still = (False,) * len(blocks)
    types = tuple("SquareTiny" if block.kind == "b11" else "RectSmall" for block in blocks)
    return Stability(types, np.array(places), still, still)  # type: ignore[arg-type]


def design_pictures() -> Iterator[Picture]:
    """Yield each design that the judge could name, as designed and, where it stands, simulated."""
    resemblance = load_settings().blocks.resemblance
    unnamed = set(UNNAMED.read_text("utf-8").split())
    for number, design in enumerate(designs()):
        if design.name in unnamed:
            continue
        source = design.name.split("/")[0]
        choice = np.random.default_rng((SEED, 26 + number))
        blocks = take_apart(design.cells, choice)
        yield Picture.of(f"{source}_as_designed", design.name, design.letter, as_designed(blocks))
        for _ in range(TRIES):
            stability = simulated(blocks, resemblance)
            if stability is not None:
                yield Picture.of(f"{source}_simulated", design.name, design.letter, stability)
                break
            blocks = take_apart(design.cells, choice)


def real_levels() -> dict[str, Picture]:
    """Return the levels that models answered, each distinct picture once, by its hash, which also gives their order."""
    found: dict[str, Picture] = {}
    for path in sorted(RECORDINGS.glob("[!j]*/*/calls.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            code = extract_code(json.loads(line)["reply"]["text"])
            try:
                stability = simulate(level_xml(code)) if code else None
            except (LevelError, SimulationError):
                continue
            if stability is not None and not all(stability.dead):
                picture = Picture.of("real", path.parent.parent.name, "", stability)
                found.setdefault(pixels_sha256(picture_of(picture)), picture)
    return dict(sorted(found.items()))


def real_pictures() -> Iterator[Picture]:
    """Yield the real levels with the letters that the judge wrote down."""
    levels = real_levels()
    for line in REAL.read_text("utf-8").splitlines()[1:]:
        sha256, letters = line.split(",")
        yield Picture("real", sha256[:16], letters, levels[sha256].blocks)


def classify_left_out() -> None:
    """Print how many of the designs that the judge left out the classifier names as they were meant."""
    unnamed = set(UNNAMED.read_text("utf-8").split())
    left_out = [design for design in designs() if design.name in unnamed]
    choice = np.random.default_rng(SEED)
    pictures = [render(as_designed(take_apart(design.cells, choice))) for design in left_out]
    named = Classifier.load(INSTALLED, device="cpu").predict(pictures).probabilities.argmax(1).tolist()
    right = sum(LETTERS[top] == design.letter for top, design in zip(named, left_out, strict=True))
    print(f"{right} of {len(left_out)} designs left out are named as they were meant")


def sheet(name: str, pictures: list[Image.Image], columns: int, side: int) -> None:
    """Write numbered pictures in rows."""
    rows = math.ceil(len(pictures) / columns)
    whole = Image.new("L", (columns * (side + 6), rows * (side + 16)), 200)
    draw = ImageDraw.Draw(whole)
    for number, picture in enumerate(pictures):
        x, y = number % columns * (side + 6), number // columns * (side + 16)
        whole.paste(picture.resize((side, side), Image.Resampling.BOX), (x, y + 12))
        draw.text((x + 2, y), str(number))
    whole.save(SHEETS / f"{name}.png")


def write_design_sheets() -> None:
    """Write a sheet for each source and half of the letters."""
    choice = np.random.default_rng(SEED)
    every = designs()
    for source, columns in (("layouts", 13), ("terminal", TERMINAL), ("hershey", HERSHEY * 2)):
        chosen = [design for design in every if design.name.startswith(source)]
        for part in range(0, len(chosen), 130):
            names = [design.name for design in chosen[part : part + 130]]
            (SHEETS / f"{source}_{part // 130}.txt").write_text("\n".join(names), "utf-8")
            blocks = [take_apart(design.cells, choice) for design in chosen[part : part + 130]]
            sheet(f"{source}_{part // 130}", [render(as_designed(each), 256, 25) for each in blocks], columns, 64)
    print(f"{len(every)} designs: {SHEETS}")


def write_real_sheets() -> None:
    """Write sheets of the real levels in the order of their hashes, which tells nothing of them."""
    levels = real_levels()
    (SHEETS / "real.txt").write_text("\n".join(levels), "utf-8")
    pictures = [picture_of(each) for each in levels.values()]
    for part in range(0, len(pictures), 60):
        sheet(f"real_{part // 60}", pictures[part : part + 60], 12, 110)
    print(f"{len(pictures)} distinct levels: {SHEETS}")


def main() -> None:
    """Do one of the four steps."""
    SHEETS.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:] == ["designs"]:
        write_design_sheets()
    elif sys.argv[1:] == ["real"]:
        write_real_sheets()
    elif sys.argv[1:] == ["left-out"]:
        classify_left_out()
    elif sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    else:
        rows = [*design_pictures(), *real_pictures()]
        lines = "".join(json.dumps(row.line(), separators=(",", ":")) + "\n" for row in rows)
        LEVELS.write_bytes(gzip.compress(lines.encode(), mtime=0))
        print(f"{len(rows)} pictures, {hashlib.sha256(lines.encode()).hexdigest()}")


if __name__ == "__main__":
    main()
