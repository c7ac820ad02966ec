"""The replies that the demo replays were given to the very prompts of today, so that nothing is paid for again."""

from pathlib import Path

import pytest

from pcgeval.core.files import sha256_json
from pcgeval.core.layout import judge_recording_file
from pcgeval.core.params import load_params
from pcgeval.judge.client import JudgeClient
from pcgeval.judge.grading import grade
from pcgeval.judge.prompts import ContextFitter
from pcgeval.judge.settings import JudgeSettings
from pcgeval.judge.stage import competition_task
from pcgeval.llm.call_log import CallLog, read_recording
from pcgeval.llm.tokens import EstimatedTokens, JudgeTokens

ROOT = Path(__file__).parents[2]
PARAMS = load_params(ROOT / "params.yaml")


@pytest.mark.parametrize("team", PARAMS.teams)
def test_the_messages_of_each_recorded_reply_are_those_of_today(team, monkeypatch):
    recording = ROOT / judge_recording_file(team)
    fitter = ContextFitter(31_000, JudgeTokens(EstimatedTokens(), is_exact=True))
    ask, sent = JudgeClient.ask, []

    def noting(client, call):
        sent.append(sha256_json([[message.role, message.content] for message in fitter.fit(call).messages]))
        return ask(client, call)

    monkeypatch.setattr(JudgeClient, "ask", noting)
    task = competition_task(
        PARAMS, str(ROOT / "data/submissions" / team), rubric=str(ROOT / "data/rubrics/competition/rubric.json")
    )
    settings = JudgeSettings.checked(dict(PARAMS.rubric))
    output = grade(task, settings, CallLog(None, [recording]))
    assert sorted(sent) == sorted(call.sent for call in read_recording(recording))
    judged = [leaf for leaf in output.graded_task_tree.leaves if "/quality/" in leaf.path]
    assert len(judged) == 4
    assert all(leaf.judge_metadata.votes for leaf in judged)
