"""Participants are told every problem of a submission at once, however people and attackers hand it in."""

import json
import os
import re
import socket
import tarfile
from pathlib import Path

import pytest
from handed_in_for_tests import PROGRAM, PROGRAM_FILES, PROMPT, PROMPT_FILES, README, texts, write_folder, write_zip
from hypothesis import given, strategies as st

from pcgeval.cli.main import main
from pcgeval.generation import runners
from pcgeval.submissions.load import Program, SubmissionError, load_submission, prompt_findings
from pcgeval.submissions.validate import PUBLISHED_LIMITS, check, printable_findings, validate

USUAL = ["prompts/zero shot.txt", "a.b-c_d/(1)/[2]/é.txt", "日本語/プロンプト.txt", "communication"]
USUAL += ["Screenshot 3.04.05\u202fPM.png", "console.py", "nullable/com10.txt", "A/b", "A/B2", "a.txt", "B2"]
HELPER = "\ufeffimport os, json, cv2, dotenv\nfrom . import b, requests\nimport llm4pcg\nfolder = '.\\prompts'\n"
GOOD_PROMPT = {**PROMPT_FILES, **dict.fromkeys(USUAL, "x")}
REQUIREMENTS = "llms4pcg\nnumpy\nsome-package-of-theirs\n"
OLD = "# coding: latin-1\nx = 'é'\n".encode("latin-1")
GOOD_PROGRAM = {**PROGRAM_FILES, "helper.py": HELPER.encode(), "old.py": OLD, "requirements.txt": REQUIREMENTS}


@pytest.mark.parametrize(("kind", "files"), [("prompt", GOOD_PROMPT), ("program", GOOD_PROGRAM)])
def test_good_submissions_have_no_findings_also_in_a_single_folder(tmp_path: Path, kind: str, files: dict):
    wrapped = {f"My Team: final/v2/{name}": text for name, text in files.items()}
    wrapped["__MACOSX/My Team: final/._a"] = "x"
    for path in (
        write_folder(tmp_path / "team", files),
        write_folder(tmp_path / "outer", {f"inner/{name}": text for name, text in files.items()}),
        write_zip(tmp_path / "...zip", files),
        write_zip(tmp_path / "wrapped.zip", wrapped),
    ):
        result = validate(path)
        assert (result.passed, list(result.findings), result.kind) == (True, [], kind)
        assert (result.files, result.size) == (len(files), sum(len(file) for file in files.values()))


ERRORS = [
    (PROMPT_FILES, {"README.md": None}, ": has no README.md"),
    (PROMPT_FILES, {"README.md": " \n\ufeff"}, "README.md: is empty"),
    (PROMPT_FILES, {"prompt.txt": "Draw it."}, "prompt.txt: the prompt lacks the token <OBJECT>"),
    (PROMPT_FILES, {"prompt.txt": "<OBJECT> é"}, "prompt.txt: the prompt has characters that the rules do not"),
    (PROGRAM_FILES, {"requirements.txt": "./wheel.whl\n"}, "requirements.txt:1: './wheel.whl' is no package"),
]
# a competition refuses to load these, too, because they cannot be run
NOT_RUNNABLE = [
    (PROMPT_FILES, {"prompt.txt": None, "Prompt.txt": PROMPT}, "Prompt.txt: is not read. Name it prompt.txt"),
    (PROMPT_FILES, {"prompt.txt": b"\xff\xfe<"}, "prompt.txt: is UTF-16 text"),
    (PROMPT_FILES, {"prompt.txt": "  \n"}, "prompt.txt: is empty"),
    (PROMPT_FILES, {"prompt.txt": "x" * 1_000_001}, "prompt.txt: is larger than 1000000"),
    (PROGRAM_FILES, {"old.py": PROGRAM, "README.md": "x"}, "several files start a program: main.py, old.py. Write"),
    (PROGRAM_FILES, {"main.py": PROGRAM + "x = = 1"}, "main.py:14: is not valid Python (invalid syntax)"),
]


