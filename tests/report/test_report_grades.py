"""The grades on the page: the judge's own words, what changed since they were kept, and guesses that look like none."""

import re
from dataclasses import replace

import pytest
from evaluated_round import PARAMS, grade_path
from page_for_tests import Page, part, ranking_row, read_report, team_page

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_json, write_json
from pcgeval.core.layout import RUBRICS
from pcgeval.judge.grading import heuristic_output
from pcgeval.report import render
from pcgeval.report.render import write_report
from pcgeval.rubric.grades import JudgeOutput, Verdict, grade_tree
from pcgeval.rubric.loading import load_rubric
from pcgeval.rubric.record import JudgeRecord

ATTACK = "</pre></details><script>alert(1)</script>\u202e"
DIGEST = "d" * 64


def rubric_of(root):
    return load_rubric(root / RUBRICS / PARAMS.rubric.id / "rubric.json")


def write_grade(root, team, verdicts, judge_type="simple", **more):
    output = JudgeOutput(judge_type, grade_tree(rubric_of(root), lambda leaf: verdicts[leaf.id]), **more)
    return write_output(root, team, output)


def write_output(root, team, output):
    identity = read_json(grade_path(root, team))["rubric"]
    write_json(grade_path(root, team), {"team": team, "rubric": identity, **output.to_json()})


def noted(answer, score=1.0, votes=1, reason=None):
    vote = {"score": score, "explanation": "", "reason": reason, "answer": answer}
    values = {
        "files": {
            "offered": ["README.md"],
            "num_offered": 7,
            "picked": ["README.md", f"notes{ATTACK}.txt"],
            "notes": {},
            "refused": [{"name": "big.bin", "reason": "it is binary"}],
            "how": "",
        },
        "votes": [vote] * votes,
        "agreement": 1.0,
        "usage": {
            "rank": {"calls": 1, "prompt_tokens": 1000, "output_tokens": 20, "seconds": 2.0},
            "grade": {"calls": votes, "prompt_tokens": 5000, "output_tokens": 200, "seconds": 20.0},
            "parse": {"calls": votes, "prompt_tokens": 300, "output_tokens": 30, "seconds": 3.0},
        },
        "reason": reason,
    }
    return JudgeRecord.model_validate(values)


def judged(root, answer="# Expectations\nA short one.\n# Score\n1", **more):
    verdicts = {
        "prompt": Verdict(1.0, "it is short", noted(answer, **more)),
        "levels": Verdict(None, f"answered twice {ATTACK}", noted("ten scores", None, reason="two scores")),
    }
    write_grade(root, "builders", verdicts, model="judge:7b", model_digest=DIGEST, prompt_version="p1")


def pages_of(root, tmp_path):
    """Return the index and the page of the builders."""
    pages = read_report(write_report(PARAMS, root, tmp_path / "out"))
    return pages["index.html"], team_page(pages, "builders")


def page_of(root, tmp_path):
    """Return the page of the builders."""
    return pages_of(root, tmp_path)[1]


def test_the_judges_words_files_and_tokens_stand_below_the_leaf(workspace, tmp_path):
    judged(workspace)
    page = Page(part(page_of(workspace, tmp_path), "grades"))
    for words in (
        "Judged by simple",
        "with the model judge:7b, SHA-256",
        DIGEST,
        ", prompts p1",
        "6 calls: 12,600 tokens read, 500 written, 50 s",
        "# Expectations\nA short one.",
        "Files shown, 2 of 7: README.md, notes",
        "not looked at: big.bin, it is binary",
        "rank 1 call, 1,000 + 20 tokens; grade 1 call, 5,000 + 200 tokens",
        "Not graded",
        "two scores",
        "weight 1, 33.3 % of all",
    ):
        assert words in page.text


def test_hostile_answers_names_and_reasons_stay_text(workspace, tmp_path):
    judged(workspace, answer=ATTACK)
    page = Page(page_of(workspace, tmp_path))
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert page.text.count("<script>alert(1)</script>") >= 3
    assert "\u202e" not in page.text


@pytest.mark.parametrize(
    "metadata", [3, [], "x" * 10_000, {"files": 3}, {"files": {"picked": [{}]}, "votes": [None, 3]}]
)
def test_metadata_of_any_other_form_makes_a_page_all_the_same(workspace, tmp_path, metadata):
    write_grade(workspace, "builders", {"prompt": Verdict(1.0, "x", metadata), "levels": Verdict(0.0, "y")})
    Page(page_of(workspace, tmp_path))


