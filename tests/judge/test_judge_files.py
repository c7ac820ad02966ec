"""What a judge may be shown of a submission: its files, whatever their author put there, and its log, condensed."""

import json
import os
from itertools import pairwise

import pytest
from handed_in_for_tests import write_folder
from hypothesis import given, strategies as st

from pcgeval.judge import files as module
from pcgeval.judge.files import MAX_ALIKE, MAX_HEAD, MAX_TAIL, condensed, list_files, read_file, shown_name

TOOLS = ".git .github .env .venv3 my_venv venv wandb a.egg-info __pycache__ node_modules .pcgeval"


def names(listed):
    return [file.name for file in listed.files]


def reasons(listed):
    return {refused.name: refused.reason for refused in listed.refused}


def test_documents_code_and_tables_are_listed_without_the_folders_of_tools(tmp_path):
    write_folder(tmp_path, {f"{name}/{way}a.py": "x" for name in TOOLS.split() for way in ("", "deep/er/")})
    shown = [".hidden.py", "Makefile", "README.md", "data/notes.txt", "estimate.py", "results.csv", "src/venv.py"]
    write_folder(tmp_path, dict.fromkeys([*shown, "model.bin", "a.PNG"], "x"))
    assert names(list_files(tmp_path)) == shown
    assert list_files(tmp_path / "missing").fault == "the submission cannot be read (No such file or directory)"


def test_links_pipes_and_binary_files_are_refused_with_the_reason(tmp_path):
    outside = write_folder(tmp_path / "outside", {"secret.py": "key", "sub/more.py": "key"})
    long = f"{'n' * 250}/{'m' * 60}.py"
    inside = write_folder(tmp_path / "inside", {"a.py": "1", "binary.py": b"\x7fELF\0\0", "sub/b.md": "1", long: "1"})
    for name, target in (("link.py", "secret.py"), ("dangling.md", "nowhere"), ("folder", "."), ("loop", "../inside")):
        (inside / name).symlink_to(outside / target)
    os.mkfifo(inside / "pipe.txt")
    listed = list_files(inside)
    assert names(listed) == ["a.py", "sub/b.md"]
    assert reasons(listed) == {
        "binary.py": "is binary",
        "dangling.md": "is a link, which is not followed",
        "link.py": "is a link, which is not followed",
        "pipe.txt": "is no regular file",
        f"{long[:300]}...": "has a name of more than 300 characters",
    }


def test_the_number_of_files_is_bounded_from_the_top_folder_down(tmp_path, monkeypatch):
    tables = [f"{number}.csv" for number in range(9)]  # which leave the programs their places
    write_folder(tmp_path, dict.fromkeys([*tables, "a/a/1.py", "a/2.py", "z.py", "b.py"], ""))
    monkeypatch.setattr(module, "MAX_OFFERED", 3)
    listed = list_files(tmp_path)
    assert names(listed) == [*tables[:3], "a/2.py", "b.py", "z.py"]
    assert reasons(listed) == {
        f"(more {kind})": "only the 3 nearest to the top are offered" for kind in ("programs", "tables")
    }
    monkeypatch.setattr(module, "MAX_VISITED", 2)
    assert reasons(list_files(tmp_path)) == {"(more files)": "has more than 2 entries"}


@given(st.text(st.characters(codec=None, exclude_characters="/\0"), min_size=1, max_size=40))
def test_a_name_is_shown_on_one_line_that_no_other_name_has(name):
    shown = shown_name(name)
    assert shown.isprintable()
    assert "<" not in shown
    assert shown == name or (shown.startswith('"') and json.loads(shown) == name)


CUT = f"x{'ä' * (MAX_HEAD // 2 - 1)}\n[... 124289 bytes left out ...]\n{'ä' * (MAX_TAIL // 2)}"  # between characters
NOTEBOOK = '{"cells": [{"source": ["a = 1\\n", "b"]}, {"source": "c", "outputs": [{"png": "AAAA"}]}]}'