@pytest.mark.parametrize(("given", "changes", "words"), [*ERRORS, *NOT_RUNNABLE])
def test_an_error_is_listed_once_with_its_place(tmp_path: Path, given: dict, changes: dict, words: str):
    files = {name: text for name, text in {**given, **changes}.items() if text is not None}
    folder = write_folder(tmp_path / "team", files)
    findings = validate(folder).findings
    (line,) = texts(findings)
    assert words in line
    assert str(tmp_path) not in line
    assert not any(words in other for other in texts(findings, "warning"))
    if (given, changes, words) in NOT_RUNNABLE:
        with pytest.raises(SubmissionError, match=re.escape(f"{folder}")) as caught:
            load_submission(folder)
        assert words.removeprefix(": ") in str(caught.value)
    else:
        assert load_submission(folder).team == "team"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a.py": "\nfrom urllib import request"}, "a.py:2: imports urllib.request: there is no network"),
        ({"a.py": "print 'x'"}, "a.py:1: is not valid Python"),
        ({"llm4pcg/__init__.py": ""}, "llm4pcg: is not used"),
        ({".env": "KEY=x"}, ".env: is left out, as all hidden files are"),
        ({".gitprompt": "Build it."}, ".gitprompt: is left out, as all hidden files are"),
    ],
)
def test_warnings_about_programs(tmp_path: Path, changes: dict[str, str], words: str):
    result = validate(write_folder(tmp_path / "team", {**PROGRAM_FILES, **changes}))
    assert result.passed
    assert words in "\n".join(texts(result.findings, "warning"))


LOOP = PROGRAM[PROGRAM.index("class Mine") : PROGRAM.index("if __name__")]
MAIN = PROGRAM[PROGRAM.index("if __name__") :]
NUMPY = {"main.py": "import numpy as np\n" + PROGRAM}
FUNCTION = PROGRAM.replace(LOOP, "def mine(ctx, target_character):\n    return ''\n").replace("Mine,", "mine,")
WITHOUT_REQUIREMENTS = {**PROGRAM_FILES, "requirements.txt": "# the competition's package\nllms4pcg\n"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (NUMPY, "^error: main.py:1: imports numpy, .* into requirements.txt, such as `numpy`"),
        ({"main.py": "from PIL import Image\n" + PROGRAM}, "^error: main.py:1: imports PIL, .*, such as `pillow`"),
        ({**NUMPY, "requirements.txt": "numpy\n"}, None),
        ({**NUMPY, "requirements.txt": "pandas\n"}, None),  # which brings numpy
        ({**NUMPY, "numpy/__init__.py": ""}, None),
        ({**NUMPY, "packages.zip": ""}, None),  # which may hold it
        ({"main.py": "import helper\n" + PROGRAM}, "^error: main.py:1: imports helper, which is neither"),
        ({"main.py": "import numpy\n" + PROGRAM, "data/numpy.txt": "x"}, "^error: main.py:1: imports numpy, which is"),
        (
            {"main.py": None, "src/main.py": "from src import shapes, b\nimport b\n" + PROGRAM, "src/b.py": ""},
            "^warning: src/main.py:1: imports src; src is not beside src/main.py, where Python looks: move it",
        ),
        ({"main.py": "import a\n" + PROGRAM, "src/a.py": ""}, "^warning: main.py:1: imports a; src/a.py is not beside"),
        ({"tools/a.py": "import b", "tools/b.py": ""}, None),  # which may be started by itself
        (
            {"main.py": "import Helper\n" + PROGRAM, "helper.py": ""},
            "^error: main.py:1: imports Helper, .*; helper.py differs only in case: correct the import, or rename it",
        ),
        (
            {**NUMPY, "requirements.txt": None, "Requirements.txt": "numpy\n"},
            "^error: main.py:1: imports numpy, .*; rename Requirements.txt to requirements.txt$",
        ),
        (
            {"main.py": "from tools import a\n" + PROGRAM, "tools/__init__.py": "import b", "b.py": "import numpy"},
            "^error: b.py:1: imports numpy",
        ),
        ({"main.py": "import helper\n" + PROGRAM, "helper.py": "x = = 1"}, "^error: helper.py:1: is not valid Python"),
        (
            {"main.py": "import table\n" + PROGRAM, "table.py": "#" * 300_000},
            "^warning: table.py: is larger than 262144 bytes and was not parsed",
        ),
        ({"main.py": "import requests\n" + PROGRAM}, "^error: main.py:1: imports requests: there is no network; ask"),
        ({"main.py": "import dotenv, openai, tqdm\n" + PROGRAM}, "^warning: main.py:1: imports openai: there is no"),
        ({"main.py": PROGRAM.replace("text =", "import numpy\n        text =")}, "^warning: main.py:8: imports numpy"),
        ({"main.py": "try:\n    import numpy\nexcept ImportError:\n    pass\n" + PROGRAM}, None),
        ({"prompt.txt": PROMPT}, "^warning: prompt.txt: is not asked, because main.py starts a program"),
        (
            {"prompt.txt": PROMPT, "main.py": PROGRAM.replace("TrialLoop", "L").replace("run_evaluation", "r")},
            "^warning: main.py: is not run, because prompt.txt counts",
        ),
        (
            {"main.py": None, "prompt.txt": "\ufeff" + PROMPT},
            "^warning: prompt.txt: begins with a byte order mark, .*; save it as UTF-8 without BOM",
        ),
        ({"main.py": None, "prompt.md": PROMPT}, "^error: prompt.md: is not read. Name it prompt.txt"),
        ({"main.py": None, "Prompt.TXT": PROMPT, "plot.py": ""}, "^error: Prompt.TXT: is not read. Name it"),
        (
            {"main.py": None},
            "^error: holds neither prompt.txt, with <OBJECT> .*, nor a program. A program imports .* under `if",
        ),
        ({"main.py": "import openai\n"}, "^error: main.py: is no program: it imports none of .*A program imports"),
        (
            {"main.py": "from llms4pcg.competition import chat_with_llm\n"},
            "^error: main.py: names neither TrialLoop nor run_evaluation. A program imports TrialLoop, .* has a class",
        ),
        ({"main.py": FUNCTION}, r"^error: main.py:\d+: gives run_evaluation the function mine; give it a sub"),
        (
            {
                "main.py": PROGRAM.replace(MAIN, "if __name__ == '__main__':\n    Mine.run(None, 'I')\n").replace(
                    ", run_evaluation", ""
                )
            },
            "^error: main.py: never calls run_evaluation, without which no trial is run",
        ),
        (
            {"main.py": PROGRAM.replace(MAIN, MAIN.replace('if __name__ == "__main__"', "if True"))},
            '^error: main.py: has no `if __name__ == "__main__":`, under which a program calls',
        ),
    ],
)
def test_a_usual_mistake_is_named_with_what_to_write(tmp_path: Path, changes: dict, words: str | None):
    files = {name: text for name, text in {**WITHOUT_REQUIREMENTS, **changes}.items() if text is not None}
    result = validate(write_folder(tmp_path / "team", files))
    lines = printable_findings(result.findings)
    assert len(lines) == (words is not None), lines
    assert result.passed == (words is None or words.startswith("^warning"))
    if words:
        assert re.search(words, lines[0])


