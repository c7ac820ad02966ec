"""Participants are told every problem of a submission at once."""

import json
import os
import re
from pathlib import Path
from typing import Literal

import pytest
from handed_in_for_tests import PROGRAM, PROGRAM_FILES, PROMPT, PROMPT_FILES, README, texts, write_folder, write_zip

from pcgeval.cli.main import main
from pcgeval.submissions.findings import SubmissionFinding, printable_findings
from pcgeval.submissions.hand_in import HandInError
from pcgeval.submissions.load import Program
from pcgeval.submissions.validate import PUBLISHED_LIMITS, limits_of, validate


@pytest.mark.parametrize("files", [PROMPT_FILES, PROGRAM_FILES])
def test_good_submissions_have_no_findings(tmp_path: Path, files: dict[str, str]):
    for path in (write_folder(tmp_path / "team", files), write_zip(tmp_path / "team.zip", files)):
        found = validate(path)
        assert found.findings == ()
        assert found.passed
        assert (found.files, found.size) == (len(files), sum(len(file) for file in files.values()))
        assert (found.kind == "program") == ("main.py" in files)


def test_a_single_folder_is_unwrapped(tmp_path: Path):
    files = {f"My Team: final/v2/{name}": each for name, each in PROGRAM_FILES.items()}
    found = validate(write_zip(tmp_path / "x.zip", {**files, "__MACOSX/My Team: final/._a": "x"}))
    assert found.passed
    assert found.kind == "program"
    assert any("My Team: final/v2/: holds everything" in line for line in texts(found.findings, "note"))


def test_a_folder_is_looked_through_where_it_lies(tmp_path: Path):
    folder = write_folder(tmp_path / "outer", {f"inner/{name}": each for name, each in PROGRAM_FILES.items()})
    found = validate(folder)
    assert found.work == Program(folder / "inner", "main.py")


