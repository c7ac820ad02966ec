"""Stage `blocks`: pictures of letters stacked from blocks, for training and held out.

Three kinds: designs drawn quickly with the disorder of a settled level (training only), fonts' glyphs laid out in
blocks, and levels simulated and rendered by our own evaluator. Most letters with an overhang fall down under gravity; a
simulated level counts only if its picture still resembles its design. Held-out pictures come from designs and fonts
that training never sees, and from the evaluator's own renderer.
"""

import math
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from designs import (
    HELD_OUT_FAMILY,
    TRAINING_FAMILIES,
    Block,
    Cells,
    covered_cells,
    dot_matrix_cells,
    grid_sizes,
    legible,
    skeleton_cells,
    take_apart,
)
from drawing import CELL, SPRITES, Boxes, disturbed, draw_boxes
from pcgeval.evaluator.image import png_bytes, render
from pcgeval.evaluator.physics import SimulationError, simulate
from pcgeval.evaluator.world import Stability
from pcgeval.formats.params import PhysicsParams
from pcgeval.levels.conversion import LevelError, level_xml
from settings import DATA, LETTERS, STORED_PIXELS, Blocks, load_settings

Pictures = npt.NDArray[np.uint8]
Named = dict[str, bytes]  # PNG files by their names in an archive
ONE_TRIAL = PhysicsParams(trials=1)
PLAYGROUND = 20  # columns of a level
COMPARED = 256  # pixels of the pictures whose overlap is measured


def designs(letter: str, held_out: bool, choice: np.random.Generator) -> Iterator[Cells]:
    """Yield legible designs of a letter without end, of random size, from the training or the held-out families."""
    for columns, rows, stroke in grid_sizes(choice):
        if not held_out:
            cells = skeleton_cells(letter, TRAINING_FAMILIES[choice.integers(3)], columns, rows, stroke)
        elif choice.random() < 0.5:
            cells = skeleton_cells(letter, HELD_OUT_FAMILY, columns, rows, stroke)
        else:
            cells = dot_matrix_cells(letter, int(choice.integers(1, 4)), int(choice.integers(1, 3)))
        if cells.size and legible(letter, cells):
            yield cells


def glyph_designs(letter: str, faces: Pictures, choice: np.random.Generator) -> Iterator[Cells]:
    """Yield fonts' glyphs (faces, 26, size, size) laid out on coarse grids without end."""
    while True:
        ink = Image.fromarray(faces[choice.integers(len(faces)), LETTERS.index(letter)])
        ink = ink.crop(ink.getbbox())
        rows = int(choice.integers(6, 17))
        columns = min(PLAYGROUND, max(1, round(rows * ink.width / ink.height * choice.uniform(0.75, 1.3))))
        cells = covered_cells(np.asarray(ink), columns, rows, 0.4)
        if cells.size and legible(letter, cells) and cells.mean() > 0.12:
            yield cells


def as_designed(blocks: list[Block]) -> Boxes:
    """Return the blocks' places before physics."""
    return np.array(
        [
            (
                block.left + block.size[0] / 2,
                block.row + block.size[1] / 2,
                *(side / CELL for side in SPRITES[block.kind]),
                0.0,
            )
            for block in blocks
        ]
    )


def render_boxes(boxes: Boxes, size: int, margin: int) -> Image.Image:
    """Draw boxes (cells) with the evaluator's renderer."""
    upright = boxes[:, 3] > boxes[:, 2] * 1.5
    small = boxes[:, 2:4].max(1) < 2
    positions = np.stack([boxes[:, 0] * CELL, boxes[:, 1] * CELL, boxes[:, 4] + upright * math.pi / 2], 1)
    unmoved = (False,) * len(boxes)
    types = tuple("SquareTiny" if one else "RectSmall" for one in small)
    return render(Stability(types, positions, unmoved, unmoved), size, margin)  # type: ignore[arg-type]


