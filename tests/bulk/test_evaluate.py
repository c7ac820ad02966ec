"""Many responses in, the table of levels out: its values, faulty rows, and a run that was killed."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from dataclasses import fields
from string import ascii_uppercase

import pyarrow as pa
import pytest
from handed_in_for_tests import write_folder
from params_for_tests import contents
from pyarrow import parquet

from pcgeval import Classifier, LevelRow, PcgevalError, PhysicsParams, evaluate, score_level
from pcgeval.bulk.level_table import dataset_card, level_table
from pcgeval.cli.main import main
from pcgeval.formats.params import Similarity

FAST = PhysicsParams(trials=1, seconds=1)
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
    {"id": "g", "letter": "U", "text": response(5, 5, 6).replace("'b11', 6", "'b31', 6")},  # one of them falls
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table_of(folder):
    return parquet.read_table(folder / "data").to_pylist()


def run(source, out, **options):
    return evaluate([source], out, **{"classify": False, "physics": FAST, "processes": 1, **options})


def test_the_dataset_that_hugging_face_loads_offline_has_the_figures_of_score_level(tmp_path, monkeypatch):
    out, source = tmp_path / "out", write_lines(tmp_path / "in.jsonl", ROWS)
    summary = run(source, out, rows_per_part=3, classify=True, embeddings=True).model_dump()
    assert summary == {"rows": 7, "failed": {"convert": 1, "extract": 1}, "parts": 3}
    rows = table_of(out)
    assert [row["id"] for row in rows] == ["a", "b", "3", "d", "e", "f", "g"]
    classifier = Classifier.load()
    for given, row in zip(ROWS, rows, strict=True):
        level = score_level(given["text"], given["letter"], classifier, FAST, read_as="response")
        assert (row["stability"] or 0, row["similarity"] or 0) == (level.stability, level.similarity)
        assert (row["failed_stage"], row["reason"], row["score"]) == (level.failed_stage, level.reason, level.score)
        assert row["kind"] == (level.failure and level.failure.kind)
        assert row["recognised"] is level.recognised
        if level.probabilities:
            moved = sum(block.fate != "stayed" for block in level.blocks)
            assert (row["blocks"], row["moved"]) == (len(level.blocks), moved)
            probabilities = [round(row[f"p_{letter}"], 7) for letter in ascii_uppercase]
            assert probabilities == list(level.probabilities.values())
            assert (row["likeliest"], row["classifier"]) == (level.likeliest[0][0], classifier.sha256)
            assert row["embedding"]
    outcome = json.loads((out / "README.md").read_text().partition("```json\n")[2].partition("```")[0])
    assert outcome == {**summary, "settings": outcome["settings"]}
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    assert datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache")).to_list() == rows


def test_every_field_of_a_row_is_a_column_and_described():
    columns = level_table([], "", None, embeddings=True).column_names
    assert [field.name for field in fields(LevelRow) if field.name not in columns] == ["probabilities"]  # p_A ... p_Z
    cells = re.findall(r"^\| (`.*?) \|", dataset_card("levels", "*.parquet"), re.MULTILINE)
    assert re.findall(r"`(\w+)`", "".join(cells)) == [name for name in columns if not re.fullmatch("p_[B-Y]", name)]


FAULTY = [
    (b"{", "line 1: is not JSON"),
    (b"[1]", "is not a JSON object"),
    (b'{"id": "a", "text": ""}', "lacks letter"),
    ('{"id": "b", "letter": "é", "text": ""}'.encode(), "letter 'é' must be A to Z"),
    (b'{"id": "d", "letter": "A", "text": null}', "text is null"),
    (b'{"id": true, "letter": "A", "text": ""}', "id is of type bool"),
    (b'{"id": "f\\ud800", "letter": "A", "text": "\\ud800"}', "no fenced block"),
    (b"\xff", "is not UTF-8"),
    (b'{"id": "g", "letter": "A", "text": "' + MAX_TEXT * b"x" + b'"}', f"longer than {MAX_TEXT}"),
    (b"[" * 100_000, "is not JSON"),
    (b'{"id": "h", "letter": "A", "text": "last"}', "no fenced block"),
]


def test_faulty_rows_have_their_line_in_the_table(tmp_path, capsys):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"\n".join(line for line, _ in FAULTY))
    assert main(["evaluate", str(source), "--out", str(tmp_path / "out"), "--no-classifier", "--processes", "1"]) == 1
    rows = table_of(tmp_path / "out")
    for (_, words), row in zip(FAULTY, rows, strict=True):
        assert words in row["reason"]
    assert [row["id"] for row in rows][2:7] == ["a", "b", "d", None, "f\ufffd"]
    assert [row["score"] for row in rows] == [None if row["failed_stage"] == "input" else 0 for row in rows]
    assert "9 in input" in capsys.readouterr().err


def test_parquet_files_and_folders_are_read(tmp_path):
    (folder := tmp_path / "in").mkdir()
    columns = {key: [row[key] for row in ROWS] for key in ("letter", "text")}
    parquet.write_table(pa.table({**columns, "n": range(7), "id": range(7)}), folder / "a.parquet")
    line = json.dumps({"id": "x", "letter": "I", "text": ""}).encode()
    (tmp_path / "elsewhere.jsonl").write_bytes(b"\xef\xbb\xbf" + line)  # with a byte order mark, behind a link
    (folder / "b.jsonl").symlink_to("../elsewhere.jsonl")
    texts = pa.array([b"", None, b"\xff"], pa.large_binary()).view(pa.large_string())
    parquet.write_table(pa.table({"letter": ["A", None, "A"], "text": texts, "id": list("yz!")}), folder / "c.parquet")
    for _ in range(2):  # the second run does not take the output of the first for an input
        summary = evaluate(str(folder), folder / "out", classify=False, physics=FAST, processes=1)  # one path
        assert summary.failed == {"convert": 1, "extract": 3, "input": 2}
    rows = table_of(folder / "out")
    assert [row["id"] for row in rows] == [*map(str, range(7)), "x", "y", "z", None]
    assert rows[9]["reason"].startswith("c.parquet row 2: the letter null must be")
    assert rows[10]["reason"].startswith("c.parquet row 3: is not UTF-8 text")


def end_after(count, *arguments):
    """Evaluate and die like a run that is killed."""
    rows = iter(range(count))
    run(*arguments, rows_per_part=2, report=lambda _: next(rows, None) is None and os.kill(os.getpid(), signal.SIGKILL))


def test_a_killed_run_is_continued_and_processes_change_no_byte(tmp_path):
    source = write_lines(tmp_path / "in.jsonl", ROWS)
    process = multiprocessing.get_context("spawn").Process(target=end_after, args=(5, source, tmp_path / "out"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    before = contents(tmp_path / "out/data")
    assert sorted(before) == ["part-00000.parquet", "part-00001.parquet"]
    new = []
    run(source, tmp_path / "out", rows_per_part=2, report=new.append)
    run(source, tmp_path / "whole", rows_per_part=2, processes=2)
    assert [row.id for row in new] == ["e", "f", "g"]
    assert before.items() <= contents(tmp_path / "out/data").items()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_another_input_or_setting_is_refused(tmp_path):
    source, out = write_lines(tmp_path / "in.jsonl", ROWS), tmp_path / "out"
    run(source, out, rows_per_part=3)
    before = contents(out)
    for rows in (ROWS[:-1], [*ROWS, ROWS[0]], [ROWS[1], ROWS[0], *ROWS[2:]], ROWS[:3]):
        with pytest.raises(PcgevalError, match="from other rows"):
            run(write_lines(source, rows), out, rows_per_part=3)
    write_lines(source, ROWS)
    with pytest.raises(PcgevalError, match="from another physics"):
        run(source, out, rows_per_part=3, physics=PhysicsParams(trials=2))
    assert contents(out) == before


@pytest.mark.parametrize(
    ("source", "out", "words"),
    [
        ("missing.jsonl", "out", "is missing"),
        ("mine/README.md", "out", r"is no \*.jsonl"),
        ("mine", "out", "holds no file"),
        ("broken.parquet", "out", "not a readable Parquet file"),
        ("columns.parquet", "out", "lacks the column letter and text"),
        ("in.jsonl", "mine", "holds another dataset"),
        ("in.jsonl", "columns.parquet", "is a file"),
        ("in.jsonl", "damaged", "part-00000.parquet: is no part"),
        ("in.jsonl", "others", "train.parquet: is no part"),
    ],
)
def test_an_input_or_a_folder_that_cannot_be_used_is_refused(tmp_path, source, out, words):
    write_lines(tmp_path / "in.jsonl", ROWS)
    parquet.write_table(pa.table({"id": [1], "reply": ["x"]}), tmp_path / "columns.parquet")
    parts = ("damaged/data/part-00000", "others/data/train")
    damaged = {f"{name}.parquet": b"PAR1 and no more PAR1" for name in ("broken", *parts)}
    before = contents(write_folder(tmp_path, {**damaged, "mine/README.md": "# My work\n"}))
    with pytest.raises(PcgevalError, match=words):
        run(tmp_path / source, tmp_path / out)
    assert before.items() <= contents(tmp_path).items()


def in_a_pool(source, out):
    with pytest.raises(PcgevalError, match="Call this from the main process"):
        run(source, out)


def test_arguments_that_mean_nothing_are_refused(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "in.jsonl", ROWS)
    for wrong in ({"rows_per_part": 0}, {"read_as": "xml"}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} .* must be"):
            run(source, tmp_path / "out", **wrong)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.starmap(in_a_pool, [(source, tmp_path / "out")])
    monkeypatch.setenv("PCGEVAL_SCHEDULER", "bogus")
    with pytest.raises(PcgevalError, match="bogus: is no address of a Dask scheduler"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out" / "data").exists()


def test_the_packages_classifier_is_found_by_its_name_in_a_competition(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write_lines(tmp_path / "in.jsonl", ROWS[:1])
    named = Similarity(model="data/classifier", batch=256)
    for out, similarity in (("one", None), ("other", named)):
        run(source, out, classify=True, similarity=similarity)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_a_script_without_its_guard_ends_with_what_it_lacks(tmp_path):
    write_lines(tmp_path / "in.jsonl", ROWS)
    (tmp_path / "script.py").write_text("from pcgeval import evaluate\nevaluate(['in.jsonl'], 'out', processes=2)\n")
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("Traceback")) == (1, 1)
    assert 'needs `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]
