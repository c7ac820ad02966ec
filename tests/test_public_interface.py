"""`from pcgeval import ...`: what it offers, what it costs, and that nothing needed to call it is private."""

import inspect
import pydoc
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import pcgeval

# documented in README and DESIGN: removing one breaks somebody's program
NAMES = {
    *("Classifier", "JudgeOutput", "LevelError", "Stability", "diversity", "extract_code", "extract_leaf_grades"),
    *("get_grade_summary", "level_xml", "load_environment", "load_rubric", "rank", "render", "run_judge"),
    *("score_competition", "simulate"),
}


def public() -> dict[str, Any]:
    return {name: getattr(pcgeval, name) for name in dir(pcgeval) if not name.startswith("_")}


def test_dir_and_help_list_the_public_interface() -> None:
    assert set(public()) >= NAMES
    assert set(pcgeval.__all__) == set(public())
    text = pydoc.plaintext.document(pcgeval)
    assert all(name in text for name in public())


def classes_in(hint: Any) -> Iterator[type]:
    for part in typing.get_args(hint):
        yield from classes_in(part)
    if isinstance(hint, type) and hint.__module__.startswith("pcgeval."):
        yield hint


@pytest.mark.parametrize("name", sorted(name for name, value in public().items() if inspect.isfunction(value)))
def test_every_type_in_a_public_signature_is_public(name: str) -> None:
    hints = typing.get_type_hints(public()[name])
    needed = {cls.__name__ for hint in hints.values() for cls in classes_in(hint)}
    assert needed <= set(public())


def test_a_level_is_converted_without_a_neural_network() -> None:
    code = (
        "import sys; import pcgeval; assert not {'numpy', 'pydantic', 'ast'} & set(sys.modules); "
        "pcgeval.level_xml; dir(pcgeval); assert not {'numpy', 'torch', 'pymunk'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
