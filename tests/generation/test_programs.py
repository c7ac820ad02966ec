"""Programs, run for real: each in a fresh process, in the sandbox where there is one."""

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from handed_in_for_tests import write_folder
from program_trials import JOB, SAID, SEED, TestModel, echo, limits, loop, reply, write_program

import pcgeval
from pcgeval.generation.runners import ProgramRunner, TrialRun, run_twice
from pcgeval.sandbox.sandbox import ResourceLimits, Sandbox, SandboxError, open_sandbox
from pcgeval.submissions.load import Program
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
    memory, others = 200_000_000, {"processes": 24, "scratch_bytes": 16_000_000, "file_bytes": 4_000_000}
    return open_sandbox(ResourceLimits(memory, **others, output_bytes=4_000_000), trust_programs=True)


@pytest.fixture
def run(sandbox: Sandbox, tmp_path: Path, bare_python: Path) -> Run:
    """Return a function that runs one trial of a program by its source below the usual imports."""

    def run_trial(source, model=None, rules=None, *, seed=SEED, python=bare_python, keep_output=False, course=None):
        program = write_program(tmp_path / "program", source)
        with Sandbox(sandbox.limits, contained=sandbox.contained) as opened:
            runner = ProgramRunner(program, opened, rules or limits(), python, keep_output=keep_output)
            return runner.run_trial(replace(JOB, seed=seed), (model or TestModel()).chat, course)

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
STAND_INS = """
import openai
from openai import AsyncOpenAI, OpenAI, RateLimitError
from openai.types.chat import ChatCompletionSystemMessageParam, ChatCompletionUserMessageParam as User
from dotenv import dotenv_values, find_dotenv, load_dotenv
from tqdm import tqdm, trange
from tqdm.auto import tqdm as automatic
with tqdm(total=3, desc="x") as bar:
    bar.update(1)
assert (list(tqdm([1, 2], leave=False)), len(automatic("abc")), list(trange(1, 3))) == ([1, 2], 3, [1, 2])
load_dotenv(find_dotenv(), override=True)
openai.api_key = dotenv_values(".env").get("KEY")
try:
    OpenAI(api_key="none").chat.completions.create(model="x", messages=[])
except openai.OpenAIError as error:
    assert str(error).startswith("OpenAI.chat: ")
"""
OVER_THE_PIPE = """
import json, os, pcgeval_guest
calls = pcgeval_guest._trial['pipe']
def send(content): os.write(calls, content)
"""
IN_A_PROCESS = """
    import subprocess, sys
    code = "import os; print('PCGEVAL_TRIAL' in os.environ); "
    code += "import llms4pcg.competition as c; c.run_evaluation('a', c.TrialLoop)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout + done.stderr.splitlines()[-1][:14]
"""
LOOP = "class Loop(TrialLoop):\n    {}\nrun_evaluation('name', Loop)"
TWO_ANSWERS = "for text in 'ab': send(json.dumps({'op': 'answer', 'text': text}).encode() + b'\\n')"
BY_ROLE = "try: return chat_with_llm(ctx, [User(role='user', content='x')])[0]\nexcept RateLimitError: pass"
BY_NAME = "return chat_with_chatgpt(ctx, messages=[{'role': 'user', 'content': 'x'}], n=2)[1]"
ANSWERS = {
    "all generations of the interface": (IMPORTS + loop(BY_NAME), f"reply to 1 messages with seed {SECOND}"),
    "any parameters": (LOOP.format("@staticmethod\n    def run(*arguments): return arguments[1]"), "K"),
    "no static method": (LOOP.format("def run(ctx, letter): return letter"), "K"),
    "an instance": (LOOP.replace(", Loop)", ", Loop())").format("def run(self, ctx, letter): return letter"), "K"),
    "packages that are imported by habit": (STAND_INS + loop(BY_ROLE), SAID),
    "a Python process that it starts has no trial": (loop(IN_A_PROCESS), "False\nRuntimeError: "),
    "what follows does not matter": (loop("return 'first'") + "    raise SystemExit(5)", "first"),
    "the first evaluation": (loop("return letter") + '    run_evaluation("name", None)\n', "K"),
    "the first of two processes": (loop("import os; os.fork(); return 'forked'"), "forked"),
    "the first answer": (OVER_THE_PIPE + TWO_ANSWERS, "a"),
}


@pytest.mark.parametrize(("source", "response"), ANSWERS.values(), ids=ANSWERS)
def test_a_program_answers(run, source, response):
    trial = run(source)
    assert (trial.response, trial.failure) == (response, None)


