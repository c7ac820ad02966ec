"""The stage `grade`: what it writes, what it replays, and a file that was edited by hand."""

import json
from pathlib import Path

import pytest
from params_for_tests import file_states
from submissions_for_tests import PARAMS, write_results, write_submission

from pcgeval.checks.gathering import evidence_stage
from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_file, write_text
from pcgeval.core.layout import EVIDENCE, GRADES, JUDGEMENTS, RUBRICS, evidence_file, judge_recording_file
from pcgeval.core.params import load_params
from pcgeval.judge.grading import grade
from pcgeval.judge.settings import JudgeSettings
from pcgeval.judge.stage import competition_task, grade_stage, grade_team
from pcgeval.llm.call_log import CallLog
from pcgeval.rubric.grades import get_grade_summary, judge_output_from_json
from pcgeval.rubric.loading import load_rubric
from pcgeval.rubric.tree import CATEGORIES, RubricError, leaves

ROOT = Path(__file__).parents[2]
OURS = ROOT / RUBRICS / "competition" / "rubric.json"
TEAM = "team-one"
ALONE = PARAMS.model_copy(update={"teams": (TEAM,)})  # the other team has not been run
LEAVES = list(leaves(load_rubric(OURS)))
DEMO = load_params(ROOT / "params.yaml")


@pytest.fixture
def competition(tmp_path):
    write_submission(tmp_path)
    write_text(tmp_path / RUBRICS / "competition" / "rubric.json", OURS.read_text())
    write_results(tmp_path, "small", failures={("I", 1): ("extract", "no code")})
    write_results(tmp_path, "large")
    evidence_stage(ALONE, tmp_path)
    return tmp_path


def test_a_grade_says_what_it_is_made_of(competition):
    output = grade_team(PARAMS, TEAM, competition)
    written = json.loads((competition / GRADES / TEAM / "grade.json").read_text())
    assert written["team"] == TEAM
    assert written["rubric"] == {"id": "competition", "sha256": sha256_file(OURS)}
    assert judge_output_from_json(written) == output
    unchecked = sum(leaf.check is None for leaf in LEAVES)  # these need a model or a person
    assert (written["judge_type"], written["num_invalid_leaf_nodes"]) == ("checks", unchecked)
    assert written["score_bounds"][0] == output.score < written["score_bounds"][1]
    assert set(get_grade_summary(output.graded_task_tree)["by_category"]) == set(CATEGORIES)
    output = grade_team(PARAMS, "team-two", competition)  # which has no folder
    explanations = {leaf.id: leaf.explanation for leaf in output.graded_task_tree.leaves}
    assert explanations["readme-names-team"] == "README.md is missing"
    assert (output.score, output.score_bounds.low, output.num_passed) == (0.0, 0.0, 0)


def test_all_teams_are_graded_again_to_the_same_bytes_and_nothing_of_those_that_left_stays(competition, capsys):
    write_results(competition, "small", "team-two")
    write_results(competition, "large", "team-two")
    write_submission(competition, "team-two")
    evidence_stage(PARAMS, competition)
    grade_stage(PARAMS, competition)
    messages = capsys.readouterr().err
    assert all(f"grade of {team}: 0." in messages for team in PARAMS.teams)
    places = [competition / EVIDENCE, competition / GRADES]
    assert [sorted(path.name for path in place.iterdir()) for place in places] == [sorted(PARAMS.teams)] * 2
    assert (competition / JUDGEMENTS).is_dir()  # an output of the stage, although no model judged
    before = [file_states(place) for place in places]
    evidence_stage(PARAMS, competition)
    grade_stage(PARAMS, competition)
    assert [file_states(place) for place in places] == before
    evidence_stage(ALONE, competition)
    grade_stage(ALONE, competition)
    assert [[path.name for path in place.iterdir()] for place in places] == [[TEAM]] * 2


@pytest.mark.parametrize("judge", ["random", "dummy"])
def test_other_judges_need_no_results(tmp_path, judge):
    write_text(tmp_path / RUBRICS / "competition" / "rubric.json", OURS.read_text())
    params = PARAMS.model_copy(update={"rubric": PARAMS.rubric.model_copy(update={"judge": judge})})
    output = grade_team(params, TEAM, tmp_path)
    assert (output.judge_type, output.num_leaf_nodes, output.num_invalid_leaf_nodes) == (judge, len(LEAVES), 0)


@pytest.mark.parametrize("content", ["[]", '{"trials": [{"model": 1}], "letters": []}', "{"])
def test_evidence_that_was_edited_is_named(competition, content):
    write_text(competition / evidence_file("large", TEAM), content)
    with pytest.raises(FileError, match=r"large\.json.*dvc repro|large\.json.*Make it again"):
        grade_team(PARAMS, TEAM, competition)


def test_a_faulty_rubric_leaves_no_grade(competition):
    faulty = OURS.read_text().replace("prompt_length", "length")
    write_text(competition / RUBRICS / "competition" / "rubric.json", faulty)
    with pytest.raises(RubricError, match="prompt-within-words: 'check': unknown check 'length'"):
        grade_team(PARAMS, TEAM, competition)
    assert not (competition / GRADES).exists()


@pytest.mark.parametrize("team", DEMO.teams)
def test_the_demos_recorded_replies_are_to_the_very_prompts_of_today(team):
    task = competition_task(DEMO, str(ROOT / "data/submissions" / team), rubric=str(OURS))
    log = CallLog(None, [ROOT / judge_recording_file(team)])
    output = grade(task, JudgeSettings.checked(dict(DEMO.rubric)), log)
    judged = [leaf for leaf in output.graded_task_tree.leaves if "/quality/" in leaf.path]
    assert [leaf.valid_score for leaf in judged] == [True] * 4
    assert set(log.used) == set(log.known)
    published = json.loads((ROOT / GRADES / team / "grade.json").read_text())
    assert published["prompt_version"] == output.prompt_version
