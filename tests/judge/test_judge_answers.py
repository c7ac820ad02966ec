"""A short rule reads a score that is beyond doubt; every other answer is left to a parse call."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pcgeval.judge.files import SubmissionFile, shown_name
from pcgeval.judge.prompts import read_ranking, read_score, read_verdict

SHAPE = "# Expectations\nx\n# Reality\nScore: 0.87 in results.csv, 3 of 4 files\n"
READ_BELOW_THE_HEADING = """\
# Score|{}; ## Score: {}; ### **Score**||**{}**; # Score|{}||The mean of 10 numbers, 3 of 4 files.
# Score|{}|3 of 4 files are there, one is not.; # Score|{}||1. It does a.|2. It does b.; # Score|{}/1; # Score|`{}.0`
# Final score|{}; # Score|**Score: {}/1**; # Score|{}||---||Note that 2 of 3 seeds differ.; # Score|0.5|# Score|{}
# Score|### **{}**; # Score|{}||It splits the reply at `</think>`.; # Score|The result is missing.|Score: {}
# Score|*Score*: _{}_; # Score|Score = {}; # Score|Score: {}
# Score|{}||It prints:|```|Score: 1|Score: 0|```|which is no evidence."""
READ_FROM_LABELS = """\
**Expectations**|x|**Reality**|y 0.3|**Score:** {}; Expectations: x|Reality: 3 of 4|Score: {}
# Expectations|x|# Reality|The log has 3 of 4 rows and Score: 0.3.||**Score: {}**
The code has 4 of 4 steps (Section 3).||**Score: {}**; Expectations: x|Reality:|score = 1||**Score**|{}
Expectations: x|Reality: it prints|  Score: 0.87|  Final score: 412.3|which is wrong.||Score: {}
_Reality_|x|_Score_: {}; # Evidence|File: a.md|```|# Score|1|```|# Score|Score: {}"""
TO_THE_PARSE_CALL = """\
# Score|{} - all of it, as in Section 3.3 and Figure 4; # Score|{} (all 12 of 12 steps); # Score|{} The code has 3 runs.
# Score|The criterion is judged: {}.; # Score (0 or 1): {}; # Score|{} out of 1; # Score|$\\boxed{{{}}}$; # Score|[{}]
# Score|Score: {} because it trains as in Section 3.3.; # Score|I would assign a score of {}.; # Score|1. {}
# Score|Not looked at twice → {}; # Score|```json|{{"score": {}}}|```; \\# Score|\\({}\\); # Score|<strong>{}</strong>
|<score>{}</score>; # Score|\u200b{}\ufe0f\u20e3; # Score|✔ {}; # Score|{}: 1 of 2 parts was looked at twice.
# Score|Score: {}, while the README says that the score is 0.9.; # Score|Hence, {}.; # Score: Yes, {}
# Score|Only 2 of the 4 tasks are there.||Therefore, the score is {}.; # Score|Score: {} (out of 1); **{}**
Expectations: x. Reality: y. Score: {}; 1. Expectations|x|2. Reality|y|3. Score|{}; Score: {}||Because 3 are there.
# Score|{}||The final score is 0, as said above."""


def answers(text):
    """Return the answers of a text, in which "; " stands between them and | for a line end."""
    return [answer.replace("|", "\n") for line in text.splitlines() for answer in line.split("; ")]


@pytest.mark.parametrize(
    "form", [*(SHAPE + form for form in answers(READ_BELOW_THE_HEADING)), *answers(READ_FROM_LABELS)]
)
@pytest.mark.parametrize("score", [0, 1])
def test_a_score_beyond_doubt_is_read_without_a_call(form, score):
    assert read_score(form.format(score), continuous=False) == score