RANDOM = """
import json, random, numpy
random.seed(42)
mine = random.Random(7)
mine.gauss(0, 1)
numpy.random.seed(42)
numpys = numpy.random.default_rng(7)
class Lazy:
    @property
    def __class__(self):
        raise RuntimeError("looked at")
lazy = Lazy()
"""
DRAWS = """
going_on = [random.random(), mine.random(), mine.gauss(0, 1)]
going_on += [numpy.random.random(), numpy.random.normal(), numpys.random()]
return json.dumps([going_on, [random.seed(42), random.random(), random.Random(7).random()]])
"""


def test_generators_that_a_program_seeded_go_on_from_trial_to_trial(run):
    """In the official package's one process, what is seeded before `run` goes on, and what `run` seeds begins anew."""
    with_numpy = Path(sys.executable)  # the Python of these tests
    trials = [run(RANDOM + loop(DRAWS), seed=seed, python=with_numpy) for seed in (1, 2, 1)]
    first, second, again = (json.loads(trial.response) for trial in trials)
    assert first == again
    assert first[1:] == second[1:]
    assert not {*first[0]} & {*second[0]}


UNSEEDED = """
import json, logging, multiprocessing, os, random, time, datetime as dt, numpy
def child(_): return random.random()
class Log(logging.Formatter): clock = time.time
drawn = [random.random(), numpy.random.random(), numpy.random.default_rng().random()]
assert Log().formatTime(logging.makeLogRecord({})) and Log().clock() > 0
assert isinstance(dt.datetime.now() - dt.timedelta(1), dt.date)
assert isinstance(numpy.datetime64(1, "s").item(), dt.datetime)
assert not isinstance(dt.datetime.now(), type("Own", (dt.datetime,), {}))
"""
UNSEEDED_DRAWS = """
more = [*drawn]
random.seed()
more += [random.random(), random.Random().random(), numpy.random.RandomState().rand(), list({"a", "b", "c", "d"})[0]]
began = time.monotonic()
more += [time.time(), began, str(dt.datetime.now()), str(dt.datetime.utcnow()), time.strftime("%c"), time.gmtime()[:6]]
time.sleep(0.1)
more += [time.time_ns(), dt.date.today().isoformat(), dt.datetime.now(dt.timezone.utc).timestamp()]
assert 0.1 <= time.monotonic() - began < 0.2
while time.perf_counter() - ctx.get_start_time() < 1:
    pass
for _ in range(2):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        more += pool.map(child, "a")
assert more[-1] != more[-2]
return json.dumps(more)
"""


def test_what_a_program_draws_without_a_seed_and_the_time_follow_from_the_trial(run):
    source, python = UNSEEDED + loop(UNSEEDED_DRAWS), Path(sys.executable)
    trials = [run(source, seed=seed, python=python) for seed in (1, 2, 1)]
    assert {trial.failure for trial in trials} == {None}
    first, other, again = (json.loads(trial.response) for trial in trials)
    assert first == again
    assert not {*map(str, first[:6])} & {*map(str, other)}
    assert first[9][:10] == other[9][:10] == first[14] == "2025-01-01"


THINKS = """
import time
try:
    while True:
        best = chat_with_llm(ctx, [{"role": "user", "content": f"Build. {time.perf_counter()}"}])[0]
        time.sleep(0.3)
except TimeoutError:
    return f"{best} {time.perf_counter() - ctx.get_start_time():.3f}"
"""


def test_a_repetition_calls_as_often_and_is_refused_at_the_same_time(run):
    """The program's own time differs, and decides in neither run how often it may call."""
    model, rules = TestModel(lambda request: reply(echo(request), seconds=0.4)), limits(seconds=2, call_seconds=20)
    first = run(loop(THINKS), model, rules)
    again = run("sum(range(10**7))\n" + loop(THINKS), TestModel(model.answers), rules, course=first)
    assert (again.exchanges, again.late, again.response) == (first.exchanges, first.late, first.response)
    assert 3 <= len(first.exchanges) <= 5
    assert first.late >= 2
    assert first.exchanges[0].at in (0.4, 1.4)
    assert again.thought > first.thought


