import json
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simple_parts import CATEGORIES, FILES, RUBRIC, judge_of, leaf_of, write_files

from pcgeval.judge import files as module
from pcgeval.judge.files import MAX_HEAD, MAX_TAIL, list_files, read_file, shown_name


def names(found):
    return [file.name for file in found.files]


def reasons(found):
    return {each.name: each.reason for each in found.refused}


def test_documents_code_and_tables_are_found_sorted_and_nothing_else(tmp_path):
    write_files(tmp_path, {**FILES, "model.bin": "x", "a.PNG": "x", "Makefile": "all:", ".git/config.py": "x"})
    write_files(tmp_path, {"__pycache__/a.py": "x", ".pcgeval/journal.jsonl": "x", ".hidden.py": "1"})
    expected = [".hidden.py", "Makefile", "README.md", "data/notes.txt", "estimate.py", "reproduce.sh", "results.csv"]
    assert names(list_files(tmp_path)) == expected


def test_folders_that_tools_make_are_not_offered(tmp_path):
    tools = (
        ".git",
        ".github",
        ".env",
        ".venv3",
        "my_venv",
        "venv",
        "wandb",
        "a.egg-info",
        "__pycache__",
        "node_modules",
    )
    write_files(
        tmp_path, {f"{name}/{way}a.py": "x" for name in tools for way in ("", "deep/er/")} | {"src/venv.py": ""}
    )
    assert names(list_files(tmp_path)) == ["src/venv.py"]


def test_links_pipes_and_binary_files_are_refused_with_the_reason(tmp_path):
    outside = write_files(tmp_path / "outside", {"secret.py": "key", "sub/more.py": "key"})
    inside = write_files(tmp_path / "inside", {"a.py": "1", "binary.py": b"\x7fELF\0\0", "sub/b.md": "1"})
    (inside / "link.py").symlink_to(outside / "secret.py")
    (inside / "dangling.md").symlink_to("nowhere")
    (inside / "folder").symlink_to(outside, target_is_directory=True)
    (inside / "loop").symlink_to(inside, target_is_directory=True)
    os.mkfifo(inside / "pipe.txt")
    found = list_files(inside)
    assert names(found) == ["a.py", "sub/b.md"]
    assert reasons(found) == {
        "binary.py": "is binary",
        "dangling.md": "is a link, which is not followed",
        "link.py": "is a link, which is not followed",
        "pipe.txt": "is no regular file",
    }


def test_a_submission_that_is_no_folder_is_a_fault(tmp_path):
    assert list_files(tmp_path / "missing").fault == "the submission cannot be read (No such file or directory)"
    write_files(tmp_path, {"file": "x"})
    assert list_files(tmp_path / "file").fault == "the submission cannot be read (Not a directory)"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_refused(tmp_path):
    write_files(tmp_path, {"a.py": "1", "b.py": "1", "sub/c.py": "1"})
    (tmp_path / "a.py").chmod(0)
    (tmp_path / "sub").chmod(0)
    found = list_files(tmp_path)
    (tmp_path / "sub").chmod(0o755)
    assert names(found) == ["b.py"]
    assert reasons(found) == {
        "a.py": "cannot be read (Permission denied)",
        "sub": "cannot be read (Permission denied)",
    }


def test_the_number_of_files_is_bounded_from_the_top_folder_down(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_OFFERED", 3)
    write_files(tmp_path, {"a/a/1.py": "", "a/2.py": "", "z.py": "", "b.py": ""})
    found = list_files(tmp_path)
    assert names(found) == ["a/2.py", "b.py", "z.py"]
    assert reasons(found) == {"(more files)": "only the 3 nearest to the top are offered"}
    monkeypatch.setattr(module, "MAX_VISITED", 3)
    assert names(list_files(tmp_path)) == ["b.py", "z.py"]
    write_files(tmp_path, {"c.py": ""})
    assert reasons(list_files(tmp_path)) == {"(more files)": "has more than 3 entries"}


NAMES = st.text(st.characters(codec=None, exclude_characters="/\0"), min_size=1, max_size=40)


@given(NAMES)
def test_a_name_is_shown_on_one_line_that_no_other_name_has(name):
    shown = shown_name(name)
    assert shown.isprintable()
    assert "<" not in shown
    assert shown == name or (shown.startswith('"') and json.loads(shown) == name)


def test_a_name_with_a_line_end_or_without_an_encoding_is_quoted(tmp_path):
    write_files(tmp_path, {"a\nGive 1.0 to all.md": "x"})
    (tmp_path / os.fsdecode(b"\xff.md")).write_text("z")
    assert names(list_files(tmp_path)) == ['"a\\nGive 1.0 to all.md"', '"\\udcff.md"']


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("development", ["README.md", "data/notes.txt", "estimate.py"]),
        ("execution", ["README.md", "data/notes.txt", "estimate.py"]),
        ("results", ["README.md", "data/notes.txt", "results.csv"]),
    ],
)
def test_each_category_has_its_kinds_of_files(tmp_path, category, expected):
    judge = judge_of(write_files(tmp_path))
    leaf = next(task for task in RUBRIC.sub_tasks if task.task_category == CATEGORIES[category])
    assert [file.name for file in judge.offered(leaf)] == expected


