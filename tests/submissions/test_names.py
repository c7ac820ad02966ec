"""Names that every disk can store, and none that leads elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.submissions.names import collisions, left_out, name_fault


@pytest.mark.parametrize(
    "name",
    [
        "main.py",
        "prompts/zero shot.txt",
        "a.b-c_d/(1)/[2]/é.txt",
        "日本語/プロンプト.txt",
        "Screenshot 3.04.05\u202fPM.png",
        "console.py",
        "nullable/com10.txt",
        "communication",
        ".env",
    ],
)
def test_usual_names_pass(name: str):
    assert (name_fault(name), left_out(name)) == (None, None)


@pytest.mark.parametrize(
    "name",
    [
        "a\0b",
        "a\nb",
        "\x1b[31mred",
        "\u202etxt.exe",
        "zero\u200bwidth",
        "\udcff",
        "con",
        "CON.txt",
        "folder/Nul .tar.gz",
        "com1",
        "LPT9.x",
        "com¹.txt",
        "a:b",
        "what?.txt",
        "a*",
        '"a"',
        "<a>",
        "a|b",
        "end.",
        "end ",
        " start",
        "-rf",
        "a/-m.py",
        "x" * 256,
        "é" * 128,
        "a/" * 21 + "a",
        "/".join(["x" * 99] * 5),
    ],
)
def test_names_that_some_disk_cannot_store_are_told(name: str):
    assert name_fault(name) is not None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (".git/config", ".git"),
        ("a/.GIT/hooks/post-checkout", "a/.GIT"),
        ("__MACOSX/a/._main.py", "__MACOSX"),
        ("a/.DS_Store", "a/.DS_Store"),
        ("a/__pycache__/m.cpython-311.pyc", "a/__pycache__"),
        ("dvc.yaml", "dvc.yaml"),
        ("requirements-lock.txt", "requirements-lock.txt"),  # the organiser's
        ("Requirement\u017f-Lock.txt", "Requirement\u017f-Lock.txt"),  # the same to some disks: a long s
        ("data.dvc", "data.dvc"),
        (".gitattributes", ".gitattributes"),
        ("._main.py", "._main.py"),
        (".main.py.swp", ".main.py.swp"),
    ],
)
def test_what_is_no_part_of_a_submission(name: str, path: str):
    found = left_out(name)
    assert found is not None
    assert found[0] == path


@pytest.mark.parametrize(
    "names",
    [
        ["a.txt", "A.txt"],
        ["Prompts/a.txt", "prompts/b.txt"],
        ["caf\u00e9", "cafe\u0301"],
        ["stra\u00dfe", "STRASSE"],
        ["a", "a"],
        ["a", "a/b"],
        ["a/b", "a"],
        ["\u212b", "\u00e5"],  # the sign for an angstrom is the letter with a ring
    ],
)
def test_names_that_a_disk_takes_for_one_another(names: list[str]):
    assert len(list(collisions(names))) == 1


@pytest.mark.parametrize("name", ["Submission.yaml", "SUBMISSION.YAML", "\u017fubmission.yaml"])
def test_no_other_name_may_become_the_organisers_notes_on_another_disk(name: str):
    assert len(list(collisions([name]))) == 1
    assert list(collisions(["submission.yaml", f"data/{name}"])) == []


def test_different_names_do_not_collide():
    assert list(collisions(["a/b", "a/c", "a.txt", "b/a", "B2"])) == []


@given(st.text(max_size=50))
def test_any_text_gets_an_answer(name: str):
    name_fault(name)
    left_out(name)
    list(collisions([name, name.upper()]))
