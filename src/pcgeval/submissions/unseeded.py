"""Whether a program draws random numbers that nobody can draw again: read from its syntax, without running it."""

import ast
import random
from collections.abc import Iterator
from pathlib import Path

from pcgeval.core.trials import Flag
from pcgeval.submissions.entry_point import python_files
from pcgeval.submissions.python_source import SourceFault, parse_source, read_source

READ_BYTES = 4 * 2**20  # of all sources that speak of random numbers
_SOURCES = ("random", "numpy.random")
_MAKERS = ("random.Random", "numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator")
_SEEDS = ("random.seed", "numpy.random.seed")


def unseeded_random(folder: Path) -> tuple[Flag, ...]:
    """Return a flag for each way to random numbers that the program uses and nowhere seeds.

    Args:
        folder: The program's folder. A seed in any of its files counts for all of them; a seed that is not the same in
            every run counts too: this finds what was forgotten, not what is hidden.
    """
    used: dict[str, str] = {}
    seeded: set[str] = set()
    for name, tree in _sources(folder):
        known = _imported(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (path := _path(node.func, known)) in (*_SEEDS, *_MAKERS):
                if node.args or node.keywords:
                    seeded.add(_source(path))
            elif isinstance(node, ast.Name | ast.Attribute) and (path := _path(node, known)) and _source(path):
                used.setdefault(_source(path), f"{name}:{node.lineno}")
    return tuple(
        Flag("unseeded-random", f"{place} uses {source}, which no file of the program gives a seed")
        for source, place in sorted(used.items())
        if source not in seeded
    )


def _sources(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    left = READ_BYTES
    for name in python_files(folder):
        content = read_source(folder / name)
        if isinstance(content, SourceFault) or b"random" not in content:
            continue
        left -= len(content)
        if left < 0:
            return
        tree = parse_source(content)
        if not isinstance(tree, SourceFault):
            yield name, tree


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return what each imported name stands for, as far as it may be one of random numbers."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                known[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names = random.__all__ if alias.name == "*" and node.module == "random" else [alias.name]
                known |= {alias.asname or name: f"{node.module}.{name}" for name in names}
    return {name: path for name, path in known.items() if path == "numpy" or _source(path)}


def _path(node: ast.expr, known: dict[str, str]) -> str:
    """Return the full path of what a name or a chain of attributes stands for, empty if that is of no interest."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute) and len(attributes) < len(("numpy", "random", "name")):
        attributes.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return ""
    return ".".join([known[node.id], *reversed(attributes)])


def _source(path: str) -> str:
    """Return which of the two a full path draws from, empty if from neither."""
    return next((source for source in _SOURCES if f"{path}.".startswith(f"{source}.")), "")
