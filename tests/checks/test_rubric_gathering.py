"""The evidence of a competition's folders: texts of strangers, and the results of our own stages."""

import shutil

import pytest
from evaluated_round import PARAMS, TOWER, write_round
from handed_in_for_tests import PROGRAM

from pcgeval.checks.evidence import MAX_DOCUMENT_BYTES, gather_model, gather_submission
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


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """An evaluated round; tests change only the responses of the baseline with the small model."""
    root = tmp_path_factory.mktemp("round")
    write_round(root)
    return root


def test_trials_carry_the_outcomes_of_the_stages(evaluated, tmp_path):
    small, large = (gather_model(PARAMS, *names, evaluated) for names in (("small", "cheats"), ("large", "builders")))
    good, wide, _, silent = small.trials
    assert [(trial.name, trial.failed_stage, trial.has_loop) for trial in small.trials] == [
        ("small I 1", None, False),
        ("small I 2", "convert", False),
        ("small T 1", "extract", False),
        ("small T 2", "generate", None),
    ]
    assert (good.stability, good.similarity < 0.01) == (0.25, True)
    assert "Width boundary is intruded." in wide.failure.sentence
    assert (silent.stability, silent.similarity, silent.on_top) == (None, None, False)
    stable = [(trial.stability, trial.on_top) for trial in large.trials]
    assert stable == [(1.0, True), (0.25, False), (1.0, False), (0.25, False)]
    assert (small.diversity, large.diversity["I"] > 0.9) == ({"I": 0, "T": 0}, True)
    root = shutil.copytree(evaluated, tmp_path / "round")
    write_text(root / "data/stability/small/cheats/trials.json", "[]")
    with pytest.raises(FileError, match=r"lacks values of .*'I', number=1"):
        gather_model(PARAMS, "small", "cheats", root)


@pytest.mark.parametrize(
    ("reply", "loop", "open_fence"),
    [
        (TOWER, False, False),
        ("```\nfor i in range(3):\n  drop_block('b11', i)\n```", True, False),
        ("```js\n  while (true) { drop_block('b11', 1) }\n```", True, False),
        ("```\n# wait for it: a comment\nbefore = 1\nformat: x\n```", False, False),
        ("```\nfor i in x:\n", True, True),
        ("`" * 300_000 + "for x:" * 100_000, False, False),
        ("```\n" + "for\n" * 300_000, False, True),
    ],
)
def test_what_a_reply_looks_like(evaluated, reply, loop, open_fence):
    response = evaluated / "data/raw/small/zero-shot/I/zero-shot_I_1.txt"
    response.write_bytes(reply.encode() + b"\xff\x00\xed\xa0\x80")
    first, *_ = gather_model(PARAMS, "small", "zero-shot", evaluated).trials
    assert (first.has_loop, first.has_open_fence) == (loop, open_fence)
