"""Levels, and small classifiers with random weights."""

import string
from pathlib import Path

from pcgeval.levels.conversion import level_xml


def level(*blocks):
    """A level of (type, x, y, rotation) blocks."""
    lines = "".join(
        f'<Block type="{kind}" material="wood" x="{x}" y="{y}" rotation="{rotation}" />'
        for kind, x, y, rotation in blocks
    )
    return f'<Level width="3"><GameObjects>{lines}</GameObjects></Level>'


def dropped(drops):
    return level_xml("".join(f"drop_block('{kind}', {column})\n" for kind, column in drops))


def save_vit(folder: Path, width: int = 24) -> Path:
    """Write a random two-layer ViT of the letters; the same weights for the same width."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(7)
    config = ViTConfig(
        image_size=32,
        patch_size=16,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * width,
        id2label=dict(enumerate(string.ascii_uppercase)),
    )
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder
