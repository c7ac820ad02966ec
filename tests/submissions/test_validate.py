"""Participants are told every problem of a submission at once, however people and attackers hand it in."""

import json
import os
import re
import socket
import tarfile
from pathlib import Path

import pytest
from handed_in_for_tests import PROGRAM, PROGRAM_FILES, PROMPT, PROMPT_FILES, README, texts, write_folder, write_zip
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.cli.main import main
from pcgeval.submissions.load import MAX_NOTES_BYTES, Program, SubmissionError, load_submission, prompt_findings
from pcgeval.submissions.validate import name_fault, printable_findings, validate


@pytest.mark.parametrize("files", [PROMPT_FILES, PROGRAM_FILES], ids=["prompt", "program"])
def test_good_submissions_have_no_findings(tmp_path: Path, files: dict[str, str]):
    if files is PROGRAM_FILES:
        helper = "import os, json, cv2, dotenv\nfrom . import b, requests\nimport llm4pcg\n"
        requirements = "llms4pcg\nopencv-python-headless\nnumpy\nsome-package-of-theirs\n"
        files = {
            **files,
            "helper.py": helper,
            "requirements.txt": requirements,
            "old.py": PROGRAM,
        }
    archives = [write_zip(tmp_path / name, files) for name in ("team.zip", "...zip")]
    for path in (write_folder(tmp_path / "team", files), *archives):
        result = validate(path)
        assert (result.passed, list(result.findings)) == (True, [])
        assert (result.files, result.size) == (len(files), sum(len(file) for file in files.values()))
        assert (result.kind == "program") == ("main.py" in files)


def test_a_single_folder_is_unwrapped(tmp_path: Path):
    files = {f"My Team: final/v2/{name}": text for name, text in PROGRAM_FILES.items()}
    result = validate(write_zip(tmp_path / "x.zip", {**files, "__MACOSX/My Team: final/._a": "x"}))
    assert (result.kind, list(result.findings)) == ("program", [])
    folder = write_folder(tmp_path / "outer", {f"inner/{name}": text for name, text in PROGRAM_FILES.items()})
    assert validate(folder).work == Program(folder / "inner", "main.py")


# Errors and warnings

ERRORS_OF_ANY = [
    ({"README.md": None}, ": has no README.md"),
    ({"README.md": " \n\ufeff"}, "README.md: is empty"),
    ({"README.md": "é".encode("utf-16")}, "README.md: is not UTF-8 text"),
    ({"README.md": "x" * 1_000_001}, "README.md: is larger than 1000000"),
    ({"prompt.txt": "Draw it."}, "prompt.txt: the prompt lacks the token <OBJECT>"),
    ({"prompt.txt": "<OBJECT> " + "word " * 900}, "prompt.txt: the prompt has 901 words; 900 are allowed"),
    ({"prompt.txt": "<OBJECT> é"}, "prompt.txt: the prompt has characters that the rules do not allow: é (U+00E9)"),
]
# these cannot be run either, so a competition refuses to load them
NOT_RUNNABLE = [
    ({"prompt.txt": None, "Prompt.txt": PROMPT}, ": holds neither prompt.txt nor a program"),
    ({"prompt.txt": b"\xff\xfe<"}, "prompt.txt: is not UTF-8 text"),
    ({"prompt.txt": "  \n"}, "prompt.txt: is empty"),
    ({"prompt.txt": "x" * 1_000_001}, "prompt.txt: is larger than 1000000"),
    ({"submission.yaml": "rol: baseline"}, "submission.yaml: rol: Extra inputs are not permitted. Known keys"),
    ({"submission.yaml": "a: ["}, "submission.yaml: while parsing"),
    ({"submission.yaml": "a: &a [x, x]\ntitle: [*a, *a]"}, "alias"),
    ({"submission.yaml": "title: " + "x" * MAX_NOTES_BYTES}, "larger than 16384"),
    ({"submission.yaml": "entry: main.py"}, "submission.yaml: entry 'main.py' is missing"),
    ({"submission.yaml": "entry: folder.py", "folder.py/x": ""}, "entry 'folder.py' is not a regular file"),
    ({"submission.yaml": "entry: ../team/main.py"}, "entry '../team/main.py' leads out of the folder"),
    ({"submission.yaml": 'entry: "a\\0.py"'}, "is missing"),
    ({"submission.yaml": f"entry: {'x' * 300}.py"}, "cannot be read"),
]
PROGRAMS_NOT_RUNNABLE = [
    ({"old.py": PROGRAM, "README.md": "x"}, "several files start a program: main.py, old.py. Name one in"),
    ({"main.py": PROGRAM + "x = = 1"}, "main.py:14: is not valid Python (invalid syntax)"),
]
ERRORS_OF_PROGRAMS = [
    ({"submission.yaml": "entry: main.py", "main.py": "x = = 1"}, "main.py:1: is not valid Python"),
    ({"requirements.txt": "./wheel.whl\n"}, "requirements.txt:1: './wheel.whl' is no package"),
]


