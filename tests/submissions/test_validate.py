"""Participants are told every problem of a submission at once, however people and attackers hand it in."""

import json
import os
import re
import socket
from pathlib import Path

import pytest
from handed_in_for_tests import PROGRAM, PROGRAM_FILES, PROMPT, PROMPT_FILES, README, texts, write_folder, write_zip
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.cli.main import main
from pcgeval.core.untrusted import UntrustedFileError
from pcgeval.submissions.hand_in import SubmissionFinding, copy_files, name_fault, printable_findings, select
from pcgeval.submissions.load import Program
from pcgeval.submissions.validate import validate


@pytest.mark.parametrize("files", [PROMPT_FILES, PROGRAM_FILES])
def test_good_submissions_have_no_findings(tmp_path: Path, files: dict[str, str]):
    archives = [write_zip(tmp_path / name, files) for name in ("team.zip", "...zip")]
    for path in (write_folder(tmp_path / "team", files), *archives):
        result = validate(path)
        assert result.findings == ()
        assert result.passed
        assert (result.files, result.size) == (len(files), sum(len(file) for file in files.values()))
        assert (result.kind == "program") == ("main.py" in files)


def test_a_single_folder_is_unwrapped(tmp_path: Path):
    files = {f"My Team: final/v2/{name}": text for name, text in PROGRAM_FILES.items()}
    result = validate(write_zip(tmp_path / "x.zip", {**files, "__MACOSX/My Team: final/._a": "x"}))
    assert (result.passed, result.kind) == (True, "program")
    assert any("My Team: final/v2/: holds everything" in line for line in texts(result.findings, "note"))
    folder = write_folder(tmp_path / "outer", {f"inner/{name}": text for name, text in PROGRAM_FILES.items()})
    assert validate(folder).work == Program(folder / "inner", "main.py")


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
    result = validate(write_zip(tmp_path / "x.zip", files))
    errors, warnings = "\n".join(texts(result.findings)), "\n".join(texts(result.findings, "warning"))
    for words in (
        "has no README.md",
        "nul.txt: has a name that Windows cannot store",
        "requirements.txt:1: '-e .'",
        "requirements.txt:2: 'git+",
        "has on some disks the same name as prompts/ONE.txt",
    ):
        assert words in errors
    for words in (
        "helper.py:1: imports requests: there is no network",
        "helper.py:3 uses random, which no file of the program gives a seed",
        "submission.yaml: role and disqualified",
    ):
        assert words in warnings
    assert texts(result.findings, "note") == [".DS_Store: was left out (of the operating system)"]


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
        ({"prompt.txt": None, "Prompt.txt": PROMPT}, "Prompt.txt: is not read as the prompt; rename it to prompt.txt"),
        ({"prompt.txt": None, "PROMPT.TXT": PROMPT}, "PROMPT.TXT: is not read as the prompt"),
        ({"prompt.txt": None, "prompts.txt": PROMPT}, "prompts.txt: is not read as the prompt"),
        ({"prompt.txt": None, "promt.md": PROMPT}, "promt.md: is not read as the prompt"),
    ],
)
def test_errors_of_prompts(tmp_path: Path, changes: dict[str, str | bytes | None], words: str):
    files = {name: text for name, text in {**PROMPT_FILES, **changes}.items() if text is not None}
    for path in (write_folder(tmp_path / "team", files), write_zip(tmp_path / "team.zip", files)):
        (line,) = texts(validate(path).findings)
        assert words in line
        assert str(tmp_path) not in line


WITHOUT_START = PROGRAM.partition("if __name__")[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"old.py": PROGRAM, "README.md": "x"}, "not clear which file starts the program: main.py, old.py"),
        ({"main.py": PROGRAM + "x = = 1"}, "main.py:14: is not valid Python (invalid syntax)"),
        ({"main.py": PROGRAM + "x = (\n", "README.md": "x"}, "main.py:14: is not valid Python ('(' was never"),
        ({"main.py": PROGRAM.encode("utf-16")}, "main.py: is UTF-16 text"),
        ({"main.py": PROGRAM + "\0"}, "main.py: is not valid Python"),
        ({"submission.yaml": "entry: main.py", "main.py": "x = = 1"}, "main.py:1: is not valid Python"),
        ({"requirements.txt": "./wheel.whl\n"}, "requirements.txt:1: './wheel.whl' is no package"),
        ({"main.py": WITHOUT_START}, "has Mine, a subclass of TrialLoop, but nothing starts it. End the file with"),
        ({"main.py": WITHOUT_START, "prompt.txt": PROMPT}, "Or write `kind: prompt` in"),
    ],
)
def test_errors_of_programs(tmp_path: Path, changes: dict[str, str | bytes], words: str):
    result = validate(write_folder(tmp_path / "team", {**PROGRAM_FILES, **changes}))
    assert words in texts(result.findings)[0]
    assert not any(words in line for line in texts(result.findings, "warning"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.py", "import httpx", "a.py:1: imports httpx: there is no network"),
        ("a.py", "from urllib import request", "a.py:1: imports urllib.request: there is no network"),
        ("a.py", "import openai", "a.py:1: imports openai: there is no network"),
        ("a.py", "print 'x'", "a.py:1: is not valid Python"),
        ("a.py", "# " + "x" * 2**18, "a.py: is larger than 262144"),
        ("llm4pcg/__init__.py", "", "llm4pcg: is not used"),
        ("README.md", "# Alpha\n", "README.md: does not say how to run the program, such as `python main.py`"),
        ("main.py", PROGRAM + "    run_evaluation('b', Mine)\n", "main.py: calls run_evaluation 2 times"),
        ("main.py", PROGRAM.replace('if __name__ == "__main__"', "if True"), "main.py: has no `if __name__"),
        ("main.py", PROGRAM.replace("run_evaluation(", "print("), "main.py: never calls run_evaluation"),
        ("prompt.txt", PROMPT, "prompt.txt: is not used: `python main.py` is run"),
        ("src/main.py", PROGRAM, "src/main.py: is started as `python src/main.py` in the submission's folder"),
    ],
)
def test_warnings_about_programs(tmp_path: Path, name: str, content: str, words: str):
    files = {**PROGRAM_FILES, name: content}
    if name == "src/main.py":
        files |= {"README.md": "python src/main.py", "main.py": ""}
    result = validate(write_folder(tmp_path / "team", files))
    assert result.passed
    assert [line for line in texts(result.findings, "warning") if words in line]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.py", "import os, json\nimport helper\nfrom . import b, requests\nimport llm4pcg, dotenv"),
        ("requirements.txt", "llms4pcg\nopencv-python-headless\nnumpy\nsome-package-of-theirs\n"),
        ("README.md", "Start it: python3 ./main.py\n"),
        ("old.py", PROGRAM),  # the README says which
    ],
)
def test_what_is_fine_is_not_warned_about(tmp_path: Path, name: str, content: str):
    files = {**PROGRAM_FILES, "helper.py": "import cv2", name: content}
    assert validate(write_folder(tmp_path / "team", files)).findings == ()


@pytest.mark.parametrize("name", ["README", "readme.txt", "ReadMe.md"])
def test_a_readme_by_another_name_is_told(tmp_path: Path, name: str):
    (line,) = texts(validate(write_folder(tmp_path, {name: README, "prompt.txt": PROMPT})).findings, "warning")
    assert f"{name}: is not called README.md" in line


def test_findings_of_a_hostile_program_are_bounded(tmp_path: Path):
    files = {**PROGRAM_FILES, **{f"{number}.py": "import requests\n" * 2000 for number in range(20)}}
    result = validate(write_folder(tmp_path / "team", files))
    assert len(result.findings) < 1200
    assert len(printable_findings(result.findings)) < 20


def test_the_same_about_many_places_is_said_once():
    findings = [SubmissionFinding("warning", f"{number}", "is odd") for number in range(8)]
    findings.append(SubmissionFinding("error", "", "is bad"))
    assert printable_findings(findings * 2) == ["error: is bad", "warning: 0, 1, 2, 3, 4 and 3 more: is odd"]


def test_the_limits_come_from_params_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_folder(tmp_path / "team", PROMPT_FILES)
    monkeypatch.chdir(tmp_path)
    assert validate(folder).passed
    params = Path(__file__).parents[2] / "params.yaml"
    Path("params.yaml").write_text(re.sub("prompt_words: .*", "prompt_words: 1", params.read_text()))
    (line,) = texts(validate(folder).findings)
    assert "1 are allowed" in line


# Files


def test_links_pipes_and_sockets_are_told_and_not_opened(tmp_path: Path):
    secret = write_folder(tmp_path / "elsewhere", {"secret": "s"})
    folder = write_folder(tmp_path / "team", PROMPT_FILES)
    (folder / "to_file").symlink_to(secret / "secret")
    (folder / "to_folder").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        result = validate(folder)
    links, others = ["dangling", "loop", "to_file", "to_folder"], ["pipe", "socket"]
    assert [line.partition(": is a link")[0] for line in texts(result.findings) if "is a link" in line] == links
    assert [line.partition(": is a pipe, a")[0] for line in texts(result.findings) if "a socket" in line] == others
    assert result.files == len(PROMPT_FILES)


def test_folders_that_are_left_out_are_not_entered(tmp_path: Path):
    folder = write_folder(tmp_path, {".git/objects/aa/bb": "x", "env/pyvenv.cfg": "x", "env/lib/x.py": "x", "a": "x"})
    (folder / "env" / "python").symlink_to("/usr/bin/python3")
    (folder / ".git" / "link").symlink_to("/etc")
    result = validate(folder)
    assert result.files == 1
    left_out = [line.partition(" was left out")[0] for line in texts(result.findings, "note")]
    assert left_out == [".git:", "env:"]


