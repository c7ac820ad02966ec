"""Finding the file that starts a program, without running any of it."""

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.submissions.lint import EntrySearch
from pcgeval.submissions.lint import find_entry as find_entry_among
from pcgeval.submissions.sources import (
    MAX_SOURCE_BYTES,
    SourceError,
    find_readme,
    parse_source,
    python_file,
    python_files,
)

LOOP = "class Mine({base}):\n    @staticmethod\n    def run(ctx, target_character):\n        return ''\n"
MAIN = "if __name__ == '__main__':\n    {call}('team', Mine)\n"
WHOLE = (
    "from llms4pcg.competition import run_evaluation\nfrom llms4pcg.models.trial_loop import TrialLoop\n"
    + LOOP.format(base="TrialLoop")
    + MAIN.format(call="run_evaluation")
)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def find_entry(folder: Path) -> EntrySearch:
    return find_entry_among(folder, list(python_files(folder)))


def names(folder: Path) -> list[str]:
    return [part.name for part in find_entry(folder).candidates]


@pytest.mark.parametrize("package", ["chatgpt4pcg", "llm4pcg", "llms4pcg"])
@pytest.mark.parametrize(
    ("imports", "base", "call"),
    [
        ("from {0}.competition import run_evaluation, TrialLoop", "TrialLoop", "run_evaluation"),
        ("from {0}.competition import run_evaluation as go, TrialLoop as T", "T", "go"),
        ("from {0}.competition import *", "TrialLoop", "run_evaluation"),
        (
            "import {0}.competition, {0}.models.trial_loop",
            "{0}.models.trial_loop.TrialLoop",
            "{0}.competition.run_evaluation",
        ),
        ("import {0}.competition as c\nimport {0}.models.trial_loop as t", "t.TrialLoop", "c.run_evaluation"),
        ("from {0} import competition, models", "models.trial_loop.TrialLoop", "competition.run_evaluation"),
        ("from {0}.models import trial_loop as t\nfrom {0} import competition as c", "t.TrialLoop", "c.run_evaluation"),
        ("import {0} as p\nBase = p.models.trial_loop.TrialLoop\ngo = p.competition.run_evaluation", "Base", "go"),
        ("try:\n    from {0}.competition import *\nexcept ImportError:\n    raise", "TrialLoop", "run_evaluation"),
    ],
)
def test_every_way_to_import_the_interface(package: str, imports: str, base: str, call: str):
    source = "\n".join([imports, LOOP.format(base=base), MAIN.format(call=call)]).replace("{0}", package)
    file = python_file("x.py", source.encode())
    assert (file.loop, file.has_main, file.starts) == ("Mine", True, 1)


@pytest.mark.parametrize(
    "source",
    [
        "class TrialLoop: pass\n" + LOOP.format(base="TrialLoop") + MAIN.format(call="run_evaluation"),
        "from .llm4pcg import *\n" + LOOP.format(base="TrialLoop"),
        "from other.models.trial_loop import TrialLoop\n" + LOOP.format(base="TrialLoop"),
        "# from llm4pcg.competition import TrialLoop, run_evaluation\nif __name__ != '__main__':\n    pass\n",
    ],
)
def test_other_classes_of_that_name_do_not_count(source: str):
    file = python_file("x.py", source.encode())
    assert (file.loop, file.starts) == ("", 0)
    assert find_entry_among(Path("none"), [file]).entry is None


def test_one_file_among_helpers_and_evaluation_scripts(tmp_path: Path):
    write(
        tmp_path,
        {
            "tot.py": WHOLE,
            "helpers.py": "def f():\n    return 1\n",
            "evaluation.py": "import os\nif __name__ == '__main__':\n    print(os.listdir('raw'))\n",
            "broken_tool.py": "if __name__ == '__main__':\n    print 'Python 2'\n",
            "chatgpt4pcg/competition.py": "class TrialLoop: pass\ndef run_evaluation(): pass\n" + WHOLE,
            "venv/lib/site-packages/x.py": WHOLE,
            ".hidden/old.py": WHOLE,
        },
    )
    assert find_entry(tmp_path).entry == "tot.py"
    assert names(tmp_path) == ["tot.py"]


def test_class_and_start_in_different_modules(tmp_path: Path):
    loop = "from llm4pcg.competition import TrialLoop\n" + LOOP.format(base="TrialLoop")
    main = "from llm4pcg.competition import run_evaluation\nfrom loop import Mine\n" + MAIN.format(
        call="run_evaluation"
    )
    write(tmp_path, {"loop.py": loop, "main.py": main})
    assert find_entry(tmp_path).entry == "main.py"


def test_the_start_may_only_import_the_module_that_runs_the_trials(tmp_path: Path):
    solver = WHOLE.replace("if __name__ == '__main__':", "def main():")
    start = "from src.solver import main\nif __name__ == '__main__':\n    main()\n"
    write(tmp_path, {"src/solver.py": solver, "start.py": start})
    assert find_entry(tmp_path).entry == "start.py"


def test_a_program_without_the_block_still_starts(tmp_path: Path):
    write(tmp_path, {"only.py": WHOLE.replace("if __name__ == '__main__':", "if True:")})
    assert find_entry(tmp_path).entry == "only.py"


