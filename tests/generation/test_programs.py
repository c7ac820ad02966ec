"""Programs, run for real: each in a fresh process, in the sandbox where there is one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from handed_in_for_tests import write_folder
from program_trials import JOB, SAID, SEED, TestModel, echo, limits, loop, reply, write_program

from pcgeval.core.params import Limits
from pcgeval.generation.runners import GUEST, ProgramRunner, TrialRun
from pcgeval.sandbox.sandbox import ResourceLimits, Sandbox, open_sandbox
from pcgeval.submissions.packages import interpreter_for

SECOND = JOB.request(repetition=1).options["seed"]  # of the second reply to a conversation
Run = Callable[..., TrialRun]


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a program that requires nothing: it has none of the packages that run these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCGEVAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return interpreter_for(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    most = ResourceLimits(
        memory_bytes=200_000_000, processes=24, scratch_bytes=16_000_000, file_bytes=4_000_000, output_bytes=4_000_000
    )
    return open_sandbox(most, trust_programs=True)


@pytest.fixture
def run(sandbox: Sandbox, tmp_path: Path, bare_python: Path) -> Run:
    """Return a function that runs one trial of a program by its source below the usual imports."""

    def run_trial(
        source: str,
        model: TestModel | None = None,
        rules: Limits | None = None,
        *,
        seed: int = SEED,
        keep_output: bool = False,
    ) -> TrialRun:
        program = write_program(tmp_path / "program", source)
        runner = ProgramRunner(program, sandbox, rules or limits(), bare_python, keep_output=keep_output)
        return runner.run_trial(replace(JOB, seed=seed), (model or TestModel()).chat)

    return run_trial


# the competition's packages as a program sees them

IMPORTS = """
FORMS = [
    "from {0}.competition import *",
    "from {0}.competition import TrialContext, TrialLoop, chat_with_chatgpt, run_evaluation",
    "import {0}.competition as c\\nimport {0}.models.trial_loop\\nTrialLoop = {0}.models.trial_loop.TrialLoop",
    "from {0} import competition as c\\nfrom {0}.models import trial_loop as t\\nTrialLoop = t.TrialLoop",
    "from {0}.models.trial_context import TrialContext\\nfrom {0}.competition import *",
]
for package in ("chatgpt4pcg", "llm4pcg", "llms4pcg"):
    for form in FORMS:
        names = {}
        exec(form.format(package), names)
        chat_with_chatgpt = getattr(names.get("c"), "chat_with_chatgpt", None) or names["chat_with_chatgpt"]
        assert names["TrialLoop"] is TrialLoop
"""


def test_all_generations_of_the_interface_are_imported_in_all_ways(run: Run) -> None:
    body = "return chat_with_chatgpt(ctx, messages=[{'role': 'user', 'content': 'Build.'}], n=2)[1]"
    assert run(IMPORTS + loop(body)).response == f"reply to 1 messages with seed {SECOND}"


RANDOM = """
import json
import random
random.seed(42)
mine = random.Random(7)
mine.gauss(0, 1)
class Lazy:
    @property
    def __class__(self):
        raise RuntimeError("looked at")
lazy = Lazy()
"""
DRAWS = """
going_on = [random.random(), mine.random(), mine.gauss(0, 1)]
return json.dumps([going_on, [random.seed(42), random.random(), random.Random(7).random()]])
"""


def test_generators_that_a_program_seeded_go_on_from_trial_to_trial(run: Run) -> None:
    """In the official package's one process, what is seeded before `run` goes on, and what `run` seeds begins anew."""
    first, second, again = (json.loads(run(RANDOM + loop(DRAWS), seed=seed).response) for seed in (1, 2, 1))
    assert first == again
    assert first[1:] == second[1:]
    assert not {*first[0]} & {*second[0]}


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
    environment = {"PYTHONPATH": str(GUEST), "PATH": os.environ["PATH"]}
    first, again, other = (
        subprocess.run(
            [sys.executable, "-c", OF_NUMPY, chance], env=environment, capture_output=True, check=True
        ).stdout
        for chance in ("1", "1", "2")
    )
    assert first == again
    assert not {*first.split()} & {*other.split()}


