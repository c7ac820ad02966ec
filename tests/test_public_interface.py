"""`from pcgeval import ...`: what it offers, and that nothing needed to call it is private."""

import pydoc
import re
from typing import Any

import pcgeval

# documented in README and DESIGN: removing one breaks somebody's program
NAMES = {
    *("Classifier", "GradedTaskNode", "JudgeOutput", "LevelError", "Stability", "TaskNode"),
    *("diversity", "extract_code", "extract_leaf_grades", "get_grade_summary", "level_xml", "load_environment"),
    *("load_rubric", "rank", "render", "run_judge", "score_competition", "simulate"),
    # of PaperBench and its integrations
    *("DummyJudge", "Judge", "OpenAICompletionsTurnCompleter", "PaperBenchRubric", "RandomJudge", "SimpleJudge"),
}


def public() -> dict[str, Any]:
    return {name: getattr(pcgeval, name) for name in dir(pcgeval) if not name.startswith("_")}


def test_dir_and_help_list_the_public_interface() -> None:
    assert set(public()) >= NAMES
    assert set(re.findall(r"\w+", pcgeval.__doc__ or "")) >= set(public())
    assert len(pydoc.plaintext.document(pcgeval).splitlines()) <= 60  # a screen