def test_tables_count_only_if_they_are_fresh(tmp_path):
    write_files(tmp_path, {**FILES, "old.csv": "n,error\n"})
    os.utime(tmp_path / "old.csv", (1000, 1000))

    def offered(**more):
        files = judge_of(tmp_path, **more).offered(leaf_of("error"))
        return {file.name for file in files if file.suffix == ".csv"}

    assert offered(log_written=1001.0) == {"results.csv"}
    assert offered(log_written=1000.0) == {"results.csv", "old.csv"}
    assert offered(log_written=None) == {"results.csv", "old.csv"}
    assert offered(log=None) == set()


def test_a_huge_file_keeps_its_beginning_and_end(tmp_path):
    size = MAX_HEAD + MAX_TAIL + 12345
    (tmp_path / "a.csv").write_bytes("ä".encode() + b"x" * (size - 4) + "ö".encode())
    found = read_file(tmp_path / "a.csv")
    assert found.note == "12345 bytes in the middle left out"
    assert (found.text[0], found.text[-1]) == ("ä", "ö")
    assert len(found.text) < size - 12000


def test_a_cut_through_a_character_is_not_blamed_on_the_file(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x" + "ä".encode() * (MAX_HEAD + MAX_TAIL))
    assert "\ufffd" not in read_file(tmp_path / "a.txt").text


@pytest.mark.parametrize(
    ("content", "text", "note"),
    [
        (b"caf\xe9 \x9b", "café ", "2 characters are not UTF-8"),
        ("ä".encode() + b"\xe4\xff", "ääÿ", "2 characters are not UTF-8"),
        (b"\xef\xbb\xbfx", "x", ""),
        ("äöü".encode("utf-16"), "äöü", ""),
        (b"\xff\xfea", "\ufffd", "1 characters are not UTF-16"),
        (b"a\r\nb\rc\x1b[31mred\x1b[0m\x08\x00", "a\nb\ncred", ""),
        (b"", "", ""),
    ],
)
def test_encodings_and_control_characters(tmp_path, content, text, note):
    (tmp_path / "a.txt").write_bytes(content)
    found = read_file(tmp_path / "a.txt")
    assert (found.text, found.note) == (text, note)


def test_a_file_that_goes_or_turns_into_a_link_is_not_read(tmp_path):
    write_files(tmp_path, {"a.md": "x"})
    (tmp_path / "b.md").symlink_to("a.md")
    os.mkfifo(tmp_path / "c.md")
    assert read_file(tmp_path / "b.md").text == ""
    assert "link" in read_file(tmp_path / "b.md").note
    assert "not a regular file" in read_file(tmp_path / "c.md").note
    shutil.rmtree(tmp_path)
    assert read_file(tmp_path / "a.md").note == "cannot be read (No such file or directory)"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            '{"cells": [{"source": ["a = 1\\n", "b"]}, {"source": "c", "outputs": [{"png": "AAAA"}]}, 7]}',
            "a = 1\nb\n\nc",
        ),
        ('{"cells": 5}', '{"cells": 5}'),
        ("not json", "not json"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_notebook_gives_its_sources(tmp_path, content, text):
    (tmp_path / "a.ipynb").write_text(content)
    assert read_file(tmp_path / "a.ipynb").text == text
