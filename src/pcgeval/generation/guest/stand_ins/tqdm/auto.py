"""The same under the name by which notebooks import it."""

from . import tqdm, trange

__all__ = ["tqdm", "trange"]