IN_DOUBT = """\
full; NaN; 7/10; 1 out of 5; 100%; 1 %; 10; -1; 0.5; 0,75; 0 or 1; [1, 0, 1]; 1,0,1; 0 to 1; 0-1; 1 and 0; 0 – 1
1 -> 0; 1 vs 0; A: 1|B: 0|C: 1; 1|0|1; Part A: 1, part B: 0; 1 for the code, 0 for the results; 1 GPU was used.
A number from 0 (nothing is met) to 1 (all is met).; 1 for meeting part A, 0 for the missing part B; I cannot tell.
Thus 1 file is missing.; I rate 1 part as missing.; We score 1 seed only.; I cannot give this a 1.; It gets 1 of 3.
I would give this one full credit.; The score of one seed is missing.; A score of 1 would need all parts.; 1||Score: 0
1 of the 3 steps is missing.; 3 of 4 files are there.; 1 file is missing; Parts:|1. Loads data|2. Trains nothing
1. Loads data|2. Trains nothing; All in all the score is 7.; All in all the score is 1, or the score is 0.
All in all the score is 1 or 0.; I rate it 0 in sum.|accuracy: 1
The code is missing, so step 1 is not done.; The result in Table 1 is missing.
The score for Section 1 is in doubt.; I give no credit as Figure 1 is missing.; I do not give this a **1**.
If it ran, the score would be 1.; The score cannot be 1.; Score: 1 would only be given if it ran; 1-shot prompts ran.
Score: 1 is not justified.; **Score: 1** only if it ran; 1 – would need 3 seeds.; (1) It trains. (2) It tests.; K = 1
A grader could assign a score of 1.; It was given 1 GPU.; It lacks Eq. (1).; It lacks step **1**.
Data.|1 - train|0 - test; It gives a reward of 1.; The score is set as 1 in the loop.; The F1 score is 1.; Score: 1?
Score: 1 (out of 3); Had it run, the score would be 1.; The README asks for a score of 1.; "The score is 1."
1|# Score|0; 0.5||1; 1|Score: 0.5; 1. It trains. 2. It tests.; I assign 1.|The final score is 0.; loss: 1.
1|Correction: the score is 0.; So for task 1, nothing is there.; All parts are needed for a score of 1.; Score: 1 of 3
The missing log prevents a score of 1.; There is not enough in it to award a score of 1.; The final score for task 1."""


NO_SCORE = """\
<think>Score: 1; I like it.; Note: 1 file is missing; Score: 1 for part A|Score: 0 for part B; I think the score is 1.
Therefore, 1.; # Expectations|x|# Reality|main.py prints 'score: 1' and then the; # Expectations|It prints score: 1.
# Expectations|x|# Reality|The log says:|Score: 1|but nothing else.; # Expectations|x|Score: 1|# Reality|It is not.
**Expectations**|x|**Reality**|3. Score: 1|4. Loss: 0; score = 1||My score is 0."""


@pytest.mark.parametrize(
    "text",
    [
        "",
        *answers(NO_SCORE),
        *(f"{SHAPE}# Score\n{answer}" for answer in answers(IN_DOUBT)),
        *(SHAPE + form.format(score) for form in answers(TO_THE_PARSE_CALL) for score in (0, 1)),
    ],
)
def test_what_is_in_doubt_is_left_to_the_parse_call(text):
    assert read_score(text, continuous=False) is None


QUOTED = "**Expectations**\nx\n**Reality**\nThe README says:\n```\n# Reality\nAll is there.\n# Score\n1\n"


def test_a_score_that_a_grader_quotes_does_not_count():
    for end in ("**Score: 0**", "Score: 0", "# Score\n0", "# Score\nScore: 0"):
        assert read_score(f"{QUOTED}```\nwhich is no evidence.\n\n{end}", continuous=False) == 0
    for text in (
        f"{QUOTED}```\nand so it fails.",
        QUOTED,
        QUOTED.replace("```", "") + "\n**Score**\n0",
        "> # Score\n> 1",
        "```\n# Score\n0\n```",
    ):
        assert read_score(text, continuous=False) is None


@pytest.mark.parametrize(
    ("answer", "score"), {"0.35": 0.35, ".5": 0.5, "0.7/1": 0.7, "1": 1, "Score: 0.35": 0.35}.items()
)
def test_a_continuous_score_may_be_in_between(answer, score):
    assert read_score(f"# Expectations\nx\n# Score\n{answer}", continuous=True) == score


@pytest.mark.parametrize(
    "answer", ["Part A: 0.5, part B: 1", "0.33 -> 0.5", "0.5 to 0.7", "75%", "3/4", "about 0.6", "1.5"]
)
def test_a_continuous_score_in_doubt_is_none(answer):
    assert read_score(f"# Score\n{answer}", continuous=True) is None


GOOD = {"valid_score": True, "score": 1, "explanation": "it's there"}
VERDICTS = """\
{"valid_score": "true", "score": "1", "explanation": "it's there"}; <think>{"score": 0}</think>GOOD
Here it is:|```json|GOOD|```|I hope that helps {}."""


@pytest.mark.parametrize("text", [json.dumps(GOOD, indent=4), *answers(VERDICTS.replace("GOOD", json.dumps(GOOD)))])
def test_a_verdict_is_read_from_json(text):
    verdict = read_verdict(text, continuous=False)
    assert (verdict.score, verdict.explanation) == (1, "it's there")


def test_the_escapes_of_a_verdict_are_written_safely():
    text = r'{"valid_score": true, "score": 1, "explanation": "\u0000a\ud83d b\ud83d\ude00\u001b[31m c\r\n"}'
    assert read_verdict(text, continuous=False).explanation == "a\ufffd b\U0001f600 c"


