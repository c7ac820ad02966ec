"""Hashes from their definition, listings of odd folders, and the search for the file that differs."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.audit.history import compare
from pcgeval.audit.lineage import Owner, owner_of
from pcgeval.audit.workspace import FileHash, Workspace, folder_md5, hash_file, overlap, printable

NAMES = st.text(st.characters(exclude_characters="/\0"), min_size=1)
TREES = st.dictionaries(NAMES, st.sampled_from(["a" * 32, "b" * 32]))


def plain_walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    for place, folders, files in os.walk(folder):
        yield Path(place), folders, files


@given(TREES)
def test_a_folder_s_hash_is_that_of_its_sorted_list(tree: dict[str, str]) -> None:
    entries = [f'{{"md5": "{tree[name]}", "relpath": {json.dumps(name)}}}' for name in sorted(tree)]
    text = f"[{', '.join(entries)}]"
    assert folder_md5(tree) == hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest() + ".dir"


@given(TREES, TREES)
def test_a_difference_names_exactly_what_differs(before: dict[str, str], now: dict[str, str]) -> None:
    found = compare(before, now)
    names = before.keys() | now.keys()
    assert sorted(found.changed + found.missing + found.added) == sorted(
        name for name in names if before.get(name) != now.get(name)
    )
    assert all(name not in now for name in found.missing)
    assert all(name not in before for name in found.added)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_a_file_is_hashed_in_blocks(tmp_path: Path, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    (tmp_path / "file").write_bytes(content)
    assert hash_file(tmp_path / "file", "file") == FileHash(
        "file", hashlib.md5(content, usedforsecurity=False).hexdigest(), hashlib.sha256(content).hexdigest()
    )


def test_the_order_on_disk_does_not_matter(tmp_path: Path) -> None:
    for name in ("b", "a/c", "a.b", "a/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def backwards(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
        for place, folders, files in plain_walk(folder):
            folders.sort(reverse=True)
            yield place, folders, sorted(files, reverse=True)

    listings = [Workspace(tmp_path, walk).listing("a") for walk in (plain_walk, backwards)]
    assert listings[0] == listings[1]
    assert list(listings[0].by_name()) == ["b", "c"]


def test_a_path_through_a_file_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not Workspace(tmp_path, plain_walk).listing("file/below").exists


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("data/raw/m1/aa", Owner("m1", "aa")),
        ("data/similarity/m1/aa/I.json", Owner("m1", "aa")),
        ("data/levels/m1", Owner("m1")),
        ("data/levels", Owner()),
        ("data/recordings/m1/aa/calls.jsonl", Owner("m1", "aa")),
        ("data/recordings/judge/aa/calls.jsonl", Owner(team="aa")),
        ("data/recordings", Owner()),
        ("data/judgements/aa", Owner(team="aa")),
        ("data/submissions/aa/prompt.txt", Owner(team="aa")),
        ("data/grades/aa", Owner(team="aa")),
        ("data/evidence/aa/m1.json", Owner("m1", "aa")),
        ("data/evidence/aa", Owner(team="aa")),
        ("results/official/m1/constants.json", Owner("m1")),
        ("results/ranking.json", Owner()),
        ("src/pcgeval/levels/grid.py", Owner()),
    ],
)
def test_whose_a_path_is(path: str, owner: Owner) -> None:
    assert owner_of(path) == owner


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("a", "a", True), ("a/b", "a", True), ("a", "a/b", True), ("a/b", "a/c", False), ("ab", "a", False)],
)
def test_overlap(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected


@given(st.text(st.characters(codec=None)))
def test_printable_text_can_be_printed_and_told_apart(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")
    if "\\" not in text and text.isprintable():
        assert shown == text
