"""Disorder for training pictures: weight of the strokes, outlines, slant, size, place and bending."""

import torch
from torch import Tensor
from torch.nn import functional

from settings import Model


def augmented(pictures: Tensor, model: Model, generator: torch.Generator) -> Tensor:
    """Return what the model sees of pictures (n, 96, 96) uint8, 255 is ink, as ink (n, 1, crop, crop) in 0..1."""
    ink = _restroked(pictures.float().unsqueeze(1) / 255, generator)
    ink = functional.avg_pool2d(ink, 2, stride=1)  # sampling below takes about every second pixel
    count, side = len(ink), model.crop

    def uniform(most: float) -> Tensor:
        return (torch.rand(count, generator=generator) * 2 - 1) * most

    angle, slant = uniform(0.13), uniform(0.2)
    across, up = torch.exp(uniform(0.15) + 0.02), torch.exp(uniform(0.15) + 0.02)
    view = model.crop / model.resize
    matrix = torch.stack(
        [
            torch.stack([view * across * angle.cos(), view * (slant - up * angle.sin()), uniform(0.05)], 1),
            torch.stack([view * across * angle.sin(), view * up * angle.cos(), uniform(0.05)], 1),
        ],
        1,
    )
    grid = functional.affine_grid(matrix, [count, 1, side, side], align_corners=False)
    bend = torch.randn(count, 2, 4, 4, generator=generator) * 0.035
    bend = functional.interpolate(bend, size=(side, side), mode="bilinear", align_corners=True)
    return functional.grid_sample(ink, grid + bend.permute(0, 2, 3, 1), align_corners=False)


def seen(pictures: Tensor, model: Model) -> Tensor:
    """Return what the model sees of undisturbed pictures, as `augmented` does."""
    ink = pictures.float().unsqueeze(1) / 255
    ink = functional.interpolate(ink, size=(model.resize,) * 2, mode="bilinear", antialias=True, align_corners=False)
    edge = (model.resize - model.crop) // 2
    return ink[..., edge : edge + model.crop, edge : edge + model.crop]


def _restroked(ink: Tensor, generator: torch.Generator) -> Tensor:
    """Make strokes bolder (25 %) or thinner (12 %), or leave their outlines (5 %)."""
    lot = torch.rand(len(ink), 1, 1, 1, generator=generator)
    bolder = functional.max_pool2d(ink, 3, 1, 1)
    thinner = -functional.max_pool2d(-ink, 3, 1, 1)
    ink = torch.where(lot < 0.25, bolder, ink)
    ink = torch.where((lot >= 0.25) & (lot < 0.37), thinner, ink)
    return torch.where(lot >= 0.95, bolder - thinner, ink)
