"""Reading submissions: good ones, and everything that can be wrong with one."""

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest
from handed_in_for_tests import PROGRAM
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.errors import FileError
from pcgeval.submissions.load import (
    MAX_NOTES_BYTES,
    Notes,
    Program,
    Prompt,
    SubmissionError,
    load_submission,
    prompt_findings,
    submission_sha256,
)

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
    assert (submission.team, submission.title, submission.notes) == ("alpha", "alpha", Notes())
    assert isinstance(submission.work, Prompt)
    assert submission.work.for_letter("Q") == "Draw Q, please.\n"
    assert submission.prompt_length == len("Draw <OBJECT>, please.\n")


def test_the_organiser_notes_role_and_disqualification(folder: Path):
    (folder / "submission.yaml").write_text("title: Alpha Team\nrole: baseline\ndisqualified: copied another prompt\n")
    submission = load_submission(folder)
    notes = Notes(title="Alpha Team", role="baseline", disqualified="copied another prompt")
    assert (submission.title, submission.notes) == ("Alpha Team", notes)


def test_the_hash_of_a_submission_covers_what_was_handed_in(folder: Path):
    (folder / "z").mkdir()
    (folder / "z" / "é.txt").write_text("é")
    files = [["prompt.txt", b"Draw <OBJECT>, please.\n"], ["z/é.txt", "é".encode()]]
    listed = json.dumps([[name, sha256(content).hexdigest()] for name, content in files], ensure_ascii=False)
    assert submission_sha256(folder) == sha256(listed.replace(", ", ",").encode()).hexdigest()
    with pytest.raises(FileError, match="nobody"):
        submission_sha256(folder / "nobody")


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("submission.yaml", False),
        ("requirements-lock.txt", False),
        ("__pycache__/main.cpython-311.pyc", False),
        ("z/a.pyc", False),
        (".gitignore", False),
        ("a.link", False),
        ("prompt.txt", True),
        ("README.md", True),
        ("z/submission.yaml", True),
        ("z/requirements-lock.txt", True),
    ],
)
def test_files_that_the_hash_of_a_submission_covers(folder: Path, name: str, counts: bool):
    before = submission_sha256(folder)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".link":
        path.symlink_to("prompt.txt")
    else:
        path.write_text("title: Alpha\n")
    assert (submission_sha256(folder) != before) == counts


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("prompt.txt", None, "neither prompt.txt nor a program"),
        ("prompt.txt", b"  \n", "is empty"),
        ("prompt.txt", b"\xff<OBJECT>", "not UTF-8"),
        ("prompt.txt", b"x" * 1_000_001, "larger than 1000000"),
        ("submission.yaml", b"role: referee", "role"),
        ("submission.yaml", b"rol: baseline", "Known keys"),
        ("submission.yaml", b"a: [", "submission.yaml"),
        ("submission.yaml", b"\xff", "not UTF-8"),
        ("submission.yaml", b"a: &a [x, x]\nb: &b [*a, *a]\ntitle: [*b, *b]", "alias"),
        ("submission.yaml", b"title: " + b"[" * 5000, "submission.yaml: "),
        ("submission.yaml", b"title: " + b"x" * MAX_NOTES_BYTES, "larger than 16384"),
        ("submission.yaml", b"title: 2001-99-99", "submission.yaml: "),
        ("submission.yaml", b"title: !!bool x", "not what its tag"),
        ("submission.yaml", b"title: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("submission.yaml", b"[1, 2]", "Known keys"),
        ("submission.yaml", b"0", "Known keys"),
        ("submission.yaml", b"kind: poem", "kind: Input should be 'prompt' or 'program'"),
        ("submission.yaml", b"title: 9" + b"9" * 5000, "digits"),
    ],
)
def test_faults_are_named(folder: Path, name: str, content: bytes | None, words: str):
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(SubmissionError, match=words):
        load_submission(folder)


