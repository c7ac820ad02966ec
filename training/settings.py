"""Shared by the training stages: places, sizes, and training/params.yaml as frozen models."""

import string
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

HERE = Path(__file__).parent
CACHE = HERE / ".cache"  # fetched fonts and training checkpoints; can be deleted at any time
DATA = HERE / "data"
CLASSIFIER = DATA / "classifier"  # what training makes
METRICS = DATA / "metrics.json"
INSTALLED = HERE.parent / "data" / "classifier"  # what the competition uses
LETTERS = string.ascii_uppercase
PICTURE_PIXELS = 1024  # a level's picture is square
VIEW_SHARE = 824 / 1024  # of the picture's side that the blocks fill, the rest is margin
STORED_PIXELS = 96  # side of the pictures that training augments


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Glyphs(_Section):
    """How faces become families, and which families are held out; differences are mean ink differences in 0..1."""

    alike: float
    same: float
    held_out: float  # share of the families
    faces: int  # at most, of a training family
    held_out_faces: int  # at most, of a held-out family


class Blocks(_Section):
    """How many pictures of block letters are made, each a number per letter; seeds of their own."""

    seed: int
    drawn: int  # of training designs, without physics
    pixelised: int  # of training fonts, without physics
    simulated_tries: int  # training levels that are simulated
    held_out_seed: int
    held_out_designs: int  # pictures of undisturbed or settled designs
    held_out_tries: int  # held-out levels that are simulated
    resemblance: float  # a simulated level counts if its picture overlaps its design's by this much (IoU)


class Model(_Section):
    """The Vision Transformer's shape; sizes in pixels."""

    resize: int  # side that a picture is scaled to
    crop: int  # side of its central part that the model sees
    patch: int
    width: int
    layers: int
    heads: int
    mlp: int


class Train(_Section):
    """Optimisation: batches, schedule in steps, rates."""

    seed: int
    threads: int
    steps: int
    warmup: int
    decay: int  # steps in which the rate falls to zero
    again: int  # steps after that in which it falls to zero once more,
    again_rate: float  # from this share of the full rate (a warm restart)
    batch: int
    font_share: float  # of a batch; the rest are block letters
    by_family_from: int  # the step from which font families, not faces, are equally likely
    later_font_share: float  # of a batch from that step on
    learning_rate: float
    weight_decay: float
    label_smoothing: float
    average: float  # decay of the moving average of the weights
    mean: float  # of a picture's pixels, 0 black to 1 white
    deviation: float


class Settings(_Section):
    """All of training/params.yaml."""

    glyphs: Glyphs
    blocks: Blocks
    model: Model
    train: Train


def load_settings() -> Settings:
    """Read training/params.yaml; a misspelt key is an error."""
    return Settings.model_validate(yaml.safe_load((HERE / "params.yaml").read_text("utf-8")))