def test_folders_in_folders_files_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_folder(tmp_path / "many", {f"{number}": "x" for number in range(11)})
    with monkeypatch.context() as patched:
        patched.setattr("pcgeval.submissions.hand_in._MAX_ENTRIES", 10)
        assert "more than 10" in texts(validate(folder).findings)[0]
    monkeypatch.setattr("pcgeval.submissions.validate.MAX_FILES", 10)
    assert "11 files; 10 are allowed" in texts(validate(folder).findings)[0]
    deep = "/".join(["d"] * 30)
    assert "deeper than 20 folders" in texts(validate(write_folder(tmp_path / "deep", {f"{deep}/x": "x"})).findings)[0]
    folder = write_folder(tmp_path / "huge", PROGRAM_FILES)
    with (folder / "data.bin").open("wb") as file:
        file.truncate(2**40)
    assert any("(1 GB) are allowed with all data" in line for line in texts(validate(folder).findings))


@pytest.mark.parametrize("becomes", ["nothing", "a link", "a pipe"])
def test_a_file_that_became_something_else_is_not_followed(tmp_path: Path, becomes: str):
    folder = write_folder(tmp_path / "team", {"a": "x"})
    source, sizes, _ = select(folder)
    (folder / "a").unlink()
    if becomes == "a link":
        (folder / "a").symlink_to("/etc/passwd")
    elif becomes == "a pipe":
        os.mkfifo(folder / "a")
    with pytest.raises(UntrustedFileError):
        copy_files(source, sizes, tmp_path / "target")
    assert not any(path.is_file() for path in (tmp_path / "target").rglob("*"))


# Names

USUAL = ["main.py", "prompts/zero shot.txt", "a.b-c_d/(1)/[2]/é.txt", "日本語/プロンプト.txt", "communication", ".env"]
USUAL += ["Screenshot 3.04.05\u202fPM.png", "console.py", "nullable/com10.txt", "A/b", "A/B2", "a.txt", "B2"]
UNSTORABLE = [
    "a\nb",
    "\x1b[31mred",
    "\u202etxt.exe",
    "zero\u200bwidth",
    "\udcff",
    "con",
    "CON.txt",
    "folder/Nul .tar.gz",
]
UNSTORABLE += ["com1", "LPT9.x", "com¹.txt", "a:b", "what?.txt", "a*", '"a"', "<a>", "a|b", "end.", "end ", " start"]
UNSTORABLE += ["-rf", "a/-m.py", "/".join(["x" * 99] * 5)]
LEFT_OUT = [".git/config", "a/.GIT/hooks/post-checkout", "__MACOSX/a/._main.py", "a/.DS_Store", "dvc.yaml", "data.dvc"]
LEFT_OUT += ["a/__pycache__/m.cpython-311.pyc", "requirements-lock.txt", "Requirement\u017f-Lock.txt", ".gitattributes"]
LEFT_OUT += ["._main.py", ".main.py.swp"]
SAME = [("a.txt", "A.txt"), ("Prompts/a.txt", "prompts/b.txt"), ("caf\u00e9", "cafe\u0301"), ("stra\u00dfe", "STRASSE")]
SAME += [("\u212b", "\u00e5"), ("x", "Submission.yaml"), ("x", "\u017fubmission.yaml")]


def name_findings(folder: Path, *names: str) -> tuple[list[str], list[str]]:
    """Return the errors and notes about files of these names."""
    findings = validate(write_folder(folder, {**PROMPT_FILES, **dict.fromkeys(names, "x")})).findings
    return texts(findings), texts(findings, "note")


def test_names_that_every_disk_can_store(tmp_path: Path):
    assert name_findings(tmp_path, *USUAL) == ([], [])


@pytest.mark.parametrize("name", UNSTORABLE)
def test_names_that_some_disk_cannot_store_are_told(tmp_path: Path, name: str):
    (line,) = name_findings(tmp_path, name)[0]
    assert re.search(r"rename it|shorten it", line)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_no_part_of_a_submission(tmp_path: Path, name: str):
    errors, (note,) = name_findings(tmp_path, name)
    assert errors == []
    assert name.startswith(note.partition(":")[0])


@pytest.mark.parametrize("names", SAME)
def test_names_that_a_disk_takes_for_one_another_are_told(tmp_path: Path, names: tuple[str, str]):
    (line,) = name_findings(tmp_path, *names)[0]
    assert "the same name" in line


@given(st.text(max_size=50))
def test_any_name_gets_an_answer(name: str):
    assert name_fault(f"{name}\0") is not None
    assert name_fault(f"{name}{'é' * 128}") is not None


# The command


@pytest.mark.parametrize("name", ["missing", "text.txt", "pipe"])
def test_what_is_neither_folder_nor_zip_is_bad_input(tmp_path: Path, name: str):
    (tmp_path / "text.txt").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    assert main(["validate", str(tmp_path / name)]) == 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write_folder(tmp_path / "team", PROGRAM_FILES)
    assert main(["validate", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    (folder / "README.md").unlink()
    (folder / "\x1b[2Jevil\u202e.txt").write_text("x")
    assert main(["validate", str(folder)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == "error: \\x1b[2Jevil\\u202e.txt: has unprintable characters; rename it [file-name]"
    assert second.startswith("error: has no README.md")
    assert main(["validate", str(folder), "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert (values["passed"], values["kind"], values["entry"], values["files"]) == (False, "program", "main.py", 3)
    assert values["findings"][0]["severity"] == "error"
