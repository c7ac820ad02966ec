"""Reading submissions: good ones, and everything that can be wrong with one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.competition.submissions import SubmissionError, load_submission, prompt_findings

ALLOWED = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    " ~/\\+,-*'\"`.!@#$%^&()_=[]{}|<>:;?\u2018\u2019\u201c\u201d\u2014\n\t"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    team = tmp_path / "alpha"
    team.mkdir()
    (team / "prompt.txt").write_text("Draw <OBJECT>, please.\n")
    return team


def test_a_prompt_alone_is_enough(folder: Path):
    submission = load_submission(folder)
    assert (submission.team, submission.title, submission.role, submission.disqualified) == (
        "alpha",
        "alpha",
        "participant",
        None,
    )
    assert submission.prompt_for("Q") == "Draw Q, please.\n"
    assert submission.prompt_length == len("Draw <OBJECT>, please.\n")


def test_the_organiser_notes_role_and_disqualification(folder: Path):
    (folder / "submission.yaml").write_text("title: Alpha Team\nrole: baseline\ndisqualified: copied another prompt\n")
    submission = load_submission(folder)
    assert (submission.title, submission.role, submission.disqualified) == (
        "Alpha Team",
        "baseline",
        "copied another prompt",
    )


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("prompt.txt", None, "prompt.txt: cannot be read"),
        ("prompt.txt", b"  \n", "is empty"),
        ("prompt.txt", b"\xff<OBJECT>", "not UTF-8"),
        ("prompt.txt", b"x" * 1_000_001, "over 1000000 bytes"),
        ("submission.yaml", b"role: referee", "role"),
        ("submission.yaml", b"rol: baseline", "Known keys"),
        ("submission.yaml", b"a: [", "submission.yaml"),
        ("submission.yaml", b"\xff", "not UTF-8"),
    ],
)
def test_faults_are_named(folder: Path, name: str, content: bytes | None, words: str):
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(SubmissionError, match=words):
        load_submission(folder)


def test_a_missing_folder_and_a_link_are_refused(folder: Path, tmp_path: Path):
    with pytest.raises(SubmissionError, match="no submission"):
        load_submission(tmp_path / "beta")
    (folder / "prompt.txt").unlink()
    (folder / "prompt.txt").symlink_to("/etc/hostname")
    with pytest.raises(SubmissionError, match="is a link"):
        load_submission(folder)


def test_qualification_rules():
    assert prompt_findings("one two <OBJECT>", words=3) == []
    assert "4 words; 3 are allowed" in prompt_findings("one two three <OBJECT>", words=3)[0]
    assert "lacks the token" in prompt_findings("a prompt", words=3)[0]
    assert "U+00E9" in prompt_findings("caf\u00e9 <OBJECT>", words=3)[0]


@given(st.text(max_size=60))
def test_allowed_characters_are_those_of_the_rules(text: str):
    strange = {character for character in text if character not in ALLOWED and not character.isspace()}
    findings = prompt_findings("<OBJECT> " + text, words=10_000)
    assert bool(strange) == any("do not allow" in finding for finding in findings)
