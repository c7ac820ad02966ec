"""Programs, run for real: each in a fresh process, in the sandbox where there is one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from program_trials import SEED, TestModel, echo, limits, loop, trial_job, write_program

from pcgeval.core.params import Limits
from pcgeval.generation.runners import ProgramRunner
from pcgeval.generation.tasks import TrialRun
from pcgeval.llm.protocol import ChatRequest, LlmError
from pcgeval.sandbox.sandbox import ResourceLimits, Sandbox, open_sandbox
from pcgeval.submissions.load import Program

EXAMPLES = Path(__file__).parent / "examples"
EXAMPLE = Program(EXAMPLES / "repairing", "repairing.py")
SECOND = trial_job().request(repetition=1).options["seed"]  # of the second reply to a conversation
SAID = f"reply to 1 messages with seed {SEED}"


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    most = ResourceLimits(
        memory_bytes=200_000_000, processes=24, scratch_bytes=16_000_000, file_bytes=4_000_000, output_bytes=4_000_000
    )
    return open_sandbox(most, trust_programs=True)


@pytest.fixture
def run(sandbox: Sandbox, tmp_path: Path, bare_python: Path) -> Callable[..., TrialRun]:
    """Return a function that runs one trial of a program, by its source or its folder."""

    def run_trial(source: str | Program, model: TestModel | None = None, rules: Limits | None = None) -> TrialRun:
        program = source if isinstance(source, Program) else write_program(tmp_path / "program", source)
        runner = ProgramRunner(program, sandbox, rules or limits(), bare_python)
        return runner.run_trial(trial_job(), model or TestModel(echo))

    return run_trial


Run = Callable[..., TrialRun]


def test_a_program_with_a_prompt_file(run: Run) -> None:
    """Its own numbers of trials and letters, dotenv and openai change nothing."""
    model = TestModel(echo)
    done = run(Program(EXAMPLES / "one_shot", "one_shot.py"), model)
    assert done == TrialRun(SAID, done.exchanges, (), None)
    assert [request.messages[0].content for request in model.requests] == ["Build the letter K from blocks.\n"]


def test_a_package_of_ours_is_not_the_programs(run: Run) -> None:
    done = run("import numpy")
    assert done.reason is not None
    assert "No module named 'numpy'" in done.reason
    assert "requirements.txt" in done.reason


def test_a_program_with_several_modules_and_a_search(run: Run) -> None:
    ratings = iter(("Rating: 3", "Rating: 8", "no idea", "Rating: 1"))

    def answers(request: ChatRequest) -> str:
        (message,) = request.messages
        return next(ratings) if message.content.startswith("Rate") else f"thought {request.options['seed']}"

    model = TestModel(answers)
    done = run(Program(EXAMPLES / "branching", "main.py"), model)
    assert (done.response, done.reason, done.flags) == (f"thought {SECOND}", None, ())
    asked = [request.messages[0].content for request in model.requests]
    assert asked[0] == asked[1] == "Propose blocks for K. So far: "
    assert asked[4] == f"Propose blocks for K. So far: thought {SECOND}"
    assert len(done.exchanges) == 8


def test_a_search_that_meets_the_tokens_hands_in_what_it_has(run: Run) -> None:
    done = run(Program(EXAMPLES / "branching", "main.py"), rules=limits(tokens=30))
    assert (done.response, done.reason) == (max(SAID, f"reply to 1 messages with seed {SECOND}"), None)
    assert len(done.exchanges) == 5


def test_a_program_with_many_turns_reads_its_prompts_in_the_order_of_their_names(run: Run) -> None:
    model = TestModel(echo)
    done = run(EXAMPLE, model)
    assert (done.response, done.reason, done.flags) == (f"reply to 19 messages with seed {SEED}", None, ())
    assert [message.content for message in model.requests[-1].messages[::2]] == [f"Step {n} for K." for n in range(10)]
    last = done.exchanges[-1]
    assert (last.repeats, last.messages) == (18, model.requests[-1].messages[18:])  # nothing is recorded twice


def test_the_rules_hold_without_a_sandbox_too(bare_python: Path) -> None:
    runner = ProgramRunner(EXAMPLE, Sandbox(ResourceLimits(), contained=False), limits(tokens=60), bare_python)
    done = runner.run_trial(trial_job(), TestModel(echo))
    assert (done.response, done.reason) == ("", "used 63 tokens; the limit is 60")
    assert len(done.exchanges) == 9


def test_trials_run_side_by_side(sandbox: Sandbox, bare_python: Path) -> None:
    runner = ProgramRunner(EXAMPLE, sandbox, limits(), bare_python)
    with ThreadPoolExecutor(4) as pool:
        letters = "ABCDEFGH"
        done = list(pool.map(lambda letter: runner.run_trial(trial_job(letter), TestModel(echo)), letters))
    assert [each.exchanges[0].messages[0].content for each in done if each.exchanges[0].messages] == [
        f"Step 0 for {letter}." for letter in letters
    ]


# what becomes of a program that does not answer

FAILURES = [
    (loop("return 5"), "returned a value of type int from TrialLoop.run instead of a text"),
    (loop("return None"), "returned nothing from TrialLoop.run instead of a text"),
    (loop("return chat_with_llm(ctx, [{'role': 'user', 'content': letter}])"), "returned a value of type list from"),
    (loop("pass").replace("def run", "async def run"), "returned a coroutine (run must not be async) from"),
    (loop("{}['no such key']"), "KeyError: 'no such key' (main.py:10)"),
    (
        loop("import json; json.loads('nonsense')"),
        "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (main.py",
    ),
    (loop("raise ValueError('x' * 10**6)"), "ValueError: xxxx"),
    (loop("raise TimeoutError('line 1\\nline 2')"), "line 2 (main.py:10)"),
    (loop("class Odd(Exception):\n    __str__ = None\nraise Odd"), "Odd: <exception str() failed>"),
    (loop("import sys; sys.exit('enough')"), "called sys.exit before it gave an answer: enough"),
    (loop("exit()"), "called sys.exit before it gave an answer"),
    (loop("import os; os._exit(0)"), "ended with exit code 0 before it gave an answer: was run_evaluation called?"),
    (loop("import os; os._exit(7)"), "ended with exit code 7 before it gave an answer"),
    (loop("import os; os.abort()"), "gave no answer: it "),
    (loop("recursive = lambda: recursive()\nrecursive()"), "RecursionError: maximum recursion depth exceeded"),
    ("print('nothing to do')", "ended with exit code 0 before it gave an answer: was run_evaluation called?"),
    ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ("this is no Python", "SyntaxError: invalid syntax"),
    ("run_evaluation('a', None)", "AttributeError: 'NoneType' object has no attribute 'run'"),
    ("class Loop(TrialLoop): ...\nrun_evaluation('a', Loop())", "TypeError: Can't instantiate abstract class Loop"),
    (loop("chat_with_llm(ctx, 'no list')"), "ValueError: messages must be a list of at least one message (main.py:10)"),
    (loop("chat_with_llm(ctx, [{'role': 'user', 'content': {1}}])"), "TypeError: a conversation consists of dicts"),
    (loop("return 'x' * (3 * 2**20)"), "ValueError: an answer of 3145757 bytes is over the limit"),
    # a trusted program of root's may read it
    pytest.param(loop("open('/etc/shadow').read()"), "Error: ", marks=pytest.mark.needs_sandbox),
]


@pytest.mark.parametrize(("source", "reason"), FAILURES)
def test_a_failure_has_its_reason(run: Run, source: str, reason: str) -> None:
    done = run(source)
    assert done.response == ""
    assert done.reason is not None
    assert reason in done.reason
    assert len(done.reason) <= 300
    assert done.reason.isprintable()


OVER_THE_PIPE = """
import json, os, pcgeval_pipe
calls, replies = (pcgeval_pipe.trial()[name] for name in ("calls", "replies"))
def send(content): os.write(calls, content)
"""
HOSTILE = [
    ("send(b'nonsense\\n')", "no message of the interface"),
    ("send(b'x' * 3_000_000)", "sent a message of more than 2 MiB"),
    ("while True: send(b'x' * 65536)", "sent a message of more than 2 MiB"),
    ('while True: send(b\'{"op": "contact", "text": ""}\\n\')', "sent more than 10000 messages"),
    ("send(b'[' * 100_000 + b'\\n')", "no message of the interface"),
    ("os.close(calls); import time; time.sleep(60)", "gave no answer: it was stopped"),
    ("os.close(calls); os.close(replies)", "ended with exit code"),
    ('while True: send(b\'{"op": "chat", "messages": 5, "n": 1}\\n\')', "took more than 2 s"),
    ("import time; time.sleep(60)", "took more than 2 s"),
    ("while True: pass", "took more than 2 s"),
    (
        "import threading\nthreading.Thread(target=lambda: sum(iter(int, 1))).start()",
        "took more than 2 s",
    ),
    ("import os, time\nif os.fork(): os._exit(0)\ntime.sleep(60)", "ended with exit code 0"),
    ("import os, time\nif not os.fork(): os._exit(0)\ntime.sleep(60)", "took more than 2 s"),
    ("while True: print('x' * 10_000)", "gave no answer: it "),
    ("x = []\nwhile True: x.append('x' * 10**7 + str(len(x)))", "memory"),
]


@pytest.mark.parametrize(("source", "reason"), HOSTILE)
def test_a_hostile_program_is_a_failed_trial(run: Run, source: str, reason: str) -> None:
    done = run(OVER_THE_PIPE + source, rules=limits(seconds=2))
    assert done.response == ""
    assert done.reason is not None
    assert reason.lower() in done.reason.lower()


def test_replies_that_are_not_read_hold_nobody_up(run: Run) -> None:
    source = OVER_THE_PIPE + "for _ in range(9): pcgeval_pipe._send({'op': 'chat', 'messages': %s, 'n': 1})\n" % [
        {"role": "user", "content": "Build."}
    ]
    done = run(source + "import time; time.sleep(60)", TestModel(lambda _: "x" * 100_000), limits(seconds=2))
    assert done.response == ""
    assert done.reason
    assert "took more than 2 s" in done.reason


def test_threads_that_talk_at_once_each_get_their_own_reply(run: Run) -> None:
    body = """
    from concurrent.futures import ThreadPoolExecutor
    def ask(number):
        return chat_with_llm(ctx, [{"role": "user", "content": str(number) * 5000}])[0]
    with ThreadPoolExecutor(4) as pool:
        return " ".join(pool.map(ask, range(8)))
    """
    done = run(loop(body), TestModel(lambda request: request.messages[0].content[:1]))
    assert (done.response, done.reason) == ("0 1 2 3 4 5 6 7", None)
    assert [flag.kind for flag in done.flags] == ["altered-answer"]


def test_the_first_answer_counts(run: Run) -> None:
    """Whether by several evaluations, a fork, or over the pipe: there is one answer, and nothing after it matters."""
    assert run(loop("return 'first'") + "    raise SystemExit(5)").response == "first"
    forked = run(loop("import os; os.fork(); return 'forked'"))
    assert (forked.response, forked.reason) == ("forked", None)
    sent = OVER_THE_PIPE + "for text in 'ab': pcgeval_pipe.tell_answer(text)"
    assert run(sent).response == "a"


def test_a_reply_that_the_program_fakes_is_none(run: Run) -> None:
    """It may lead itself to believe anything; what is recorded and flagged is what the model said."""
    body = """
    import os, pcgeval_pipe
    try:
        fake = os.open(f"/proc/self/fd/{pcgeval_pipe.trial()['replies']}", os.O_WRONLY)
        os.write(fake, b'{"texts": ["faked"], "prompt_tokens": 0, "output_tokens": 0}\\n')
    except PermissionError:
        pcgeval_pipe.ask = lambda messages, n: {"texts": ["faked"], "prompt_tokens": 0, "output_tokens": 0}
    return chat_with_llm(ctx, [{"role": "user", "content": "Build."}])[0]
    """
    done = run(loop(body))
    assert (done.response, done.reason) == ("faked", None)
    assert [flag.kind for flag in done.flags] == ["altered-answer"]
    assert [exchange.reply.text for exchange in done.exchanges] in ([], [SAID])


def test_the_counters_of_the_program_are_its_own(run: Run) -> None:
    body = """
    import time
    time.monotonic = time.perf_counter = lambda: 0.0
    while True:
        ctx.add_output_token_count(-ctx.get_total_token_count())
        chat_with_llm(ctx, [{"role": "user", "content": "Build."}])
    """
    done = run(loop(body), rules=limits(tokens=30))
    assert done.reason == "used 35 tokens; the limit is 30"
    assert len(done.exchanges) == 5


# flags


def test_what_an_inspector_looks_for_is_flagged(run: Run) -> None:
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
    history = [
        {"role": "user", "content": "Build."},
        {"role": "assistant", "content": "Gladly."},
        {"role": "user", "content": random.choice(["Go on.", "Proceed."])},
    ]
    return "My level: " + chat_with_llm(ctx, history)[0]
    """
    source = loop(body).replace('"name", Loop', '"name", Loop, local_model_base_url="http://key@llm.example.net:80/v1"')
    done = run(source)
    said = f"reply to 3 messages with seed {SEED}"
    assert done.reason is None
    assert [(flag.kind, flag.detail) for flag in done.flags] == [
        ("unseeded-random", "main.py:23 uses random, which no file of the program gives a seed"),
        ("other-host", "gave run_evaluation the address of llm.example.net, which was not used"),
        ("other-host", "tried to reach example.org"),
        ("other-host", "tried to reach example.com"),
        ("other-host", "tried to reach 192.0.2.1"),
        ("invented-reply", "the model never said in this trial: 'Gladly.'"),
        (
            "altered-answer",
            f"none of the model's replies in this trial is the answer: 'My level: {said}'",
        ),
    ]


def test_a_failed_trial_keeps_its_exchanges_and_flags(run: Run) -> None:
    body = """
    chat_with_llm(ctx, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    raise RuntimeError("no")
    """
    done = run(loop(body))
    assert done.reason == "RuntimeError: no (main.py:11)"
    assert len(done.exchanges) == 1
    assert [flag.kind for flag in done.flags] == ["invented-reply"]


def test_a_backend_that_cannot_serve_stops_the_run(run: Run) -> None:
    def gone(_: ChatRequest) -> str:
        raise LlmError("no server")

    with pytest.raises(LlmError, match="no server"):
        run(loop("return chat_with_llm(ctx, [{'role': 'user', 'content': 'Build.'}])[0]"), TestModel(gone))