def test_a_second_run_names_what_differs(sandbox, bare_python, tmp_path):
    ask = "chat_with_llm(ctx, [{'role': 'user', 'content': f'Build %s.'}])[0]"
    bodies = {
        "another call after 1": f"import secrets\n{ask % ''}\nreturn {ask % '{secrets.token_hex()}'}",
        "another answer": f"import uuid\nreturn {ask % ''} + str(uuid.uuid4())",
        "another way": "import os\nos._exit(os.urandom(1)[0] or 1)",
        "": f"return {ask % ''}",
    }
    mark = tmp_path / "mark"
    for words, body in bodies.items():
        source = f"def marked(): return os.path.exists({str(mark)!r})\n" + loop(body)
        if "marked()" in body:
            continue
        runner = ProgramRunner(write_program(tmp_path / "program", source), sandbox, limits(), bare_python)
        trial = run_twice(runner.run_trial, JOB, runner.run_trial(JOB, TestModel().chat), [])
        assert [flag.kind for flag in trial.flags if words in flag.detail] == ["unrepeatable"] * bool(words), words


@pytest.mark.needs_sandbox
def test_a_trial_finds_nothing_of_the_trial_before(sandbox, bare_python, tmp_path):
    """Both run in one sandbox; the first leaves files, modules, locks, a server and a process that holds it."""
    body = """
    import fcntl, gc, os, socket, threading
    places = ["/tmp/note", "note", "/dev/shm/note"]
    server = socket.socket(socket.AF_UNIX)
    server.bind(chr(0) + "note")
    port = socket.create_server(("127.0.0.1", 50_000))
    assert not [one for one in gc.get_objects() if type(one) is dict and "note of a trial" in one]
    kept = globals()["kept"] = {"note of a trial": 1}
    found = [[os.path.exists(place) for place in places], hasattr(threading, "note"), os.getpid(),
             sorted({*os.listdir("/tmp")} - {"PLACE"}),
             sorted(name for name in os.listdir("/proc") if name.isdigit()), len(os.listdir("/proc/self/fd")),
             sorted(os.environ), os.listdir("/submission"), threading.active_count()]
    null = open("/dev/null")
    fcntl.flock(null, fcntl.LOCK_EX | fcntl.LOCK_NB)
    null.close()
    fcntl.flock(0, fcntl.LOCK_EX)
    for place in places:
        open(place, "w").write("to my next trial")
    threading.note = 1
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            threading.Event().wait(600)
        os._exit(0)
    for target in (1, os.getppid()):
        try:
            os.kill(target, 9)
        except OSError:
            pass
    return str(found)
    """
    place = [*Path(pcgeval.__file__).parts, "", ""][2]  # of this checkout, whose guest modules a sandbox shows
    program = write_program(tmp_path / "program", loop(body.replace("PLACE", place)))
    with Sandbox(sandbox.limits, contained=True) as opened:
        runner = ProgramRunner(program, opened, limits(), bare_python)
        first, second = (runner.run_trial(JOB, TestModel().chat) for _ in range(2))
    assert first.failure is None
    assert first.response.startswith("[[False, False, False], False, 2, ['logs', 'name'], ['1', '2'],")
    assert second.response == first.response


def test_a_program_that_the_kernel_ended_for_want_of_memory_is_no_failure_of_its_team(run, monkeypatch):
    kills_itself = loop("import os; os.kill(os.getpid(), 9)")
    assert run(kills_itself).failure.sentence.endswith("was ended by SIGKILL")
    counts = itertools.count()
    events = SimpleNamespace(read_text=lambda _: f"pgfault 1\noom_kill {next(counts)}\n")
    monkeypatch.setattr("pcgeval.sandbox.process.KERNEL_EVENTS", events)
    with pytest.raises(SandboxError, match="ran out of memory"):
        run(kills_itself)
    assert run(loop("return 'alive'")).response == "alive"


@pytest.mark.needs_sandbox
def test_a_programs_modules_are_imported_in_its_trials_alone(run, tmp_path):
    """What waits for the trials in the sandbox has rights, and imports modules that a program may hide."""
    names = ("ctypes", "fcntl", "resource", "stat", "struct")
    write_folder(tmp_path / "program", {f"{name}.py": "import sys\nBY = sys.argv[0]" for name in names})
    assert (
        run(loop("import ctypes, resource, struct\nreturn ctypes.BY + resource.BY + struct.BY")).response
        == "main.py" * 3
    )


@pytest.mark.needs_sandbox
def test_the_pipe_takes_no_name_in_our_network(run):
    body = """
    import os, pcgeval_guest, socket
    socket.socket(fileno=os.dup(pcgeval_guest._calls.fileno())).bind(chr(0) + "a name that a server of ours needs")
    """
    assert run(loop(body)).failure.detail.startswith("OSError: [Errno 22]")


