"""The grading that the docs measure: a real model's replies about the example paper, kept in git, replayed."""

import shutil
from pathlib import Path

import pytest

from pcgeval.judge.client import CallFiles
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import JudgeSettings
from pcgeval.rubric.agreement import Pair, agreement
from pcgeval.sandbox.reproduction import SandboxComputer

PAPERS = Path(__file__).parents[2] / "data" / "papers"
EXAMPLE = PAPERS / "block-letters"
MODEL = {
    "backend": "recorded",
    "name": "qwen2.5-coder:1.5b-instruct-q4_K_M",
    "digest": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    "options": {"repeat_penalty": 1.1},
}


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="reproduce.sh runs in bubblewrap")
def test_the_measured_grading_replays_without_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    submission = EXAMPLE / "submissions" / "half"
    judged = grade_submission(
        submission,
        "block-letters",
        JudgeSettings(judge="simple", model=MODEL, context=4096, papers_dir=str(PAPERS)),
        SandboxComputer(),
        CallFiles(recordings=(EXAMPLE / "recordings" / "half.jsonl",)),
    )
    human = JudgeSettings(judge="human", papers_dir=str(PAPERS), human_grades=EXAMPLE / "human" / "half.yaml")
    by_hand = grade_submission(submission, "block-letters", human)
    assert judged.num_invalid_leaf_nodes == 1
    assert judged.token_usage.grade.calls == 9
    found = agreement([Pair("", by_hand.graded_task_tree, judged.graded_task_tree)])
    assert len(found.disagreements) == 4
    assert found.overall.accuracy.value == pytest.approx(14 / 18)
