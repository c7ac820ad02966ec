"""Stage `glyphs`: draw A to Z in every fetched font, drop repeats, and part the families into training and held-out.

A glyph's bounding box fills the central square of the picture like a level's blocks do: 824 of 1024 pixels, white
around it. Faces that look alike are one family whatever their names say: no held-out face has a twin in training.
"""

import hashlib
import re
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from pcgeval.evaluator.image import png_bytes
from settings import CACHE, DATA, LETTERS, PICTURE_PIXELS, STORED_PIXELS, VIEW_SHARE, Glyphs, load_settings

SUFFIXES = {".ttf", ".otf", ".ttc"}
NOT_A_CHARACTER = "\U0010fffe"  # no font has it: shows how the font draws a letter it lacks
DRAWN = 160  # pixels of the longer side of a glyph before it is scaled into the picture
THUMBNAIL = 12  # pixels of the pictures that faces are compared by
STYLE_WORDS = re.compile(
    r"\b(regular|bold|italic|oblique|light|thin|medium|black|heavy|semibold|demibold|extrabold|extralight|semi|extra|ultra"
    r"|condensed|narrow|wide|book|roman|demi|display|text|caption|mono|sans|serif|sc|caps|web|std|pro|brk|hairline)\b"
)


@dataclass(frozen=True)
class Face:
    """One font face: the family name in its file, the file, and its 26 pictures (26, size, size), 255 is ink."""

    family: str
    path: Path
    pictures: npt.NDArray[np.uint8]


def glyph_mask(font: ImageFont.FreeTypeFont, character: str) -> Image.Image | None:
    """Return a character's own pixels (mode L, 255 is ink), or None where the font draws nothing."""
    left, top, right, bottom = font.getbbox(character)
    if not (0 < right - left < 4000 and 0 < bottom - top < 4000):
        return None
    mask = Image.new("L", (int(right - left) + 8, int(bottom - top) + 8))
    ImageDraw.Draw(mask).text((4 - left, 4 - top), character, fill=255, font=font)
    box = mask.point(lambda value: 255 * (value >= 128)).getbbox()
    return mask.crop(box) if box else None


