"""Draw the fonts of the second test set; with --candidates, find families that the first set has not.

`second/families.csv` names one face of each new family, and what a judge who saw its letters, without predictions,
sorted it as: text, hand, display, or out with the reason (second/RULES.md).
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageDraw

from glyphs import SUFFIXES, Face, families, read_face, write_held_out
from second_set import FONT_KINDS, SECOND
from settings import CACHE, DATA, load_settings

FONTS = CACHE / "second_fonts"
FAMILIES = SECOND / "families.csv"
SHEETS = CACHE / "sheets"
CELL = 40  # pixels of a letter on a sheet
ROWS = 32  # faces of a sheet


def faces_below(folder: Path) -> Iterator[Face]:
    """Draw all faces below a folder that have 26 different capitals, in byte order of their paths."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()):
        try:
            face = read_face(path)
        except (OSError, ValueError) as error:
            print(f"{path.name}: left out, {error}")
            continue
        if face is not None:
            yield face


def new_faces() -> list[Face]:
    """Return the first face of each family that has no face of the first set, by name or by look."""
    limits = load_settings().glyphs
    first, second = (list(faces_below(folder)) for folder in (CACHE / "fonts", FONTS))
    known = {id(face) for face in first}
    grouped = families([*first, *second], limits.alike, limits.same)
    return [family[0] for family in grouped if not any(id(face) in known for face in family)]


def write_sheets(faces: list[Face]) -> None:
    """Write pictures of the faces' letters, a numbered row a face, to be looked at."""
    SHEETS.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(faces), ROWS):
        sheet = Image.new("L", (30 + 26 * CELL, ROWS * CELL), 255)
        draw = ImageDraw.Draw(sheet)
        for row, face in enumerate(faces[start : start + ROWS]):
            draw.text((2, row * CELL + 12), str(start + row))
            for column, picture in enumerate(face.pictures):
                letter = Image.fromarray(255 - picture).resize((CELL, CELL), Image.Resampling.BOX)
                sheet.paste(letter, (30 + column * CELL, row * CELL))
        sheet.save(SHEETS / f"fonts_{start // ROWS}.png")


def candidates() -> None:
    """Write the new faces and their sheets for a judge to sort."""
    faces = new_faces()
    write_sheets(faces)
    with (SHEETS / "families.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["number", "family", "file", "kind", "reason"])
        for number, face in enumerate(faces):
            table.writerow([number, face.family, face.path.relative_to(FONTS), "", ""])
    print(f"{len(faces)} new families: {SHEETS}")


def main() -> None:
    """Draw the sorted faces, an archive for each kind."""
    with FAMILIES.open(encoding="utf-8", newline="") as file:
        sorted_as = {row["file"]: row["kind"] for row in csv.DictReader(file)}
    for kind in FONT_KINDS:
        faces = [read_face(FONTS / path) for path, sorted_kind in sorted_as.items() if sorted_kind == kind]
        write_held_out(DATA / f"second_fonts_{kind}.zip", [face for face in faces if face is not None])
        print(f"{kind}: {len(faces)} families")


if __name__ == "__main__":
    if sys.argv[1:] == ["--candidates"]:
        candidates()
    else:
        main()
