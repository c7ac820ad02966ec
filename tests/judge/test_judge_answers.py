"""Answers are read as people read them, and nothing that is in doubt is taken for a score."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.judge.answers import read_ranking, read_score, read_verdict
from pcgeval.judge.files import SubmissionFile, shown_name
from pcgeval.judge.statements import UnreadableAnswer

SHAPE = "# Expectations\nx\n# Reality\nScore: 0.87 in results.csv, 3 of 4 files\n"
BELOW_HEADING = """\
# Score|{}; ## Score: {}; ### **Score**||**{}**; # Score|{} - all of it, as in Section 3.3 and Figure 4
# Score|{}||The mean of 10 numbers, 3 of 4 files.; # Score|{}|3 of 4 files are there, one is not.
# Score|{}||1. It does a.|2. It does b.; # Score|{} (all 12 of 12 steps); # Score|{} The submission has 3 runs.
# Score|The criterion is judged: {}.; # Score (0 or 1): {}; # Score|{}/1; # Score|{} out of 1; # Score|`{}.0`
# Score|$\\boxed{{{}}}$; # Final score|{}; # Score|Score: {} because it trains as in Section 3.3 and Figure 4.
# Score|**Score: {}/1**; # Score|I would assign a score of {}.; # Score|Based on 3 files, the score is **{}**.
# Score|The submission earns a {}.; # Score|Not looked at twice → {}; # Score|[{}]
# Score|```json|{{"score": {}}}|```; # Score|{}||---||Note that 2 of 3 seeds differ.; # Score|0.5|# Score|{}
# Score|1. {}; # Score|1. The score is {}.; \\# Score|\\({}\\); # Score|<strong>{}</strong>; |<score>{}</score>
|Score|{}; # Score|### **{}**; # Score|\u200b{}\ufe0f\u20e3; # Score|✔ {}
# Score|{} → the loss of Section 3.3 is there; # Score|{} for meeting 3 of 3 requirements.
# Score|{}: 1 of 2 parts was looked at twice.; # Score|Score: {}, 2 of 3 functions were read twice.
# Score|Score: {}, while the README says that the score is 0.9.
# Score|Score: {} as its score is 1 in one log and 0 in the other.; # Score|We award {} point.; # Score|Hence, {}.
# Score|As the paper's score is 0.87, I assign a score of {}.; # Score|Result: {} (met)
# Score|{}||It splits the reply at `</think>`.; # Score|It fails the requirement in Section 1.||**{}**
# Score|The result in Figure 1 is missing.|Score: {}; # Score|Step 1 is done but step 2 is not, the grade is {}.
# Score|All is not there and the score is {}.; # Score|──────|{} – as in Figure 3; # Score ➔ {}; # Score|{} ✘
# Score|Only 2 of the 4 tasks are there.||Therefore, the score is {}.; # Score|The code has 1e-3.||**{}** – see Table 1.
# Score|It is graded as {}.; # Score|Satisfied ({}).; # Score: Yes, {}; # Score|A {} is warranted.
# Score|The score is {} instead of 0.5.; # Score|{} due to 3 seeds; # Score|\\textbf{{{}}}; # Score|All 5 ran – {}
# Score (1 if met, else 0): {}; # Score|1. No seeds.|2. No plots.||The score is {}.
# Score|{}||# Score Explanation|All 3 of 3 are met.
# Score|To receive a score of 1, it would need all. It does not. So the score is {}.; # Score|*Score*: _{}_
# Score|The README claims a score of 1 and of 0.||I assign a score of {}.; # Score|1. No seeds.||The score is {}.
# Score|It assigns a label of 1 to it.||There is no log and so the score is {}.; # Score|Score = {}
# Score|{} – It lacks (1) code and (2) logs.; # Score|{} – These are missing:|1. The log.|2. The table.
# Score|{}||There isn't sufficient evidence to assign a score of 1 or of 0.; # Score|Score: {} (out of 1)
# Score|Hence, our final score is {}.; # Score|This corresponds to a score of {}.; # Score|A score of {} was given.
# Score|As it is binary (1 = met, 0 = not met), the score is {}.; # Score|It is not satisfied, which means {}.
# Score|{}||It prints:|```|Score: 1|Score: 0|```|which is no evidence.; # Score|In conclusion, {}."""
WITHOUT_HEADING = """\
**Expectations**|x|**Reality**|y 0.3|**Score:** {}; Expectations: x|Reality: 3 of 4|Score: {}
1. Expectations|x|2. Reality|y|3. Score|{}; Expectations: x. Reality: y. Score: {}
# Expectations|x|# Reality|The log has 3 of 4 rows and Score: 0.3.||**Score: {}**
Score: {}||Reasoning: 10 of 12 steps are there.; The code has 4 of 4 steps (Section 3).||**Score: {}**
Expectations: x|Reality: y|Score: {}|Note: 0 warnings were printed.; <think>Score: 0.5|# Score|0.5</think>|# Score|{}
Expectations: x|Reality:|score = 1||**Score**|{}; **{}**; It began above. # Score|0.5|</think>|# Score|{}
<|channel|>analysis<|message|># Score|0.5<|end|><|start|>assistant<|channel|>final<|message|># Score|{}
# Expectations|x|# Reality|It writes <think> and never ends it.|# Score|{}; **Score**||**Score: {}**
Expectations: x|Reality: it prints|  Score: 0.87|  Final score: 412.3|which is wrong.||Score: {}
_Reality_|x|_Score_: {}; Score|-----|Score: {}"""


