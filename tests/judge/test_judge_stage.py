import json
from pathlib import Path

import pytest
from params_for_tests import file_states
from submissions_for_tests import PARAMS, write_results, write_submission

from pcgeval.checks.checks import CHECKS
from pcgeval.checks.gathering import evidence_stage, read_evidence
from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_file, write_text
from pcgeval.core.layout import EVIDENCE, GRADES, JUDGEMENTS, RUBRICS, SUBMISSIONS, evidence_file
from pcgeval.core.params import Params
from pcgeval.judge.stage import grade_stage, grade_team
from pcgeval.rubric.grade_files import judge_output_from_json
from pcgeval.rubric.grades import get_grade_summary
from pcgeval.rubric.loading import load_rubric
from pcgeval.rubric.tree import CATEGORIES, RubricError, leaves

OURS = Path(__file__).parents[2] / RUBRICS / "competition" / "rubric.json"
TEAM = "team-one"
ALONE = PARAMS.model_copy(update={"teams": (TEAM,)})  # the other team has not been run
LEAVES = list(leaves(load_rubric(OURS)))
UNCHECKED = sum(leaf.check is None for leaf in LEAVES)  # these need a model or a person


@pytest.fixture
def competition(tmp_path):
    write_submission(tmp_path)
    write_text(tmp_path / RUBRICS / "competition" / "rubric.json", OURS.read_text())
    write_results(tmp_path, "small", failures={("I", 1): ("extract", "no code")})
    write_results(tmp_path, "large")
    evidence_stage(ALONE, tmp_path)
    return tmp_path


def with_judge(judge) -> Params:
    return PARAMS.model_copy(update={"rubric": PARAMS.rubric.model_copy(update={"judge": judge})})


def explanations(output):
    return {each.id: each.explanation for each in output.graded_task_tree.leaves}


def test_our_rubric_has_checked_leaves_in_all_categories_and_readable_unique_ids():
    found = list(leaves(load_rubric(OURS)))
    assert 15 <= len(found) <= 40
    assert {leaf.task_category for leaf in found} == set(CATEGORIES)
    assert all(leaf.finegrained_task_category for leaf in found)
    assert {leaf.path.rsplit("/", 1)[0] for leaf in found if leaf.check is None} == {"competition/submission/quality"}
    assert len({leaf.id for leaf in found}) == len(found)
    kinds = (CHECKS[leaf.check.name].__module__ for leaf in found if leaf.check)
    assert "pcgeval.checks.paper_checks" not in kinds
    competition = {name for name, check in CHECKS.items() if check.__module__ != "pcgeval.checks.paper_checks"}
    assert {leaf.check.name for leaf in found if leaf.check} == competition


def test_a_grade_says_what_it_is_made_of(competition):
    output = grade_team(PARAMS, TEAM, competition)
    written = json.loads((competition / GRADES / TEAM / "grade.json").read_text())
    assert written["team"] == TEAM
    assert written["rubric"] == {"id": "competition", "sha256": sha256_file(OURS)}
    assert judge_output_from_json(written) == output
    assert (written["judge_type"], written["num_invalid_leaf_nodes"]) == ("checks", UNCHECKED)
    assert written["score_bounds"][0] == output.score < written["score_bounds"][1]
    assert set(get_grade_summary(output.graded_task_tree)["by_category"]) == set(CATEGORIES)


def test_all_teams_are_graded_and_nothing_of_those_that_left_stays(competition, capsys):
    write_results(competition, "small", "team-two")
    write_results(competition, "large", "team-two")
    write_submission(competition, "team-two")
    evidence_stage(PARAMS, competition)
    grade_stage(PARAMS, competition)
    said = capsys.readouterr().err
    assert all(f"grade of {team}: 0." in said for team in PARAMS.teams)
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


def test_explanations_have_the_figures(competition):
    found = explanations(grade_team(PARAMS, TEAM, competition))
    assert found["trials-with-code"] == "7 of 8 trials passed extract; first otherwise: small I 1 (no code)"
    assert found["prompt-within-words"] == "4 words; 1 to 900 are allowed"
    assert found["mean-stability"] == "mean stability 0.4375 over 8 trials, 7 of them with a level"


def test_the_same_inputs_give_the_same_bytes(competition):
    grade_team(PARAMS, TEAM, competition)
    before = (competition / GRADES / TEAM / "grade.json").read_bytes()
    evidence = (competition / evidence_file("small", TEAM)).read_bytes()
    evidence_stage(ALONE, competition)
    grade_team(PARAMS, TEAM, competition)
    assert (competition / GRADES / TEAM / "grade.json").read_bytes() == before
    assert (competition / evidence_file("small", TEAM)).read_bytes() == evidence


