"""The small Vision Transformer: its start values, and how it is written as an ordinary transformers model."""

import math

import torch
from torch import Tensor, nn
from transformers import DeiTImageProcessor, ViTConfig, ViTForImageClassification

from settings import CLASSIFIER, LETTERS, Model, Train


def config(model: Model, channels: int) -> ViTConfig:
    """Describe the network; training sees one channel, users of the model see three equal ones."""
    return ViTConfig(
        image_size=model.crop,
        patch_size=model.patch,
        num_channels=channels,
        hidden_size=model.width,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        intermediate_size=model.mlp,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(LETTERS)),
        label2id={letter: index for index, letter in enumerate(LETTERS)},
    )


def new_network(model: Model) -> ViTForImageClassification:
    """Build a network that starts as one that attends to near patches, which saves most of the early training.

    The start of the attention follows Trockman and Kolter, "Mimetic Initialization of Self-Attention Layers" (2023):
    queries times keys near 0.7 I, values times projection near -0.4 I, and sinusoidal positions.
    """
    network = ViTForImageClassification(config(model, 1))
    with torch.no_grad():
        network.vit.embeddings.position_embeddings[0, 1:] = 0.5 * _positions(model)
        for layer in network.vit.layers:
            _start_attention(layer.attention, model.width, model.heads)
    return network


def _positions(model: Model) -> Tensor:
    side, waves = model.crop // model.patch, model.width // 4
    rate = 1.5 / 100 ** (torch.arange(waves) / waves)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    angles = [place.reshape(-1, 1) * rate for place in (columns, rows)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)


def _start_attention(attention: nn.Module, width: int, heads: int) -> None:
    noise, identity, part = 1 / math.sqrt(width), torch.eye(width), width // heads
    for head in range(heads):
        left, size, right = torch.linalg.svd(0.7 * noise * torch.randn(width, width) + 0.7 * identity)
        rows = slice(head * part, (head + 1) * part)
        attention.q_proj.weight[rows] = (left[:, :part] * size[:part].sqrt()).T
        attention.k_proj.weight[rows] = right[:part] * size[:part].sqrt().unsqueeze(1)
    left, size, right = torch.linalg.svd(0.4 * noise * torch.randn(width, width) - 0.4 * identity)
    attention.v_proj.weight.copy_(right * size.sqrt().unsqueeze(1))
    attention.o_proj.weight.copy_(left * size.sqrt())


def write_classifier(weights: dict[str, Tensor], model: Model, train: Train) -> None:
    """Write config.json, model.safetensors and preprocessor_config.json for three-channel pictures."""
    network = ViTForImageClassification(config(model, 3))
    patches = "vit.embeddings.patch_embeddings.projection.weight"
    network.load_state_dict(weights | {patches: weights[patches].repeat(1, 3, 1, 1) / 3})
    network.save_pretrained(CLASSIFIER)
    DeiTImageProcessor(
        do_resize=True,
        size={"height": model.resize, "width": model.resize},
        resample=2,  # bilinear
        do_center_crop=True,
        crop_size={"height": model.crop, "width": model.crop},
        do_normalize=True,
        image_mean=[train.mean] * 3,
        image_std=[train.deviation] * 3,
    ).save_pretrained(CLASSIFIER)
