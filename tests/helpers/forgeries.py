"""Forged measurements of an evaluated competition: the letters I and T of a team, in all files that say it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pcgeval.core.files import to_json
from pcgeval.core.layout import letter_file, stage_dir
from pcgeval.core.stage_files import SimulationsFile
from pcgeval.evaluator.stability import read_simulations, stability_file

LETTERS = "IT"


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    """Change a file's value and write it as the stages do, anew: it may be a hard link."""
    text = path.read_text()
    value = json.loads(text)
    change(value)
    indent = 1 if text.startswith(("{\n", "[\n")) else None
    path.unlink()
    path.write_text(to_json(value, indent=indent) + ("\n" if text.endswith("\n") else ""))


def stand_still(folder: Path, model: str, team: str) -> None:
    """Say of all blocks that they stayed in place."""
    stability = folder / stage_dir("stability", model, team)

    def change(value: Any) -> None:
        for trial in value["trials"]:
            trial["moved"] = [False for _ in trial["moved"]]

    edit_json(stability / "simulations.json", change)
    simulated = read_simulations(SimulationsFile.read(stability / "simulations.json"))
    for letter in LETTERS:
        stability_file(team, letter, simulated).write(letter_file(stability, letter))


def look_alike(folder: Path, model: str, team: str) -> None:
    """Say of all pictures that they are surely the letter asked for."""
    for letter in LETTERS:

        def change(value: Any, letter: str = letter) -> None:
            for entry in (*value["trials"], *value["similarities"]):
                entry.update({"similarity": 1.0} if "similarity" in entry else {})
                for raw in entry.get("raws", ()):
                    raw["softmax_prob"] = float(raw["label"] == letter)
            value["similarityRate"] = 1.0

        edit_json(letter_file(folder / stage_dir("similarity", model, team), letter), change)
