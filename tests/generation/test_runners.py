"""Programs, run for real: each in a fresh process, in the sandbox where there is one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from program_trials import SEED, TestModel, echo, limits, loop, trial_job, write_program

from pcgeval.generation.runners import ProgramRunner, TrialRun
from pcgeval.llm.protocol import ChatRequest
from pcgeval.sandbox.sandbox import Sandbox
from pcgeval.submissions.load import Program

EXAMPLES = Path(__file__).parent / "examples"
EXAMPLE = Program(EXAMPLES / "repairing", "repairing.py")
SECOND = trial_job().request(repetition=1).options["seed"]  # of the second reply to a conversation
SAID = f"reply to 1 messages with seed {SEED}"
Run = Callable[..., TrialRun]


def test_a_program_with_a_prompt_file(run: Run) -> None:
    """Its own numbers of trials and letters, dotenv and openai change nothing."""
    model = TestModel(echo)
    done = run(Program(EXAMPLES / "one_shot", "one_shot.py"), model)
    assert (done.response, done.reason, done.flags) == (SAID, None, ())
    assert [request.messages[0].content for request in model.requests] == ["Build the letter K from blocks.\n"]


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


@pytest.mark.parametrize("then", ["break", "os._exit(5)", "os.write(pcgeval_guest._trial['pipe'], b'x' * 3_000_000)"])
def test_a_limit_that_was_reached_is_the_reason_whatever_follows(run: Run, then: str) -> None:
    body = f"""
    import os, pcgeval_guest
    while True:
        try:
            chat_with_llm(ctx, [{{"role": "user", "content": "Build."}}])
        except ValueError:
            {then}
    """
    done = run(loop(body), rules=limits(tokens=10))
    assert (done.response, done.reason) == ("", "used 14 tokens; the limit is 10")


# programs that do not answer

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
    ("import numpy", "No module named 'numpy'; a package has to be named in requirements.txt"),
    ("this is no Python", "SyntaxError: invalid syntax"),
    ("run_evaluation('a', None)", "AttributeError: 'NoneType' object has no attribute 'run'"),
    ("class Loop(TrialLoop): ...\nrun_evaluation('a', Loop())", "TypeError: Can't instantiate abstract class Loop"),
    (loop("chat_with_llm(ctx, 'no list')"), "ValueError: messages must be a list of at least one message (main.py:10)"),
    (loop("chat_with_llm(ctx, [{'role': 'user', 'content': {1}}])"), "TypeError: a conversation consists of dicts"),
    (loop("return 'x' * (3 * 2**20)"), "ValueError: an answer of 3145757 bytes is over the limit"),
]


OVER_THE_PIPE = """
import json, os, pcgeval_guest
calls = pcgeval_guest._trial['pipe']
def send(content): os.write(calls, content)
"""
HOSTILE = [
    ("while True: send(b'x' * 65536)", "sent a message of more than 2 MiB"),
    ("os.close(calls); import time; time.sleep(60)", "gave no answer: it was stopped"),
    ("os.close(calls); os.close(calls)", "ended with exit code"),
    ('while True: send(b\'{"op": "chat", "messages": 5, "n": 1}\\n\')', "took more than 2 s"),
    ("import time; time.sleep(60)", "took more than 2 s"),
    ("while True: pass", "took more than 2 s"),
    ("import threading\nthreading.Thread(target=lambda: sum(iter(int, 1))).start()", "took more than 2 s"),
    ("import os, time\nif os.fork(): os._exit(0)\ntime.sleep(60)", "ended with exit code 0"),
    ("import os, time\nif not os.fork(): os._exit(0)\ntime.sleep(60)", "took more than 2 s"),
    ("while True: print('x' * 10_000)", "gave no answer: it "),
    ("x = []\nwhile True: x.append('x' * 10**7 + str(len(x)))", "memory"),
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
    done = run(source, rules=limits(seconds=seconds))
    assert done.response == ""
    assert done.reason is not None
    assert reason.lower() in done.reason.lower()
    assert len(done.reason) <= 300
    assert done.reason.isprintable()


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
    sent = OVER_THE_PIPE + "for text in 'ab': send(json.dumps({'op': 'answer', 'text': text}).encode() + b'\\n')"
    assert run(sent).response == "a"


def test_only_the_first_evaluation_runs_and_what_it_prints_is_kept_on_demand(
    sandbox: Sandbox, tmp_path: Path, bare_python: Path
) -> None:
    source = loop("print(letter); return letter") + '    run_evaluation("name", Loop)\n'
    program = write_program(tmp_path / "program", source)
    for keep_output, printed in ((True, "K\n"), (False, "")):
        runner = ProgramRunner(program, sandbox, limits(), bare_python, keep_output=keep_output)
        done = runner.run_trial(trial_job(), TestModel(echo))
        assert (done.response, done.printed) == ("K", printed)


def test_a_reply_that_the_program_fakes_is_none(run: Run) -> None:
    """It may lead itself to believe anything; what is recorded and flagged is what the model said."""
    body = """
    import io, pcgeval_guest
    pcgeval_guest._replies = io.BytesIO(b'{"texts": ["faked"], "prompt_tokens": 0, "output_tokens": 0}\\n')
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
        ("unseeded-random", "main.py:23 uses random, which no file of the program seeds"),
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
    talk = 'chat_with_llm(ctx, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])'
    done = run(loop(f'{talk}\nraise RuntimeError("no")'))
    assert done.reason == "RuntimeError: no (main.py:11)"
    assert len(done.exchanges) == 1
    assert [flag.kind for flag in done.flags] == ["invented-reply"]
