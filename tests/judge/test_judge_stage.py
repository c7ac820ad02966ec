"""The stage `grade`: what it writes, and what it replays."""

import json
import shutil
from pathlib import Path

import pytest
from evaluated_round import PARAMS, write_round
from judged_attempt import MODEL
from model_servers import ScriptedModel, dies_after

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_file, write_text
from pcgeval.formats.layout import (
    CALLS,
    GRADES,
    RUBRICS,
    grade_file,
    human_grades_file,
    judge_recording_file,
    judgement_file,
)
from pcgeval.formats.params import Team, load_params
from pcgeval.judge.calls import JudgeClient
from pcgeval.judge.grading import grade
from pcgeval.judge.many import competition_task, grade_stage, record_judgements
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.call_log import CallLog
from pcgeval.rubric.output import JudgeOutput
from pcgeval.rubric.tree import load_rubric

ROOT = Path(__file__).parents[2]
OURS = ROOT / RUBRICS / "competition" / "rubric.json"
TEAM = "builders"
BY_CHECKS = PARAMS.rubric.model_copy(update={"judge": "checks"})
ALONE = PARAMS.model_copy(update={"teams": {TEAM: Team()}, "rubric": BY_CHECKS})
LEAVES = load_rubric(OURS).leaves
UNCHECKED = sum(leaf.check is None for leaf in LEAVES)  # these need a model or a person
DEMO = load_params(ROOT / "params.yaml")


@pytest.fixture
def competition(tmp_path):
    write_round(tmp_path, rubric=json.loads(OURS.read_text()))
    shutil.copy(OURS, tmp_path / RUBRICS / "competition")  # the very bytes, whose hash is noted
    return tmp_path


def test_a_grade_says_what_it_is_made_of(competition):
    grade_stage(ALONE, competition)
    written = json.loads((competition / grade_file(TEAM)).read_text())
    output = JudgeOutput.from_dict(written)
    assert (written["team"], written["judge_type"]) == (TEAM, "checks")
    assert written["rubric"] == {"id": "competition", "sha256": sha256_file(OURS)}
    assert written["num_invalid_leaf_nodes"] == UNCHECKED
    assert written["score_bounds"][0] == output.score < written["score_bounds"][1]
    records = {task.path: task.judge_metadata.check for task in output.graded_task_tree.leaves if task.valid_score}
    assert records == {task.path: task.check.name for task in LEAVES if task.check}


def test_the_stage_keeps_what_was_paid_for_and_replays_it_without_the_model(competition):
    def grade(backend, asked="ollama"):
        model = MODEL.model_copy(update={"backend": asked})
        rubric = PARAMS.rubric.model_copy(update={"judge": "simple", "model": model})
        params = ALONE.model_copy(update={"rubric": rubric})
        output = grade_stage(params, competition, open_backend=lambda _: backend)[TEAM]
        return output, [(competition / name(TEAM)).read_bytes() for name in (grade_file, judgement_file)]

    _, (_, first) = grade(ScriptedModel())
    write_text(competition / RUBRICS / "competition/task.md", "Build letters of blocks.")
    partial, (_, calls) = grade(ScriptedModel(fails=dies_after(2)))
    assert "were not judged" in partial.partial
    assert set(first.splitlines()) < set(calls.splitlines())  # what was paid for before stays
    whole, files = grade(ScriptedModel())
    assert whole.num_invalid_leaf_nodes == 0
    assert files[1].count(b"\n") == UNCHECKED
    shutil.rmtree(competition / CALLS)
    assert grade(None) == (whole, files)  # what the last grade used is known
    record_judgements(ALONE, competition)
    assert (competition / judge_recording_file(TEAM)).read_bytes() == files[1]
    (competition / judgement_file(TEAM)).unlink()
    assert grade(None, "recorded") == (whole, files)


def test_each_team_has_its_own_budget_and_the_calls_of_its_own_grade(competition):
    def grades(**settings):
        rubric = PARAMS.rubric.model_copy(update={"judge": "simple", "model": MODEL, **settings})
        params = ALONE.model_copy(update={"teams": {TEAM: Team(), "other": Team()}, "rubric": rubric})
        return grade_stage(params, competition, open_backend=lambda _: model)

    submissions, model = competition / "data/submissions", ScriptedModel()
    shutil.copytree(submissions / TEAM, submissions / "other")
    write_text(submissions / "other/README.md", "# other\n\nTeam: other\n")
    shutil.copytree(competition / f"data/evidence/{TEAM}", competition / "data/evidence/other")
    outputs = grades(token_budget=10)
    assert [output.num_invalid_leaf_nodes for output in outputs.values()] == [UNCHECKED - 1, UNCHECKED - 1]
    assert len(model.requests) == 2  # what the first team used up is not missing to the second
    grades()
    assert len(model.requests) == 2 * UNCHECKED
    first, second = ((competition / judgement_file(team)).read_bytes() for team in (TEAM, "other"))
    assert first != second
    assert first.count(b"\n") == second.count(b"\n") == UNCHECKED


def test_a_team_whose_grading_fails_is_named_and_stops_no_other(competition):
    by_hand = PARAMS.rubric.model_copy(update={"judge": "human"})
    params = ALONE.model_copy(update={"teams": {"zero-shot": Team(), TEAM: Team()}, "rubric": by_hand})
    write_text(competition / human_grades_file("competition", TEAM), "[]")
    with pytest.raises(FileError, match=r"human/zero-shot\.yaml"):
        grade_stage(params, competition)
    assert json.loads((competition / grade_file(TEAM)).read_text())["judge_type"] == "human"


def test_grades_by_hand_are_those_of_the_named_rubric(competition):
    shutil.copytree(competition / RUBRICS / "competition", competition / RUBRICS / "other")
    for rubric, grades in (("other", competition / human_grades_file("other", TEAM)), (str(OURS), None)):
        with competition_task(ALONE, TEAM, competition, rubric) as task:
            assert task.human_grades == grades


@pytest.mark.parametrize("team", DEMO.teams)
def test_the_demos_recorded_replies_are_to_the_very_prompts_of_today(team):
    log = CallLog(None, [ROOT / judge_recording_file(team)])
    with competition_task(DEMO, str(ROOT / "data/submissions" / team), rubric=str(OURS)) as task:
        client = JudgeClient(JudgeSettings.checked(dict(DEMO.rubric)), log)
        output = grade(task, client)
    judged = [leaf for leaf in output.graded_task_tree.leaves if "/quality/" in leaf.path]
    assert [leaf.valid_score for leaf in judged] == [True] * 4
    assert set(client.used.values()) == set(log.known)
    published = json.loads((ROOT / GRADES / team / "grade.json").read_text())
    assert published["prompt_version"] == output.prompt_version
