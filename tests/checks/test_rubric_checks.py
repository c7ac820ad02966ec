"""Checks on a team's submission and on its results, each from what its criterion says."""

from dataclasses import replace

import pytest

from pcgeval.checks import CHECKS, LeafCheck, known_check, paper_checks, run_check
from pcgeval.checks.evidence import Document, Evidence, ModelEvidence, TrialEvidence, Undecided
from pcgeval.formats.failures import failure
from pcgeval.formats.layout import Trial
from pcgeval.formats.trials import FLAG_KINDS, Flag, SuppliedBlocks, TrialUsage

README = Document("README.md", "read", "# My Team\n\nThe prompt shows two letters.")
PROMPT = Document("prompt.txt", "read", "Use drop_block('b11', 1) to build <OBJECT>.")
SUBMISSION = Evidence("my-team", 6, README, PROMPT)


def trial(model, letter, number, failed=None, **values):
    reply = {} if failed and failed.type.stage == "generate" else {"has_loop": False, "has_open_fence": False}
    passed = {} if failed else {"stability": 1.0, "similarity": 0.5, "on_top": True}
    values = {"usage": TrialUsage(1, 15), **reply, **passed, **values}
    return TrialEvidence(model, Trial(letter, number), failed, **values)


INVENTED = TrialUsage(2, 30, (Flag("invented-reply", "the model never said: 'a'"), Flag("invented-reply", "nor: 'b'")))
COPIED = TrialUsage(1, 15, supplied=SuppliedBlocks(3, 3, whole=True))
SMALL = ModelEvidence(
    "small",
    (
        trial("small", "I", 1),
        trial("small", "I", 2, stability=0.5, similarity=0.1, on_top=False, usage=COPIED),
        trial("small", "T", 1, failure("too-many-tokens", used=9, limit=5), usage=INVENTED),
        trial("small", "T", 2, failure("empty-response"), has_loop=True, has_open_fence=True),
    ),
    {"I": 0.2, "T": 0.0},
)
OTHERS = (
    trial("large", "I", 1, failure("code-unreadable", fault="is missing")),
    trial("large", "I", 2, failure("simulation-crashed")),
    trial("large", "T", 1, failure("level-missing"), stability=0.25),
    trial("large", "T", 2, usage=COPIED),
)
LARGE = ModelEvidence("large", OTHERS, {"I": 0.0, "T": 0.05})
RUN = replace(SUBMISSION, models=(SMALL, LARGE), no_results="")


def decide(name, evidence=RUN, /, **arguments):
    return run_check(known_check(LeafCheck(name, arguments)), evidence)


def of_trials(*trials):
    return replace(RUN, models=(ModelEvidence("small", trials, {"I": 0.0}),))


EXAMPLES = [
    ("trials_pass", {"stage": "generate"}, 7 / 8, "7 of 8 trials passed generate; first otherwise: small T 1"),
    ("trials_without", {"stage": "generate", "reason": "TOKENS"}, 7 / 8, "7 of 8 trials did not fail in"),
    ("models_pass", {"stage": "extract", "at_least": 0.6}, 1 / 2, "(small 0.50, large 1.00)"),
    ("letters_pass", {"stage": "extract"}, 3 / 4, "3 of 4 letters have a trial"),
    ("answers_without_loop", {}, 6 / 8, "6 of 8 trials have a reply without a loop"),
    ("answers_closed", {}, 6 / 8, "6 of 8"),
    ("trials_stable", {"at_least": 0.5}, 3 / 8, "3 of 8 trials have a stability of at least 0.5"),
    ("mean_stability", {}, (1 + 0.5 + 0.25 + 1) / 8, "mean stability 0.3438 over 8 trials, 4 of them with a level"),
    ("trials_on_top", {}, 2 / 8, "2 of 8 trials look most like their letter"),
    ("letters_on_top", {}, 2 / 4, "2 of 4 letters have a level"),
    ("mean_similarity", {}, (0.5 + 0.1 + 0.5) / 8, "mean similarity 0.1375 over 8 trials, 3 of them with a level"),
    ("letters_diverse", {"above": 0.1}, 1 / 4, "1 of 4"),
    ("trials_without_flag", {"kind": "invented-reply"}, 7 / 8, "small T 1 (the model never said: 'a')"),
    ("best_levels_not_supplied", {"at_most": 0.5}, 1, "1 of 2 best levels stood call for call"),
    ("best_levels_not_supplied", {"at_most": 0.4}, 0, "at most a share of 0.4 is asked for"),
    ("readme_length", {"at_least_words": 8}, 1, "README.md has 8 words; 8 are asked for"),
    ("readme_names_team", {}, 1, "README.md names the team 'my-team'"),
    ("readme_mentions", {"text": "PROMPT"}, 1, "README.md mentions 'PROMPT'"),
    ("prompt_length", {}, 1, "6 words; 1 to 6 are allowed"),
    ("prompt_characters", {}, 1, "all characters are allowed"),
    ("prompt_names_object", {}, 1, "prompt.txt has the token <OBJECT> 1 times"),
    ("prompt_mentions", {"text": "b31"}, 0, "prompt.txt does not mention 'b31'"),
]
ARGUMENTS = {name: arguments for name, arguments, *_ in EXAMPLES}
SUBMISSION_CHECKS = [name for name in ARGUMENTS if name.startswith(("readme", "prompt"))]
RESULT_CHECKS = [name for name in ARGUMENTS if name not in SUBMISSION_CHECKS]
GOOD_WITHOUT_ANY_REPLY = {"trials_without", "trials_without_flag", "best_levels_not_supplied"}