@pytest.mark.parametrize(
    ("method", "entry"),
    [
        ("@staticmethod\n    def run(ctx, target_character, depth=3): return target_character", "Loop"),
        ("@staticmethod\n    def run(*arguments): return arguments[1]", "Loop"),
        ("def run(ctx, letter): return letter", "Loop"),
        ("def run(self, ctx, letter): return letter", "Loop()"),
    ],
)
def test_kinds_of_loops_and_their_instances(run: Run, method: str, entry: str) -> None:
    assert run(f"class Loop(TrialLoop):\n    {method}\nrun_evaluation('name', {entry})").response == "K"


def test_everything_that_a_program_may_ask_about_its_trial(run: Run) -> None:
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
    facts = json.loads(run(loop(body).replace('"name"', '"../my team"')).response)
    assert facts[:7] == ["../my team", "K", "K", 3, 1114, "test-model", "http://localhost/v1"]
    assert facts[7].startswith("TrialContext(team_name='../my team', ")
    assert facts[8].endswith("/_my_team/raw/K/_my_team_K_3.txt")
    assert facts[9] == " a line\n"


def test_a_program_imports_its_own_modules_but_no_copy_of_the_interface(run: Run, tmp_path: Path) -> None:
    modules = {
        "llms4pcg/__init__.py": "raise ImportError('the copy')",
        "chatgpt4pcg/__init__.py": "raise ImportError('the copy')",
        "json.py": "raise ImportError('a module that hides one of Python')",
        "utils.py": "NAME = 'own module'",
        "parts/inner.py": "from . import deep\nNAME = deep.NAME",
        "parts/deep.py": "NAME = 'deep'",
    }
    write_folder(tmp_path / "program", modules)
    assert (
        run(loop("import utils; from parts.inner import NAME; return utils.NAME + NAME")).response == "own moduledeep"
    )


def test_folders_are_listed_in_order(run: Run, tmp_path: Path) -> None:
    names = [f"{number}.txt" for number in range(12)]
    write_folder(tmp_path / "program" / "prompts", dict.fromkeys(names, ""))
    body = """
    import glob, json, os
    from pathlib import Path
    os.scandir("prompts").close()
    return json.dumps([
        os.listdir("prompts"), [path.name for path in Path("prompts").iterdir()],
        glob.glob("*.txt", root_dir="prompts"), [path.name for path in Path(".").glob("**/*.txt")],
        [files for _, _, files in os.walk("prompts")][0],
    ])
    """
    assert json.loads(run(loop(body)).response) == [sorted(names)] * 5


def test_a_python_process_that_the_program_starts_has_no_trial(run: Run) -> None:
    body = """
    import subprocess, sys
    code = "import os; print('PCGEVAL_TRIAL' in os.environ); "
    code += "import llms4pcg.competition as c; c.run_evaluation('a', c.TrialLoop)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout + done.stderr.splitlines()[-1]
    """
    assert run(loop(body)).response.startswith("False\nRuntimeError: ")


STAND_INS = """
import openai
from openai import APITimeoutError, AsyncOpenAI, OpenAI, RateLimitError
from openai.types.chat import ChatCompletionSystemMessageParam, ChatCompletionUserMessageParam as User
from dotenv import dotenv_values, find_dotenv, load_dotenv
from tqdm import tqdm, trange
from tqdm.auto import tqdm as automatic
with tqdm(total=3, desc="x") as bar:
    bar.update(1)
assert (list(tqdm([1, 2], leave=False)), len(automatic("abc")), list(trange(1, 3))) == ([1, 2], 3, [1, 2])
load_dotenv(find_dotenv(), override=True)
openai.api_key = dotenv_values(".env").get("KEY")
assert issubclass(APITimeoutError, openai.OpenAIError)
try:
    OpenAI(api_key="none").chat.completions.create(model="x", messages=[])
except openai.OpenAIError as error:
    refused = str(error)
"""


def test_packages_that_are_imported_by_habit_have_stand_ins(run: Run) -> None:
    body = "try: return chat_with_llm(ctx, [User(role='user', content=refused)])[0]\nexcept RateLimitError: pass"
    assert run(STAND_INS + loop(body)).response == SAID
    assert run(STAND_INS + loop("return refused")).response.startswith("OpenAI.chat: ")


# conversations


