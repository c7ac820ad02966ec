"""The second test set: its pictures, and the hashes that were frozen before any of them was classified."""

import gzip
import hashlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import write_json
from pcgeval.evaluator.image import render
from pcgeval.evaluator.stability import Stability
from settings import DATA, HERE

SECOND = HERE / "second"
LEVELS = SECOND / "levels.jsonl.gz"
FROZEN = SECOND / "frozen.json"
FONT_KINDS = ("text", "hand", "display")


class ChangedSetError(PcgevalError):
    """The pictures are not those that were frozen."""


@dataclass(frozen=True)
class Picture:
    """A level at rest and the letters that the judge named: `A`, `IL`, or none.

    Attributes:
        part: The part of the set, such as `terminal_simulated`.
        name: Where it is from.
        letters: Any of them is a right answer.
        blocks: (type, x, y, angle), metres and radians, of the blocks that are drawn.
    """

    part: str
    name: str
    letters: str
    blocks: tuple[tuple[str, float, float, float], ...]


def picture_of(picture: Picture) -> Image.Image:
    """Draw a level as the competition does."""
    types = tuple(block[0] for block in picture.blocks)
    still = (False,) * len(types)
    places = np.array([block[1:] for block in picture.blocks])
    return render(Stability(types, places, still, still))  # type: ignore[arg-type]


def pixels_sha256(image: Image.Image) -> str:
    """Return the SHA-256 of a picture's pixels, however it is compressed."""
    return hashlib.sha256(image.convert("L").tobytes()).hexdigest()


def second_set() -> Iterator[tuple[str, str, Image.Image]]:
    """Yield part, letters and picture of the whole set in a fixed order.

    Raises:
        ChangedSetError: The fonts have not been drawn.
    """
    for kind in FONT_KINDS:
        drawn = DATA / f"second_fonts_{kind}.zip"
        if not drawn.is_file():
            raise ChangedSetError(f"{drawn}: is missing. Run fetch_fonts.py, then second_fonts.py, in training.")
        with zipfile.ZipFile(drawn) as archive:
            for name in archive.namelist():
                yield f"fonts_{kind}", name[0], Image.open(BytesIO(archive.read(name)))
    yield from second_levels()


def second_levels() -> Iterator[tuple[str, str, Image.Image]]:
    """Yield part, letters and picture of what is built of blocks, which needs no fonts."""
    with gzip.open(LEVELS, "rt", encoding="utf-8", newline="\n") as lines:
        for row in map(json.loads, lines):
            picture = Picture(row["part"], row["name"], row["letters"], tuple(map(tuple, row["blocks"])))
            yield picture.part, picture.letters, picture_of(picture)


def hashes() -> dict[str, dict[str, Any]]:
    """Return for each part the number of its pictures and one hash over their letters and pixels."""
    parts: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for part, letters, picture in second_set():
        counts[part] = counts.get(part, 0) + 1
        parts.setdefault(part, hashlib.sha256()).update(f"{letters} {pixels_sha256(picture)}\n".encode())
    return {part: {"pictures": counts[part], "sha256": digest.hexdigest()} for part, digest in parts.items()}


def check_frozen() -> None:
    """Compare the set with frozen.json.

    Raises:
        ChangedSetError: Which parts differ.
    """
    frozen = json.loads(FROZEN.read_text("utf-8"))["parts"]
    found = hashes()
    changed = sorted(part for part in frozen.keys() | found.keys() if frozen.get(part) != found.get(part))
    if changed:
        raise ChangedSetError(
            f"{FROZEN}: the pictures of {', '.join(changed)} are not those that were frozen. Restore training/second "
            "from git, fetch the fonts and draw them with the versions of constraints.txt; do not freeze anew."
        )


def main() -> None:
    """Freeze the set: once, before any picture is classified."""
    if FROZEN.exists():
        raise SystemExit(f"{FROZEN} exists: the set is frozen")
    write_json(FROZEN, {"parts": hashes()})


if __name__ == "__main__":
    main()