@pytest.mark.parametrize(
    ("given", "changes", "words", "runs"),
    [(PROMPT_FILES, *row, True) for row in ERRORS_OF_ANY]
    + [(PROMPT_FILES, *row, False) for row in NOT_RUNNABLE]
    + [(PROGRAM_FILES, *row, False) for row in PROGRAMS_NOT_RUNNABLE]
    + [(PROGRAM_FILES, *row, True) for row in ERRORS_OF_PROGRAMS],
)
def test_an_error_is_listed_once_with_its_place(tmp_path: Path, given: dict, changes: dict, words: str, runs: bool):
    files = {name: text for name, text in {**given, **changes}.items() if text is not None}
    for path in (write_folder(tmp_path / "team", files), write_zip(tmp_path / "team.zip", files)):
        result = validate(path)
        (line,) = texts(result.findings)
        assert words in line
        assert str(tmp_path) not in line
        assert not any(words in other for other in texts(result.findings, "warning"))
    if runs:
        assert load_submission(tmp_path / "team").team == "team"
    else:
        with pytest.raises(SubmissionError) as caught:
            load_submission(tmp_path / "team")
        assert words.removeprefix(": ") in str(caught.value)
        assert str(caught.value).startswith(str(tmp_path / "team"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.py", "from urllib import request", "a.py:1: imports urllib.request: there is no network"),
        ("a.py", "\nimport openai.types as t", "a.py:2: imports openai: there is no network"),
        ("a.py", "print 'x'", "a.py:1: is not valid Python"),
        ("a.py", "# " + "x" * 2**18, "a.py: is larger than 262144"),
        ("llm4pcg/__init__.py", "", "llm4pcg: is not used"),
        (".env", "KEY=x", ".env: is left out, as all hidden files are"),
        ("submission.yaml", "entry: a.py", "a.py: never calls run_evaluation"),
    ],
)
def test_warnings_about_programs(tmp_path: Path, name: str, content: str, words: str):
    files = {**PROGRAM_FILES, name: content}
    if "entry" in content:
        files |= {"main.py": "", "a.py": ""}
    result = validate(write_folder(tmp_path / "team", files))
    assert result.passed
    assert [line for line in texts(result.findings, "warning") if words in line]


def test_findings_of_a_hostile_program_are_bounded(tmp_path: Path):
    files = {**PROGRAM_FILES, **{f"{number}.py": "import requests\n" * 2000 for number in range(20)}}
    result = validate(write_folder(tmp_path / "team", files))
    assert len(result.findings) == 20
    (line,) = printable_findings(result.findings)
    assert line.startswith("warning: 0.py:1, 1.py:1, 10.py:1, 11.py:1, 12.py:1 and 15 more: imports requests")


def test_the_limits_come_from_params_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_folder(tmp_path / "team", PROMPT_FILES)
    monkeypatch.chdir(tmp_path)
    assert validate(folder).passed
    params = Path(__file__).parents[2] / "params.yaml"
    Path("params.yaml").write_text(re.sub("prompt_words: .*", "prompt_words: 1", params.read_text()))
    (line,) = texts(validate(folder).findings)
    assert "1 are allowed" in line


ALLOWED = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    " ~/\\+,-*'\"`.!@#$%^&()_=[]{}|<>:;?\u2018\u2019\u201c\u201d\u2014\n\t"
)


@given(st.text(max_size=60))
def test_allowed_characters_are_those_of_the_rules(text: str):
    strange = {character for character in text if character not in ALLOWED and not character.isspace()}
    assert len(prompt_findings("<OBJECT> " + text, words=10_000)) == bool(strange)


# Files


def test_links_pipes_and_sockets_are_listed_and_not_opened(tmp_path: Path):
    secret = write_folder(tmp_path / "elsewhere", {"secret": "s"})
    folder = write_folder(tmp_path / "team", {"README.md": README})
    (folder / "to_file").symlink_to(secret / "secret")
    (folder / "to_folder").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    (folder / "prompt.txt").symlink_to("/etc/hostname")
    os.mkfifo(folder / "submission.yaml")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        result = validate(folder)
    refused = [line.partition(": is a link, a pipe")[0] for line in texts(result.findings) if ": is a link, " in line]
    assert refused == ["loop", "prompt.txt", "socket", "submission.yaml", "to_file", "to_folder"]
    assert result.files == 1
    with pytest.raises(SubmissionError, match=r"submission\.yaml: is not a regular file"):
        load_submission(folder)
    (folder / "submission.yaml").unlink()
    with pytest.raises(SubmissionError, match=r"prompt\.txt: is a link"):
        load_submission(folder)
    with pytest.raises(SubmissionError, match="no submission there"):
        load_submission(tmp_path / "beta")


def test_folders_that_are_left_out_are_not_entered(tmp_path: Path):
    environment = {"env/pyvenv.cfg": "x", "env/bin/tool.py": PROGRAM + "import requests, random\nrandom.random()\n"}
    folder = write_folder(tmp_path / "team", {".git/objects/aa/bb": "x", **environment})
    (folder / "env" / "python").symlink_to("/usr/bin/python3")
    (folder / ".git" / "link").symlink_to("/etc")
    assert texts(validate(folder).findings) == [": holds no files"]
    write_folder(folder, PROGRAM_FILES)
    result = validate(folder)
    assert (result.work, result.files, list(result.findings)) == (Program(folder, "main.py"), len(PROGRAM_FILES), [])
    result = validate(write_folder(folder, {"submission.yaml": "entry: env/bin/tool.py"}))
    assert texts(result.findings) == ["submission.yaml: entry 'env/bin/tool.py' is left out. Name another file"]


