"""The evidence of a competition's folders: texts of strangers, and the results of our own stages."""

import json

import pytest
from submissions_for_tests import PARAMS, REPLY, write_results

from pcgeval.checks.gathering import MAX_DOCUMENT_BYTES, gather_model, gather_submission
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.core.layout import Trial


def readme_of(folder):
    return gather_submission(folder, "team", 900).readme


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: None, "README.md is missing"),
        (lambda path: path.write_bytes(b" " * (MAX_DOCUMENT_BYTES + 1)), "larger than 1000000"),
        (lambda path: path.symlink_to("/etc/hostname"), "is a link"),
    ],
)
def test_a_document_that_cannot_be_had_says_why(tmp_path, make, reason):
    make(tmp_path / "README.md")
    assert (readme_of(tmp_path).status, readme_of(tmp_path).text) == ("refused", "")
    assert reason in readme_of(tmp_path).reason


def test_a_readme_may_be_spelt_otherwise(tmp_path):
    (tmp_path / "Readme").write_bytes("Tëam\r\n".encode())
    readme = readme_of(tmp_path)
    assert (readme.name, readme.status, readme.text) == ("Readme", "read", "Tëam\r\n")


PROGRAM = """
from llms4pcg.competition import TrialLoop, run_evaluation
class Mine(TrialLoop):
    pass
if __name__ == "__main__":
    run_evaluation("team", Mine)
"""


def test_a_program_s_prompt_is_all_that_it_can_make_prompts_of(tmp_path):
    write_text(tmp_path / "prompts" / "one.txt", "Say drop_block.")
    write_text(tmp_path / "README.md", "b31")
    write_text(tmp_path / "data.json", "b13")
    write_text(tmp_path / "main.py", "not python yet")
    assert not gather_submission(tmp_path, "team", 900).is_program
    write_text(tmp_path / "main.py", PROGRAM)
    evidence = gather_submission(tmp_path, "team", 900)
    assert evidence.is_program
    assert evidence.prompt.text == PROGRAM + "\nSay drop_block."
    write_text(tmp_path / "a.txt", "x" * (MAX_DOCUMENT_BYTES - 1))
    assert gather_submission(tmp_path, "team", 900).prompt.text == "x" * (MAX_DOCUMENT_BYTES - 1) + "\n" + PROGRAM[0]


def test_trials_carry_the_outcomes_of_the_stages(tmp_path):
    failures = {
        ("I", 2): ("generate", "used 9 tokens; the limit is 5"),
        ("T", 1): ("convert", "Width boundary is intruded."),
    }
    write_results(tmp_path, "small", failures=failures)
    evidence = gather_model(PARAMS, "small", "team-one", tmp_path)
    stages = {trial.trial: trial.failed_stage for trial in evidence.trials}
    assert stages == {Trial("I", 1): None, Trial("I", 2): "generate", Trial("T", 1): "convert", Trial("T", 2): None}
    good, silent, broken, _ = evidence.trials
    assert (good.name, good.stability, good.similarity, good.on_top) == ("small I 1", 0.5, 0.25, True)
    assert (silent.has_loop, silent.stability, silent.similarity, silent.on_top) == (None, None, None, False)
    assert (broken.reason, broken.has_loop) == ("Width boundary is intruded.", False)
    assert evidence.diversity == {"I": 0.1, "T": 0.0}
    write_results(tmp_path, "small", top=False)
    assert not any(trial.on_top for trial in gather_model(PARAMS, "small", "team-one", tmp_path).trials)


@pytest.mark.parametrize(
    ("reply", "loop", "open_fence"),
    [
        (REPLY, False, False),
        ("```\nfor i in range(3):\n  drop_block('b11', i)\n```", True, False),
        ("```js\n  while (true) { drop_block('b11', 1) }\n```", True, False),
        ("```\n# wait for it: a comment\nbefore = 1\nformat: x\n```", False, False),
        ("```\ndrop_block('b11', 9)\n", False, True),
        ("```\nfor i in x:\n", True, True),
        ("", False, False),
        ("`" * 300_000 + "for x:" * 100_000, False, False),
        ("```\n" + "for\n" * 300_000, False, True),
    ],
)
def test_what_a_reply_looks_like(tmp_path, reply, loop, open_fence):
    write_results(tmp_path, "small", replies={("I", 1): reply})
    with (tmp_path / "data/raw/small/team-one/I/team-one_I_1.txt").open("ab") as file:
        file.write(b"\xff\x00\xed\xa0\x80")
    first, *_ = gather_model(PARAMS, "small", "team-one", tmp_path).trials
    assert (first.has_loop, first.has_open_fence) == (loop, open_fence)


SIMILARITY, STABILITY = "data/similarity/small/team-one", "data/stability/small/team-one"
WITHOUT_PROBABILITIES = json.dumps(
    {"trials": [{"id": f"team-one_I_{number}.png", "label": "I", "similarity": 0.5} for number in (1, 2)]}
)


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        (f"{STABILITY}/trials.json", "[]", "lacks values of Trial(letter='I', number=1)"),
        (f"{SIMILARITY}/I.json", WITHOUT_PROBABILITIES, "lacks values of Trial"),
        ("data/diversity/small/team-one/I.json", "{}", "diversityRate"),
    ],
)
def test_results_that_are_not_what_they_should_be_are_named(tmp_path, path, content, words):
    write_results(tmp_path, "small")
    write_text(tmp_path / path, content)
    with pytest.raises(FileError) as error:
        gather_model(PARAMS, "small", "team-one", tmp_path)
    assert words in str(error.value)
    assert path.split("/")[1] in str(error.value)