def test_everything_that_a_program_may_ask_about_its_trial(run):
    body = """
    import json, time
    from llms4pcg.utils import log
    print("asked")
    assert 0 <= time.perf_counter() - ctx.get_start_time() < 60
    chat_with_llm(ctx, [{"role": "user", "content": "Build."}], 2)
    log(ctx.get_log_file_path(), "a line")
    ctx.get_output_file_path().write_text("kept")
    assert ctx.get_output_file_path().parent == ctx.get_output_folder_path()
    ctx.add_prompt_token_count(100)
    ctx.add_output_token_count(1000)
    return json.dumps([
        ctx.get_team_name(), ctx.get_character(), letter, ctx.get_trial_number(), ctx.get_total_token_count(),
        ctx.get_model_name(), ctx.get_local_model_base_url(), *ctx.get_output_file_path().parts[-4:],
        ctx.get_log_file_path().read_text()[-8:],
    ])
    """
    trial = run(loop(body).replace('"name"', '"../my team"'), keep_output=True)
    paths = ["_my_team", "raw", "K", "_my_team_K_3.txt"]
    facts = ["../my team", "K", "K", 3, 1114, "test-model", "http://localhost/v1", *paths, " a line\n"]
    assert (json.loads(trial.response), trial.printed) == (facts, "asked\n")


def test_a_program_imports_its_own_modules_and_sees_its_folders_in_order(run, tmp_path):
    modules = {
        "llms4pcg/__init__.py": "raise ImportError('the copy')",
        "chatgpt4pcg/__init__.py": "raise ImportError('the copy')",
        "json.py": "raise ImportError('a module that hides one of Python')",
        "utils.py": "NAME = 'own module'",
    }
    names = [f"{number}.txt" for number in range(12)]
    write_folder(tmp_path / "program", modules | {f"prompts/{name}": "" for name in names})
    body = """
    import glob, json, os, utils
    from pathlib import Path
    os.scandir("prompts").close()
    return json.dumps([
        utils.NAME,
        os.listdir("prompts"), [path.name for path in Path("prompts").iterdir()],
        glob.glob("*.txt", root_dir="prompts"), [path.name for path in Path(".").glob("**/*.txt")],
        [files for _, _, files in os.walk("prompts")][0],
    ])
    """
    assert json.loads(run(loop(body)).response) == ["own module", *[sorted(names)] * 5]


# conversations


SEARCH = """
best = ""
try:
    for _ in range(2):
        thoughts = chat_with_llm(ctx, [{"role": "user", "content": f"Propose {letter}. {best}"}], n=2)
        asked = [[{"role": "user", "content": f"Rate {thought}"}] for thought in thoughts]
        best = max((chat_with_llm(ctx, messages)[0], thought) for messages, thought in zip(asked, thoughts))[1]
except (ValueError, TimeoutError) as error:
    print(error)
return best
"""


@pytest.mark.parametrize(
    ("seconds", "rules", "calls"),
    [(0, limits(), 8), (0, limits(tokens=30), 5), (1000, limits(seconds=3500, call_seconds=9000), 4)],
)
def test_a_search_hands_in_what_it_has_when_it_meets_a_limit(run, seconds, rules, calls):
    """In a tree of thought, two thoughts are proposed, each is rated, and the better one goes on."""
    trial = run(loop(SEARCH), TestModel(lambda request: reply(echo(request), seconds=seconds)), rules)
    best = max(SAID, f"reply to 1 messages with seed {SECOND}")
    assert (trial.response, trial.failure, trial.flags, len(trial.exchanges)) == (best, None, (), calls)


@pytest.mark.parametrize("then", ["break", "os._exit(5)", "os.write(pcgeval_guest._trial['pipe'], b'x' * 3_000_000)"])
def test_a_limit_that_was_reached_is_the_reason_whatever_follows(run, then):
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
    assert (trial.response, str(trial.failure)) == ("", "used 14 tokens; the limit is 10")


def test_threads_each_get_their_own_reply_and_a_conversation_that_is_too_long_ends_nothing(run):
    body = """
    from concurrent.futures import ThreadPoolExecutor
    def ask(number, length=5000):
        return chat_with_llm(ctx, [{"role": "user", "content": str(number) * length}])[0]
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(ask, range(8)))
    try:
        return ask(9, 3 * 2**20)
    except ValueError:
        return " ".join([*texts, ask(8)])
    """
    trial = run(loop(body), TestModel(lambda request: request.messages[0].content[:1]))
    assert (trial.response, trial.failure) == ("0 1 2 3 4 5 6 7 8", None)


# programs that do not answer, and those that attack