@pytest.mark.parametrize(
    ("name", "content", "text", "note"),
    [
        ("a.txt", b"caf\xe9 \x9b", "café ", "is not UTF-8, and is read as Latin-1"),
        ("a.txt", b"\xef\xbb\xbfx", "x", ""),
        ("a.txt", "äöü".encode("utf-16"), "äöü", ""),
        ("a.txt", b"a\r\nb\rc\x1b[31mred\x1b[0m\x08\x00", "a\nb\ncred", ""),
        ("a.txt", b"x" + "ä".encode() * 2**18, CUT, "124289 bytes in the middle left out"),
        ("a.ipynb", NOTEBOOK.encode(), "a = 1\nb\n\nc", ""),
        ("a.ipynb", NOTEBOOK.replace("{", '{"picture": "' + "x" * 500_000 + '", ', 1).encode(), "a = 1\nb\n\nc", ""),
        ("a.ipynb", b'{"cells": 5}', '{"cells": 5}', ""),
        ("a.ipynb", b"[" * 100_000, "[" * 100_000, ""),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_files_text(tmp_path, name, content, text, note):
    (tmp_path / name).write_bytes(content)
    assert (read_file(tmp_path / name).text, read_file(tmp_path / name).note) == (text, note)


def test_a_file_that_goes_or_turns_into_a_link_is_not_read(tmp_path):
    (tmp_path / "link.md").symlink_to(__file__)
    os.mkfifo(tmp_path / "pipe.md")
    for name, note in (("link.md", "link"), ("pipe.md", "not a regular file"), ("gone.md", "is missing")):
        assert read_file(tmp_path / name).text == ""
        assert note in read_file(tmp_path / name).note


BARS = "".join(f" 50%|## | 5/10\n100%|####| 10/10 [loss={epoch}]\n" for epoch in range(3))
WARNINGS = "a\n" + "".join(f"12:00:{second:02} warning\n" for second in range(40)) + "b\n\n\n\nc"
STAMPED = """\
2024-05-01 12:00:00,123 loss 0.5; 2024/05/01 12:00:00 loss 0.5; [2024-05-01T12:00:00.123Z] loss 0.5; loss 0.5\r
2024-05-01T12:00:00+02:00 - loss 0.5; 12:00:00 | loss 0.5; \x1b[32m12:00:00\x1b[0m loss 0.5; loss 0.9\rloss 0.5"""
PROGRESS = """\
{n}%|####      | {n}/100 [00:01<00:02, 4.3it/s]; train:  {n}%|██▌   | {n}/1.2k [00:01<00:02, loss=0.5]
{n}/99 [====>.......] - ETA: 3s; ━━━━━━╸ {n}/99 MB"""
RESULTS = """\
3:10 is the ratio; accuracy 93.5% (n=200); | 93% | 95% |; |---|---|; 1/3 of [all]; 2024-05-01 is a date"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        *((line, "loss 0.5") for line in STAMPED.replace("\n", "; ").split("; ")),
        *((f"{line}\n{line}x", f"{line}\n{line}x") for line in RESULTS.split("; ")),
        *(
            ("".join(f"{line}\n".format(n=n) for n in range(10, 90)) + "end", f"{line}\nend".format(n=89))
            for line in PROGRESS.replace("\n", "; ").split("; ")
        ),
        (BARS, "\n".join(f"100%|####| 10/10 [loss={epoch}]" for epoch in range(3)) + "\n"),
        (WARNINGS, "a\nwarning\n[the line above 40 times]\nb\n\nc"),
        ("<" + "x" * 5000 + ">", f"<{'x' * 999} [... 3002 characters left out ...] {'x' * 999}>"),
        ("\ud800\x00\n", "\ud800\n"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_log_loses_times_colours_progress_and_repeats_and_nothing_else(log, expected):
    assert condensed(log) == expected


@pytest.mark.parametrize("piece", ["9%|", "[", "1:", "12:00:00", "9/9 [===", "\r", "\n", "\x1b["])
def test_hostile_logs_end_soon(piece):
    assert len(condensed(piece * (2_000_000 // len(piece)))) <= 5000  # a backtracking pattern would take hours


def test_epochs_are_thinned_evenly_so_that_their_curve_stays():
    epochs = [f"epoch {number}: loss {1 / (1 + number):.4f}, lr 1e-3" for number in range(1500)]
    validation = [f"validation accuracy {number / 1500:.3f}" for number in range(1500)]
    log = ["start", *(line for pair in zip(epochs, validation, strict=True) for line in pair), "Test accuracy: 0.93"]
    lines = condensed("\n".join(log)).split("\n")
    shown = [epochs.index(line) for line in lines if line in epochs]
    assert (shown[0], shown[-1], len(shown)) == (0, 1499, MAX_ALIKE)
    assert {later - earlier for earlier, later in pairwise(shown)} <= {30, 31}
    assert (lines[0], lines[-1]) == ("start", "Test accuracy: 0.93")
    few = "\n".join(epochs[:MAX_ALIKE])
    assert condensed(few) == few