SEARCH = """
class Branching(TrialLoop):
    @classmethod
    def run(cls, ctx, letter):
        best = ""
        try:
            for _ in range(2):
                thoughts = chat_with_llm(ctx, [{"role": "user", "content": f"Propose {letter}. {best}"}], n=2)
                asked = [[{"role": "user", "content": f"Rate {thought}"}] for thought in thoughts]
                best = max((chat_with_llm(ctx, messages)[0], thought) for messages, thought in zip(asked, thoughts))[1]
        except (ValueError, TimeoutError) as error:
            print(error)
        return best

run_evaluation(team_name="<TEAM_NAME>", fn=Branching, num_trials=1, characters=["A", "B"])
"""


def test_a_search_hands_in_what_it_has_when_it_meets_a_limit(run: Run) -> None:
    """In a tree of thought, two thoughts are proposed, each is rated, and the better one goes on."""
    best = max(SAID, f"reply to 1 messages with seed {SECOND}")
    for seconds, rules, calls in (
        (0, limits(), 8),
        (0, limits(tokens=30), 5),
        (1000, limits(seconds=3500, call_seconds=9000), 4),
    ):
        model = TestModel(lambda request, seconds=seconds: reply(echo(request), seconds=seconds))
        trial = run(SEARCH, model, rules)
        assert (trial.response, trial.reason, trial.flags, len(trial.exchanges)) == (best, None, (), calls)


@pytest.mark.parametrize("then", ["break", "os._exit(5)", "os.write(pcgeval_guest._trial['pipe'], b'x' * 3_000_000)"])
def test_a_limit_that_was_reached_is_the_reason_whatever_follows(run: Run, then: str) -> None:
    body = f"""
    import os, pcgeval_guest, time
    time.monotonic = time.perf_counter = lambda: 0.0
    while True:
        try:
            chat_with_llm(ctx, [{{"role": "user", "content": "Build."}}])
            ctx.add_output_token_count(-ctx.get_total_token_count())
        except ValueError:
            {then}
    """
    trial = run(loop(body), rules=limits(tokens=10))
    assert (trial.response, trial.reason) == ("", "used 14 tokens; the limit is 10")


def test_threads_that_talk_at_once_each_get_their_own_reply(run: Run) -> None:
    body = """
    from concurrent.futures import ThreadPoolExecutor
    def ask(number):
        return chat_with_llm(ctx, [{"role": "user", "content": str(number) * 5000}])[0]
    with ThreadPoolExecutor(4) as pool:
        return " ".join(pool.map(ask, range(8)))
    """
    trial = run(loop(body), TestModel(lambda request: request.messages[0].content[:1]))
    assert (trial.response, trial.reason) == ("0 1 2 3 4 5 6 7", None)
    assert [flag.kind for flag in trial.flags] == ["altered-answer"]


def test_a_program_goes_on_after_a_conversation_that_is_too_long(run: Run) -> None:
    body = """
    try:
        chat_with_llm(ctx, [{"role": "user", "content": "x" * 3 * 2**20}])
    except ValueError:
        return chat_with_llm(ctx, [{"role": "user", "content": "Build."}])[0]
    """
    assert run(loop(body)).response == SAID


# programs that do not answer, and those that attack

OVER_THE_PIPE = """
import json, os, pcgeval_guest
calls = pcgeval_guest._trial['pipe']
def send(content): os.write(calls, content)
"""
FAILURES = [
    (loop("return 5"), "TypeError: TrialLoop.run returned a int instead of a text"),
    (loop("pass").replace("def run", "async def run"), "returned a coroutine instead"),
    (loop("{}['no such key']"), "KeyError: 'no such key' (main.py:8)"),
    (loop("raise ValueError('x' * 10**6)"), "ValueError: xxxx"),
    (loop("class Odd(Exception):\n    __str__ = None\nraise Odd"), "Odd: <exception str() failed>"),
    (loop("import sys; sys.exit('enough')"), "called sys.exit before it gave an answer: enough"),
    (loop("import os; os.abort()"), "gave no answer: it "),
    ("print('nothing to do')", "ended with exit code 0 before it gave an answer: was run_evaluation called?"),
    ("import numpy", "No module named 'numpy'; a package has to be named in requirements.txt"),
    ("this is no Python", "SyntaxError: invalid syntax"),
    ("run_evaluation('a', None)", "AttributeError: 'NoneType' object has no attribute 'run'"),
    (loop("chat_with_llm(ctx, 'no list')"), "ValueError: messages must be a list of at least one message (main.py:8)"),
    (loop("chat_with_llm(ctx, [{'role': 'user', 'content': {1}}])"), "TypeError: Object of type set is not JSON"),
    (loop("return 'x' * (3 * 2**20)"), "ValueError: a message of 3145"),
]
HOSTILE = [
    ("while True: send(b'x' * 65536)", "sent a message of more than 2 MiB"),
    ("os.close(calls); import time; time.sleep(60)", "gave no answer: it was stopped"),
    ("os.close(calls); os.close(calls)", "ended with exit code"),
    ('while True: send(b\'{"op": "chat", "messages": 5, "n": 1}\\n\')', "took more than 2 s"),
    ("while True: pass", "took more than 2 s"),
    ("import threading\nthreading.Thread(target=lambda: sum(iter(int, 1))).start()", "took more than 2 s"),
    ("import os, time\nif os.fork(): os._exit(0)\ntime.sleep(60)", "ended with exit code 0"),
    ("import os, time\nif not os.fork(): os._exit(0)\ntime.sleep(60)", "took more than 2 s"),
]


