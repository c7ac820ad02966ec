"""The command line as a whole: usage errors, help, version, completion, and how much it imports."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pcgeval.cli.docs import COMMANDS, KINDS, commands_help, failures_table
from pcgeval.cli.main import app, load_command, main
from pcgeval.cli.options import print_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "words", ["", "nothing", "try submission", "grade team --judge somebody", "rescore nowhere --out out"]
)
def test_wrong_usage_is_two_with_plain_words(words, capsys):
    assert main(words.split()) == 2
    printed = "".join(capsys.readouterr())
    assert "Usage: pcgeval" in printed
    assert not set("╭│╰\x1b") & set(printed)


@pytest.mark.parametrize("words", ["grade x", "try .", "rubric judge-eval x", "rubric attack x --paper block-letters"])
def test_an_unset_variable_is_no_models_name(words, capsys):
    assert main([*words.split(), "--model", ""]) == 2
    assert "--model: the name is empty" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--paper", "--rubric"])
def test_an_unset_variable_names_no_criteria(option, capsys):
    assert main(["grade", "x", option, ""]) == 2
    assert "is empty" in capsys.readouterr().err


def test_help_lists_every_command_and_the_exit_codes(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    commands = typer.main.get_command(app).commands
    assert 0 < len(commands) <= 20
    for name, command in commands.items():
        assert load_command(name).get_short_help_str(100) == command.help
        assert re.search(rf"^  {name} +{re.escape(command.help)}$", text, re.MULTILINE)
    assert "0 done, 1 a check failed, 2 " in text
    assert "..." not in text.partition("--help")[2], "a command's first line is too long for the list"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pcgeval 0.")


@pytest.mark.parametrize(("path", "text"), [(COMMANDS, commands_help), (KINDS, failures_table)])
def test_what_the_docs_take_from_the_code_is_current(path, text):
    assert (ROOT / path).read_text(encoding="utf-8") == text(), "run `python -m pcgeval.cli.docs`"


def test_the_command_line_alone_imports_nothing_heavy():
    code = (
        "import sys, json; from pcgeval.cli.main import main; main(['--help']); "
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr)
    assert not {"torch", "numpy", "PIL", "pydantic", "yaml", "lxml", "pymunk", "httpx", "dvc"} & set(loaded)


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_a_table_keeps_names_and_numbers_whole_on_any_terminal(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cells = ["1", "check-and-repair", "0.009678", "41.9-81.9", "127", "0", "12,345,678", "baseline"]
    columns = ["rank", "team", "total", "90% interval", "failed trials", "flagged", "tokens", "status"]
    print_table(columns, [cells, cells], rare={"flagged"})
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, text.splitlines())) <= width
    assert all(text.count(cell) >= 2 for cell in cells)
    assert all(word in text for column in ("total", "90% interval", "failed trials") for word in column.split())
    assert "flagged" not in text
    print_table(["letter", *columns[2:7]], [["I", *cells[2:7]]])
    assert all(map(str.strip, capsys.readouterr().out.splitlines())), "a line without the name of its row"


@pytest.mark.parametrize("words", ["run", "ranking", "bundle -o a.zip"])
def test_outside_a_competition_a_command_writes_nothing_and_names_the_remedy(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    message = capsys.readouterr().err
    assert message.count("params.yaml") == 1
    assert "pcgeval init" in message
    assert not list(tmp_path.iterdir())


def test_a_hostile_name_controls_no_terminal(tmp_path, capsys):
    assert main(["level", str(tmp_path / "\x1b[2J[bold]none"), "--letter", "A"]) == 2
    printed = capsys.readouterr().err
    assert "\x1b" not in printed
    assert "[2J[bold]none" in printed