def test_a_flag_costs_its_share_and_quotes_what_was_noticed(competition):
    before = grade_team(PARAMS, TEAM, competition)
    write_results(competition, "large", flags={("T", 2): [("altered-answer", "none of the replies: '<b>'")]})
    evidence_stage(ALONE, competition)
    after = grade_team(PARAMS, TEAM, competition)
    leaf = next(each for each in after.graded_task_tree.leaves if each.id == "answers-unaltered")
    assert leaf.score == 7 / 8
    assert leaf.explanation.endswith("first otherwise: large T 2 (none of the replies: '<b>')")
    assert "replies-not-invented" in {each.id for each in after.graded_task_tree.leaves if each.score == 1}
    assert before.score > after.score
    assert explanations(before)["answers-unaltered"] == "8 of 8 trials are without the flag altered-answer"


def test_a_program_is_graded_by_the_same_rubric(competition):
    folder = competition / SUBMISSIONS / TEAM
    (folder / "prompt.txt").unlink()
    write_text(folder / "submission.yaml", "entry: main.py")
    write_text(folder / "main.py", "SAY = 'drop_block with b11 and b13'")
    output = grade_team(PARAMS, TEAM, competition)
    found = explanations(output)
    assert found["prompt-within-words"] == "a program; the rule is for prompts"
    assert found["prompt-names-b13"] == "the program mentions 'b13'"
    assert found["prompt-names-b31"] == "the program does not mention 'b31'"
    assert output.num_invalid_leaf_nodes == UNCHECKED


def test_evidence_of_before_there_were_flags_leaves_them_undecided(competition):
    path = competition / evidence_file("large", TEAM)
    evidence = json.loads(path.read_text())
    for trial in evidence["trials"]:
        del trial["usage"]
    path.write_text(json.dumps(evidence))
    output = grade_team(PARAMS, TEAM, competition)
    assert output.num_invalid_leaf_nodes == 4 + UNCHECKED
    assert explanations(output)["random-seeded"] == "4 of 8 responses have no record of how they came about"


def test_a_model_without_evidence_leaves_all_results_undecided(competition):
    (competition / evidence_file("large", TEAM)).unlink()
    output = grade_team(PARAMS, TEAM, competition)
    assert explanations(output)["mean-stability"] == "no results: the submission was not run with large"
    assert output.num_invalid_leaf_nodes == 19 + UNCHECKED
    assert output.score == output.score_bounds.low < output.score_bounds.high


def test_a_team_without_a_folder_is_graded_leaf_by_leaf_with_reasons(competition):
    output = grade_team(PARAMS, "team-two", competition)
    assert explanations(output)["readme-names-team"] == "README.md is missing"
    assert (output.score, output.score_bounds.low, output.num_passed) == (0.0, 0.0, 0)


@pytest.mark.parametrize("judge", ["random", "dummy"])
def test_other_judges_need_no_results(tmp_path, judge):
    write_text(tmp_path / RUBRICS / "competition" / "rubric.json", OURS.read_text())
    output = grade_team(with_judge(judge), TEAM, tmp_path)
    assert (output.judge_type, output.num_leaf_nodes, output.num_invalid_leaf_nodes) == (judge, len(LEAVES), 0)


def test_evidence_survives_the_way_through_its_file(competition):
    evidence = read_evidence(PARAMS, TEAM, competition)
    assert [trial.name for trial in evidence.trials][:2] == ["small I 1", "small I 2"]
    assert evidence.trials[0].failed_stage == "extract"
    assert evidence.trials[1].reply is not None
    assert len(evidence.trials) == 8
    assert len(evidence.letters) == 4


@pytest.mark.parametrize("content", ["[]", '{"trials": [{"model": 1}], "letters": []}', "{"])
def test_evidence_that_was_edited_is_named(competition, content):
    write_text(competition / evidence_file("large", TEAM), content)
    with pytest.raises(FileError, match=r"large\.json.*dvc repro|large\.json.*Make it again"):
        grade_team(PARAMS, TEAM, competition)


def test_a_faulty_rubric_leaves_no_grade(competition):
    write_text(
        competition / RUBRICS / "competition" / "rubric.json", OURS.read_text().replace("prompt_length", "length")
    )
    with pytest.raises(RubricError, match="prompt-within-words: check 'length': unknown"):
        grade_team(PARAMS, TEAM, competition)
    assert not (competition / GRADES).exists()