FLOOD = "while True: send(json.dumps({'op': 'contact', 'text': 'x' * 10**6}).encode() + b'\\n')"
FAILURES = [
    (loop("return 5"), "TypeError: TrialLoop.run returned a int instead of a text"),
    (loop("{}['no such key']"), "KeyError: 'no such key' (main.py:8)"),
    (loop("'ä'.encode().decode('ascii')"), "in position 0: ordinal not in range(128) (main.py:8)"),
    (loop("exec('\\n\\nraise KeyError(5)')"), "KeyError: 5 (main.py:8)"),
    (loop("raise ValueError('\\n  über\\n zwei\\n')"), "ValueError: über zwei (main.py:8)"),
    (loop("exec('1 +')"), "(SyntaxError: invalid syntax (main.py:8))"),
    (loop("class Odd(Exception):\n    __str__ = None\nraise Odd"), "Odd: <exception str() failed>"),
    (loop("import sys; sys.exit('enough')"), "called sys.exit before it gave an answer: enough"),
    (loop("import os; os.abort()"), "gave no answer: it "),
    ("print('nothing to do')", "ended with exit code 0 before it gave an answer (was run_evaluation called?"),
    ("import numpy", "No module named 'numpy'; write the package that has it into requirements.txt, such as `numpy`"),
    ("import llms4pcg.utils.logging", "'llms4pcg.utils' is not a package; the competition's interface has no such mod"),
    ("this is no Python", "SyntaxError: invalid syntax"),
    (loop("chat_with_llm(ctx, 'no list')"), "ValueError: messages must be a list of at least one message (main.py:8)"),
    (loop("return 'x' * (3 * 2**20)"), "ValueError: a message of 3145"),
    (OVER_THE_PIPE + FLOOD, "sent messages of more than 64 MiB together"),
]
HOSTILE = [
    ("while True: send(b'x' * 65536)", "sent a message of more than 2 MiB"),
    ("os.close(calls); import time; time.sleep(60)", "gave no answer: it was stopped"),
    ("os.close(calls); os.close(calls)", "ended with exit code"),
    ('while True: send(b\'{"op": "chat", "id": 1, "messages": 5, "n": 1}\\n\')', "took more than 2 s"),
    ("while True: pass", "took more than 2 s"),
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
def test_a_program_that_does_not_answer_fails_with_a_reason(run, source, reason, seconds):
    trial = run(source, rules=limits(seconds=seconds))
    assert (trial.response, trial.failure is None) == ("", False)
    assert reason.lower() in str(trial.failure).lower()
    assert len(str(trial.failure)) <= 300
    assert str(trial.failure).isprintable()


def test_a_module_of_the_submission_that_python_does_not_find_is_named_with_its_place(tmp_path, sandbox, bare_python):
    files = {"team/main.py": "from team.shapes import P", "team/shapes.py": "P = 1"}
    program = Program(write_folder(tmp_path / "program", files), "team/main.py")
    failed = ProgramRunner(program, sandbox, limits(), bare_python).run_trial(JOB, TestModel().chat).failure
    words = "No module named 'team'; team is not beside team/main.py, where Python looks: move it there, import it as"
    assert words in str(failed)


def test_a_reply_that_the_program_fakes_is_none(run):
    """It may lead itself to believe anything; what is recorded and flagged is what the model said."""
    body = """
    import io, json, pcgeval_guest
    reply = {"id": 1, "texts": ["faked"], "prompt_tokens": 0, "output_tokens": 0, "at": 0}
    pcgeval_guest._replies = io.BytesIO(json.dumps(reply).encode() + b"\\n")
    return chat_with_llm(ctx, [{"role": "user", "content": "Build."}])[0]
    """
    trial = run(loop(body))
    assert (trial.response, trial.failure) == ("faked", None)
    assert [flag.kind for flag in trial.flags] == ["altered-answer"]
    assert [exchange.reply.text for exchange in trial.exchanges] in ([], [SAID])


def test_what_an_inspector_looks_for_is_flagged_also_in_a_failed_trial(run):
    body = """
    import socket
    from contextlib import suppress
    for host in ("example.org", "example.org", b"example.com"):
        with suppress(OSError):
            socket.create_connection((host, 80), timeout=1)
    with suppress(OSError):
        socket.socket().connect(("192.0.2.1", 80))
    raise KeyError(host)
    """
    source = loop(body).replace('"name", Loop', '"name", Loop, local_model_base_url="http://key@llm.example.net:80/v1"')
    trial = run(source)
    assert trial.failure.detail.startswith("KeyError: ")
    assert [(flag.kind, flag.detail) for flag in trial.flags] == [
        ("other-host", "gave run_evaluation the address of llm.example.net, which was not used"),
        *(("other-host", f"tried to reach {host}") for host in ("example.org", "example.com", "192.0.2.1")),
    ]