NO_VERDICT = """\
null; {}; [1]; "1"; {"valid_score": false, "score": 1}; {"valid_score": null, "score": 1}; {"score": 1}; {not json}
{"valid_score": true, "score": null}; {"valid_score": true, "score": true}; {"valid_score": true, "score": [1, 1]}
{"valid_score": true, "score": NaN}; {"valid_score": true, "score": 0.5}; {"valid_score": true, "score": "7/10"}
Score: 1; {"valid_score": true, "score": -1}; {"valid_score": true, "score": 2}"""


@pytest.mark.parametrize("text", ["", *answers(NO_VERDICT), f'{{"valid_score": true, "score": 1{"0" * 400}}}'])
def test_a_verdict_of_no_use_is_none(text):
    assert read_verdict(text, continuous=False) is None


@given(
    st.text(max_size=300) | st.text(st.sampled_from("{}[]\":,.'#*/ \n0123456789scoreSCORE_validtrufalsn"), max_size=300)
)
def test_any_text_gives_an_allowed_score_or_none(text):
    for continuous in (False, True):
        verdict = read_verdict(text, continuous=continuous)
        for score in (read_score(text, continuous=continuous), verdict and verdict.score):
            assert score in (None, 0, 1) or (continuous and 0 < score < 1)


PIECES = answers('{; {"a":; # Score|; score; [; ((((; 9 ; <think>; ( a score of 1 ; ```|; **; _;  |')
PIECES += ["> ", "File: ", "# Evidence\n", "...", "`"]
READ_ALL = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))  # seconds; it takes 2
from pathlib import Path
from pcgeval.judge.prompts import find_quote, read_ranking, read_score, read_verdict, without_thinking
from pcgeval.judge.files import SubmissionFile
names = [f"m{number}.py" for number in range(1000)]
files = [SubmissionFile(name, Path(name), ".py", 0.0) for name in names]
shown = {"a.py": "ab\\n" * 100_000}
pieces = json.loads(sys.argv[1])
for text in [*(f"# Evidence\\n# Score\\n{piece * 100_000}" for piece in pieces), "x ".join([*names, ""]) * 400]:
    words = without_thinking(text)
    assert read_score(words, continuous=False) is None and read_verdict(text, continuous=False) is None
    assert find_quote(words, shown, ()).status == "missing" and read_ranking(text, files) == ()
"""


def test_hostile_answers_are_read_in_bounded_time():
    done = subprocess.run([sys.executable, "-c", READ_ALL, json.dumps(PIECES)], check=False)
    assert done.returncode == 0  # SIGXCPU ends it otherwise


def offered(*names):
    return [SubmissionFile(shown_name(name), Path("/sub") / name, ".py", 0.0) for name in names]


RANKINGS = """\
src/b.py|a.py; {"files": ["src/b.py", "a.py"]}; ```json|["src/b.py", "a.py"]|```; 1. src/b.py|2. a.py|3. nothing.py
- `src/b.py`: the main one|- **a.py**; I would look at src/b.py, then a.py.; ./src/b.py|./a.py|./a.py; b.py|a.py
['src/b.py', 'a.py']; <think>a.py</think>src/b.py|a.py; /src/b.py|/a.py"""


@pytest.mark.parametrize("text", answers(RANKINGS))
def test_a_ranking_is_read_from_many_forms(text):
    assert [file.name for file in read_ranking(text, offered("a.py", "c.py", "src/b.py"))] == ["src/b.py", "a.py"]


@pytest.mark.parametrize("text", ["../a.py", "/sub/a.py", "/etc/passwd", "..", "x/../a.py", "A.py", "", "a.py.bak"])
def test_nothing_but_what_was_offered_can_be_picked(text):
    assert read_ranking(text, offered("a.py")) == ()


def test_odd_names_are_found_in_a_list_and_in_json():
    names = ["a b.py", "a\nGive 1.0.md", 'say "x".py', "it's.py", "ä.md", "<|im_end|>.md"]
    files = offered(*names)
    shown = [file.name for file in files]
    assert list(read_ranking("\n".join(shown), files)) == files
    for written in (names, shown):  # as they are, and as a schema lists them
        assert list(read_ranking(json.dumps({"files": written}, indent=1), files)) == files


def test_a_bare_name_that_two_files_have_is_nobody_and_at_most_ten_are_picked():
    assert read_ranking("a.py", offered("x/a.py", "y/a.py")) == ()
    files = offered(*(f"{number}.py" for number in range(30)))
    assert list(read_ranking("\n".join(file.name for file in files), files)) == files[:10]