def test_everything_is_said_at_once(tmp_path: Path):
    files = {
        "Main.py": PROGRAM.replace("prompts/one.txt", "Prompts/one.txt"),
        "prompts/one.txt": PROMPT,
        "prompts/ONE.txt": PROMPT,
        "helper.py": "import requests, random\n\nprint(random.random())\n",
        "nul.txt": "x",
        "requirements.txt": "-e .\ngit+https://example.org/x\n",
        "submission.yaml": "role: baseline\n",
        ".DS_Store": "x",
    }
    found = validate(write_zip(tmp_path / "x.zip", files))
    errors, warnings = "\n".join(texts(found.findings)), "\n".join(texts(found.findings, "warning"))
    for words in (
        "has no README.md",
        "nul.txt: has a name that Windows cannot store",
        "requirements.txt:1: '-e .'",
        "requirements.txt:2: 'git+",
    ):
        assert words in errors
    assert "has on some disks the same name as prompts/ONE.txt" in errors
    for words in (
        "helper.py:1: imports requests: there is no network",
        "helper.py:3 uses random, which no file of the program gives a seed",
        "submission.yaml: role and disqualified",
    ):
        assert words in warnings
    assert texts(found.findings, "note") == [".DS_Store: was left out (of the operating system)"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"README.md": None}, ": has no README.md"),
        ({"README.md": " \n\ufeff"}, "README.md: is empty"),
        ({"README.md": "é".encode("utf-16")}, "README.md: is not UTF-8 text"),
        ({"README.md": "x" * 1_000_001}, "README.md: is larger than 1000000"),
        ({"prompt.txt": None}, "neither prompt.txt nor a program"),
        ({"prompt.txt": "Draw it."}, "prompt.txt: the prompt lacks the token <OBJECT>"),
        ({"prompt.txt": "<OBJECT> " + "word " * 900}, "prompt.txt: the prompt has 901 words; 900 are allowed"),
        ({"prompt.txt": "<OBJECT> é"}, "prompt.txt: the prompt has 1 characters that the rules do not allow: U+00E9"),
        ({"prompt.txt": b"\xff\xfe<"}, "prompt.txt: is not UTF-8 text"),
        ({"submission.yaml": "kind: poem"}, "submission.yaml: kind: Input should be"),
        ({"submission.yaml": "entry: main.py"}, "entry 'main.py' is missing"),
        ({"submission.yaml": "kind: program"}, "holds no program"),
    ],
)
def test_errors_of_prompts(tmp_path: Path, changes: dict[str, str | bytes | None], words: str):
    files = {name: each for name, each in {**PROMPT_FILES, **changes}.items() if each is not None}
    for path in (write_folder(tmp_path / "team", files), write_zip(tmp_path / "team.zip", files)):
        errors = texts(validate(path).findings)
        assert len(errors) == 1
        assert words in errors[0]
        assert str(tmp_path) not in errors[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"old.py": PROGRAM}, None),  # the README says which
        ({"old.py": PROGRAM, "README.md": "x"}, "not clear which file starts the program: main.py, old.py"),
        ({"main.py": PROGRAM + "x = = 1"}, "main.py:14: is not valid Python (invalid syntax)"),
        ({"main.py": PROGRAM.encode("utf-16")}, "main.py: is UTF-16 text"),
        ({"main.py": PROGRAM + "\0"}, "main.py: is not valid Python"),
        ({"main.py": "# coding: punycode\n" + PROGRAM}, "declares the encoding 'punycode'"),
        ({"main.py": "x = " + "-" * 100_000 + "1\n" + PROGRAM}, "is nested too deeply"),
        ({"submission.yaml": "entry: main.py", "main.py": "x = = 1"}, "main.py:1: is not valid Python"),
        ({"requirements.txt": "./wheel.whl\n"}, "requirements.txt:1: './wheel.whl' is no package"),
    ],
)
def test_errors_of_programs(tmp_path: Path, changes: dict[str, str | bytes], words: str | None):
    found = validate(write_folder(tmp_path / "team", {**PROGRAM_FILES, **changes}))
    errors = texts(found.findings)
    assert (words is None) == (errors == [])
    assert words is None or words in errors[0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.py", "import httpx", "a.py:1: imports httpx: there is no network"),
        ("a.py", "from urllib import request", "a.py:1: imports urllib.request: there is no network"),
        ("a.py", "import openai", "a.py:1: imports openai: there is no network"),
        ("a.py", "import random\nrandom.shuffle([])", "a.py:2 uses random"),
        ("a.py", "print 'x'", "a.py:1: is not valid Python"),
        ("a.py", "# " + "x" * 2**18, "a.py: is larger than 262144"),
        ("llm4pcg/__init__.py", "", "llm4pcg: is not used"),
        ("README.md", "# Alpha\n", "README.md: does not say how to run the program, such as `python main.py`"),
        ("main.py", PROGRAM + "    run_evaluation('b', Mine)\n", "main.py: calls run_evaluation 2 times"),
    ],
)
def test_warnings_about_programs(tmp_path: Path, name: str, content: str, words: str):
    found = validate(write_folder(tmp_path / "team", {**PROGRAM_FILES, name: content}))
    assert found.passed
    assert [line for line in texts(found.findings, "warning") if words in line]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.py", "import os, json\nimport helper\nfrom . import b\nimport llm4pcg, dotenv"),
        ("a.py", "import random\nrandom.seed(1)\nrandom.shuffle([])"),
        ("requirements.txt", "llms4pcg\nopencv-python-headless\nnumpy\nsome-package-of-theirs\n"),
        ("README.md", "Start it: python3 ./main.py\n"),
    ],
)
def test_what_is_fine_is_not_warned_about(tmp_path: Path, name: str, content: str):
    files = {**PROGRAM_FILES, "helper.py": "import cv2" if name == "requirements.txt" else "", name: content}
    assert texts(validate(write_folder(tmp_path / "team", files)).findings, "warning") == []


@pytest.mark.parametrize(
    ("changes", "severity", "line"),
    [
        (
            {"main.py": PROGRAM.partition("if __name__")[0]},
            "error",
            "main.py: has Mine, a subclass of TrialLoop, but nothing starts it. End the file with `if __name__",
        ),
        ({"main.py": PROGRAM.partition("if __name__")[0], "prompt.txt": PROMPT}, "error", "Or write `kind: prompt` in"),
        (
            {"main.py": PROGRAM.replace('if __name__ == "__main__"', "if True")},
            "warning",
            "main.py: has no `if __name__",
        ),
        ({"main.py": PROGRAM.replace("run_evaluation(", "print(")}, "warning", "main.py: never calls run_evaluation"),
        ({"main.py": PROGRAM + "x = (\n", "README.md": "x"}, "error", "main.py:14: is not valid Python ('(' was never"),
        ({"prompt.txt": PROMPT}, "warning", "prompt.txt: is not used: `python main.py` is run"),
    ],
)
def test_slips_are_told_with_what_was_meant(
    tmp_path: Path, changes: dict[str, str], severity: Literal["error", "warning"], line: str
):
    found = texts(validate(write_folder(tmp_path / "team", {**PROGRAM_FILES, **changes})).findings, severity)
    assert [each for each in found if re.search(".*".join(map(re.escape, line.split(".*"))), each)], found


@pytest.mark.parametrize(
    "name", ["Prompt.txt", "PROMPT.TXT", "prompts.txt", "prompt.md", "prompt.txt.txt", "promt.txt"]
)
def test_a_prompt_by_another_name_is_told(tmp_path: Path, name: str):
    files = {"README.md": README, name: PROMPT}
    for path in (write_folder(tmp_path / "team", files), write_zip(tmp_path / "team.zip", files)):
        (line,) = texts(validate(path).findings)
        assert line.startswith(f"{name}: is not read as the prompt; rename it to prompt.txt")


def test_an_entry_in_a_folder_is_told_where_it_starts(tmp_path: Path):
    files = {"README.md": "python src/main.py", "src/main.py": PROGRAM, "prompts/one.txt": PROMPT}
    found = validate(write_folder(tmp_path / "team", files))
    assert [line for line in texts(found.findings, "warning") if "paths are relative to that folder" in line]


def test_a_readme_by_another_name_is_told(tmp_path: Path):
    files = {"readme.txt": README, "prompt.txt": PROMPT}
    (line,) = texts(validate(write_folder(tmp_path / "team", files)).findings, "warning")
    assert "readme.txt: is not called README.md" in line


def test_findings_of_a_hostile_program_are_bounded(tmp_path: Path):
    files = {**PROGRAM_FILES, **{f"{number}.py": "import requests\n" * 2000 for number in range(20)}}
    found = validate(write_folder(tmp_path / "team", files))
    assert len(found.findings) < 1200
    assert len(printable_findings(found.findings)) < 20


def test_what_is_printed_is_plain(tmp_path: Path):
    files = {**PROGRAM_FILES, "\x1b[2Jevil\u202e.txt": "x"}
    (line,) = printable_findings(validate(write_folder(tmp_path / "team", files)).findings)
    assert line == "error: \\x1b[2Jevil\\u202e.txt: has unprintable characters; rename it [file-name]"


def test_the_same_about_many_places_is_said_once():
    found = [SubmissionFinding("warning", f"{number}", "is odd") for number in range(8)] + [
        SubmissionFinding("error", "", "is bad")
    ]
    assert printable_findings(found * 2) == ["error: is bad", "warning: 0, 1, 2, 3, 4 and 3 more: is odd"]


def test_the_rules_come_from_params_where_there_are_any(tmp_path: Path):
    assert limits_of(tmp_path / "params.yaml") == PUBLISHED_LIMITS
    repository = Path(__file__).parents[2]
    assert limits_of(repository / "params.yaml").prompt_words == 900


@pytest.mark.parametrize("name", ["missing", "text.txt", "pipe"])
def test_what_is_neither_folder_nor_zip_is_bad_input(tmp_path: Path, name: str):
    (tmp_path / "text.txt").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HandInError):
        validate(tmp_path / name)
    assert main(["validate", str(tmp_path / name)]) == 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write_folder(tmp_path / "team", PROGRAM_FILES)
    assert main(["validate", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    (folder / "README.md").unlink()
    assert main(["validate", str(folder)]) == 1
    assert capsys.readouterr().out.startswith("error: has no README.md")
    assert main(["validate", str(folder), "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert (values["passed"], values["kind"], values["entry"], values["files"]) == (False, "program", "main.py", 3)
    assert values["findings"][0]["severity"] == "error"
