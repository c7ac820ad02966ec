"""Tell what a competition's stability x similarity comes from: levels that show their letter, another one, or none.

    pcgeval export official /tmp/official        # in the evaluated demo
    python second_scores.py /tmp/official

The levels are those that one judge read for the second test set. Its pictures are drawn from rounded places, so a level
is found by its likeness; one that falls otherwise today was not read.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from second_set import second_levels

SIDE = 64  # pixels of the pictures that are compared
ALIKE = 0.5  # mean difference, of 255, below which two of them are the same level


def thumbnail(picture: Image.Image) -> npt.NDArray[np.float32]:
    """Return a small picture (SIDE, SIDE), 0 to 255."""
    return np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32)


def measured(folder: Path) -> Iterator[tuple[str, Path, float, float]]:
    """Yield target letter, picture, stability and similarity of every level that was classified."""
    for path in sorted(folder.glob("*/*/similarity/?.json")):
        team, letter = path.parent.parent, path.stem
        stability = {
            Path(each["tag"]).stem: each["score"]
            for each in json.loads((team / "stability" / path.name).read_text("utf-8"))["raws"]
        }
        for each in json.loads(path.read_text("utf-8"))["trials"]:
            name = each["id"].removesuffix(".png")
            yield letter, team / "images" / letter / f"{name}.png", stability[name], each["similarity"]


def main() -> None:
    """Print for each kind the number of levels, their similarities, and their part of the sum."""
    levels = [(letters, picture) for part, letters, picture in second_levels() if part == "real"]
    known = np.stack([thumbnail(picture) for _, picture in levels])
    kinds = defaultdict(list)
    for target, path, stability, similarity in measured(Path(sys.argv[1])):
        apart = np.abs(known - thumbnail(Image.open(path))).mean((1, 2))
        if apart.min() > ALIKE:  # it fell otherwise than with the physics of then
            kind = "not read"
        else:
            letters = levels[int(apart.argmin())][0]
            kind = "its letter" if target in letters else "another letter" if letters else "no letter"
        kinds[kind].append((similarity, stability * similarity))
    whole = sum(product for found in kinds.values() for _, product in found)
    for kind, found in sorted(kinds.items()):
        similarity, product = np.array(found).T
        share = 100 * product.sum() / whole
        print(f"{kind}: {len(found)} levels, mean similarity {similarity.mean():.3f}", end=", ")
        print(f"{(similarity > 0.5).sum()} above 0.5, {share:.0f} % of the sum of stability x similarity")


if __name__ == "__main__":
    main()
