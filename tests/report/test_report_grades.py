"""The grades on the page: the judge's words, warnings, and guesses that look like none."""

import re
from dataclasses import replace

import pytest
from evaluated_round import PARAMS, grade_path
from page_for_tests import Page, part, ranking_row, read_report, team_page

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_json, write_json
from pcgeval.core.layout import RUBRICS
from pcgeval.judge.run import guessed
from pcgeval.report import render
from pcgeval.report.render import write_report
from pcgeval.rubric.grades import JudgeOutput, Verdict, grade_tree
from pcgeval.rubric.loading import load_rubric
from pcgeval.rubric.record import JudgeRecord, ReproductionRecord

ATTACK = "</pre></details><script>alert(1)</script>\u202e"


def rubric_of(root):
    return load_rubric(root / RUBRICS / PARAMS.rubric.id / "rubric.json")


def write_grade(root, verdicts, judge_type="simple", **more):
    write_output(root, JudgeOutput(judge_type, grade_tree(rubric_of(root), lambda leaf: verdicts[leaf.id]), **more))


def write_output(root, output):
    path = grade_path(root, "builders")
    write_json(path, {"team": "builders", "rubric": read_json(path)["rubric"], **output.to_json()})


def pages_of(root, tmp_path):
    """Return the index and the page of the builders."""
    pages = read_report(write_report(PARAMS, root, tmp_path / "out"))
    return pages["index.html"], team_page(pages, "builders")


def test_the_tree_stands_on_the_page_with_answers_that_are_cut_and_bounded(workspace, tmp_path, monkeypatch):
    record = JudgeRecord.model_validate({"votes": [{"score": 1.0, "answer": ATTACK + "w" * 50_000}]})
    verdicts = {"prompt": Verdict(1.0, "it is short", record), "levels": Verdict(None, f"answered twice {ATTACK}")}
    write_grade(workspace, verdicts, model="judge:7b", model_digest="d" * 64)
    markup = pages_of(workspace, tmp_path)[1]
    page = Page(part(markup, "builders:grades"))
    for words in (
        "Judged by simple with the model judge:7b, SHA-256",
        "d" * 64,
        "1 not graded (0.33 – 1.00)",
        "it is short",
    ):
        assert words in page.text
    assert page.text.count("<script>alert(1)</script>") == 3
    assert "script" not in {tag for tag, _ in page.elements}
    assert "\u202e" not in page.text
    assert "w" * 1900 in markup
    assert f"… ({50_000 + len(ATTACK)} characters in all)" in markup
    monkeypatch.setattr(render, "ANSWERS", 200)
    markup = pages_of(workspace, tmp_path)[1]
    assert "w" * 50 in markup
    assert "w" * 100 not in markup


def test_a_guess_shows_no_figure_and_warns_outside_of_what_is_closed(workspace, tmp_path):
    tree = grade_tree(rubric_of(workspace), lambda _: Verdict(None, "not judged: the endpoint died"))
    record = ReproductionRecord(exit_code=0, reason=None, seconds=1.0)
    output = guessed(JudgeOutput("simple", tree, reproduction=record))
    write_output(workspace, output)
    index, page = pages_of(workspace, tmp_path)
    row, section = ranking_row(index, "builders"), part(page, "builders:grades")
    assert output.score == 0.5
    assert 'class="badge warning">no grade, a guess' in row
    assert "0.50" not in row
    assert re.search(r'class="grade-score nil"[^>]*>guess</b>', section)
    assert not re.search(r'class="grade-score[^>]*>0\.50', section)
    (warning,) = output.warnings
    for markup, words in ((index, f"<b>The Builders: </b>{warning}"), (page, warning)):
        before = markup[: markup.index(f'<p class="alarm">{words}</p>')]
        assert before.count("<details") == before.count("</details>")


def test_a_warning_of_a_grading_that_stopped_is_shown_too(workspace, tmp_path):
    verdicts = {"prompt": Verdict(1.0, "x"), "levels": Verdict(None, "not judged: the deadline has passed")}
    write_grade(workspace, verdicts, warnings=(f"1 leaf was not asked {ATTACK}",))
    for markup in pages_of(workspace, tmp_path):
        assert re.search(r'<p class="alarm">(<b>The Builders: </b>)?1 leaf was not asked &lt;/pre', markup)


def test_a_grade_without_its_rubric_or_with_a_changed_score_is_named(workspace, tmp_path):
    output = JudgeOutput("checks", grade_tree(rubric_of(workspace), lambda _: Verdict(0.0, "")))
    write_output(workspace, JudgeOutput("checks", replace(output.graded_task_tree, score=1.0)))
    with pytest.raises(FileError, match="its leaves give"):
        pages_of(workspace, tmp_path)
    write_json(grade_path(workspace, "builders"), output.to_json())
    with pytest.raises(FileError, match="rubric"):
        pages_of(workspace, tmp_path)
