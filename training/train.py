"""Stage `train`: train the small ViT on fonts' glyphs and block letters.

Each step draws from a generator seeded with its own number, so a run that was stopped goes on from its last checkpoint
as if nothing had happened. Until the rate begins to fall, checkpoints do not depend on the number of steps.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from augment import augmented
from muon import Muon
from pcgeval.core.files import sha256_file, sha256_json
from settings import CACHE, DATA, LETTERS, Settings, Train, load_settings
from vit import new_network, write_classifier

CHECKPOINT_STEPS = 200


class Pictures:
    """The training pictures, drawn from at random."""

    def __init__(self) -> None:
        """Load fonts (faces, 26, size, size), sorted by family, and blocks (n, size, size), sorted by letter."""
        glyphs = np.load(DATA / "glyphs.npz")
        self.fonts = torch.from_numpy(glyphs["pictures"])
        self.families = torch.from_numpy(np.searchsorted(glyphs["family"], np.arange(glyphs["family"].max() + 2)))
        blocks = np.load(DATA / "blocks.npz")
        self.blocks = torch.from_numpy(blocks["pictures"])
        self.starts = torch.from_numpy(np.searchsorted(blocks["labels"], np.arange(len(LETTERS) + 1)))

    def batch(self, step: int, train: Train, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return pictures (batch, size, size) and letters (batch), letters equally likely.

        Faces are equally likely at first, families later: seven in ten families have one face, often an odd one.
        """
        letters = torch.randint(len(LETTERS), (train.batch,), generator=generator)
        luck = torch.rand(train.batch, generator=generator, dtype=torch.float64)
        later = step >= train.by_family_from
        fonts = round(train.batch * (train.later_font_share if later else train.font_share))
        faces = drawn(self.families, luck[:fonts]) if later else (luck[:fonts] * len(self.fonts)).long()
        first, end = self.starts[letters[fonts:]], self.starts[letters[fonts:] + 1]
        blocks = first + (luck[fonts:] * (end - first)).long()
        return torch.cat([self.fonts[faces, letters[:fonts]], self.blocks[blocks]]), letters


def drawn(starts: Tensor, luck: Tensor) -> Tensor:
    """Turn numbers in 0..1 (n) into members (n) of groups of successive numbers: groups first, then members."""
    position = luck * (len(starts) - 1)
    group = position.long()
    size = starts[group + 1] - starts[group]
    return starts[group] + ((position - group) * size).long()


def rate(step: int, train: Train) -> float:
    """Return the learning rate of a step: a linear rise, level, a linear fall to zero, and a lower fall."""
    first = train.steps - train.again
    if step >= first:
        return train.learning_rate * train.again_rate * (train.steps - step) / train.again
    return train.learning_rate * min(1.0, (step + 1) / train.warmup, (first - step) / train.decay)


def level_steps(train: Train) -> int:
    """Return the step at which the rate begins to fall."""
    return train.steps - train.again - train.decay


def new_optimizers(network: torch.nn.Module, train: Train) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """Return Muon for the layers' matrices and AdamW for all else."""
    matrices = [value for name, value in network.named_parameters() if value.ndim == 2 and ".layers." in name]
    others = [value for name, value in network.named_parameters() if value.ndim != 2 or ".layers." not in name]
    return (
        Muon(matrices, train.learning_rate, train.weight_decay),
        torch.optim.AdamW(others, lr=train.learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    )


def checkpoint_paths(settings: Settings) -> tuple[Path, Path]:
    """Return where a run keeps its state before and after the rate begins to fall."""
    data = [sha256_file(DATA / "glyphs.npz"), sha256_file(DATA / "blocks.npz")]
    everything = [settings.model.model_dump(), settings.train.model_dump(), data]
    ends = {"steps", "decay", "again", "again_rate"}
    lasting = [settings.model.model_dump(), settings.train.model_dump(exclude=ends), data]
    level, falling = (CACHE / f"checkpoint-{sha256_json(key)[:16]}.pt" for key in (lasting, everything))
    return level, falling


def train_network(settings: Settings) -> dict[str, Tensor]:
    """Train from the last checkpoint and return the averaged weights."""
    train = settings.train
    torch.manual_seed(train.seed)
    network = new_network(settings.model)
    optimizers = new_optimizers(network, train)
    average = {name: value.clone() for name, value in network.state_dict().items()}
    level, falling = checkpoint_paths(settings)
    start = 0
    for path in (falling, level):
        if path.exists():
            state: dict[str, Any] = torch.load(path, weights_only=True)
            if path == falling or state["step"] <= level_steps(train):
                network.load_state_dict(state["network"])
                for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
                    optimizer.load_state_dict(saved)
                average, start = state["average"], state["step"]
                break
    pictures, generator = Pictures(), torch.Generator()
    began, losses = time.monotonic(), []
    for step in range(start, train.steps):
        generator.manual_seed(train.seed * 1_000_003 + step)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate(step, train)
        batch, letters = pictures.batch(step, train, generator)
        white = 1 - augmented(batch, settings.model, generator)
        logits = network((white - train.mean) / train.deviation).logits
        loss = functional.cross_entropy(logits, letters, label_smoothing=train.label_smoothing)
        network.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            keep = min(train.average, (step + 1) / (step + 10))
            for name, value in network.state_dict().items():
                average[name].lerp_(value, 1 - keep)
        losses.append(float(loss.detach()))
        if (step + 1) % CHECKPOINT_STEPS == 0:
            path = level if step + 1 <= level_steps(train) else falling
            state = {"step": step + 1, "network": network.state_dict(), "average": average}
            saved = [optimizer.state_dict() for optimizer in optimizers]
            torch.save(state | {"optimizers": saved}, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
            recent = sum(losses[-CHECKPOINT_STEPS:]) / len(losses[-CHECKPOINT_STEPS:])
            passed = time.monotonic() - began
            print(json.dumps({"step": step + 1, "loss": round(recent, 4), "seconds": round(passed)}), flush=True)
    return average


def main() -> None:
    """Train and write the classifier."""
    settings = load_settings()
    torch.use_deterministic_algorithms(mode=True)
    torch.set_num_threads(settings.train.threads)
    write_classifier(train_network(settings), settings.model, settings.train)


if __name__ == "__main__":
    main()
