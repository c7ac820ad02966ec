"""The page of one grading, which needs nothing beside it, and the grades on a team's page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from evaluated_round import PARAMS
from page_for_tests import checked, part, ranking_row, read_report, team_page
from rubric_trees import RUN, leaf, node, rubric

from pcgeval.cli.main import main
from pcgeval.core.files import write_json
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import RUBRICS, grade_file
from pcgeval.formats.params import Price
from pcgeval.judge.run import guessed
from pcgeval.report.markup import grade_page
from pcgeval.report.render import write_report
from pcgeval.rubric.grades import JudgeRecord, ReproductionRecord, Verdict, grade_tree, rescored
from pcgeval.rubric.output import JudgeOutput, read_grade
from pcgeval.rubric.tree import MAX_DEPTH, load_rubric

JUDGED = Path(__file__).parents[2] / "data/papers/block-letters/judged"
PAPER = ["--paper", "block-letters", "--set", f"rubric.papers_dir={JUDGED.parents[1]}"]
TASK = rubric(node("root", 1, node("code", 1, leaf("a"), leaf("b", 3)), leaf("run it", 2, RUN)))
LEAVES = ("a", "b", "run it")


def graded(verdicts, task=TASK, **more):
    return JudgeOutput("simple", grade_tree(task, lambda entry: verdicts[entry.id]), **more)


def kinds(markup, anchor):
    return re.search(r'data-kinds="([^"]*)"', part(markup, anchor))[1].split("|")


def test_a_graded_paper_shows_scores_bounds_words_files_and_tokens():
    grade = read_grade(JUDGED / "half.json")
    ungraded = {"score": 0.0, "valid_score": False}
    tree = grade.graded_task_tree.map_leaves(
        lambda leaf: replace(leaf, **ungraded) if leaf.id == "random-tilt" else leaf
    )
    markup = grade_page(replace(grade, graded_task_tree=rescored(tree)), "half")
    page = checked(markup)
    for words in (
        "Score 0.55",
        "11 calls: 27,336 tokens read (19,786 of them from the endpoint's cache), 3,253 written",
        "evidence for 2 of 5 passes",
        "10 of 19 leaves by checks",
        "weight 3, 30.0 % of all",
        "0.50 – 0.67",
        "Files shown, 3 of 3: README.md, results.json, stand.py",
        "result_entries(at_least=10, key=bare, path=results.json)",
    ):
        assert words in page.text
    assert kinds(markup, "node-random-tilt") == ["not graded"]
    row = re.search(r'<th scope="row">Code Development</th>(.*?)</tr>', markup)[1]
    assert re.findall(r">([^<]+)<", row) == ["8", "0.44", "4", "3", "0", "1"]


def test_a_category_without_a_grade_has_no_score():
    nothing = Verdict(None, "nobody graded this leaf")
    markup = grade_page(graded({"a": nothing, "b": nothing, "run it": Verdict(1.0, "")}), "")
    row = re.search(r'<th scope="row">Code Development</th>(.*?)</tr>', markup)[1]
    assert re.findall(r">([^<]+)<", row) == ["2", "not graded", "0", "0", "0", "2"]


def test_votes_persons_and_the_price_are_told():
    votes = [{"score": 1.0, "answer": "yes"}, {"score": 0.0, "answer": "no"}]
    usage = {"grade": {"calls": 2, "prompt_tokens": 10_000, "output_tokens": 500}}
    record = JudgeRecord.model_validate({"votes": votes, "agreement": 0.5, "usage": usage})
    person = JudgeRecord(author="Ada", date="2026-02-02")
    verdicts = {"a": Verdict(0.5, "torn", record), "b": Verdict(0.0, "", person), "run it": Verdict(1.0, "")}
    markup = grade_page(graded(verdicts, price=Price(input=2.0, output=8.0)), "")
    assert "about 0.0240 US dollars; votes agree to 50%" in checked(markup).text
    assert kinds(markup, "node-a") == ["failed", "in part", "votes differ"]
    assert kinds(markup, "node-b") == ["failed", "by a person"]


@pytest.mark.needs_sandbox
def test_the_commands_write_the_page_with_the_run_and_the_blacklist(tmp_path, capsys):
    attempt, out, page = JUDGED.parent / "submissions" / "half", tmp_path / "grade.json", tmp_path / "out" / "page.html"
    words = [*PAPER, "--judge", "checks", "--reproduce", "--set", "rubric.max_width=1", "--out", str(out)]
    assert main(["grade", str(attempt), *words, "--html", str(page)]) == 0
    shown = checked(page.read_text())
    for text in (shown.text, capsys.readouterr().err):
        assert re.search(r"reproduce\.sh ended with exit code 0 after [0-9.]+ s", text)
    assert "blacklist.txt: none of " in shown.text
    assert main(["rubric", "show", str(out), "--html", str(tmp_path / "again.html")]) == 0
    assert checked((tmp_path / "again.html").read_text()).all("id") == shown.all("id")


def test_the_deepest_tree_long_texts_and_metadata_of_any_form_make_a_page():
    task = leaf("x")
    for level in range(MAX_DEPTH - 1):
        task = node(f"n{level}", 1, task)
    output = JudgeOutput("dummy", grade_tree(rubric(task), lambda _: Verdict(1.0, "")))
    assert checked(grade_page(output, "x")).all("id")[-1] == "node-x"
    long = JudgeRecord.model_validate({"votes": [{"score": 1.0, "answer": "w" * 90_000}]})
    markup = grade_page(graded(dict.fromkeys(LEAVES, Verdict(1.0, "e" * 90_000, long))), "t" * 90_000)
    assert "w" * 20_000 + "… (90000 characters in all)" in markup
    assert "e" * 2_000 + "… (90000 characters in all)" in markup
    for metadata in (3, {"files": {"picked": [{}]}, "votes": [None, 3]}):
        checked(grade_page(graded(dict.fromkeys(LEAVES, Verdict(1.0, "seen", metadata))), "x"))


ATTACK = "</pre></details><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m\x00\ud800"


def attacked(text):
    files = {"picked": [text], "num_offered": 1, "notes": {text: text}, "refused": [{"name": text, "reason": text}]}
    votes = [{"score": 1.0, "answer": text, "reason": text}]
    record = JudgeRecord.model_validate({"author": text, "date": text, "files": files, "votes": votes})
    verdicts = {"a": Verdict(0.5, text, record), "b": Verdict(None, text, {text: [text]})}
    task = rubric(node("root", 1, leaf("a"), leaf("b")))
    output = graded(verdicts, task, model=text, model_digest=text, prompt_version=text, warnings=(text,))
    tree = output.graded_task_tree
    first, second = tree.sub_tasks
    valid = text.encode(errors="ignore").decode()
    first = replace(first, id="".join(filter(str.isprintable, text)), path=f"root/{valid}", requirements=valid)
    second = replace(second, judge_metadata=JudgeRecord(check=text, arguments={text: text}))
    return replace(output, graded_task_tree=replace(tree, sub_tasks=(first, second), requirements=valid))


@pytest.mark.parametrize("text", [ATTACK, '" onload="alert(1)', "&lt;b&gt;", "{{ 7 * 7 }}", "javascript:alert(1)"])
def test_nothing_in_a_grade_becomes_markup(text):
    hostile, usual = checked(grade_page(attacked(text), text)), checked(grade_page(attacked("plain"), text))
    assert [(tag, set(names)) for tag, names in hostile.elements] == [
        (tag, set(names)) for tag, names in usual.elements
    ]
    assert not {"\u202e", "\x1b", "\x00", "\ud800"} & set(hostile.text)
    assert "49" not in hostile.text


def test_a_guess_shows_no_figure_and_warns(workspace):
    task = load_rubric(workspace / RUBRICS / PARAMS.rubric.id / "rubric.json")
    nothing = JudgeOutput("simple", grade_tree(task, lambda _: Verdict(None, "not judged: the endpoint died")))
    record = ReproductionRecord(exit_code=0, reason=None, seconds=1.0)
    output = guessed(replace(nothing, reproduction=record))
    path = workspace / grade_file("builders")
    write_json(path, {"team": "builders", "rubric": read_json(path)["rubric"], **output.to_json()})
    pages = read_report(write_report(PARAMS, workspace, workspace / "out"))
    index, markup, page = pages["index.html"], team_page(pages, "builders"), checked(grade_page(output, "x"))
    assert 'class="badge warning">no grade, a guess' in ranking_row(index, "builders")
    assert re.search(r'class="grade-score nil"[^>]*>guess</b>', markup)
    assert "0.50" not in ranking_row(index, "builders")
    assert "Score 0.5" not in page.text
    (warning,) = output.warnings
    assert all(warning in text for text in (markup, page.text))
