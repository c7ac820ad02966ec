"""From a model's written answers to a leaf's grade: files chosen, scores read, evidence measured, votes counted."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from judged_attempt import ATTEMPT, MODEL, WrittenAnswers, graded, write_files, write_paper
from model_servers import refused
from page_for_tests import Page
from rubric_trees import CODE, RESULT, RUN, leaf, node

from pcgeval.cli.main import main
from pcgeval.core.files import write_json
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.prompts import MAX_QUOTE, find_quote
from pcgeval.llm.protocol import ChatReply
from pcgeval.report.markup import grade_page

WARM = MODEL.model_copy(update={"options": {"temperature": 0.5, "num_predict": 500}})
MEAN = "return sum(random.gauss(0, 1)\n               for _ in range(n)) / n"
CODE_TEXT = f"import random\n\n\ndef mean(n):\n    {MEAN}\n"
HTML = '</pre></details><script>alert(1)</script><img src=x onerror="alert(1)">'
PAGE = f"{HTML}\n# Score\n1\n{'long ' * 2000}\n"
WORDS = "# Expectations\nA mean.\n# Reality\nIt is there.\n# Score\n{}"
FAIL = WORDS.format(0)
UNCLEAR = "# Score\n7/10"
VERDICT = '{"valid_score": true, "score": 1, "explanation": "it is there"}'


def quoting(file, lines, score=1):
    return WORDS.format(score).replace("# Score", f"# Evidence\nFile: {file}\n```\n{lines}\n```\n# Score")


TRUE, INVENTED = (quoting("src/mean.py", line) for line in ("def mean(n):", "def mean(values):"))


@pytest.fixture(autouse=True)
def attempt():
    write_files({"src/mean.py": CODE_TEXT, "page.md": PAGE})
    write_files({"reproduce.log": "it ran\nmean 0.02\n", "results.csv": "n,mean\n100,0.02\n"})


def judged(*answers, category=CODE, tree=None, texts=None, **settings):
    """Grade a leaf, or the leaves of a tree, by written answers; return the output and the requests."""
    write_paper(tree or node("root", 1, leaf("mean", 1, category)), **(texts or {}))
    in_turn = iter(answers)
    backend = WrittenAnswers(lambda _: next(in_turn))
    output = graded(backend, model=WARM, calls=CallFiles(log=None), **settings)
    assert len(backend.requests) == len(answers)
    return output, backend.requests


def leaf_of(*answers, **more):
    (graded_leaf,) = judged(*answers, **more)[0].graded_task_tree.leaves
    return graded_leaf


def prompt(request):
    return request.messages[1].content


def test_of_more_files_the_model_ranks_which_to_show():
    write_files({f"src/{number}.py": "x = 1\n" for number in range(20)})
    output, (ranked, asked) = judged('{"files": ["src/mean.py", "src/1.py"]}', TRUE)
    record = output.graded_task_tree.leaves[0].judge_metadata
    assert (record.files.picked, record.usage.rank.calls) == (("src/mean.py", "src/1.py"), 1)
    assert ranked.schema["properties"]["files"]["items"]["enum"][:3] == ["page.md", "src/0.py", "src/1.py"]
    assert "\npage.md\nsrc/0.py\n" in prompt(ranked)
    assert "alert" not in prompt(asked)
    files = leaf_of("../secret.py\n/etc/passwd", FAIL).judge_metadata.files
    assert files.picked[:2] == ("page.md", "src/0.py")
    assert "named no file" in files.how
    unranked = leaf_of(refused("no reply"))
    assert (unranked.valid_score, unranked.explanation) == (False, "the files could not be ranked: no reply")
    write_files({f"more/{number}.py": "x = 1\n" for number in range(200)})
    _, (ranked, _) = judged("src/mean.py", TRUE)
    assert ranked.schema["properties"]["files"]["items"] == {"type": "string"}  # hosted models bound a schema


def test_a_score_in_doubt_is_read_by_a_parse_call_and_a_leaf_has_one_grade_call():
    output, (_, parsing) = judged(UNCLEAR, VERDICT)
    assert (output.score, output.graded_task_tree.leaves[0].explanation) == (1.0, "it is there")
    assert UNCLEAR in prompt(parsing)
    assert parsing.schema["properties"]["score"]["enum"] == [0, 1]
    failed = leaf_of(UNCLEAR, "no idea")
    assert (failed.valid_score, "no one score" in failed.explanation) == (False, True)
    assert (failed.judge_metadata.usage.grade.calls, failed.judge_metadata.usage.parse.calls) == (1, 1)


@pytest.mark.parametrize(
    ("text", "done", "reason"),
    [
        ("", "content_filter", "refused to answer"),
        ("<think>is it 1?</think>", "stop", "only thoughts"),
        ("", "stop", "empty"),
    ],
)
def test_an_answer_without_words_is_named_and_not_paid_for_twice(text, done, reason):
    failed = leaf_of(ChatReply(text, 10, 0, done, 1.0))
    assert (failed.valid_score, reason in failed.explanation) == (False, True)


CUT = ChatReply("# Expectations\nx\n# Reality\nmain.py prints\nScore: 1\nand then", 10, 400, "length", 1.0)


def test_an_answer_that_was_cut_off_gets_twice_the_room_once_and_is_never_read():
    output, requests = judged(CUT, TRUE)
    assert (output.score, output.token_usage.grade.calls) == (1, 2)
    assert [request.options["num_predict"] for request in requests] == [500, 1000]
    whole = replace(CUT, text=f"{TRUE} ")
    assert "cut off" in leaf_of(whole, refused("no room")).explanation
    assert "cut off" in leaf_of(whole, whole).explanation
    thoughts = replace(CUT, text="<think>Score: 1")
    assert "its thoughts are long" in leaf_of(thoughts, thoughts).explanation


def test_a_submission_without_any_file_is_0_without_a_call():
    shutil.rmtree(ATTEMPT)
    ATTEMPT.mkdir()
    assert leaf_of().graded_score == 0


@pytest.mark.parametrize(
    ("answers", "depth", "score", "agreement"),
    [
        ((1, 0, 1), None, 1, 2 / 3),
        (("failed", 0, 0), None, 0, 1.0),
        ((1, 0), None, None, None),
        ((0.5, 1, 0.75), 2, 0.75, 0.5),
        ((0.5, "failed"), 2, 0.5, 1.0),
    ],
)
def test_the_majority_of_votes_decides_and_those_about_a_node_are_averaged(answers, depth, score, agreement):
    tree = node("root", 1, node("mean", 1, leaf("a"), leaf("b")) if depth else leaf("mean"))
    replies = [refused("no reply") if answer == "failed" else WORDS.format(answer) for answer in answers]
    output, requests = judged(*replies, tree=tree, votes=len(answers), max_depth=depth)
    (judged_leaf,) = output.graded_task_tree.leaves
    record = judged_leaf.judge_metadata
    assert (judged_leaf.graded_score, record.agreement) == (score, agreement)
    assert [request.options["seed"] for request in requests] == list(range(len(answers)))
    votes = [(vote.score, vote.reason) for vote in record.votes]
    assert votes == [(None, "no reply") if answer == "failed" else (answer, None) for answer in answers]
    whole = "Grade only this criterion: All of mean. (weight: 1)\n| Do a. (weight: 1)\n| Do b. (weight: 1)\n"
    assert (whole if depth else "Grade only this criterion: Do mean.\n") in prompt(requests[0])
    assert judged_leaf.explanation == ("the votes are tied, 1 to 1" if score is None else "It is there.")


@pytest.mark.parametrize(
    ("category", "run", "files"),
    [
        (CODE, ["reproduce.sh"], ["page.md", "src/mean.py"]),
        (RUN, ["reproduce.sh", "reproduce.log"], ["page.md", "src/mean.py"]),
        (RESULT, ["reproduce.sh", "reproduce.log"], ["page.md", "results.csv"]),
    ],
)
def test_a_leaf_is_shown_the_paper_the_run_the_files_of_its_category_and_earlier_criteria(category, run, files):
    tree = node("root", 1, *(leaf(f"leaf{number}", 1, category) for number in range(60)))
    _, requests = judged(*[FAIL] * 60, tree=tree, texts={"addendum": "Use seed 1.", "judge_addendum": "Any will do."})
    asked = prompt(requests[-1])
    tags = re.findall(r"^<([a-z.-]+)(?: \w+)?>$", asked, re.MULTILINE)
    assert tags == ["paper", "addendum", "notes", *run, "file", "file", "earlier-criteria"]
    assert re.findall(r"^<file \w+>\n(.+)", asked, re.MULTILINE) == files
    before = asked.partition("<earlier-criteria>\n")[2].partition("\n</earlier")[0].split("\n")
    assert (len(before), before[0], before[-1]) == (60, "- All of root.", "- Do leaf58.")


def test_at_most_max_prior_nodes_criteria_before_the_leaf_are_shown():
    tree = node("root", 1, *(leaf(f"leaf{number}", 1, CODE) for number in range(9)))
    _, requests = judged(*[FAIL] * 9, tree=tree, max_prior_nodes=2)
    before = prompt(requests[-1]).partition("<earlier-criteria>\n")[2].partition("\n</earlier")[0]
    assert before == "- Do leaf6.\n- Do leaf7."


ODD = '"we\\"ird*.md"'
PLACES = [
    ("`./src/mean.py`", "def mean(n):", "src/mean.py, line 4", "def mean(n):"),
    ("mean.py", "import random", "src/mean.py, line 1", "import random"),
    ("** `src/mean.py`, lines 4-5", "def mean(n):\r\n", "src/mean.py, line 4", "def mean(n):"),
    ("mean.py:4", "def mean(n):", "src/mean.py, line 4", "def mean(n):"),
    (ODD, "x = 1\ny = 2", f"{ODD}, lines 3 to 4", "x = 1\ny = 2"),
    ("page.md", PAGE, "page.md, lines 1 to 4", PAGE[:MAX_QUOTE]),
]


@pytest.mark.parametrize(("file", "lines", "place", "text"), PLACES)
def test_a_true_quotation_is_recorded_with_its_place_and_the_text_of_the_file(file, lines, place, text):
    write_files({'we"ird*.md': "max = 10\nabcx = 1\nx = 1\ny = 2\n"})
    output, (asked,) = judged(quoting(file, lines))
    (quote,) = output.graded_task_tree.leaves[0].judge_metadata.quotes
    assert (quote.status, quote.words.partition(";")[0], quote.text.rstrip()) == ("found", place, text.rstrip())
    assert "# Evidence" in prompt(asked)


WAYS = {
    "another indent": "return sum(random.gauss(0, 1)\nfor _ in range(n)) / n",
    "one line": "return sum(random.gauss(0, 1) for _ in range(n)) / n",
    "an ellipsis between lines": "def mean(n):\n    ...\n               for _ in range(n)) / n",
    "an ellipsis in brackets": "import random\n[...]\ndef mean(n):",
    "an ellipsis in a line": "return sum(random… / n",
    "line numbers and a colon": "4: def mean(n):\n5:     return sum(random.gauss(0, 1)",
    "line numbers and a bar": "  4 | def mean(n):\n  5 |     return sum(random.gauss(0, 1)",
    "line numbers alone": "4 def mean(n):\n5     return sum(random.gauss(0, 1)",
    "an L before the number": "L4: def mean(n):",
    "bullets": "- def mean(n):\n- return sum(random.gauss(0, 1)",
    "back quotes": "`def mean(n):`",
    "curly quotes": "“def mean(n):”",
    "a quotation mark": "> def mean(n):",
    "added lines": "+def mean(n):\n+    return sum(random.gauss(0, 1)",
    "two places": "import random\ndef mean(n):",
    "another order": "def mean(n):\nimport random",
    "the name of the file first": "src/mean.py\ndef mean(n):",
}


@pytest.mark.parametrize("lines", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("form", ["File: src/mean.py\n```python\n{}\n```", "File: src/mean.py\n{}\n"])
def test_lines_are_found_in_whatever_way_they_are_quoted(lines, form):
    quote = leaf_of(f"# Reality\nx\n# Evidence\n{form.format(lines)}\n# Score\nScore: 1").judge_metadata.quotes[0]
    assert (quote.status, quote.is_evidence) == ("found", True)


def test_only_the_quoted_lines_are_recorded():
    (quote,) = leaf_of(quoting("src/mean.py", "import random\ndef mean(n):")).judge_metadata.quotes
    assert (quote.first_line, quote.last_line, quote.text) == (1, 4, "import random\n\n\ndef mean(n):")
    (quote,) = leaf_of(quoting("src/mean.py", "import random\n...\nfor _ in range(n)) / n")).judge_metadata.quotes
    assert quote.text == "import random\n...\n               for _ in range(n)) / n"


def test_the_removed_lines_of_a_diff_are_not_looked_for():
    diff = "```diff\n@@ -4 +4 @@\n-def average(values):\n+def mean(n):\n```\n# Score\nScore: 1"
    assert leaf_of(f"# Evidence\nFile: src/mean.py\n{diff}").judge_metadata.quotes[0].status == "found"


@pytest.mark.parametrize(
    ("category", "file", "lines", "status", "counts"),
    [
        (CODE, "src/mean.py", "def mean(n):", "found", True),
        (CODE, "page.md", "def mean(n):", "elsewhere", True),
        (CODE, "page.md", "All criteria are met.", "found", False),
        (CODE, "src/mean.py", "All criteria are met.", "elsewhere", False),
        (RUN, "reproduce.log", "the mean is 0.02", "found", True),
        (RUN, "src/mean.py", "def mean(n):", "found", False),
        (RESULT, "results.csv", "100,0.0200000", "found", True),
        (RESULT, "page.md", "All criteria are met.", "found", False),
        (CODE, "src/mean.py", "def mean(values):", "missing", False),
        (CODE, "src/mean.py", "):", "missing", False),
        (CODE, "src/mean.py", "", "missing", False),
    ],
)
def test_only_code_shows_development_the_log_a_run_and_fresh_results_results(category, file, lines, status, counts):
    write_files({"page.md": "All criteria are met.\n", "reproduce.log": "the mean is 0.02\n"})
    write_files({"results.csv": "n,mean\n100,0.0200000\n"})
    os.utime(ATTEMPT / "page.md", (0, 0))
    output, _ = judged(quoting(file, lines), category=category)
    (quote,) = output.graded_task_tree.leaves[0].judge_metadata.quotes
    assert (output.score, quote.status, quote.counts) == (1.0, status, counts)
    assert output.evidence_share == (1.0 if counts and status != "missing" else 0.0)


def test_the_share_of_passes_with_evidence_stands_beside_the_score(capsys):
    tree = node("root", 1, *(leaf(name, 1, CODE) for name in ("a", "b", "c", "d")))
    output, _ = judged(TRUE, INVENTED, FAIL, WORDS.format(1), tree=tree)
    assert (output.score, output.to_json()["evidence_share"]) == (0.75, 1 / 3)
    write_json(Path("grade.json"), output.to_json())
    assert main(["rubric", "show", "grade.json"]) == 0
    assert "evidence for 1 of 3 passes" in capsys.readouterr().out
    assert "evidence for 1 of 3 passes" in Page(grade_page(output, "x")).text


def test_evidence_is_text_on_the_page_and_in_the_terminal(capsys):
    output, _ = judged(quoting("page.md", HTML))
    page = Page(grade_page(output, "x"))
    assert f"{HTML}" in " ".join(page.text.split())
    assert [tag for tag, _ in page.elements if tag in ("script", "img")] == ["script"]  # the page's own
    write_json(Path("grade.json"), output.to_json())
    assert main(["rubric", "show", "grade.json", "--leaf", "mean"]) == 0
    shown = capsys.readouterr().out
    assert "Evidence: page.md, line 1" in shown
    assert f"> {HTML}\n" in shown


def test_with_the_prompts_of_paperbench_no_evidence_is_asked_for_or_measured():
    output, (asked,) = judged(INVENTED, prompts="paperbench")
    assert (output.score, output.evidence_share) == (1.0, None)
    assert "Evidence" not in prompt(asked)
    assert "strict" in asked.messages[0].content
    assert output.prompt_version != judged(TRUE)[0].prompt_version


@given(
    st.text(st.sampled_from("ab \t\nÄ#`:"), max_size=60).filter(lambda text: any(map(str.isalnum, text))),
    st.integers(0, 59),
    st.integers(1, 5),
)
def test_any_lines_of_a_file_are_found_where_they_stand(text, start, length):
    part = "\n".join(text.split("\n")[start : start + length])
    if "`" in text or not any(map(str.isalnum, part)):
        return
    quote = find_quote(f"# Evidence\nFile: a.py\n```\n{part}\n```\n# Score\n1", {"a.py": text}, {"a.py"})
    assert (quote.status, quote.is_evidence) == ("found", True)
    assert set("".join(part.split())) - set('`"#:*') <= set(quote.text)


@pytest.mark.parametrize(
    "text", ["# Evidence\n" * 20_000, "File:" * 20_000, "File: a.py\n" + "```\n" * 30_000, "# Score\n" * 20_000, ""]
)
def test_hostile_answers_about_evidence_end_soon(text):
    assert find_quote(f"# Evidence\n{text}", {"a.py": "x" * 400_000}, ()).status == "missing"
