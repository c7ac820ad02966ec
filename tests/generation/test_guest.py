"""The competition's packages as a program sees them: every import form, getter and kind of loop."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from program_trials import SEED, loop, trial_job

from pcgeval.generation.runners import GUEST

SAID = f"reply to 1 messages with seed {SEED}"
MESSAGES = "[{'role': 'user', 'content': 'Build.'}]"
CLASS = "class Loop(TrialLoop):\n    @staticmethod\n    def run(ctx, letter):\n        return "
IMPORTS = [
    ("from {0}.competition import *", ""),
    ("from {0}.competition import TrialContext, TrialLoop, chat_with_chatgpt, run_evaluation", ""),
    ("import {0}.competition\nfrom {0}.models.trial_loop import TrialLoop", "{0}.competition."),
    ("import {0}.competition as c\nimport {0}.models.trial_loop\nTrialLoop = {0}.models.trial_loop.TrialLoop", "c."),
    ("from {0} import competition\nfrom {0}.models import trial_loop as t\nTrialLoop = t.TrialLoop", "competition."),
]


@pytest.mark.parametrize("package", ["chatgpt4pcg", "llm4pcg", "llms4pcg"])
@pytest.mark.parametrize(("imports", "competition"), IMPORTS)
def test_all_generations_are_imported_in_all_ways(answer: Any, package: str, imports: str, competition: str) -> None:
    forget = "del chat_with_llm, run_evaluation, TrialContext, TrialLoop\n"  # which the usual header imports
    place = competition.format(package)
    source = f"{CLASS}{place}chat_with_chatgpt(ctx, messages={MESSAGES}, n=2)[1]\n{place}run_evaluation('name', Loop)"
    second = trial_job().request(repetition=1).options["seed"]
    assert answer(f"{forget}{imports.format(package)}\n{source}") == f"reply to 1 messages with seed {second}"


RANDOM = """
import random
random.seed(42)
mine = random.Random(7)
mine.gauss(0, 1)
STATE = random.getstate()
class Lazy:
    @property
    def __class__(self):
        raise RuntimeError("looked at")
lazy = Lazy()
"""
DRAWN = {
    "going on": "str((random.random(), mine.random(), mine.gauss(0, 1)))",
    "seeded in run": "str((random.seed(42), random.random(), random.Random(7).random(), mine.seed(7), mine.random()))",
    "state of before": "str((random.setstate(STATE), random.random()))",
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_generators_that_a_program_seeded_go_on_from_trial_to_trial(answer: Any, drawn: str) -> None:
    """In the official package's one process, what is seeded before `run` goes on, and what `run` seeds begins anew."""
    source = f"{RANDOM}{CLASS}{DRAWN[drawn]}\nrun_evaluation('name', Loop)"
    first, second, again = answer(source, seed=1), answer(source, seed=2), answer(source, seed=1)
    assert first == again
    assert (first == second) == (drawn in {"seeded in run", "state of before"})
    if first != second:
        assert not set(first.strip("()").split(", ")) & set(second.strip("()").split(", "))


OF_NUMPY = """
import sys
import numpy
from llms4pcg import competition
numpy.random.seed(42)
generator = numpy.random.default_rng(7)
competition._renew_generators(int(sys.argv[1]))
print(numpy.random.random(), numpy.random.normal(), generator.random())
"""