def test_what_the_sandbox_has_in_place_of_a_package_is_not_missing(tmp_path: Path):
    names = sorted(path.stem for path in Path(runners.GUEST, "stand_ins").glob("*.py"))
    imports = f"import {', '.join(names)}\n"
    result = validate(write_folder(tmp_path / "team", {**WITHOUT_REQUIREMENTS, "main.py": imports + PROGRAM}))
    assert names
    assert result.passed, printable_findings(result.findings)


def test_findings_of_a_hostile_program_are_bounded(tmp_path: Path):
    files = {**PROGRAM_FILES, **{f"{number}.py": "import requests\n" * 2000 for number in range(20)}}
    result = validate(write_folder(tmp_path / "team", files))
    assert len(result.findings) == 20
    (line,) = printable_findings(result.findings)
    assert line.startswith("warning: 0.py:1, 1.py:1, 10.py:1, 11.py:1, 12.py:1 and 15 more: imports requests")


ALLOWED = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    " ~/\\+,-*'\"`.!@#$%^&()_=[]{}|<>:;?\u2018\u2019\u201c\u201d\u2014\n\t\ufeff"
)


@given(st.text(max_size=60))
def test_allowed_characters_are_those_of_the_rules(text: str):
    strange = {character for character in text if character not in ALLOWED and not character.isspace()}
    assert len(prompt_findings("<OBJECT> " + text, words=10_000)) == bool(strange)


def test_links_pipes_and_sockets_are_listed_and_not_opened(tmp_path: Path):
    folder = write_folder(tmp_path / "team", {"README.md": README})
    for name, target in (("loop", folder), ("main.py", "/etc/passwd"), ("prompt.txt", "/etc/hostname")):
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "submission.yaml")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        result = validate(folder)
    refused = [line.partition(": is a link, a pipe")[0] for line in texts(result.findings) if ": is a link, " in line]
    assert refused == ["loop", "main.py", "prompt.txt", "socket", "submission.yaml"]
    assert result.files == 1
    with pytest.raises(SubmissionError, match=r"loop: is a link"):
        load_submission(folder)
    with pytest.raises(SubmissionError, match="no submission there"):
        load_submission(tmp_path / "beta")


