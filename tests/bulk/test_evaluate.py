"""Many responses in, the table of levels out: its values, faulty rows, and a run that was killed."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
from string import ascii_uppercase

import pyarrow as pa
import pytest
import yaml
from params_for_tests import contents
from pyarrow import parquet

from pcgeval import Classifier, PcgevalError, PhysicsParams, Similarity, evaluate, score_level
from pcgeval.cli.main import main

FAST = PhysicsParams(trials=1, seconds=0.2)
MAX_TEXT = 16 * 2**20


def response(*columns):
    return "```\n" + "".join(f"drop_block('b11', {column})\n" for column in columns) + "```"


ROWS = [
    {"id": "a", "letter": "I", "text": response(1, 1)},
    {"id": "b", "letter": "L", "text": response(5, 5)},  # the level of a: it is moved to the left edge
    {"id": 3, "letter": "L", "text": "no code"},
    {"id": "d", "letter": "O", "text": response(1, 20)},
    {"id": "e", "letter": "T", "text": response(2, 3, 4), "more": [1]},
    {"id": "f", "letter": "T", "text": response(2, 4)},
    {"id": "g", "letter": "U", "text": response(2, 5)},
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table_of(folder):
    return parquet.read_table(folder / "data").to_pylist()


def run(source, out, **options):
    return evaluate([source], out, **{"classify": False, "physics": FAST, "processes": 1, **options})


def files(folder):
    """Return the files of a dataset, without the lock."""
    return {name: content for name, content in contents(folder).items() if not name.startswith(".")}


def test_the_rows_of_the_input_become_a_dataset_that_hugging_face_loads_offline(tmp_path, monkeypatch):
    out = tmp_path / "out"
    summary = run(write_lines(tmp_path / "in.jsonl", ROWS), out, rows_per_part=3).model_dump()
    assert summary == {"rows": 7, "failed": {"convert": 1, "extract": 1}, "parts": 3}
    rows = table_of(out)
    assert [row["id"] for row in rows] == ["a", "b", "3", "d", "e", "f", "g"]
    assert [row["failed_stage"] for row in rows] == [None, None, "extract", "convert", None, None, None]
    assert (rows[0]["blocks"], rows[0]["moved"], rows[0]["stability"]) == (2, 0, 1.0)
    assert rows[2]["stability"] is rows[0]["similarity"] is rows[0]["classifier"] is rows[0]["p_A"] is None
    assert len({row["engine"] for row in rows if row["stability"] is not None}) == 1
    _, front_matter, text = (out / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front_matter)["configs"] == [{"config_name": "default", "data_files": "data/*.parquet"}]
    outcome = json.loads(text.partition("```json\n")[2].partition("```")[0])
    assert outcome.pop("settings")["rows_per_part"] == 3
    assert outcome == summary
    columns = parquet.read_schema(out / "data" / "part-00000.parquet").names
    assert [name for name in columns if not re.fullmatch("p_[B-Y]", name) and f"`{name}`" not in text] == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    assert datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache")).to_list() == rows


def test_the_figures_are_those_of_score_level(tmp_path):
    classifier = Classifier.load("data/classifier")
    source = write_lines(tmp_path / "in.jsonl", ROWS)
    run(source, tmp_path / "out", classify=True, similarity=Similarity(model="data/classifier"), embeddings=True)
    for given, row in zip(ROWS, table_of(tmp_path / "out"), strict=True):
        level = score_level(given["text"], given["letter"], classifier, FAST, read_as="response")
        assert (row["stability"] or 0, row["similarity"] or 0) == (level.stability, level.similarity)
        assert (row["failed_stage"], row["reason"], row["score"]) == (level.failed_stage, level.reason, level.score)
        if level.probabilities:
            probabilities = [round(row[f"p_{letter}"], 7) for letter in ascii_uppercase]
            assert probabilities == list(level.probabilities.values())
            assert row["likeliest"] == level.likeliest[0][0]
            assert row["embedding"]
            assert row["classifier"] == classifier.sha256


FAULTY = [
    (b"{", "line 1: is not JSON"),
    (b"[1]", "is not a JSON object"),
    (b'{"id": "a", "text": ""}', "lacks letter"),
    ('{"id": "b", "letter": "é", "text": ""}'.encode(), "letter is 'é', none of A to Z"),
    (b'{"id": "d", "letter": "A", "text": null}', "text is null"),
    (b'{"id": true, "letter": "A", "text": ""}', "id is of type bool"),
    (b'{"id": "f\\ud800", "letter": "A", "text": "\\ud800"}', "no code"),
    (b"\xff", "is not UTF-8"),
    (b'{"id": "g", "letter": "A", "text": "' + MAX_TEXT * b"x" + b'"}', f"longer than {MAX_TEXT}"),
    (b"[" * 100_000, "is not JSON"),
    (b'{"id": "h", "letter": "A", "text": "last"}', "no code"),
]


def test_faulty_rows_have_their_line_in_the_table(tmp_path, capsys):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"\n".join(line for line, _ in FAULTY))
    assert main(["evaluate", str(source), "--out", str(tmp_path / "out"), "--no-classifier", "--processes", "1"]) == 1
    rows = table_of(tmp_path / "out")
    for (_, words), row in zip(FAULTY, rows, strict=True):
        assert words in row["reason"]
    assert [row["id"] for row in rows][2:6] == ["a", "b", "d", None]
    assert [row["score"] for row in rows] == [None if row["failed_stage"] == "input" else 0 for row in rows]
    assert rows[6]["id"] == "f\ufffd"
    errors = capsys.readouterr().err
    assert "levels: 11/11" in errors
    assert "9 in input" in errors


def test_parquet_files_and_folders_are_read(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    texts, letters = [row["text"] for row in ROWS], [row["letter"] for row in ROWS]
    parquet.write_table(pa.table({"letter": letters, "n": texts, "text": texts, "id": range(7)}), folder / "a.parquet")
    write_lines(
        folder / "b.jsonl", [{"id": "x", "letter": "I", "text": response(1)}, {"id": 5, "letter": "I", "text": ""}]
    )
    (folder / "notes.md").write_text("none of them")
    texts = pa.array([b"", None, b"\xff"], pa.large_binary()).view(pa.large_string())
    parquet.write_table(pa.table({"letter": ["A", None, "A"], "text": texts, "id": list("yz!")}), folder / "c.parquet")
    assert run(folder, tmp_path / "out").failed == {"convert": 1, "extract": 3, "input": 2}
    rows = table_of(tmp_path / "out")
    assert [row["id"] for row in rows] == [*map(str, range(7)), "x", "5", "y", "z", None]
    assert rows[8]["reason"] == "no code: the response is empty"
    assert rows[10]["reason"].startswith("c.parquet row 2: the letter is null")
    assert rows[11]["reason"].startswith("c.parquet row 3: is not UTF-8 text")
    for _ in range(2):  # the second run does not take the output of the first for an input
        assert run(folder, folder / "out").rows == 12


def test_an_input_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more PAR1")
    parquet.write_table(pa.table({"id": [1], "reply": ["x"]}), tmp_path / "columns.parquet")
    for name, words in (
        ("missing.jsonl", "is missing"),
        ("rows.csv", "is no \\*.jsonl"),
        ("empty", "holds no file"),
        ("broken.parquet", "not a readable Parquet file"),
        ("columns.parquet", "lacks the column letter and text"),
    ):
        with pytest.raises(PcgevalError, match=words):
            run(tmp_path / name, tmp_path / "out")
    assert run(write_lines(tmp_path / "none.jsonl", []), tmp_path / "out").parts == 1
    assert table_of(tmp_path / "out") == []


def end_after(count, *arguments):
    """Evaluate and die like a run that is killed."""
    rows = iter(range(count))
    run(*arguments, rows_per_part=2, report=lambda _: next(rows, None) is None and os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.slow  # starts a process
def test_a_killed_run_is_continued_and_processes_change_no_byte(tmp_path):
    source = write_lines(tmp_path / "in.jsonl", ROWS)
    process = multiprocessing.get_context("spawn").Process(target=end_after, args=(5, source, tmp_path / "out"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    before = files(tmp_path / "out")
    assert sorted(before) == ["data/part-00000.parquet", "data/part-00001.parquet"]
    new = []
    run(source, tmp_path / "out", rows_per_part=2, report=new.append)
    run(source, tmp_path / "whole", rows_per_part=2, processes=2)
    assert [row.id for row in new] == ["e", "f", "g"]
    assert before.items() <= files(tmp_path / "out").items()
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_another_input_or_setting_is_refused(tmp_path):
    source, out = write_lines(tmp_path / "in.jsonl", ROWS), tmp_path / "out"
    run(source, out, rows_per_part=3)
    before = files(out)
    for rows in (ROWS[:-1], [*ROWS, {"id": "h", "letter": "A", "text": ""}], [ROWS[1], ROWS[0], *ROWS[2:]], ROWS[:3]):
        with pytest.raises(PcgevalError, match="from other rows"):
            run(write_lines(source, rows), out, rows_per_part=3)
    write_lines(source, ROWS)
    with pytest.raises(PcgevalError, match="from another physics"):
        run(source, out, rows_per_part=3, physics=PhysicsParams(trials=2))
    (folder := tmp_path / "mine").mkdir()
    (folder / "README.md").write_text("# My work\n")
    with pytest.raises(PcgevalError, match="holds another dataset"):
        run(source, folder)
    assert (folder / "README.md").read_text() == "# My work\n"
    run(source, out, rows_per_part=3)
    assert files(out) == before
    (out / "data" / "part-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(PcgevalError, match="is no part"):
        run(source, out, rows_per_part=3)
    for name in ("part-00002", "train"):  # of another run, and of somebody else: neither replaced nor mixed in
        (lost := tmp_path / name / "data").mkdir(parents=True)
        shutil.copy(out / "data" / "part-00002.parquet", lost / f"{name}.parquet")
        with pytest.raises(PcgevalError, match=f"{name}.parquet: is no part"):
            run(source, tmp_path / name, rows_per_part=3)


UNGUARDED = """
from pcgeval import PhysicsParams, evaluate
evaluate(["in.jsonl"], "out", classify=False, physics=PhysicsParams(trials=1, seconds=0.2), processes=2)
"""


def test_a_script_without_its_guard_ends_with_what_it_lacks(tmp_path):
    write_lines(tmp_path / "in.jsonl", ROWS)
    (tmp_path / "script.py").write_text(UNGUARDED)
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert 'needs `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]