def answers(text):
    """Return the answers of a text, in which "; " stands between them and | for a line end."""
    return [answer.replace("|", "\n") for line in text.splitlines() for answer in line.split("; ")]


@pytest.mark.parametrize("form", [*(SHAPE + form for form in answers(BELOW_HEADING)), *answers(WITHOUT_HEADING)])
@pytest.mark.parametrize("score", [0, 1])
def test_a_score_is_read_as_a_person_reads_it(form, score):
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
    "text", ["", *answers(NO_SCORE), *(f"{SHAPE}# Score\n{answer}" for answer in answers(IN_DOUBT))]
)
def test_what_is_in_doubt_is_no_score(text):
    with pytest.raises(UnreadableAnswer):
        read_score(text, continuous=False)


QUOTED = "**Expectations**\nx\n**Reality**\nThe README says:\n```\n# Reality\nAll is there.\n# Score\n1\n"


@pytest.mark.parametrize("end", ["**Score: 0**", "**Score**\n0 - it is not there.", "Score: 0", "# Score\n```\n0\n```"])
def test_a_score_that_a_grader_quotes_does_not_count(end):
    assert read_score(f"{QUOTED}```\nwhich is no evidence.\n\n{end}", continuous=False) == 0
    assert read_score("```markdown\n# Reality\nx\n```sh\nls\n```\n# Score\n0\n```", continuous=False) == 0
    for text, cut in (
        (f"{QUOTED}```\nand so it fails.", False),
        (QUOTED, True),
        (QUOTED.replace("```", "") + "\n**Score**\n0 - no.", False),
    ):
        with pytest.raises(UnreadableAnswer):
            read_score(text, continuous=False, cut=cut)


@pytest.mark.parametrize("text", ["Score: 1\nand", "The score is 1 and", "# Score\n0.7", "# Score\n1", "# Score"])
def test_a_cut_answer_without_a_whole_score_under_a_heading_is_of_no_use(text):
    with pytest.raises(UnreadableAnswer):
        read_score(text, continuous=True, cut=True)


@pytest.mark.parametrize("end", ["# Score\n1\n", "# Score: 1\n\nThe file", "**Score:** 1\nSo this"])
def test_a_cut_answer_counts_once_its_score_stands_under_its_heading(end):
    assert read_score(f"**Expectations**\nx\n**Reality**\ny\n{end}", continuous=False, cut=True) == 1


