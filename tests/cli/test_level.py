"""`pcgeval level`: a level of any kind, its figures, drawings and reasons."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lxml import etree
from PIL import Image

from pcgeval import score_level
from pcgeval.cli.main import main
from pcgeval.core.console import EXIT_INTERRUPTED

ROOT = Path(__file__).parents[2]
CLASSIFIER = ["--set", f"similarity.model={ROOT / 'data/classifier'}"]
CALLS = "drop_block('b31', 5)\ndrop_block('b13', 5)\ndrop_block('b31', 6)\ndrop_block('b31', 7)\n"

pytestmark = pytest.mark.slow  # torch is loaded


@pytest.fixture(autouse=True)
def calls(tmp_path, monkeypatch):
    """Calls in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("calls.txt").write_text(CALLS)


def test_what_fell_is_named_with_params_and_with_the_package_s_classifier(capsys):
    scored = score_level(CALLS, "T")
    assert any(block.fate != "stayed" for block in scored.blocks)
    for options in (CLASSIFIER, []):
        assert main(["level", "calls.txt", "--letter", "T", *options]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        assert printed.out.splitlines()[0] == "calls.txt: read as calls"
        assert printed.out.splitlines()[-1] == f"T: {scored.verdict}"
        for block in scored.blocks:
            assert (f"{block.number:2} {block.call}" in printed.out) == (block.fate != "stayed")


def test_json_and_pictures(capsys):
    options = ["--png", "a.png", "--replay", "c.svg", "--json"]
    assert main(["level", "calls.txt", "--letter", "T", *CLASSIFIER, *options]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["score"] == values["stability"] * values["similarity"]
    assert values["code"].splitlines() == CALLS.splitlines()
    assert values["xml"] == score_level(CALLS, "T").xml
    assert len(values["blocks"]) == len(values["after"]) == 4
    assert len(values["probabilities"]) == 26
    with Image.open("a.png") as picture:
        assert picture.size == (1024, 1024)
    assert etree.fromstring(Path("c.svg").read_bytes()).tag.endswith("svg")


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CALLS.encode())))
    assert main(["level", "-", "--letter", "T", *CLASSIFIER]) == 0
    assert "stdin: read as calls" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\x00")))
    assert main(["level", "-", "--letter", "T", *CLASSIFIER]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_lines_that_hold_no_call_are_named(capsys):
    Path("I.txt").write_text("# an I\ndrop_block('b31', 9)\ndrop_blok('b13', 9)\n\ndrop_block('b13', 9)\n")
    assert main(["level", "I.txt", "--letter", "I"]) == 0
    shown = capsys.readouterr()
    assert "2 of 2 blocks" in shown.out
    (line,) = shown.err.splitlines()
    assert "line 3" in line
    assert "drop_blok" in line


@pytest.mark.parametrize(
    ("call", "reason", "hint"),
    [
        ("drop_block('b31', 0)", "Width boundary is intruded.", "column 0; a b31 takes columns 1 to 18"),
        ("drop_block('b11', 25)", "Height boundary is intruded.", "column 25; a b11 takes columns 0 to 19"),
        ("drop_block('b13', )", "Height boundary is intruded.", "no column; a b13 takes columns 0 to 19"),
    ],
)
def test_a_level_that_fails_has_the_official_reason_a_hint_and_no_picture(capsys, call, reason, hint):
    Path("a.txt").write_text(f"```\ndrop_block('b31', 9)\n{call}\n```")
    assert main(["level", "a.txt", "--letter", "A", *CLASSIFIER, "--png", "a.png"]) == 1
    shown = capsys.readouterr()
    assert f"A: 0, failed in convert: {reason}" in shown.out
    assert shown.err == f"line 3: {call} has {hint}\n"
    assert not Path("a.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--letter", "AB"], "A to Z"),
        ([], "--letter"),
        (["--letter", "A", "--watch"], "--watch"),
        (["--letter", "A", "--png", "."], "is a directory"),
        (["--letter", "A", "--set", "physics.starts"], "KEY=VALUE"),
        (["--letter", "A", "--set", "=3"], "KEY=VALUE"),
        (["--letter", "A", "--set", "competition.edition=2026-13-01"], "not valid YAML"),
        (["--letter", "A", "--set", "physics.start=3"], "Did you mean 'starts'"),
        (["--letter", "A", "--set", "physics.engine=unity"], "physics.engine"),
        (["--letter", "A", "--png", "nowhere/x"], "nowhere: no such folder"),
        (["--letter", "A", "--replay", "nowhere/x"], "nowhere: no such folder"),
    ],
)
def test_wrong_usage_is_named_and_makes_no_folder(words, message, capsys):
    assert main(["level", "-", *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("nowhere").exists()


def test_a_file_is_scored_again_when_it_changes(tmp_path):
    path = tmp_path / "calls.txt"
    words = [sys.executable, "-m", "pcgeval", "level", str(path), "--letter", "T", *CLASSIFIER, "--watch", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=tmp_path, text=True, env=dict(os.environ), **pipes) as process:
        first = json.loads(process.stdout.readline())
        path.unlink()
        path.write_text("drop_block('b13', 3)\n")
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == EXIT_INTERRUPTED
        assert len(process.stderr.read().splitlines()) == 1
    assert (len(first["blocks"]), len(second["blocks"])) == (4, 1)
