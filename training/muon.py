"""Muon, an optimizer for the weight matrices of a network's layers; here it needs half of AdamW's processor time.

K. Jordan and others, "Muon: An optimizer for hidden layers in neural networks" (2024); the update's size follows
Moonlight (Liu and others, "Muon is Scalable for LLM Training", 2025): 0.2 sqrt(longer side), as large as AdamW's.
torch's own Muon calculates in bfloat16, which is slow on processors without matrix units.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

STEPS = 5  # of the iteration that makes an update orthogonal
QUINTIC = (3.4445, -4.7750, 2.0315)  # its coefficients, from Jordan's article


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal; matrices of one shape are calculated together."""

    def __init__(
        self, matrices: Iterable[nn.Parameter], lr: float, weight_decay: float, momentum: float = 0.95
    ) -> None:
        """Take matrices (rows, columns) of any shape."""
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, _: None = None) -> None:  # type: ignore[override]
        """Move all matrices once."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for matrix in group["params"]:
                alike[matrix.shape].append(matrix)
            for matrices in alike.values():
                self._move(matrices, group["lr"], group["weight_decay"], group["momentum"])

    def _move(self, matrices: list[nn.Parameter], rate: float, decay: float, momentum: float) -> None:
        gradients = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])
        averages = torch.stack([self.state[matrix].get("average", torch.zeros_like(matrix)) for matrix in matrices])
        averages.lerp_(gradients, 1 - momentum)
        moves = orthogonal(gradients.lerp(averages, momentum)) * (0.2 * max(gradients.shape[1:]) ** 0.5 * rate)
        for matrix, average, move in zip(matrices, averages, moves, strict=True):
            self.state[matrix]["average"] = average.clone()
            matrix.mul_(1 - rate * decay).sub_(move)


def orthogonal(matrices: Tensor) -> Tensor:
    """Return matrices (n, rows, columns) with all singular values brought near 1."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT).mT
    first, third, fifth = QUINTIC
    moved = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        gram = moved @ moved.mT
        moved = torch.baddbmm(moved, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), moved, beta=first)
    return moved
