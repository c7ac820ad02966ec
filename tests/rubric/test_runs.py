"""Runs as PaperBench lays them out, and the table of their grades."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rubric_trees import leaf, node, rubric

from pcgeval.cli.main import main
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_json
from pcgeval.rubric.grades import GradedTaskNode, Verdict, grade_tree
from pcgeval.rubric.output import JudgeOutput
from pcgeval.rubric.papers import ALL_PAPERS, PaperRun, RunGrade, find_runs, grade_table, submission_in

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
TIME = "2025-04-01T12-00-00-GMT"
EARLIER = "2024-04-01T12-00-00-GMT"
NEW, OLD = f"submissions/{TIME}/submission", f"submissions/{EARLIER}/submission_executed"
RUN = PaperRun("a", "p", "g", "p_1", Path("g/p_1"))


def a_grade(score, judge="simple", **more):
    tree = GradedTaskNode.from_task(rubric(leaf("p")), score or 0.0, score is not None, "seen")
    return JudgeOutput(judge, tree, **more)


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def test_groups_agents_papers_and_runs(tmp_path):
    for name in (f"{TIME}_run-group_gpt-4o/rice_{UUID}", "mine/rice_1", "mine/self-composing_2", "mine/new_paper_3"):
        (tmp_path / name).mkdir(parents=True)
    touch(tmp_path, "mine/group.log", ".hidden/rice_1/a.py")
    runs = find_runs(tmp_path, ["rice", "self", "self-composing"])
    assert [(run.agent, run.paper_id, run.name) for run in runs] == [
        ("gpt-4o", "rice", f"rice_{UUID}"),
        ("mine", "new_paper", "new_paper_3"),
        ("mine", "rice", "rice_1"),
        ("mine", "self-composing", "self-composing_2"),
    ]
    assert find_runs(tmp_path / "mine", ["rice"])[0].id == "mine/new_paper_3"  # a single group
    touch(tmp_path, "mine/rice_1/grade.json")
    assert [run.paper_id for run in find_runs(tmp_path / "mine", [])] == ["new_paper", "rice", "self-composing"]
    with pytest.raises(FileError, match=r"has no runs.*GROUP/PAPER_RUN"):
        find_runs(tmp_path / "none", [])


@pytest.mark.parametrize(
    ("files", "submission", "left_out"),
    [
        ("run.log submission/main.py other_submission/main.py", "submission", ("other_submission",)),
        ("run.log submission.tar", "submission.tar", ()),
        ("run.log other_submission/main.py", "other_submission", ()),
        (f"{NEW}.tar.gz {NEW}_executed.tar.gz {OLD}.tar.gz", f"{NEW}_executed.tar.gz", ()),
        (f"{TIME}.tar.gz {TIME}_repro.tar.gz {EARLIER}.tar.gz", f"{TIME}_repro.tar.gz", ()),
        ("main.py data.tar.gz", "", ()),
        ("reproduce.sh run.log submission/main.py submission.tar.gz", "", ()),
    ],
)
def test_the_last_snapshot_is_the_submission_and_others_are_named(tmp_path, files, submission, left_out):
    touch(tmp_path, *files.split())
    run = replace(RUN, folder=tmp_path)
    assert (submission_in(run.folder), run.left_out()) == (tmp_path / submission, left_out)


def test_links_of_a_submission_lead_nowhere(tmp_path):
    touch(tmp_path, "g/p_1/main.py", "g/p_2/main.py")
    (tmp_path / "g/p_1/submission").symlink_to(tmp_path / "g/p_2")
    for name in ("reproduce.sh", "grade.json"):
        (tmp_path / "g/p_2" / name).symlink_to("x" * 4000)
    first, second = find_runs(tmp_path, ["p"])
    assert submission_in(first.folder) == tmp_path / "g/p_1"
    assert "File name too long" in RunGrade.read(second, 0).problem
    (tmp_path / "g/p_2/grade.json").unlink()
    assert submission_in(second.folder) == tmp_path / "g/p_2"


def test_grades_of_paperbench_are_read_where_they_lie(tmp_path):
    output = a_grade(0.5).to_dict()
    runs = [f"{TIME}_run-group_x/rice_{number}" for number in range(3)]
    write_json(tmp_path / runs[0] / f"submissions/{TIME}/submission_executed_grader_output_0.json", output)
    write_json(tmp_path / runs[1] / "grade.json", {"paperbench_result": {"judge_output": output}, "score": 0.5})
    (tmp_path / runs[2]).mkdir()
    grades = [RunGrade.read(run, 0) for run in find_runs(tmp_path, ["rice"])]
    read = [(grade.score, grade.invalid, grade.problem) for grade in grades]
    assert read == [(0.5, 0, None), (0.5, 0, None), (None, None, "not graded")]


@given(st.permutations(list(product("ab", "pq", range(3)))))
def test_seeds_over_all_papers_in_any_order(order):
    def score(agent, paper, number):
        return {"p": 0.1, "q": 0.3}[paper] + 0.1 * number + 0.05 * (agent == "b")

    grades = {}
    for agent, paper, number in order:
        run = PaperRun(agent, paper, agent, f"{paper}_{number}", Path())
        grades[agent, paper, number] = RunGrade.of(run, a_grade(score(agent, paper, number)), 0)
    rows = grade_table([*grades.values()])
    assert [(row.submission, row.paper) for row in rows] == list(product("ab", ("p", "q", ALL_PAPERS)))
    assert rows[2].scores == pytest.approx([0.2, 0.3, 0.4])
    assert (rows[2].mean, rows[2].std_error) == pytest.approx((0.3, 0.1 / math.sqrt(3)))
    grades["a", "q", 2] = RunGrade.read(grades["a", "q", 2].run, 0, ["q_2"])  # disqualified: 0 in its seed, too
    assert grade_table([*grades.values()])[2].scores == pytest.approx([0.2, 0.3, 0.15])
    del grades["a", "q", 2]  # a seed that lacks a paper does not count
    assert [row.n for row in grade_table([*grades.values()])] == [3, 2, 2, 3, 3, 3]
    assert grade_table([grades["a", "p", 0]])[0].std_error is None


@pytest.mark.parametrize(
    ("output", "problem", "allowed"),
    [
        (a_grade(None, partial="1 of 1 leaves were not judged: no money"), "no money", True),
        (
            a_grade(None),
            "from 0.000 to 1.000, wider than rubric.max_width 0.05: 1 of 1 leaves have no grade: seen",
            True,
        ),
        (a_grade(None, "heuristic", guess=0.2, warnings=("",)), "only a guess", False),
        (a_grade(1.0, blacklist="'a.py' names x.org", is_blacklisted=True), "'a.py' names x.org", False),
    ],
)
def test_what_does_not_count_says_why(output, problem, allowed):
    grade = RunGrade.of(RUN, output, 0.05)
    assert grade.score is None
    assert problem in grade.problem
    assert (RunGrade.of(RUN, output, 1).score is not None) == allowed
    (row,) = grade_table([grade])
    assert row.cells()[2:5] == ("0 of 1", "-", "-")


def test_a_run_counts_while_its_score_is_known_well_enough_and_the_table_has_the_highest_mean():
    def open_in_one(scores):
        task = rubric(node("r", 1, *[leaf(f"l{number}") for number in range(20)]))
        given = dict(zip((leaf_.path for leaf_ in task.leaves), scores, strict=True))
        return JudgeOutput("simple", grade_tree(task, lambda leaf_: Verdict(given[leaf_.path], "seen")))

    output = open_in_one([1.0] * 17 + [0.0, 0.0, None])  # one leaf of twenty is exactly 0.05
    assert RunGrade.of(RUN, output, 0.049).score is None
    (row,) = grade_table([RunGrade.of(RUN, output, 0.05), RunGrade.of(RUN, a_grade(0.5), 0.05)])
    assert (row.n, row.mean, row.highest, row.invalid) == (2, pytest.approx(0.675), pytest.approx(0.7), 1)
    assert row.cells()[3:5] == ("0.675", "0.700")


def test_a_disqualified_run_counts_as_0_graded_or_not(tmp_path):
    for number, score in enumerate((0.331, 0.711, 0.529)):
        write_json(tmp_path / f"g/p_{number}/grade.json", a_grade(score).to_json())
    (tmp_path / "g/p_0/grade.json").rename(tmp_path / "g/p_1/old.json")
    runs = find_runs(tmp_path, ["p"])
    for names, scores in ((["p_1"], [0.0, 0.529]), (["g/p_0", "p_1"], [0.0, 0.0, 0.529])):
        grades = [RunGrade.read(run, 0.05, names) for run in runs]
        (row,) = grade_table(grades)
        assert (row.scores, row.mean) == (scores, pytest.approx(sum(scores) / len(scores)))
        assert {grade.run.name for grade in grades if grade.disqualified} == {name[-3:] for name in names}


def test_a_table_of_two_judges_says_that_its_means_mix_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, model in enumerate(("gpt-4o-2024-05-13", "gpt-4o-2024-08-06")):
        write_json(tmp_path / f"g/p_{number}/grade.json", a_grade(0.5, model=model).to_json())
        main(["rubric", "table", "."])
        assert ("mix gradings of 2 judges" in capsys.readouterr().err) == (number == 1)