@pytest.mark.parametrize(
    ("source", "reason", "seconds"),
    [
        *((source, reason, 30) for source, reason in FAILURES),
        *((OVER_THE_PIPE + source, reason, 2) for source, reason in HOSTILE),
        # a trusted program of root's may read it
        pytest.param(loop("open('/etc/shadow').read()"), "Error: ", 30, marks=pytest.mark.needs_sandbox),
    ],
)
def test_a_program_that_does_not_answer_fails_with_a_reason(run: Run, source: str, reason: str, seconds: float) -> None:
    trial = run(source, rules=limits(seconds=seconds))
    assert (trial.response, trial.reason is None) == ("", False)
    assert reason.lower() in str(trial.reason).lower()
    assert len(str(trial.reason)) <= 300
    assert str(trial.reason).isprintable()


def test_the_first_answer_counts_and_what_a_program_prints_is_kept_on_demand(run: Run) -> None:
    """Whether by several evaluations, a fork, or over the pipe: there is one answer, and nothing after it matters."""
    assert run(loop("return 'first'") + "    raise SystemExit(5)").response == "first"
    forked = run(loop("import os; os.fork(); return 'forked'"))
    assert (forked.response, forked.reason) == ("forked", None)
    sent = OVER_THE_PIPE + "for text in 'ab': send(json.dumps({'op': 'answer', 'text': text}).encode() + b'\\n')"
    assert run(sent).response == "a"
    twice = loop("print(letter); return letter") + '    run_evaluation("name", Loop)\n'
    for keep_output, printed in ((True, "K\n"), (False, "")):
        trial = run(twice, keep_output=keep_output)
        assert (trial.response, trial.printed) == ("K", printed)


def test_a_reply_that_the_program_fakes_is_none(run: Run) -> None:
    """It may lead itself to believe anything; what is recorded and flagged is what the model said."""
    body = """
    import io, pcgeval_guest
    pcgeval_guest._replies = io.BytesIO(b'{"texts": ["faked"], "prompt_tokens": 0, "output_tokens": 0}\\n')
    return chat_with_llm(ctx, [{"role": "user", "content": "Build."}])[0]
    """
    trial = run(loop(body))
    assert (trial.response, trial.reason) == ("faked", None)
    assert [flag.kind for flag in trial.flags] == ["altered-answer"]
    assert [exchange.reply.text for exchange in trial.exchanges] in ([], [SAID])


def test_what_an_inspector_looks_for_is_flagged_also_in_a_failed_trial(run: Run) -> None:
    body = """
    import random, socket
    for host in ("example.org", "example.org", b"example.com"):
        try:
            socket.create_connection((host, 80), timeout=1)
        except OSError:
            pass
    try:
        socket.socket().connect(("192.0.2.1", 80))
    except OSError:
        pass
    raise KeyError(random.random())
    """
    source = loop(body).replace('"name", Loop', '"name", Loop, local_model_base_url="http://key@llm.example.net:80/v1"')
    trial = run(source)
    assert str(trial.reason).startswith("KeyError: ")
    assert [(flag.kind, flag.detail) for flag in trial.flags] == [
        ("unseeded-random", "main.py:18 uses random without a fixed seed"),
        ("other-host", "gave run_evaluation the address of llm.example.net, which was not used"),
        *(("other-host", f"tried to reach {host}") for host in ("example.org", "example.com", "192.0.2.1")),
    ]
