"""From a model's written answers to a leaf's grade: files chosen, words read, evidence looked up, votes counted."""

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_attempt import ATTEMPT, MODEL, WrittenAnswers, graded, write_files, write_paper
from page_for_tests import Page
from rubric_trees import CODE, RESULT, RUN, leaf, node

from pcgeval.cli.main import main
from pcgeval.core.files import write_json
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.quotes import MAX_QUOTE, verify_quote
from pcgeval.judge.settings import GradingError, JudgeSettings
from pcgeval.judge.statements import UnreadableAnswer
from pcgeval.llm.protocol import CallError, ChatReply
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
    unranked = leaf_of(CallError("no reply"))
    assert (unranked.valid_score, unranked.explanation) == (False, "the files could not be ranked: no reply")
    write_files({f"more/{number}.py": "x = 1\n" for number in range(200)})
    _, (ranked, _) = judged("src/mean.py", TRUE)
    assert ranked.schema["properties"]["files"]["items"] == {"type": "string"}  # hosted models bound a schema


def test_words_that_cannot_be_read_are_parsed_by_the_model_or_asked_for_once_more_with_what_was_wrong():
    output, (_, parsing) = judged(UNCLEAR, VERDICT, evidence=False)
    assert (output.score, output.graded_task_tree.leaves[0].explanation) == (1.0, "it is there")
    assert UNCLEAR in prompt(parsing)
    assert parsing.schema["properties"]["score"]["enum"] == [0, 1]
    output, requests = judged(UNCLEAR, "no idea", TRUE)
    assert output.score == 1
    assert "Your last answer was of no use: its score is a part of 10" in prompt(requests[2])
    failed = leaf_of(UNCLEAR, "no idea", UNCLEAR)  # the same answer is parsed once
    assert "answered twice without use; the second time its score is a part of 10" in failed.explanation
    assert (failed.judge_metadata.usage.grade.calls, failed.judge_metadata.usage.parse.calls) == (2, 2)


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


def test_an_answer_that_was_cut_off_gets_twice_the_room():
    output, requests = judged(CUT, TRUE)
    assert (output.score, output.token_usage.grade.calls) == (1, 2)
    assert [request.options["num_predict"] for request in requests] == [500, 1000]
    assert leaf_of(replace(CUT, text=f"{TRUE} "), CallError("no room")).score == 1
    thoughts = replace(CUT, text="<think>Score: 1")
    assert "all its room went into thoughts" in leaf_of(thoughts, thoughts).explanation


@pytest.mark.parametrize("quoted", ["```\n# T\n# Score\n1\n", "# T\n# Score\n1\n", "```\n# T\n```\n```\n# Score\n1\n"])
def test_an_answer_that_was_cut_off_is_not_graded_by_what_it_quotes(quoted):
    for answer in (CUT, replace(CUT, text=f"# Evidence\nFile: page.md\n{quoted}and")):
        assert not leaf_of(*[answer] * 4).valid_score


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
    replies = [CallError("no reply") if answer == "failed" else WORDS.format(answer) for answer in answers]
    output, requests = judged(*replies, tree=tree, votes=len(answers), evidence=False, max_depth=depth)
    (judged_leaf,) = output.graded_task_tree.leaves
    record = judged_leaf.judge_metadata
    assert (judged_leaf.graded_score, record.agreement) == (score, agreement)
    assert [request.options["seed"] for request in requests] == list(range(len(answers)))
    votes = [(vote.score, vote.reason) for vote in record.votes]
    assert votes == [(None, "no reply") if answer == "failed" else (answer, None) for answer in answers]
    assert ("| Do b. (weight: 1)\n" in prompt(requests[0])) == (depth is not None)
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
    assert (len(before), before[0], before[-1]) == (40, "- All of root.", "- Do leaf58.")


ODD = '"we\\"ird*.md"'


@pytest.mark.parametrize(
    ("file", "lines", "place", "text"),
    [
        ("`./src/mean.py`", "def mean(n):", "src/mean.py, line 4", "def mean(n):"),
        ("mean.py", "import random", "src/mean.py, line 1", "import random"),
        ("src/mean.py", "".join(MEAN.split()), "src/mean.py, lines 5 to 6", MEAN),
        ("** `src/mean.py`, lines 4-5", "def mean(n):\r\n", "src/mean.py, line 4", "def mean(n):"),
        ("mean.py:4", "def mean(n):", "src/mean.py, line 4", "def mean(n):"),
        (ODD, "x = 1\ny = 2", f"{ODD}, lines 3 to 4", "x = 1\ny = 2"),
        (ODD, "```\n# Score\n1\n```", f"{ODD}, lines 5 to 7", "```\n# Score\n1"),
        ("page.md", PAGE, "page.md, lines 1 to 4", PAGE[:MAX_QUOTE]),
    ],
)
def test_a_true_quote_is_recorded_with_its_place_and_the_text_of_the_file(file, lines, place, text):
    write_files({'we"ird*.md': "max = 10\nabcx = 1\nx = 1\ny = 2\n```\n# Score\n1\n```\n"})
    output, (asked,) = judged(quoting(file, lines))
    (quote,) = output.graded_task_tree.leaves[0].judge_metadata.quotes
    assert (output.score, quote.place, quote.text) == (1.0, place, text)
    assert "# Evidence" in prompt(asked)


