"""The grades on the page: the judge's words, warnings, and guesses that look like none."""

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


def write_grade(root, verdicts, judge_type="simple", **more):
    write_output(root, JudgeOutput(judge_type, grade_tree(rubric_of(root), lambda leaf: verdicts[leaf.id]), **more))


def write_output(root, output):
    path = grade_path(root, "builders")
    write_json(path, {"team": "builders", "rubric": read_json(path)["rubric"], **output.to_json()})


def judged(answer, score=1.0, votes=1):
    files = {"offered": ["README.md"], "num_offered": 7, "picked": ["README.md", f"notes{ATTACK}.txt"], "how": ""}
    refused = [{"name": "big.bin", "reason": "it is binary"}]
    usage = {"calls": 1, "prompt_tokens": 1000, "output_tokens": 20, "seconds": 2.0}
    vote = {"score": score, "explanation": "", "reason": None, "answer": answer}
    return JudgeRecord.model_validate(
        {
            "files": {**files, "notes": {}, "refused": refused},
            "votes": [vote] * votes,
            "agreement": 1.0,
            "usage": {"rank": usage, "grade": usage, "parse": usage},
        }
    )


def write_judged(root, answer="# Expectations\nA short one.\n# Score\n1", **more):
    verdicts = {
        "prompt": Verdict(1.0, "it is short", judged(answer, **more)),
        "levels": Verdict(None, f"answered twice {ATTACK}", judged("ten scores", None)),
    }
    write_grade(root, verdicts, model="judge:7b", model_digest=DIGEST, prompt_version="p1")


def pages_of(root, tmp_path):
    """Return the index and the page of the builders."""
    pages = read_report(write_report(PARAMS, root, tmp_path / "out"))
    return pages["index.html"], team_page(pages, "builders")


def test_the_judge_s_words_files_and_tokens_stand_below_the_leaf_as_text(workspace, tmp_path):
    write_judged(workspace, answer=f"# Expectations\nA short one. {ATTACK}", votes=3)
    page = Page(part(pages_of(workspace, tmp_path)[1], "builders:grades"))
    for words in (
        "Judged by simple with the model judge:7b, SHA-256",
        DIGEST,
        ", prompts p1",
        "6 calls: 6,000 tokens read, 120 written, 12 s",
        "# Expectations\nA short one. </pre></details><script>alert(1)</script>",
        "Files shown, 2 of 7: README.md, notes",
        "big.bin",
        "Vote 3: 1.00",
        "votes agree to 100%",
        "weight 1, 33.3 % of all",
        "1 not graded (0.33 – 1.00)",
    ):
        assert words in page.text, words
    assert "script" not in {tag for tag, _ in page.elements}
    assert "\u202e" not in page.text


@pytest.mark.parametrize(
    "metadata", [3, [], "x" * 10_000, {"files": 3}, {"files": {"picked": [{}]}, "votes": [None, 3]}]
)
def test_metadata_of_any_other_form_makes_a_page_all_the_same(workspace, tmp_path, metadata):
    write_grade(workspace, {"prompt": Verdict(1.0, "x", metadata), "levels": Verdict(0.0, "y")})
    Page(pages_of(workspace, tmp_path)[1])


def test_long_answers_are_cut_and_all_of_them_bounded(workspace, tmp_path, monkeypatch):
    write_judged(workspace, answer="w" * 50_000)
    assert "w" * 2000 + "… (50000 characters in all)" in pages_of(workspace, tmp_path)[1]
    monkeypatch.setattr(render, "ANSWERS", 200)
    markup = pages_of(workspace, tmp_path)[1]
    assert "w" * 100 + "…" in markup
    assert "w" * 101 not in markup


def test_checks_and_persons_are_named(workspace, tmp_path):
    check = JudgeRecord(check="readme_length", arguments={"at_least_words": 20})
    earlier = [{"score": 0.0, "author": "Bo", "date": "2026-01-01", "reason": "I missed it"}]
    person = JudgeRecord(author="Ada", date="2026-02-02", history=earlier)
    write_grade(
        workspace, {"prompt": Verdict(1.0, "39 words", check), "levels": Verdict(0.0, "y", person)}, model="judge:7b"
    )
    text = Page(pages_of(workspace, tmp_path)[1]).text
    for words in (
        "readme_length(at_least_words=20)",
        "; 1 of 2 leaves by checks",
        "not pinned",
        "Ada, 2026-02-02",
        "Earlier 0, by Bo on 2026-01-01: I missed it",
    ):
        assert words in text, words


def test_a_guess_shows_no_figure_and_warns_outside_of_what_is_closed(workspace, tmp_path):
    tree = grade_tree(rubric_of(workspace), lambda _: Verdict(None, "not judged: the endpoint died"))
    output = heuristic_output(tree, has_reproduced=True)
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
