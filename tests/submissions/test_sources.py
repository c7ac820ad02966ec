"""The Python files of a submission, read without running any: which one starts it, and what they draw at random."""

from pathlib import Path
from time import process_time

import pytest
from handed_in_for_tests import PROGRAM_FILES, PROMPT, texts, write_folder
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.submissions.load import Program, Prompt, SubmissionError, load_submission
from pcgeval.submissions.sources import MAX_SOURCE_BYTES
from pcgeval.submissions.validate import validate

LOOP = "class Mine({base}):\n    @staticmethod\n    def run(ctx, target_character):\n        return ''\n"
MAIN = "if __name__ == '__main__':\n    {call}('team', Mine)\n"
IMPORT = "from llm4pcg.competition import TrialLoop, run_evaluation\n"
WHOLE = IMPORT + LOOP.format(base="TrialLoop") + MAIN.format(call="run_evaluation")


def entry(folder: Path, files: dict[str, str]) -> str:
    """Return the file that starts the program, or why there is none."""
    write_folder(folder, files)
    try:
        submission = load_submission(folder)
    except SubmissionError as error:
        return str(error)
    if isinstance(submission.work, Prompt):
        return f"a prompt of {submission.prompt_length} characters: {submission.work.for_letter('Q')}"
    assert submission.work == Program(folder, submission.work.entry)
    assert submission.prompt_length is None
    return submission.work.entry


TOOLS = {
    "tot.py": WHOLE,
    "helpers.py": "def f():\n    return 1\n",
    "evaluation.py": "import os\nif __name__ == '__main__':\n    print(os.listdir('raw'))\n",
    "broken_tool.py": "if __name__ == '__main__':\n    print 'Python 2'\n",
    "chatgpt4pcg/competition.py": "class TrialLoop: pass\ndef run_evaluation(): pass\n" + WHOLE,
    "venv/lib/site-packages/x.py": WHOLE,
    ".hidden/old.py": WHOLE,
}
RENAMED = "import llms4pcg.competition as c, llms4pcg.models.trial_loop as t\n" + LOOP.format(base="t.TrialLoop")
RENAMED += MAIN.format(call="c.run_evaluation").replace("__name__ == '__main__'", "'__main__' == __name__")
STARRED = WHOLE.replace(IMPORT, "try:\n    from chatgpt4pcg.competition import *\nexcept ImportError:\n    raise\n")
CLASS_ELSEWHERE = {
    "loop.py": IMPORT + LOOP.format(base="TrialLoop"),
    "main.py": f"{IMPORT}from loop import Mine\n" + MAIN.format(call="run_evaluation"),
}
NO_MAIN = WHOLE.replace("if __name__ == '__main__':", "if True:")
SEVERAL = dict.fromkeys(("bak.py", "multi_turn.py"), WHOLE)
BROKEN = {"main.py": WHOLE + "x = = 1\n", "main_old.py": WHOLE}


@pytest.mark.parametrize(
    ("start", "files"),
    [
        ("tot.py", TOOLS),
        *(("x.py", {"x.py": source}) for source in (RENAMED, STARRED)),
        ("main.py", CLASS_ELSEWHERE),
        ("tot.py", {"tot.py": WHOLE, "again.py": "import tot\nif __name__ == '__main__':\n    tot.main()\n"}),
        ("x.py: uses the interface, but no file starts", {"x.py": NO_MAIN, "prompt.txt": PROMPT}),
        ("main.py", {"main.py": WHOLE, "prompt.txt": PROMPT}),
        ("a prompt of 23 characters: Draw Q", {"x.py": MAIN.format(call="print"), "prompt.txt": PROMPT}),
        ("src/m.py", {"src/m.py": WHOLE, "other.py": WHOLE, "submission.yaml": "entry: ./src/m.py"}),
        ("holds neither", {"x.py": "class TrialLoop: pass\n" + LOOP.format(base="TrialLoop") + MAIN.format(call="go")}),
        ("holds neither", {"x.py": "from .llm4pcg import *\n" + LOOP.format(base="TrialLoop")}),
        ("holds neither", {"x.py": "from other.models.trial_loop import TrialLoop\n" + LOOP.format(base="TrialLoop")}),
        ("holds neither", {"x.py": f"# {IMPORT}if __name__ != '__main__':\n    pass\n"}),
        ("'-c.py' is not the name", {"-c.py": WHOLE}),  # it would be an option of python
        ("'./-c.py' is not the name", {"-c.py": WHOLE, "submission.yaml": "entry: ./-c.py"}),
        # of several, the README starts one
        ("multi_turn.py", SEVERAL | {"README.md": "python3 -u ./multi_turn.py"}),
        ("multi_turn.py", SEVERAL | {"README.md": "1. python -m venv x && pip install y\n2. `py .\\multi_turn.py`\n"}),
        ("several files", SEVERAL | {"README.md": "python bak.py\npython multi_turn.py\n"}),
        # an old copy does not take the place of a file that cannot be read
        ("main.py:8: is not valid Python (invalid syntax)", BROKEN),
        ("main_old.py", BROKEN | {"submission.yaml": "entry: main_old.py"}),
    ],
)
def test_the_file_that_starts_the_program(tmp_path: Path, start: str, files: dict[str, str]):
    assert start in entry(tmp_path, files)


