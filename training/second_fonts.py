"""Draw the fonts of the second test set.

`second/families.csv` names one face of each new family, and what a judge who saw its letters, without predictions,
sorted it as: text, hand, display, or out with the reason (second/RULES.md).
"""

import csv

from glyphs import read_face, write_held_out
from second_set import FONT_KINDS, SECOND
from settings import CACHE, DATA

FONTS = CACHE / "second_fonts"
FAMILIES = SECOND / "families.csv"


def main() -> None:
    """Draw the sorted faces, an archive for each kind."""
    with FAMILIES.open(encoding="utf-8", newline="") as file:
        sorted_as = {row["file"]: row["kind"] for row in csv.DictReader(file)}
    for kind in FONT_KINDS:
        faces = [read_face(FONTS / path) for path, sorted_kind in sorted_as.items() if sorted_kind == kind]
        write_held_out(DATA / f"second_fonts_{kind}.zip", [face for face in faces if face is not None])
        print(f"{kind}: {len(faces)} families")


if __name__ == "__main__":
    main()
