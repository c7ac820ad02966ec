"""The second test set: its pictures, and the hashes that were frozen before any of them was classified."""

import gzip
import json
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, sha256_text, write_json
from pcgeval.evaluator.image import render
from pcgeval.evaluator.world import Stability
from settings import DATA, HERE

SECOND = HERE / "second"
LEVELS = SECOND / "levels.jsonl.gz"
FROZEN = SECOND / "frozen.json"
FONT_KINDS = ("text", "hand", "display")


class ChangedSetError(PcgevalError):
    """The pictures are not those that were frozen."""


def second_set() -> Iterator[tuple[str, str, Image.Image]]:
    """Yield part, letters and picture of the whole set in a fixed order; any of the letters is a right answer.

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
    with gzip.open(LEVELS, "rt", encoding="utf-8", newline="\n") as lines:
        for row in map(json.loads, lines):
            types = tuple(kind for kind, *_ in row["blocks"])
            places = np.array([place for _, *place in row["blocks"]])  # x, y, angle in metres and radians
            still = (False,) * len(types)
            yield row["part"], row["letters"], render(Stability(types, places, still, still))


def hashes() -> dict[str, dict[str, Any]]:
    """Return for each part the number of its pictures and one hash over their letters and pixels."""
    lines: dict[str, list[str]] = {}
    for part, letters, picture in second_set():
        pixels = sha256_bytes(picture.convert("L").tobytes())
        lines.setdefault(part, []).append(f"{letters} {pixels}\n")
    return {part: {"pictures": len(found), "sha256": sha256_text("".join(found))} for part, found in lines.items()}


def check_frozen() -> None:
    """Compare the set with frozen.json.

    Raises:
        ChangedSetError: Which parts differ.
    """
    frozen, present = json.loads(FROZEN.read_text("utf-8"))["parts"], hashes()
    if changed := sorted(part for part in {**frozen, **present} if frozen.get(part) != present.get(part)):
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