def place(mask: Image.Image, size: int) -> Image.Image:
    """Return the picture (size x size, 255 is ink) with the mask's longer side filling the evaluator's inner square."""
    scale = size * VIEW_SHARE / max(mask.size)
    width, height = (max(1, round(side * scale)) for side in mask.size)
    picture = Image.new("L", (size, size))
    picture.paste(mask.resize((width, height), Image.Resampling.BOX), ((size - width) // 2, (size - height) // 2))
    return picture


def read_face(path: Path) -> Face | None:
    """Draw a face's 26 letters; None where it is no Latin face."""
    font = ImageFont.truetype(path, DRAWN)
    lacking = glyph_mask(font, NOT_A_CHARACTER)
    masks = [glyph_mask(font, letter) for letter in LETTERS]
    present = [mask for mask in masks if mask is not None and (lacking is None or mask.tobytes() != lacking.tobytes())]
    if len({mask.tobytes() for mask in present}) < len(LETTERS):
        return None
    pictures = np.stack([np.asarray(place(mask, STORED_PIXELS)) for mask in present])
    return Face(font.getname()[0] or path.stem, path, pictures)


def read_faces(folder: Path) -> list[Face]:
    """Draw all usable faces below a folder, in byte order of their paths."""
    unwanted = tuple(
        line.split("|")[0].strip()
        for line in (Path(__file__).parent / "excluded_fonts.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    )
    faces = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()):
        try:
            face = read_face(path)
        except (OSError, ValueError) as error:
            print(f"{path.name}: left out, {error}")
            continue
        if face is not None and not face.family.startswith(unwanted):
            faces.append(face)
    return faces


def stem(family: str) -> str:
    """Return a family's name without the words for weight, width and slant."""
    words = re.sub(r"[^a-z0-9]+", " ", re.sub(r"([a-z])([A-Z])", r"\1 \2", family).lower())
    return " ".join(STYLE_WORDS.sub(" ", words).split()[:2]) or words


def differences(faces: list[Face]) -> npt.NDArray[np.float32]:
    """Return the mean absolute difference of each two faces' thumbnails (faces, faces), ink in 0..1."""
    step = STORED_PIXELS // THUMBNAIL
    pictures = np.stack([face.pictures for face in faces])
    small = pictures.reshape(len(faces), 26, THUMBNAIL, step, THUMBNAIL, step).mean((3, 5), dtype=np.float32) / 255
    flat = small.reshape(len(faces), -1)
    return np.stack([np.abs(flat - one).mean(1) for one in flat])


def families(faces: list[Face], alike: float, same: float) -> list[list[Face]]:
    """Group faces by name and by look (mean difference below `alike`); of faces closer than `same` keep the first."""
    apart = differences(faces)
    first_of_name: dict[str, int] = {}
    parent = list(range(len(faces)))

    def root(index: int) -> int:
        while parent[index] != index:
            index = parent[index]
        return index

    kept = []
    for index, face in enumerate(faces):
        near = np.flatnonzero(apart[index, :index] < alike).tolist()
        for other in [*near, first_of_name.setdefault(stem(face.family), index)]:
            parent[max(root(index), root(other))] = min(root(index), root(other))
        if not any(apart[index, other] < same for other in kept):
            kept.append(index)
    grouped: dict[int, list[Face]] = defaultdict(list)
    for index in kept:
        grouped[root(index)].append(faces[index])
    return [grouped[key] for key in sorted(grouped)]


def is_held_out(family: list[Face], share: float) -> bool:
    """Draw a family's lot from its name alone, so that a new font moves no other."""
    name = min(stem(face.family) for face in family)
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) < share * 16**8


def spread(faces: list[Face], most: int) -> list[Face]:
    """Return at most `most` faces of a family, evenly from its list."""
    return faces if len(faces) <= most else [faces[round(i * (len(faces) - 1) / max(1, most - 1))] for i in range(most)]


def write_held_out(path: Path, faces: list[Face]) -> None:
    """Write a zip of level-sized PNG pictures `<letter>/<family>_<number>.png`."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, face in enumerate(faces):
            font = ImageFont.truetype(face.path, PICTURE_PIXELS)
            for letter in LETTERS:
                mask = glyph_mask(font, letter)
                if mask is None:
                    raise ValueError(f"{face.path}: draws {letter} small but not large; exclude the font")
                picture = place(mask, PICTURE_PIXELS).point(lambda value: 255 * (value < 128))
                name = re.sub(r"[^A-Za-z0-9]+", "-", face.family)
                archive.writestr(zipfile.ZipInfo(f"{letter}/{name}_{number}.png"), png_bytes(picture))


def main() -> None:
    """Read the fonts, part them, write the training pictures and the held-out pictures."""
    settings: Glyphs = load_settings().glyphs
    grouped = families(read_faces(CACHE / "fonts"), settings.alike, settings.same)
    held_out = [spread(family, settings.held_out_faces) for family in grouped if is_held_out(family, settings.held_out)]
    training = [spread(family, settings.faces) for family in grouped if not is_held_out(family, settings.held_out)]
    DATA.mkdir(exist_ok=True)
    write_held_out(DATA / "held_out_fonts.zip", [face for family in held_out for face in family])
    for name, chosen in (("glyphs", training), ("glyphs_held_out", held_out)):
        np.savez_compressed(
            DATA / f"{name}.npz",
            pictures=np.stack([face.pictures for family in chosen for face in family]),
            family=np.repeat(np.arange(len(chosen)), [len(family) for family in chosen]),
        )
    counts = [f"{len(chosen)} families with {sum(map(len, chosen))} faces" for chosen in (training, held_out)]
    print(f"training: {counts[0]}; held out: {counts[1]}")


if __name__ == "__main__":
    main()