def test_several_are_ambiguous_until_the_readme_starts_one(tmp_path: Path):
    write(tmp_path, dict.fromkeys(("bak.py", "multi_turn.py", "multi_turn copy.py"), WHOLE))
    assert find_entry(tmp_path).entry is None
    assert names(tmp_path) == ["bak.py", "multi_turn copy.py", "multi_turn.py"]
    for command in (
        "python multi_turn.py",
        "python3 -u ./multi_turn.py",
        "`python .\\multi_turn.py`",
        "py 'multi_turn.py'",
    ):
        (tmp_path / "README.md").write_text(f"# Team\n\n1. python -m venv x && pip install y\n2. {command}\n")
        assert find_entry(tmp_path).entry == "multi_turn.py", command
    (tmp_path / "README.md").write_text('python "multi_turn copy.py"\n')
    assert find_entry(tmp_path).entry == "multi_turn copy.py"
    (tmp_path / "README.md").write_text("python bak.py\npython multi_turn.py\n")
    assert find_entry(tmp_path).entry is None


def test_a_file_that_cannot_be_read_is_not_passed_over_for_an_old_copy(tmp_path: Path):
    write(tmp_path, {"main.py": WHOLE + "x = = 1\n", "main_old.py": WHOLE})
    search = find_entry(tmp_path)
    assert search.entry is None
    assert ("main.py:9", "is not valid Python (invalid syntax)") in [
        (candidate.place, candidate.fault) for candidate in search.candidates
    ]
    (tmp_path / "README.md").write_text("python main_old.py")
    assert find_entry(tmp_path).entry == "main_old.py"
    (tmp_path / "README.md").write_text("python main.py")
    assert find_entry(tmp_path).entry is None


def test_links_are_not_followed(tmp_path: Path):
    write(tmp_path, {"elsewhere/loop.py": WHOLE})
    program = tmp_path / "program"
    program.mkdir()
    (program / "main.py").symlink_to(tmp_path / "elsewhere" / "loop.py")
    (program / "folder").symlink_to(tmp_path / "elsewhere")
    (program / "round.py").symlink_to(program)
    assert find_entry(program).candidates == ()


def test_the_readme_in_any_spelling_the_best_first(tmp_path: Path):
    assert find_readme(tmp_path) is None
    for name in ("README", "readme.TXT", "ReadMe.md"):
        (tmp_path / name).write_text("x")
        assert find_readme(tmp_path) == tmp_path / name


def test_files_at_the_top_come_first_in_byte_order(tmp_path: Path):
    write(tmp_path, dict.fromkeys(("b.py", "a/a.py", "B.py", "a/b/c.py", "c.txt"), ""))
    assert [file.name for file in python_files(tmp_path)] == ["B.py", "b.py", "a/a.py", "a/b/c.py"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a = \0", "not valid Python"),
        (b"print 'x'", "not valid Python"),
        (WHOLE.encode("utf-16"), "UTF-16"),
        (b"# coding: utf-7\n", "declares the encoding 'utf-7'"),
        (b"# coding: punycode\n" + b"-a" * 50_000, "declares the encoding 'punycode'"),
        (b"# coding: nonsense\n", "unknown encoding"),
        (b"# -*- coding: shift_jis -*-\nx = '\x82'", "shift_jis text (byte"),
        (b"x = '\xff'", "cannot be decoded"),
        (b"\n\n\nx = '\xff'", "utf-8 text (byte"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "cannot be decoded"),
        (b"-" * 100_000 + b"1", "nested too deeply"),
        (b"a" + b".b" * 100_000, "nested too deeply"),
        (b"a" + b"+a" * 100_000, "nested too deeply"),
        (b"(" * 100_000, "too many nested parentheses"),
        (b"9" * 100_000, "not valid Python"),
        (b"x = '" + b"\\N{" * 1000, "not valid Python"),
    ],
)
def test_hostile_sources_have_a_reason(content: bytes, words: str):
    with pytest.raises(SourceError, match=re.escape(words)):
        parse_source(content)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfx = 'bom'",
        b"# coding: latin-1\nx = '\xe9'",
        "# vim: set fileencoding=cp932 :\nx = '\u65e5\u672c'".encode("cp932"),
        b"#!/usr/bin/python\n# coding=gbk\nx = 1\r\ny = 2\r",
        b"x = '.\\prompts'",  # an invalid escape is only a warning
    ],
)
def test_encodings_that_python_runs_are_read(content: bytes):
    parse_source(content)


def test_large_and_special_files_are_not_read(tmp_path: Path):
    (tmp_path / "large.py").write_bytes(b"#" * (MAX_SOURCE_BYTES + 1))
    (tmp_path / "exact.py").write_bytes(b"#" * MAX_SOURCE_BYTES)
    (tmp_path / "link.py").symlink_to("exact.py")
    exact, large = python_files(tmp_path)
    assert (exact.is_read, exact.fault) == (True, "")
    assert not large.is_read
    assert "larger than" in large.fault


def test_too_much_source_is_refused_not_read(tmp_path: Path):
    padding = "#" * (MAX_SOURCE_BYTES - len(WHOLE) - 1)
    write(tmp_path, {f"a{number:02}.py": WHOLE + padding for number in range(17)})
    search = find_entry(tmp_path)
    assert search.entry is None
    assert "too much other source" in search.candidates[-1].fault


@given(st.binary(max_size=200))
def test_no_bytes_raise(content: bytes):
    with contextlib.suppress(SourceError):
        parse_source(content)
