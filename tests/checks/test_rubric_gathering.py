"""The evidence of a competition's folders: texts of strangers, and the results of our own stages."""

import pytest
from handed_in_for_tests import PROGRAM
from submissions_for_tests import PARAMS, REPLY, write_results

from pcgeval.checks.gathering import MAX_DOCUMENT_BYTES, gather_model, gather_submission
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text


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
    readme = gather_submission(tmp_path, "team", 900).readme
    assert (readme.status, readme.text) == ("refused", "")
    assert reason in readme.reason


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
    failures = {("I", 2): ("generate", "too long"), ("T", 1): ("convert", "Width boundary is intruded.")}
    write_results(tmp_path, "small", failures=failures)
    evidence = gather_model(PARAMS, "small", "team-one", tmp_path)
    good, silent, broken, _ = evidence.trials
    stages = [(trial.name, trial.failed_stage) for trial in evidence.trials]
    assert stages == [("small I 1", None), ("small I 2", "generate"), ("small T 1", "convert"), ("small T 2", None)]
    assert (good.has_loop, good.stability, good.similarity, good.on_top) == (False, 0.5, 0.25, True)
    assert (silent.has_loop, silent.stability, silent.similarity, silent.on_top) == (None, None, None, False)
    assert (broken.reason, broken.has_loop) == ("Width boundary is intruded.", False)
    assert evidence.diversity == {"I": 0.1, "T": 0.0}
    write_results(tmp_path, "small", top=False)
    assert not any(trial.on_top for trial in gather_model(PARAMS, "small", "team-one", tmp_path).trials)
    write_text(tmp_path / "data/stability/small/team-one/trials.json", "[]")
    with pytest.raises(FileError, match=r"lacks values of .*'I', number=1"):
        gather_model(PARAMS, "small", "team-one", tmp_path)


@pytest.mark.parametrize(
    ("reply", "loop", "open_fence"),
    [
        (REPLY, False, False),
        ("```\nfor i in range(3):\n  drop_block('b11', i)\n```", True, False),
        ("```js\n  while (true) { drop_block('b11', 1) }\n```", True, False),
        ("```\n# wait for it: a comment\nbefore = 1\nformat: x\n```", False, False),
        ("```\nfor i in x:\n", True, True),
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
