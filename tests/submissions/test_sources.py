"""The Python files of a submission, read without running any: which one starts it."""

from pathlib import Path

import pytest
from handed_in_for_tests import PROGRAM, PROGRAM_FILES, PROMPT, texts, write_folder
from hypothesis import given, strategies as st

from pcgeval.formats.params import Team
from pcgeval.submissions.load import MAX_SOURCE_BYTES, Prompt, SubmissionError, load_submission
from pcgeval.submissions.validate import PUBLISHED_LIMITS, check, validate


def entry(folder: Path, files: dict[str, str], decided: str | None = None) -> str:
    """Return the file that starts the program, or why there is none."""
    write_folder(folder, files)
    try:
        submission = load_submission(folder, Team(entry=decided))
    except SubmissionError as error:
        return str(error)
    if isinstance(submission.work, Prompt):
        return f"a prompt of {submission.prompt_length} characters: {submission.work.for_letter('Q')}"
    return submission.work.entry


TOOLS = {
    "tot.py": PROGRAM,
    "evaluation.py": "import os\nif __name__ == '__main__':\n    print(os.listdir('raw'))\n",
    "broken_tool.py": "if __name__ == '__main__':\n    print 'Python 2'\n",
    "chatgpt4pcg/competition.py": "class TrialLoop: pass\ndef run_evaluation(): pass\n" + PROGRAM,
    "venv/lib/site-packages/x.py": PROGRAM,
    ".hidden/old.py": PROGRAM,
}
IMPORT = "from llms4pcg.competition import TrialLoop, chat_with_llm, run_evaluation\n"
MAIN = 'if __name__ == "__main__":'
RENAMED = PROGRAM.replace(IMPORT, "import llms4pcg.competition as c\n").replace(MAIN, "if '__main__' == __name__:")
PARTS = {
    "team/loop.py": IMPORT + PROGRAM.partition(IMPORT)[2].partition(MAIN)[0],
    "main.py": f"from team.loop import Loop, run_evaluation\n{MAIN}\n    run_evaluation('alpha', Loop)\n",
}
SEVERAL = dict.fromkeys(("bak.py", "multi_turn.py"), PROGRAM)
BROKEN = {"main.py": PROGRAM + "x = = 1\n", "main_old.py": PROGRAM}


@pytest.mark.parametrize(
    ("start", "files"),
    [
        ("tot.py", TOOLS),
        ("x.py", {"x.py": RENAMED}),
        ("x.py", {"x.py": PROGRAM.replace(IMPORT, "from chatgpt4pcg.competition import *\n")}),
        ("x.py: has no `if __name__", {"x.py": PROGRAM.replace(MAIN, "if True:")}),
        ("main.py", {"main.py": PROGRAM, "prompt.txt": PROMPT}),
        ("a prompt of 23 characters: Draw Q", {"x.py": f"{MAIN}\n    print()", "prompt.txt": PROMPT}),
        ("x.py: is no program: it imports none of", {"x.py": PROGRAM.replace("from llms4pcg", "from .llm4pcg")}),
        ("x.py: is no program: it imports none of", {"x.py": PROGRAM.replace("from llms4pcg", "# from llms4pcg")}),
        ("'-c.py' is not the name", {"-c.py": PROGRAM}),  # it would be an option of python
        # the interface may come by way of a file here
        ("main.py", PARTS),
        # of several, the README starts one
        ("multi_turn.py", SEVERAL | {"README.md": "1. python -m venv x\n2. `py -u .\\multi_turn.py`\n"}),
        ("several files", SEVERAL | {"README.md": "python bak.py\npython multi_turn.py\n"}),
        # else the only one that runs the evaluation
        ("main.py", {"agent.py": PROGRAM.replace("run_evaluation", "print"), "main.py": PROGRAM}),
        # an old copy does not take the place of a file that cannot be read
        ("main.py:14: is not valid Python (invalid syntax)", BROKEN),
    ],
)
def test_the_file_that_starts_the_program(tmp_path: Path, start: str, files: dict[str, str]):
    assert start in entry(tmp_path, files)


def test_the_organiser_may_name_the_file_that_starts_the_program(tmp_path: Path):
    assert entry(tmp_path, {"src/m.py": PROGRAM, "other.py": PROGRAM}, "./src/m.py") == "src/m.py"
    assert entry(tmp_path, BROKEN, "main_old.py") == "main_old.py"


def errors_of_main(folder: Path, content: bytes) -> list[str]:
    files = {**PROGRAM_FILES, "main.py": content}
    return texts(check(write_folder(folder, files), PUBLISHED_LIMITS, entry="main.py").findings)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (PROGRAM.encode("utf-16"), "not valid Python"),
        (b"# coding: punycode\n-" + b"9" * 250_000, "save it as UTF-8"),
        (b"# coding: nonsense\n", "unknown encoding"),
        (b"-" * 100_000 + b"1", "nested too deeply"),
        (b"9" * 100_000, "not valid Python"),
        (b"#" * (MAX_SOURCE_BYTES + 1), "larger than 262144 bytes and was not parsed"),
    ],
    ids=range(6),
)
def test_hostile_sources_have_a_reason(tmp_path: Path, content: bytes, words: str):
    (line,) = errors_of_main(tmp_path, content)
    assert words in line


@given(st.binary(max_size=200))
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    errors_of_main(tmp_path_factory.mktemp("bytes"), content)


def test_hostile_sources_are_read_in_linear_time(tmp_path: Path):
    files = {"names.py": f"import requests.{'x' * 60_000} as r\n" + "r\n" * 60_000}
    files["deep.py"] = "import requests\n" + "requests" + ".a" * 100_000
    findings = validate(write_folder(tmp_path, {**PROGRAM_FILES, **files})).findings
    assert [line for line in texts(findings, "warning") if "names.py:1: imports requests" in line]
