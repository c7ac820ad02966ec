"""`pcgeval level`: a level of any kind, its figures, drawings and reasons."""

import io
import json
import re
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


@pytest.fixture(autouse=True)
def calls(tmp_path, monkeypatch):
    """Calls in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("calls.txt").write_text(CALLS)


def test_what_fell_is_named_with_params_and_with_the_package_s_classifier(capsys):
    scored = score_level(CALLS, "T")
    assert any(block.fate != "stayed" for block in scored.blocks)
    for options in ([*CLASSIFIER, "--set", "physics.starts=3"], []):
        assert main(["level", "calls.txt", "--letter", "T", *options]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        assert printed.out.splitlines()[0] == "calls.txt: read as calls"
        assert printed.out.splitlines()[-1] == f"T: {scored.verdict}"
        assert ("3 starts" in printed.out) == bool(options)
        for block in scored.blocks:
            assert (f"{block.number:2} {block.call}" in printed.out) == (block.fate != "stayed")


def test_json_and_pictures(capsys):
    options = ["--png", "a.png", "--replay", "c.svg", "--json"]
    assert main(["level", "calls.txt", "--letter", "T", *options]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(score_level(CALLS, "T").to_dict()))
    with Image.open("a.png") as picture:
        assert picture.size == (1024, 1024)
    assert etree.fromstring(Path("c.svg").read_bytes()).tag.endswith("svg")


@pytest.mark.parametrize(("text", "moves"), [("drop_block('b31', 7)", False), (CALLS, True)])
def test_a_replay_without_motion_says_so(capsys, text, moves):
    Path("calls.txt").write_text(text)
    assert main(["level", "calls.txt", "--letter", "I", "--replay", "c.svg"]) == 0
    assert ("animate" in Path("c.svg").read_text()) is moves
    assert ("c.svg is a still picture" in capsys.readouterr().err) is not moves


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (CALLS.encode(), 0, "stdin: read as"),
        (CALLS.encode("utf-16"), 0, "stdin: read as calls"),
        (b"\xfa\0", 2, "UTF-8"),
        (b"\xff\xfe\0", 2, "UTF-16"),
    ],
)
def test_standard_input(monkeypatch, capsys, content, code, words):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert main(["level", "-", "--letter", "T"]) == code
    assert words in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("drop_blok('b13', 9)", "line 3 is ignored: `drop_blok('b13', 9)` holds no call"),
        ("drop_block('b13', x)", "line 3 is ignored: `drop_block('b13', x)` has `x` in place of a column"),
        (
            "drop_block('b31', 19)",
            "Width boundary is intruded. (call 2: `drop_block('b31', 19)`; a b31 takes columns 1 to",
        ),
        ("drop_block('b13', )", "Height boundary is intruded. (call 2: `drop_block('b13', )`; the columns are 0 to 19"),
    ],
)
def test_a_faulty_call_is_named(text, words, capsys):
    Path("a.txt").write_text(f"#\ndrop_block('b31', 9)\n{text}\n")
    is_failed = not words.startswith("line")
    assert main(["level", "a.txt", "--letter", "I", "--png", "a.png"]) == is_failed
    shown = capsys.readouterr()
    assert words in (shown.out if is_failed else shown.err)
    assert Path("a.png").exists() == (not is_failed)


FORM = "Write calls as drop_block('b13', 7); the types are 'b11', 'b13' and 'b31', the columns 0 to 19."
GOOD = "drop_block('b13', 7)"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("drop_block('b12', 7)", "has the type 'b12', which does not exist; the types are 'b11', 'b13' and 'b31'"),
        ("drop_block(b31, 7)", "has no quotes around the type; write 'b31'"),
        ("drop_block('b13', 7.5)", "has the column 7.5; write a whole number"),
        ("drop_block('b13', x_position=7)", "names its arguments; write drop_block('b13', 7)"),
        ("drop_block( 'b13', 7 )", "has blanks inside the brackets, which are not read"),
    ],
)
def test_a_call_that_is_not_read_is_named_alone_and_beside_others_in_calls_and_in_a_response(call, words, capsys):
    for is_read, text, number in (
        (False, f"{call}\n", 1),
        (True, f"{GOOD}\n\n{GOOD} {call}\n", 3),
        (False, f"So:\n```python\n{call}\n```", 3),
        (True, f"```\n{call}\n```\nNo:\n```\n{GOOD}\n{call}\n```\n", 7),
    ):
        Path("a.txt").write_text(text)
        assert main(["level", "a.txt", "--letter", "i"]) == (not is_read)
        shown = capsys.readouterr()
        (place,) = re.findall(
            rf"line (\d+)(?: is ignored)?: `{re.escape(call)}` {re.escape(words)}$", "".join(shown), re.MULTILINE
        )
        assert int(place) == number
        assert shown.err.splitlines()[-1].startswith(FORM)
        assert shown.out.splitlines()[-1].startswith("I: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{GOOD}\n", None),
        (f"  {GOOD}\n# a comment, drop_block(type, column)\n", None),
        (f"```\n{GOOD}\n", "line 1: the fenced block that begins there is never closed"),
        (f"# the `I`, no `b31`\n{GOOD}\n", None),
        (f"{GOOD.replace(chr(39), '`')}\n", "line 1: .* has other quotes than ' or"),
        (f"# the `I`\n{GOOD[:10]}\n", "no drop_block call and no fenced block"),
        (f"# the `I`\n{GOOD.replace('(', '( ')}\n", r"line 2: `drop_block\( .*` has blanks inside the brackets"),
        (f"{GOOD[:10]}\n", "no drop_block call and no fenced block"),
        ("b13 7\n", "no drop_block call and no fenced block"),
        ("", "the response is empty"),
        (f"```\n{GOOD}\n```\n```\nThat is all.\n```", "only the last one counts"),
    ],
)
def test_a_file_without_calls_is_told_how_they_are_written(text, words, capsys):
    Path("a.txt").write_text(text)
    assert main(["level", "a.txt", "--letter", "I"]) == bool(words)
    shown = capsys.readouterr()
    assert shown.err.startswith(FORM) if words else not shown.err
    assert re.search(words or "^I: 0.9", shown.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--letter", "AB"], "A to Z"),
        (["--letter", "É"], "A to Z"),
        (["--letter", "A", "--set", "physics.starts"], "KEY=VALUE"),
        (["--letter", "A", "--set", "competition.edition=2026-13-01"], "not valid YAML"),
        (["--letter", "A", "--set", "similarity.precision=float32", "--set", "similarity.device=nowhere"], "'nowhere'"),
        (["--letter", "A", "--replay", "nowhere/x"], "nowhere: no such folder"),
    ],
)
def test_wrong_usage_is_named_and_makes_no_folder(words, message, capsys):
    assert main(["level", "-", *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("nowhere").exists()


@pytest.mark.slow
def test_a_file_is_scored_again_when_it_changes():
    words = [sys.executable, "-m", "pcgeval", "level", "calls.txt", "--letter", "T", *CLASSIFIER, "--watch", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        first = json.loads(process.stdout.readline())
        Path("calls.txt").unlink()
        Path("calls.txt").write_text("drop_block('b13', 3)\n")
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == EXIT_INTERRUPTED
        assert len(process.stderr.read().splitlines()) == 1
    assert (len(first["blocks"]), len(second["blocks"])) == (4, 1)