def test_evidence_is_text_on_the_page_and_in_the_terminal(capsys):
    output, _ = judged(quoting("page.md", HTML))
    page = Page(grade_page(output, "x"))
    assert f"Evidence: page.md, line 1 {HTML}" in " ".join(page.text.split())
    assert [tag for tag, _ in page.elements if tag in ("script", "img")] == ["script"]  # the page's own
    write_json(Path("grade.json"), output.to_json())
    assert main(["rubric", "show", "grade.json", "--leaf", "mean"]) == 0
    assert f"Evidence: page.md, line 1\n       > {HTML}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (INVENTED, "are not in that file"),
        (quoting("reproduce.log", "it ran"), "as it was shown"),  # which is not for a leaf about code
        (quoting("../attempt/src/mean.py", "def mean(n):"), "was not shown"),
        (quoting("src/mean.py.bak", "def mean(n):"), "was not shown"),
        (quoting("src/mean.py", "):"), "needs a file and its lines"),
        (quoting("src/mean.py", "n"), "only a part of a line"),
        (quoting("reproduce.sh", "(reproduce.sh: is missing"), "are not in that file"),
        (WORDS.format(1), "needs a file and its lines"),
    ],
)
def test_a_pass_without_a_true_quote_twice_has_no_grade_and_says_why(answer, reason):
    output, requests = judged(answer, answer)
    (failed,) = output.graded_task_tree.leaves
    assert (failed.valid_score, output.score, output.token_usage.grade.calls) == (False, 0.0, 2)
    assert reason in failed.explanation
    assert failed.judge_metadata.quotes == ()
    assert f"Your last answer was of no use: {failed.explanation.rpartition('second time ')[2]}" in prompt(requests[1])
    assert "def mean(values)" not in prompt(requests[1])


def test_a_score_that_is_no_pass_needs_no_quote_and_an_invented_one_is_asked_for_once_more():
    for answer in (FAIL, quoting("page.md", f"{HTML}\n# Score\n1", score=0)):
        assert leaf_of(answer).graded_score == 0.0
    passed = leaf_of(INVENTED, TRUE)
    assert (passed.score, passed.judge_metadata.quotes[0].first_line) == (1.0, 4)
    assert leaf_of(f"<think>{TRUE}</think>{TRUE.replace('```', '````')}").score == 1


def test_only_lines_that_were_shown_are_evidence():
    for file, lines in (("reproduce.log", "mean 0.02"), ("results.csv", "100,0.02")):
        (quote,) = leaf_of(quoting(file, lines), category=RESULT).judge_metadata.quotes
        assert quote.place == f"{file}, line 2"
    write_files({"long.py": "".join(f"line_{number} = {number}\n" for number in range(10_000))})
    assert leaf_of(quoting("long.py", "line_0 = 0"), context=2000).score == 1
    not_shown = quoting("long.py", "line_9000 = 9000")
    assert not leaf_of(not_shown, not_shown, context=2000).valid_score
    (ATTEMPT / "reproduce.log").unlink()
    ours = quoting("reproduce.log", "(reproduce.sh was not run)")
    assert not leaf_of(ours, ours, category=RUN).valid_score


@pytest.mark.parametrize(("settings", "is_strict"), [({"evidence": False}, False), ({"prompts": "paperbench"}, True)])
def test_without_evidence_nothing_is_asked_or_looked_up(settings, is_strict):
    output, (asked,) = judged(INVENTED, **settings)
    assert (output.score, output.graded_task_tree.leaves[0].judge_metadata.quotes) == (1.0, ())
    assert "Evidence" not in prompt(asked)
    assert ("strict" in asked.messages[0].content) == is_strict
    assert output.prompt_version != judged(TRUE)[0].prompt_version
    with pytest.raises(GradingError, match="evidence is for prompts: pcgeval"):
        JudgeSettings.checked({"prompts": "paperbench", "evidence": True})


@given(
    st.text(st.sampled_from("ab \t\nÄ#`:"), max_size=60).filter(lambda text: any(map(str.isalnum, text))),
    st.integers(0, 59),
    st.integers(1, 60),
)
def test_any_lines_or_long_part_of_a_file_are_found_where_they_stand(text, start, length):
    lines = text.split("\n")
    part = "\n".join(lines[start : start + length]) if length < 5 else text[start : start + length]
    is_short = length >= 5 and len("".join(part.split())) < 12
    if "`" in part or is_short or not any(map(str.isalnum, part)):
        return
    quote = verify_quote(f"# Evidence\nFile: a.py\n```\n{part}\n```\n# Score\n1", {"a.py": text}, text)
    assert "".join(quote.text.split()) == "".join(part.split())
    assert quote.text in "\n".join(lines[quote.first_line - 1 : quote.last_line])


@pytest.mark.parametrize(
    "text", ["# Evidence\n" * 20_000, "File:" * 20_000, "File: a.py\n" + "```\n" * 30_000, "# Score\n" * 20_000, ""]
)
def test_hostile_answers_about_evidence_end_soon(text):
    with pytest.raises(UnreadableAnswer):
        verify_quote(f"# Evidence\n{text}", {"a.py": "x" * sys.maxunicode}, "x")