def test_numpys_generators_go_on_too() -> None:
    """Programs see numpy if they ask for it; here it is pcgeval's own."""

    def drawn(chance: int) -> list[str]:
        environment = {"PYTHONPATH": str(GUEST), "PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", OF_NUMPY, str(chance)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert drawn(1) == drawn(1)
    assert not set(drawn(1)) & set(drawn(2))


WRAPPED = """
import functools
def wrapped(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)
    return inner
"""
KINDS = {
    "static": ("TrialLoop", "@staticmethod", "ctx, target_character, depth=3", "f'Loop {target_character}'"),
    "class method": ("TrialLoop", "@classmethod", "cls, ctx, letter", "f'{cls.__name__} {letter}'"),
    "method": ("TrialLoop", "", "self, ctx, letter", "f'{type(self).__name__} {letter}'"),
    "no TrialLoop": ("object", "@staticmethod", "*arguments", "f'Loop {arguments[1]}'"),
    "decorated": ("TrialLoop", "@wrapped", "self, ctx, letter", "f'{type(self).__name__} {letter}'"),
    "plain function": ("TrialLoop", "", "ctx, letter", "f'Loop {letter}'"),
}


PAIRS = [(kind, entry) for kind in KINDS for entry in ("Loop", "Loop()") if kind != "plain function" or entry == "Loop"]


@pytest.mark.parametrize(("kind", "entry"), PAIRS)
def test_kinds_of_loops_and_their_instances(answer: Any, kind: str, entry: str) -> None:
    base, decorator, parameters, value = KINDS[kind]
    run = f"    {decorator}\n    def run({parameters}):\n        return {value}\n"
    source = f"{WRAPPED}class Base({base}):\n{run}class Loop(Base):\n    pass\n"
    assert answer(f"{source}run_evaluation('name', {entry})") == "Loop K"


def test_everything_that_a_program_may_ask_about_its_trial(answer: Any) -> None:
    body = """
    import json, time
    from llms4pcg.utils import log
    assert 0 <= time.perf_counter() - ctx.get_start_time() < 60
    chat_with_llm(ctx, [{"role": "user", "content": "Build."}], 2)
    log(ctx.get_log_file_path(), "a line")
    ctx.get_output_file_path().write_text("kept")
    assert ctx.get_output_file_path().parent == ctx.get_output_folder_path()
    ctx.add_prompt_token_count(100)
    ctx.add_output_token_count(1000)
    return json.dumps([
        ctx.get_team_name(), ctx.get_character(), letter, ctx.get_trial_number(), ctx.get_total_token_count(),
        ctx.get_model_name(), ctx.get_local_model_base_url(), str(ctx)[:40], str(ctx.get_output_file_path()),
        ctx.get_log_file_path().read_text()[-8:],
    ])
    """
    told = json.loads(answer(loop(body).replace('"name"', '"../my team"')))
    assert told[:7] == ["../my team", "K", "K", 3, 1114, "test-model", "http://localhost/v1"]
    assert told[7].startswith("TrialContext(team_name=../my team, ")
    assert told[8].endswith("/_my_team/raw/K/_my_team_K_3.txt")
    assert told[9] == " a line\n"


def test_a_program_imports_its_own_modules_but_no_copy_of_the_interface(answer: Any, tmp_path: Path) -> None:
    modules = {
        "llms4pcg/__init__.py": "raise ImportError('the copy')",
        "chatgpt4pcg/__init__.py": "raise ImportError('the copy')",
        "json.py": "raise ImportError('a module that hides one of Python')",
        "utils.py": "NAME = 'own module'",
        "parts/inner.py": "from . import deep\nNAME = deep.NAME",
        "parts/deep.py": "NAME = 'deep'",
    }
    for name, text in modules.items():
        path = tmp_path / "program" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert answer(loop("import utils; from parts.inner import NAME; return utils.NAME + NAME")) == "own moduledeep"


def test_folders_are_listed_in_order(answer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "program" / "prompts"
    folder.mkdir(parents=True)
    names = [f"{number}.txt" for number in (5, 1, 12, 3, 11, 2)]
    for name in names:
        (folder / name).touch()
    body = """
    import glob, json, os
    from pathlib import Path
    with os.scandir("prompts") as entries:
        first = next(entries).name
    return json.dumps([
        os.listdir("prompts"), [path.name for path in Path("prompts").iterdir()],
        glob.glob("*.txt", root_dir="prompts"), [path.name for path in Path(".").glob("**/*.txt")],
        [files for _, _, files in os.walk("prompts")][0],
        [first], os.listdir(b"prompts")[0].decode(), len(os.listdir()),
    ])
    """
    *listings, first, first_bytes, here = json.loads(answer(loop(body)))
    assert listings == [sorted(names)] * 5
    assert (first, first_bytes, here) == (["1.txt"], "1.txt", 2)


def test_a_python_process_that_the_program_starts_has_no_trial(answer: Any) -> None:
    body = """
    import subprocess, sys
    code = "import os; print('PCGEVAL_TRIAL' in os.environ); "
    code += "import llms4pcg.competition as c; c.run_evaluation('a', c.TrialLoop)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout + done.stderr.splitlines()[-1]
    """
    assert answer(loop(body)).startswith("False\nRuntimeError: the competition's packages work only where pcgeval runs")


STAND_INS = """
import os
import openai
from openai import APITimeoutError, AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionSystemMessageParam, ChatCompletionUserMessageParam as User
from dotenv import dotenv_values, find_dotenv, load_dotenv
from tqdm import tqdm, trange
from tqdm.auto import tqdm as automatic
with tqdm(total=3, desc="x") as bar:
    bar.update(1)
assert (list(tqdm([1, 2], leave=False)), len(automatic("abc")), list(trange(1, 3))) == ([1, 2], 3, [1, 2])
load_dotenv(override=True)
openai.api_key = "none"
assert (os.environ["A"], os.environ["B"], dotenv_values(".env")["C"]) == ("1", "two words", "x=y")
assert find_dotenv().endswith("/.env") and issubclass(APITimeoutError, openai.OpenAIError)
try:
    OpenAI(api_key="none").chat.completions.create(model="x", messages=[])
except openai.OpenAIError as error:
    refused = str(error)
"""


def test_packages_that_are_imported_by_habit_have_stand_ins(answer: Any, tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / ".env").write_text("# comment\nA=1\n\nexport B='two words'\nC = x=y\nnonsense\n")
    body = "return chat_with_llm(ctx, [User(role='user', content=refused)])[0] + refused"
    told = answer(STAND_INS + loop(body))
    assert told == f"{SAID}OpenAI.chat: programs ask the model with chat_with_llm or chat_with_chatgpt"


def test_message_objects_are_messages(answer: Any) -> None:
    body = """
    class Said:
        def model_dump(self, **_):
            return {"role": "assistant", "content": "x"}
    return chat_with_llm(ctx, [{"role": "user", "content": "a"}, Said(), {"role": "user", "content": "b"}])[0]
    """
    assert answer(loop(body)) == f"reply to 3 messages with seed {SEED}"


def test_the_guest_needs_no_module_of_ours_and_no_package() -> None:
    for path in GUEST.rglob("*.py"):
        at_run_time = re.sub(r"(?ms)^if TYPE_CHECKING:\n.*?(?=^\S)", "", path.read_text())
        imported = set(re.findall(r"^\s*(?:from|import) (\w+)", at_run_time, re.MULTILINE))
        assert imported <= {*sys.stdlib_module_names, "pcgeval_guest"}, path
