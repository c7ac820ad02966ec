"""The replies that the demo replays were given to the very prompts of today, so that nothing is paid for again."""

from pathlib import Path

import pytest

from pcgeval.core.layout import judge_recording_file
from pcgeval.core.params import load_params
from pcgeval.judge.grading import grade
from pcgeval.judge.settings import JudgeSettings
from pcgeval.judge.stage import competition_task
from pcgeval.llm.call_log import CallLog

ROOT = Path(__file__).parents[2]
PARAMS = load_params(ROOT / "params.yaml")


@pytest.mark.parametrize("team", PARAMS.teams)
def test_all_leaves_are_graded_by_the_recorded_replies_and_all_of_these_are_used(team):
    rubric = ROOT / "data/rubrics/competition/rubric.json"
    task = competition_task(PARAMS, str(ROOT / "data/submissions" / team), rubric=str(rubric))
    log = CallLog(None, [ROOT / judge_recording_file(team)])
    output = grade(task, JudgeSettings.checked(dict(PARAMS.rubric)), log)
    judged = [leaf for leaf in output.graded_task_tree.leaves if "/quality/" in leaf.path]
    assert [leaf.valid_score for leaf in judged] == [True] * 4
    assert set(log.used) == set(log.known)