def test_folders_in_folders_files_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_folder(tmp_path / "many", {f"{number}": "x" for number in range(11)})
    with monkeypatch.context() as patched:
        patched.setattr("pcgeval.submissions.validate._MAX_ENTRIES", 10)
        assert "more than 10" in texts(validate(folder).findings)[0]
    monkeypatch.setattr("pcgeval.submissions.validate.MAX_FILES", 10)
    assert "11 files; 10 are allowed" in texts(validate(folder).findings)[0]
    deep = "/".join(["d"] * 30)
    assert "deeper than 20 folders" in texts(validate(write_folder(tmp_path / "deep", {f"{deep}/x": "x"})).findings)[0]
    folder = write_folder(tmp_path / "huge", PROGRAM_FILES)
    with (folder / "data.bin").open("wb") as file:
        file.truncate(2**40)
    assert any("(1 GB) are allowed with all data" in line for line in texts(validate(folder).findings))


# Names

USUAL = ["prompts/zero shot.txt", "a.b-c_d/(1)/[2]/é.txt", "日本語/プロンプト.txt", "communication"]
USUAL += ["Screenshot 3.04.05\u202fPM.png", "console.py", "nullable/com10.txt", "A/b", "A/B2", "a.txt", "B2"]
UNSTORABLE = ["a\nb", "\x1b[31mred", "\u202etxt.exe", "zero\u200bwidth", "\udcff", "con", "CON.txt", "com1", "LPT9.x"]
UNSTORABLE += ["folder/Nul .tar.gz", "com¹.txt", "a:b", "what?.txt", "a*", '"a"', "<a>", "a|b", "end.", "end "]
UNSTORABLE += [" start", "-rf", "a/-m.py", "/".join(["x" * 99] * 5)]
LEFT_OUT = [".git/config", "a/.GIT/hooks/post-checkout", "__MACOSX/a/._main.py", "a/.DS_Store", "dvc.yaml", "data.dvc"]
LEFT_OUT += ["a/__pycache__/m.cpython-311.pyc", "requirements-lock.txt", "Requirement\u017f-Lock.txt", ".gitattributes"]
LEFT_OUT += ["._main.py", ".main.py.swp", ".env"]
SAME = [("a.txt", "A.txt"), ("Prompts/a.txt", "prompts/b.txt"), ("caf\u00e9", "cafe\u0301"), ("stra\u00dfe", "STRASSE")]
SAME += [("\u212b", "\u00e5"), ("x", "Submission.yaml"), ("x", "\u017fubmission.yaml")]


@pytest.mark.parametrize(
    ("names", "error", "files"),
    [
        (USUAL, None, len(USUAL)),
        *(((name,), "rename it|shorten it", 0) for name in UNSTORABLE),
        *((names, "the same name", 1) for names in SAME),
        *(((name,), None, 0) for name in LEFT_OUT),
    ],
)
def test_names(tmp_path: Path, names: tuple[str, ...], error: str | None, files: int):
    result = validate(write_folder(tmp_path, {**PROMPT_FILES, **dict.fromkeys(names, "x")}))
    assert [bool(re.search(error or "$^", line)) for line in texts(result.findings)] == ([True] if error else [])
    assert result.files == len(PROMPT_FILES) + files


@given(st.text(max_size=50))
def test_any_name_gets_an_answer(name: str):
    assert name_fault(f"{name}\0") is not None
    assert name_fault(f"{name}{'é' * 201}") is not None


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "text.txt").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:  # which may hold links
        archive.add(write_folder(tmp_path / "good", PROMPT_FILES), arcname="good")
    for name in ("missing", "text.txt", "pipe", "a.tar"):
        assert main(["validate", str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err
    folder = write_folder(tmp_path / "team", PROGRAM_FILES)
    assert main(["validate", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    write_folder(folder, {"helper.py": "import requests", "requirements.txt": "-e .\n./x\n"})
    (folder / "README.md").unlink()
    (folder / "\x1b[2Jevil\u202e.txt").write_text("x")
    assert main(["validate", str(folder)]) == 1
    first, *others = capsys.readouterr().out.splitlines()  # all problems at once, errors first
    assert first == "error: \\x1b[2Jevil\\u202e.txt: has unprintable characters; rename it"
    starts = ("error: has no README.md", *["error: requirements.txt:"] * 2, "warning: helper.py:1: imports requests")
    assert [line.startswith(start) for line, start in zip(others, starts, strict=True)] == [True] * 4
    assert main(["validate", str(folder), "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert (values["passed"], values["kind"], values["entry"], values["files"]) == (False, "program", "main.py", 4)
    assert values["findings"][0]["severity"] == "error"