def program(folder: Path, name: str = "main.py", notes: str = "") -> Program:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(PROGRAM)
    (folder / "submission.yaml").write_text(notes)
    submission = load_submission(folder)
    assert isinstance(submission.work, Program)
    assert submission.prompt_length is None
    return submission.work


def test_a_program_may_have_a_file_prompt_txt(folder: Path):
    assert program(folder) == Program(folder, "main.py")
    assert program(folder, notes="kind: program") == Program(folder, "main.py")
    (folder / "submission.yaml").write_text("kind: prompt")
    assert load_submission(folder).work == Prompt("Draw <OBJECT>, please.\n")


def test_python_beside_a_prompt_does_not_make_a_program(folder: Path):
    (folder / "count_words.py").write_text("if __name__ == '__main__':\n    print(len(open('prompt.txt').read()))\n")
    assert isinstance(load_submission(folder).work, Prompt)
    (folder / "submission.yaml").write_text("kind: program")
    with pytest.raises(SubmissionError, match="holds no program"):
        load_submission(folder)


def test_the_notes_name_the_entry(folder: Path):
    program(folder, "other.py")
    assert program(folder, "src/main.py", "entry: ./src/main.py").entry == "src/main.py"


def test_several_entries_are_listed(folder: Path):
    for number in range(12):
        (folder / f"m{number:02}.py").write_text(PROGRAM if number else "TrialLoop = = 1")
    words = r"m00.py:1 is not valid Python.*, m01.py, .* and 2 more.*`entry: m00.py`"
    with pytest.raises(SubmissionError, match=words + r". Or write `kind: prompt` .*prompt.txt"):
        load_submission(folder)
    (folder / "prompt.txt").unlink()
    with pytest.raises(SubmissionError, match=words + r"\.$"):
        load_submission(folder)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("missing.py", "is missing"),
        ("folder.py", "not a regular file"),
        ("link.py", "is a link"),
        ("linked/main.py", "is a link"),
        ("../alpha/main.py", "not the name of a .py file"),
        ("/etc/main.py", "not the name of a .py file"),
        ("src\\main.py", "not the name of a .py file"),
        ("prompt.txt", "not the name of a .py file"),
        ("-c.py", "not the name of a .py file"),
        (None, r"'-c\.py' is not the name"),  # it would be an option of python
        ("a\0.py", "is missing"),
        ("\ud800.py", "submission.yaml"),
        ("x" * 300 + ".py", "cannot be read"),
        ("x" * 500 + ".py", "at most 400"),
    ],
)
def test_odd_entries_are_refused(folder: Path, entry: str | None, words: str):
    (folder / "folder.py").mkdir()
    (folder / "real").mkdir()
    (folder / "real" / "main.py").write_text("")
    (folder / "linked").symlink_to("real")
    (folder / "link.py").symlink_to("real/main.py")
    (folder / "-c.py").write_text(PROGRAM)
    if entry is not None:
        (folder / "submission.yaml").write_text(f"entry: {json.dumps(entry)}\n")
    with pytest.raises(SubmissionError, match=words):
        load_submission(folder)


@pytest.mark.parametrize("name", ["submission.yaml", "prompt.txt"])
def test_a_pipe_is_not_waited_for(folder: Path, name: str):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(SubmissionError, match="not a regular file"):
        load_submission(folder)


def test_a_missing_folder_and_a_link_are_refused(folder: Path, tmp_path: Path):
    with pytest.raises(SubmissionError, match="no submission"):
        load_submission(tmp_path / "beta")
    (folder / "prompt.txt").unlink()
    (folder / "prompt.txt").symlink_to("/etc/hostname")
    with pytest.raises(SubmissionError, match="is a link"):
        load_submission(folder)


@given(st.text(max_size=60))
def test_allowed_characters_are_those_of_the_rules(text: str):
    strange = {character for character in text if character not in ALLOWED and not character.isspace()}
    findings = prompt_findings("<OBJECT> " + text, words=10_000)
    assert bool(strange) == any("do not allow" in finding for finding in findings.values())