LEFT_OUT = [".git/config", "a/.GIT/hooks/x", "__MACOSX/a/._m.py", "dvc.yaml", "data.dvc", ".main.py.swp"]
LEFT_OUT += ["a/__pycache__/m.cpython-311.pyc", "DVC.yaml"]


def test_what_is_left_out_is_not_even_entered(tmp_path: Path):
    environment = {"env/pyvenv.cfg": "x", "env/bin/tool.py": PROGRAM + "import requests, random\nrandom.random()\n"}
    folder = write_folder(tmp_path / "team", {".git/objects/aa/bb": "x", **environment})
    (folder / "env" / "python").symlink_to("/usr/bin/python3")
    (folder / ".git" / "link").symlink_to("/etc")
    assert texts(validate(folder).findings) == [": the submission holds no files"]
    result = validate(write_folder(folder, {**PROGRAM_FILES, **dict.fromkeys(LEFT_OUT, "x")}))
    assert (result.work, result.files, list(result.findings)) == (Program(folder, "main.py"), len(PROGRAM_FILES), [])
    result = check(folder, PUBLISHED_LIMITS, entry="env/bin/tool.py")
    assert texts(result.findings) == ["env/bin/tool.py: starts the program and is left out. Name another file"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("gone.py", "entry 'gone.py' of params.yaml is missing"),
        ("../team/main.py", "leads out of the folder"),
        ("./-c.py", "is not the name of a .py file"),
        ("broken.py", "broken.py:1: is not valid Python"),
        ("a.py", "a.py: never calls run_evaluation"),
    ],
)
def test_the_entry_that_the_organiser_names_starts_the_program(tmp_path: Path, entry: str, words: str):
    files = {"README.md": README, "-c.py": "", "broken.py": "x = = 1", "a.py": "", "submission.yaml": "entry: main.py"}
    result = check(write_folder(tmp_path / "team", files), PUBLISHED_LIMITS, entry=entry)
    assert words in "\n".join([*texts(result.findings), *texts(result.findings, "warning")])


def test_folders_in_folders_files_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    huge, deep = write_folder(tmp_path / "huge", PROGRAM_FILES), "/".join(["d"] * 30)
    with (huge / "data.bin").open("wb") as file:
        file.truncate(2**40)
    assert "(1 GB) are allowed with all data" in texts(validate(huge).findings)[0]
    assert "deeper than 20 folders" in texts(validate(write_folder(tmp_path / "deep", {f"{deep}/x": "x"})).findings)[0]
    many = write_folder(tmp_path / "many", {f"{number}": "x" for number in range(11)})
    for constant, words in (("MAX_FILES", "11 files; 10 are allowed"), ("_MAX_ENTRIES", "more than 10")):
        monkeypatch.setattr(f"pcgeval.submissions.validate.{constant}", 10)
        assert words in texts(validate(many).findings)[0]


UNSTORABLE = ["a\nb", "\u202etxt.exe", "zero\u200bwidth", "\udcff", "con", "folder/Nul .tar.gz", "com¹.txt", "a:b"]
UNSTORABLE += ["what?.txt", "end.", "end ", " start", "-rf", "a/-m.py", "/".join(["x" * 99] * 5)]
SAME = [("Prompts/a.txt", "prompts/b.txt"), ("caf\u00e9", "cafe\u0301"), ("stra\u00dfe", "STRASSE")]
SAME += [("\u212b", "\u00e5")]


@pytest.mark.parametrize(
    ("names", "error"),
    [*(((name,), "rename it|shorten it") for name in UNSTORABLE), *((names, "the same name") for names in SAME)],
)
def test_a_name_must_mean_the_same_file_on_every_disk(tmp_path: Path, names: tuple[str, ...], error: str):
    (line,) = texts(validate(write_folder(tmp_path, {**PROMPT_FILES, **dict.fromkeys(names, "x")})).findings)
    assert re.search(error, line)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    os.mkfifo(tmp_path / "pipe")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:  # which may hold links
        archive.add(write_folder(tmp_path / "good", PROMPT_FILES), arcname="good")
    for name in ("missing", "pipe", "a.tar"):
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