def test_long_answers_are_cut_and_all_of_them_bounded(workspace, tmp_path, monkeypatch):
    judged(workspace, answer="w" * 50_000)
    assert "w" * 2000 + "… (50000 characters in all)" in page_of(workspace, tmp_path)
    monkeypatch.setattr(render, "ANSWERS", 200)
    markup = page_of(workspace, tmp_path)
    assert "w" * 100 + "…" in markup
    assert "w" * 101 not in markup


def test_votes_are_told_apart(workspace, tmp_path):
    judged(workspace, votes=3)
    markup = page_of(workspace, tmp_path)
    assert "Vote 3: 1.00" in markup
    assert "votes agree to 100%" in markup


def test_a_check_is_named_beside_its_finding(workspace, tmp_path):
    check = JudgeRecord(check="readme_length", arguments={"at_least_words": 20})
    verdicts = {"prompt": Verdict(1.0, "39 words", check), "levels": Verdict(0.0, "none", noted("no", 0.0))}
    write_grade(workspace, "builders", verdicts, model="judge:7b")
    markup = page_of(workspace, tmp_path)
    assert "<small>check <code>readme_length(at_least_words=20)</code></small>" in markup
    assert "; 1 of 2 leaves by checks" in markup
    assert "not pinned" in markup


def test_a_persons_grades_name_them(workspace, tmp_path):
    metadata = JudgeRecord(author="Ada", date="2026-02-02")
    write_grade(
        workspace, "builders", {"prompt": Verdict(1.0, "x", metadata), "levels": Verdict(0.0, "y")}, judge_type="human"
    )
    page = Page(page_of(workspace, tmp_path))
    assert "Ada, 2026-02-02" in page.text


@pytest.fixture
def guessed(workspace, tmp_path):
    tree = grade_tree(rubric_of(workspace), lambda _: Verdict(None, "not judged: the endpoint died"))
    output = heuristic_output(tree, has_reproduced=True)
    write_output(workspace, "builders", output)
    return output, *pages_of(workspace, tmp_path)


def test_a_guess_warns_outside_of_what_is_closed(guessed):
    output, index, page = guessed
    (warning,) = output.warnings
    for markup, words in ((index, f"<b>The Builders: </b>{warning}"), (page, warning)):
        before = markup[: markup.index(f'<p class="alarm">{words}</p>')]
        assert before.count("<details") == before.count("</details>")


def test_a_guess_shows_no_figure_where_grades_do(guessed):
    output, index, page = guessed
    row, section = ranking_row(index, "builders"), part(page, "grades")
    assert output.score == 0.5
    assert "no grade, a guess" in row
    assert 'class="badge warning">no grade' in row
    assert "0.50" not in row
    assert '<b class="grade-score nil" title="no leaf was graded; this is no rubric score">guess</b>' in section
    assert not re.search(r'class="grade-score[^>]*>0\.50', section)
    assert "Guessed, not judged." in section


def test_a_warning_of_a_grading_that_stopped_is_shown_too(workspace, tmp_path):
    verdicts = {"prompt": Verdict(1.0, "x"), "levels": Verdict(None, "not judged: the deadline has passed")}
    write_grade(workspace, "builders", verdicts, warnings=(f"1 leaf was not asked {ATTACK}",))
    index, page = pages_of(workspace, tmp_path)
    assert '<p class="alarm"><b>The Builders: </b>1 leaf was not asked &lt;/pre' in index
    assert '<p class="alarm">1 leaf was not asked &lt;/pre' in page


def test_a_grade_without_its_rubric_is_named(workspace, tmp_path):
    value = read_json(grade_path(workspace, "builders"))
    del value["rubric"]
    write_json(grade_path(workspace, "builders"), value)
    with pytest.raises(FileError, match="rubric"):
        page_of(workspace, tmp_path)


def test_a_changed_score_in_the_file_is_found(workspace, tmp_path):
    output = JudgeOutput("checks", grade_tree(rubric_of(workspace), lambda _: Verdict(0.0, "")))
    write_output(workspace, "builders", JudgeOutput("checks", replace(output.graded_task_tree, score=1.0)))
    with pytest.raises(FileError, match="its leaves give"):
        page_of(workspace, tmp_path)
