"""Reproducible evaluation of Science Birds levels that language models write.

The names below are the public interface. They are imported on first use, so that asking for the level converter does
not load a neural network.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcgeval.evaluator.image import render
    from pcgeval.evaluator.physics import simulate
    from pcgeval.evaluator.stability import Stability
    from pcgeval.judge.run import run_judge
    from pcgeval.levels.errors import LevelError
    from pcgeval.levels.extraction import extract_code
    from pcgeval.levels.xml import level_xml
    from pcgeval.rl.entry import load_environment
    from pcgeval.rubric.grades import JudgeOutput, extract_leaf_grades, get_grade_summary
    from pcgeval.rubric.loading import load_rubric
    from pcgeval.scoring.formulas import score_competition
    from pcgeval.scoring.ranking import rank
    from pcgeval.similarity.classifier import Classifier
    from pcgeval.similarity.diversity import diversity

_HOMES = {
    "Classifier": "similarity.classifier",
    "JudgeOutput": "rubric.grades",
    "LevelError": "levels.errors",
    "Stability": "evaluator.stability",
    "diversity": "similarity.diversity",
    "extract_code": "levels.extraction",
    "extract_leaf_grades": "rubric.grades",
    "get_grade_summary": "rubric.grades",
    "level_xml": "levels.xml",
    "load_environment": "rl.entry",
    "load_rubric": "rubric.loading",
    "rank": "scoring.ranking",
    "render": "evaluator.image",
    "run_judge": "judge.run",
    "score_competition": "scoring.formulas",
    "simulate": "evaluator.physics",
}

__all__ = [
    "Classifier",
    "JudgeOutput",
    "LevelError",
    "Stability",
    "diversity",
    "extract_code",
    "extract_leaf_grades",
    "get_grade_summary",
    "level_xml",
    "load_environment",
    "load_rubric",
    "rank",
    "render",
    "run_judge",
    "score_competition",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pcgeval' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pcgeval.{_HOMES[name]}"), name)