def simulated(blocks: list[Block], resemblance: float) -> Stability | None:
    """Drop and simulate a design; None where no level comes of it, or one that does not look like the design."""
    first = (PLAYGROUND - max(block.left + block.size[0] for block in blocks)) // 2
    calls = "\n".join(f"drop_block('{block.kind}', {first + block.centre_column})" for block in blocks)
    try:
        stability = simulate(level_xml(calls), ONE_TRIAL)
    except (LevelError, SimulationError):
        return None
    stands, meant = (
        np.asarray(picture) < 128
        for picture in (render(stability, COMPARED, 25), render_boxes(as_designed(blocks), COMPARED, 25))
    )
    return stability if (stands & meant).sum() >= resemblance * (stands | meant).sum() else None


def training_pictures(letter: str, settings: Blocks, faces: Pictures) -> Pictures:
    """Return a letter's training pictures (n, size, size), 255 is ink."""
    choice = np.random.default_rng((settings.seed, LETTERS.index(letter)))
    pictures = []
    for source, count in (
        (designs(letter, False, choice), settings.drawn),
        (glyph_designs(letter, faces, choice), settings.pixelised),
    ):
        for _ in range(count):
            boxes = disturbed(take_apart(next(source), choice), choice)
            pictures.append(draw_boxes(boxes, STORED_PIXELS))
    source = designs(letter, False, choice)
    for _ in range(settings.simulated_tries):
        stability = simulated(take_apart(next(source), choice), settings.resemblance)
        if stability is not None:
            small = render(stability, 4 * STORED_PIXELS, round(100 / 1024 * 4 * STORED_PIXELS))
            pictures.append(255 - np.asarray(small.resize((STORED_PIXELS,) * 2, Image.Resampling.BOX)))
    return np.stack(pictures)


def held_out_pictures(letter: str, settings: Blocks, faces: Pictures) -> tuple[Named, Named]:
    """Return a letter's held-out pictures `<letter>/<kind>_<number>.png`: as designed, and simulated."""
    choice = np.random.default_rng((settings.held_out_seed, LETTERS.index(letter)))
    own, glyphs = designs(letter, True, choice), glyph_designs(letter, faces, choice)
    drawn, levels = {}, {}
    for number in range(settings.held_out_designs):
        kind, source = ("design", own) if number % 2 == 0 else ("glyph", glyphs)
        picture = render_boxes(disturbed(take_apart(next(source), choice), choice), 1024, 100)
        drawn[f"{letter}/{kind}_{number}.png"] = png_bytes(picture)
    for number in range(settings.held_out_tries):
        kind, source = ("design", own) if number % 2 == 0 else ("glyph", glyphs)
        stability = simulated(take_apart(next(source), choice), settings.resemblance)
        if stability is not None:
            levels[f"{letter}/{kind}_{number}.png"] = png_bytes(render(stability))
    return drawn, levels


def pictures_of(letter: str) -> tuple[Pictures, Named, Named]:
    """Make all pictures of a letter; letters draw from generators of their own, so they can be made side by side."""
    settings = load_settings().blocks
    training, held_out = (np.load(DATA / f"{name}.npz")["pictures"] for name in ("glyphs", "glyphs_held_out"))
    return training_pictures(letter, settings, training), *held_out_pictures(letter, settings, held_out)


def write_archive(path: Path, named: Iterable[Named]) -> None:
    """Write pictures into a zip file without dates."""
    with zipfile.ZipFile(path, "w") as archive:
        for part in named:
            for name, content in part.items():
                archive.writestr(zipfile.ZipInfo(name), content)


def main() -> None:
    """Make the training arrays and the two held-out archives."""
    with ProcessPoolExecutor() as pool:
        training, drawn, levels = zip(*pool.map(pictures_of, LETTERS), strict=True)
    write_archive(DATA / "held_out_designs.zip", drawn)
    write_archive(DATA / "held_out_levels.zip", levels)
    counts = [len(pictures) for pictures in training]
    np.savez_compressed(
        DATA / "blocks.npz", pictures=np.concatenate(training), labels=np.repeat(np.arange(len(LETTERS)), counts)
    )
    print(f"{sum(counts)} training pictures, per letter {counts}; held out, simulated: {list(map(len, levels))}")


if __name__ == "__main__":
    main()