def test_links_are_not_followed(tmp_path: Path):
    write_folder(tmp_path, {"elsewhere/loop.py": WHOLE})
    program = write_folder(tmp_path / "program", {"helper.py": ""})
    (program / "main.py").symlink_to(tmp_path / "elsewhere" / "loop.py")
    (program / "folder").symlink_to(tmp_path / "elsewhere")
    (program / "round.py").symlink_to(program)
    assert "neither" in entry(program, {})
    for name in ("main.py", "folder/loop.py"):
        assert f"entry '{name}' is a link" in entry(program, {"submission.yaml": f"entry: {name}"})


def errors_of_main(folder: Path, content: bytes) -> list[str]:
    files = {**PROGRAM_FILES, "main.py": content, "submission.yaml": "entry: main.py"}
    return texts(validate(write_folder(folder, files)).findings)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a = \0", "not valid Python"),
        (WHOLE.encode("utf-16"), "not valid Python"),
        (b"# coding: punycode\n-" + b"9" * 250_000, "save it as UTF-8"),
        (b"# coding: nonsense\n", "unknown encoding"),
        (b"# -*- coding: shift_jis -*-\nx = '\x82'", "not valid Python"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "not valid Python"),
        (b"-" * 100_000 + b"1", "nested too deeply"),
        (b"9" * 100_000, "not valid Python"),
        (b"#" * (MAX_SOURCE_BYTES + 1), "larger than 262144 bytes and was not parsed"),
        # what Python runs is no error
        (b"\xef\xbb\xbfx = 'bom'", None),
        (b"# coding: latin-1\nx = '\xe9'", None),
        ("# vim: set fileencoding=cp932 :\nx = '\u65e5\u672c'".encode("cp932"), None),
        (b"x = '.\\prompts'", None),  # an invalid escape is only a warning
        (b"#" * MAX_SOURCE_BYTES, None),
    ],
)
def test_hostile_sources_have_a_reason(tmp_path: Path, content: bytes, words: str | None):
    assert [words is not None and words in line for line in errors_of_main(tmp_path, content)] == [True][: bool(words)]


def test_seeds_inside_seeds_are_read_in_linear_time(tmp_path: Path):
    depth, values = 150, "0," * 100_000
    nested = f"import random\n{'random.seed(' * depth}{values}{')' * depth}\nrandom.random()\n"
    started = process_time()
    assert errors_of_main(tmp_path, nested.encode()) == []
    assert process_time() - started < 15  # 150 walks over all values would take minutes


@given(st.binary(max_size=200))
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    errors_of_main(tmp_path_factory.mktemp("bytes"), content)


# Random numbers

FINE = [
    "import random",
    "import random as dice\ndice.seed(a=1)\ndice.choice([1])",
    "from random import choice, seed\nseed(1)\nchoice([1])",
    "import numpy as np\ngenerator = np.random.default_rng(3)",
    "def random():\n    return 4\nrandom()",
    "import my.random\nmy.random.choice([1])",
    "this is not Python: random.choice(",
    "import time\nimport random\nrandom.seed(7)\nrandom.random(), time.time()",
]
FORGOTTEN = [
    ("import random\nrandom.seed()\nrandom.choice([1])", "uses random "),
    ("from random import choice as pick\npick([1])", "helper.py:2 uses random "),
    ("from random import *\nchoice([1])", "helper.py:1 uses random "),
    ("import random\npick = getattr(random, 'choice')", "uses random "),
    ("import numpy as np\nnp.random.rand(2)", "helper.py:2 uses numpy.random "),
    ("import random, time\nrandom.seed(time.time())\nrandom.random()", "helper.py:2 uses random "),
    ("import random\nfrom time import time_ns as t\nrandom.Random(int(t()) % 7)", "uses random "),
    ("import os\n# random\nos.urandom(4)", "helper.py:3 uses os.urandom"),
    ("import uuid\nstr(uuid.uuid4())", "uses uuid.uuid4"),
    ("from random import SystemRandom\nSystemRandom().random()", "uses random.SystemRandom"),
]


def unseeded(folder: Path, files: dict[str, str]) -> list[str]:
    findings = validate(write_folder(folder, {**PROGRAM_FILES, **files})).findings
    return [line for line in texts(findings, "warning") if "reproduce" in line]


@pytest.mark.parametrize(("source", "words"), [*((source, None) for source in FINE), *FORGOTTEN])
def test_random_numbers_without_a_seed(tmp_path: Path, source: str, words: str | None):
    lines = unseeded(tmp_path, {"helper.py": source})
    assert [words is not None and words in line for line in lines] == [True][: bool(words)]


def test_a_seed_counts_for_all_files(tmp_path: Path):
    draws = "import random, numpy\nrandom.random(), numpy.random.rand()"
    (line,) = unseeded(tmp_path, {"helper.py": draws, "setup_all.py": "import random\nrandom.seed(6280)"})
    assert "numpy.random " in line


def test_hostile_names_are_read_in_bounded_time(tmp_path: Path):
    name = "x" * 60_000
    files = {
        "names.py": f"import random.{name} as r\n" + "r\n" * 60_000,
        "deep.py": "import random\n" + "random" + ".a" * 100_000,
        "large.py": "import random\nrandom.random()\n" + "#" * 10**6,
    }
    (line,) = unseeded(tmp_path, files)
    assert "names.py:2" in line
