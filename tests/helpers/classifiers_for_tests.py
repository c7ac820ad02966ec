"""Small classifiers with random weights."""

import string
from pathlib import Path


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