@pytest.mark.parametrize(("name", "arguments", "score", "explanation"), EXAMPLES)
def test_every_check_by_its_definition(name, arguments, score, explanation):
    result = decide(name, **arguments)
    assert result.score == pytest.approx(score)
    assert explanation in result.explanation


@pytest.mark.parametrize(
    ("name", "text", "score"),
    [
        ("prompt_length", "one two three four five six seven", 0),
        ("readme_length", "seven words and eight are asked for", 0),
        ("prompt_characters", "ärger", 0),
        ("prompt_characters", "“It’s” \u2014 fine\t[x] {y} | <z> ?\r\n", 1),
        ("prompt_names_object", "<object> < OBJECT > &lt;OBJECT&gt; OBJECT", 0),
        ("readme_names_team", "my teammates", 0),
    ],
)
def test_texts_that_qualify_or_not(name, text, score):
    evidence = replace(SUBMISSION, prompt=replace(PROMPT, text=text), readme=replace(README, text=text))
    assert decide(name, evidence, **ARGUMENTS[name]).score == score


@pytest.mark.parametrize("name", ["prompt_length", "prompt_characters", "prompt_names_object"])
def test_a_program_passes_the_rules_for_prompts(name):
    program = replace(SUBMISSION, prompt=replace(PROMPT, text="drop_block ärger " * 1000), is_program=True)
    assert decide(name, program).score == 1


def test_every_check_is_tested_here():
    assert {*ARGUMENTS} == {name for name, check in CHECKS.items() if check.__module__ != paper_checks.__name__}


@pytest.mark.parametrize("name", SUBMISSION_CHECKS)
def test_a_document_that_its_author_broke_fails_and_one_we_cannot_read_is_undecided(name):
    refused = Document("x", "refused", reason="x is missing")
    result = decide(name, replace(SUBMISSION, readme=refused, prompt=refused), **ARGUMENTS[name])
    assert (result.score, result.explanation) == (0, "x is missing")
    unreadable = Document("x", "unreadable", reason="x cannot be read")
    with pytest.raises(Undecided, match="x cannot be read"):
        decide(name, replace(SUBMISSION, readme=unreadable, prompt=unreadable), **ARGUMENTS[name])


@pytest.mark.parametrize("name", RESULT_CHECKS)
def test_a_team_whose_trials_all_failed_gets_a_zero_that_is_meant(name):
    with pytest.raises(Undecided, match="not run"):
        decide(name, SUBMISSION, **ARGUMENTS[name])
    evidence = of_trials(*(trial("small", "I", number, failure("late-call", seconds=500)) for number in (1, 2)))
    assert decide(name, evidence, **ARGUMENTS[name]).score == (1 if name in GOOD_WITHOUT_ANY_REPLY else 0)


def test_without_a_record_no_flag_is_known_and_without_a_sandbox_no_contact():
    with pytest.raises(Undecided, match="1 of 5 responses have no record"):
        decide("trials_without_flag", of_trials(*SMALL.trials, trial("small", "I", 3, usage=None)), kind=FLAG_KINDS[0])
    with pytest.raises(Undecided, match="1 of 1 responses have no record"):
        decide("best_levels_not_supplied", of_trials(trial("small", "I", 3, usage=None)), at_most=0.5)
    caught = TrialUsage(1, 15, (Flag("other-host", "tried to reach a.example"),), contained=False)
    seen = trial("small", "I", 1, usage=caught)
    unseen = trial("small", "I", 2, usage=TrialUsage(1, 15, contained=False))
    assert decide("trials_without_flag", of_trials(seen), kind="other-host").score == 0
    assert decide("trials_without_flag", of_trials(seen, unseen), kind="altered-answer").score == 1
    with pytest.raises(Undecided, match="1 of 2 trials ran without a sandbox"):
        decide("trials_without_flag", of_trials(seen, unseen), kind="other-host")


@pytest.mark.parametrize(
    ("name", "arguments", "part"),
    [
        ("trials_passed", {}, "Did you mean 'trials_pass'?"),
        ("trials_pass", {}, "'stage': Field required. It takes stage."),
        ("trials_pass", {"stage": "dance"}, "'generate', 'extract'.*found 'dance'"),
        ("mean_stability", {"at_least": 1}, "'at_least': Extra inputs.*It takes no arguments."),
        *[("readme_length", {"at_least_words": words}, "'at_least_words'") for words in (1.5, -1, True, "1", None)],
        *[("file_exists", {"path": path}, "'path'.*found")
          for path in ("", "/etc/passwd", "../x", "a/../../x", ".", "a\nb", 5, None, ["a"])],
        *[("result_value", {"path": "a", "key": "b", "at_least": bound}, "'at_least'.*found")
          for bound in ("1", None, True, float("nan"), float("inf"), float("-inf"), 1e300)],
    ],
)  # fmt: skip
def test_checks_that_are_named_wrongly(name, arguments, part):
    with pytest.raises(ValueError, match=part):
        known_check(LeafCheck(name, arguments))