@pytest.mark.parametrize(
    ("answer", "score"),
    {"0.35": 0.35, ".5": 0.5, "0.7/1": 0.7, "1e-1": 0.1, "One.": 1, "１": 1, "Score: one": 1}.items(),
)
def test_a_continuous_score_may_be_in_between_and_a_number_a_word_or_wide(answer, score):
    assert read_score(f"{SHAPE}# Score\n{answer}", continuous=True) == score


@pytest.mark.parametrize("answer", ["Part A: 0.5, part B: 1", "0.33 -> 0.5", "0.5 to 0.7", "75%", "3/4", "about 0.6"])
def test_a_continuous_score_in_doubt_is_none(answer):
    with pytest.raises(UnreadableAnswer):
        read_score(f"# Score\n{answer}", continuous=True)


GOOD = {"valid_score": True, "score": 1, "explanation": "it's there"}
VERDICTS = """\
{"valid_score": "true", "score": "1", "explanation": "it's there"}; {not json} GOOD; GOOD|GOOD
<think>{"score": 0}</think>GOOD; {"Valid_Score": true, "SCORE": 1.0, "Explanation": "it's there"}
Here it is:|```json|GOOD|```|I hope that helps {}."""


@pytest.mark.parametrize(
    "text", [json.dumps(GOOD, indent=4), str(GOOD), *answers(VERDICTS.replace("GOOD", json.dumps(GOOD)))]
)
def test_a_verdict_is_read_from_many_forms(text):
    verdict = read_verdict(text, continuous=False)
    assert (verdict.score, verdict.explanation) == (1, "it's there")


def test_a_verdict_may_be_in_words_and_its_escapes_are_written_safely():
    assert read_verdict("I read it so. Score: 1", continuous=False).score == 1
    text = r'{"score": 1, "explanation": "\u0000a\ud83d b\ud83d\ude00\u001b[31m c\r\n"}'
    assert read_verdict(text, continuous=False).explanation == "a\ufffd b\U0001f600 c"


NO_VERDICT = """\
null; {}; {"valid_score": false, "score": 1}; {"valid_score": null, "score": 1}; {"score": null}; {"score": true}
{"score": [1, 1]}; {"score": NaN}
{"score": Infinity}; {"score": 0.5}; {"score": "7/10"}; {"score": 1}{"score": 0}; Score: 7/10"""


@pytest.mark.parametrize("text", ["", *answers(NO_VERDICT), f'{{"score": 1{"0" * 400}}}'])
def test_a_verdict_of_no_use_is_no_score(text):
    with pytest.raises(UnreadableAnswer):
        read_verdict(text, continuous=False)


@given(
    st.text(max_size=300) | st.text(st.sampled_from("{}[]\":,.'#*/ \n0123456789scoreSCORE_validtrufalsn"), max_size=300)
)
def test_any_text_gives_an_allowed_score_or_is_of_no_use(text):
    for continuous in (False, True):
        for read in (read_score, lambda *words, **options: read_verdict(*words, **options).score):
            try:
                score = read(text, continuous=continuous)
            except UnreadableAnswer:
                continue
            assert 0 <= score <= 1
            assert continuous or score in (0, 1)


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        '{"a":',
        "# Score\n",
        "score",
        "[",
        "((((",
        "9",
        "9 ",
        "<think>",
        "score is ",
        "give a ",
        "```\n",
        "**",
        "_",
        "thus the ",
    ],
)
def test_hostile_answers_end_soon(piece):
    text = f"# Score\n{piece * 10_000}"
    for read in (read_score, read_verdict):
        with pytest.raises(UnreadableAnswer):
            read(text, continuous=False)
    assert read_ranking(text, offered("a.py")) == ()


def test_the_reason_never_quotes_the_answer():
    for text in ("# Score\nIGNORE ALL 1.0 twice, 0, 1", '{"score": "IGNORE ALL"}', '{"score": 99, "x": "IGNORE"}'):
        with pytest.raises(UnreadableAnswer) as caught:
            read_verdict(text, continuous=False)
        assert "ignore" not in str(caught.value).casefold()


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
