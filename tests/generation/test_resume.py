"""The real generate stage is killed, interrupted and run twice at once: nothing is lost or paid twice."""

import json
import os
import random
import re
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from model_servers import SlowOllama, wait_for_answers, wait_until
from this_machine import SOAK
from workspace import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder

MOMENTS = 20 if SOAK else 4
AT_ONCE = 2  # calls
RECORDING = Path("data/recordings/m/alpha/calls.jsonl")
NO_SANDBOX = {"PCGEVAL_NO_SANDBOX": "1"}
TRUST = {"PCGEVAL_TRUST_PROGRAMS": "1"}
ENDLESS = {"main.py": PROGRAM["main.py"].replace("return answer", "while True: pass")}
REPEATING = {"main.py": PROGRAM["main.py"].replace("(ctx, messages)", "(ctx, messages[:1])")}  # the same three times


def laid_out(folder: Path, host: str, work: dict[str, str] = PROMPT) -> CompetitionFolder:
    return competition_folder(folder, host, work, letters="AB", trials=2)


@pytest.mark.parametrize(
    ("work", "trials"),
    [(PROMPT, 12 if SOAK else 5), pytest.param(PROGRAM, 4 if SOAK else 2, marks=pytest.mark.needs_sandbox)],
)
def test_killed_at_random_moments(tmp_path, work, trials):
    chance = random.Random(20)
    with SlowOllama() as server:
        competition = competition_folder(tmp_path / "killed", server.address, work, trials=trials)
        interrupted = 0
        for _ in range(MOMENTS):
            finished, asked_before = competition.finished_calls(), len(server.asked)
            process = competition.command(*STAGE)
            if chance.random() < 0.2:
                time.sleep(chance.uniform(0, 0.6))  # while it starts
            else:
                enough = server.answered + chance.randint(1, 6)
                wait_for_answers(server, enough, process)
                time.sleep(chance.uniform(0, 0.03))
            process.kill()
            process.communicate()
            interrupted += process.returncode == -signal.SIGKILL
            assert not finished & set(server.asked[asked_before:])
        finished, asked_before = competition.finished_calls(), len(server.asked)
        competition.generate()
        assert not finished & set(server.asked[asked_before:])
        assert interrupted > MOMENTS / 2
        assert len(server.asked) - len(set(server.asked)) <= interrupted * AT_ONCE  # calls under way are lost
    with SlowOllama(0.002) as server:
        undisturbed = competition_folder(tmp_path / "undisturbed", server.address, work, trials=trials)
        undisturbed.generate()
    outputs = competition.outputs()
    timeless = [
        {name: re.sub(rb'"(seconds|at)": [0-9.e-]+', b"", content) for name, content in each.items()}
        for each in (outputs, undisturbed.outputs())
    ]
    assert timeless[0] == timeless[1]
    shutil.rmtree(tmp_path / "killed" / "data" / "raw")
    with SlowOllama() as unasked:
        competition.change_model(host=unasked.address)
        competition.generate()  # from the call log alone
        assert not unasked.asked
    assert competition.outputs() == outputs


@pytest.mark.parametrize(
    ("work", "environment", "how"),
    [
        (PROMPT, {}, signal.SIGINT),
        (PROMPT, {}, signal.SIGHUP),
        (ENDLESS, NO_SANDBOX | TRUST, signal.SIGINT),
        pytest.param(ENDLESS, {}, signal.SIGTERM, marks=pytest.mark.needs_sandbox),
    ],
)
def test_two_runs_exclude_each_other_and_an_interruption_ends_all_at_once_and_fails_no_trial(
    tmp_path: Path, work: dict[str, str], environment: dict[str, str], how: signal.Signals
):
    seconds, calls = (60, AT_ONCE) if work == PROMPT else (0.002, 3 * AT_ONCE)
    with SlowOllama(seconds) as server:
        competition = laid_out(tmp_path, server.address, work)
        first = competition.command(*STAGE, **environment)
        wait_until(lambda: len(server.asked) >= calls, first)
        code, output = competition.run_and_fail(*STAGE)
        assert (code, f"data/raw: process {first.pid} " in output, first.poll()) == (2, True, None)
        started = psutil.Process(first.pid).children(recursive=True)
        assert bool(started) == (work == ENDLESS)
        first.send_signal(how)
        _, output = first.communicate(timeout=300)
        assert (first.returncode, output.startswith("stopped"), output.count("\n")) == (130, True, 1)
        assert not [program for program in started if program.is_running()]
        assert (competition.records(), len(server.asked)) == ([], calls)


@pytest.mark.parametrize(
    ("work", "refused", "failed"),
    [
        (PROMPT, "Build the letter B.", 2),
        pytest.param(PROGRAM, "Again, 1", 4, marks=pytest.mark.needs_sandbox),
        pytest.param(REPEATING, None, 0, marks=pytest.mark.needs_sandbox),  # the same call has several answers
    ],
)
def test_a_replay_gives_the_same_bytes(tmp_path, request, work, refused, failed):
    request.addfinalizer(partial(os.umask, os.umask(0o077)))  # root runs programs as another user, whatever the umask
    with SlowOllama(0.002, status=lambda text: 400 if text == refused else 200) as server:
        competition = laid_out(tmp_path, server.address, work)
        competition.generate()
        assert len(server.asked) == len(set(server.asked)) + failed  # a request that fails is sent twice
    before = competition.outputs()
    assert sum(record.failure is not None for record in competition.records()) == failed
    competition.run("-m", "pcgeval", "export", "recordings")
    recording = tmp_path / RECORDING
    recording.write_text(recording.read_text().replace('"response":"', '"response":"x'))  # so a program runs again
    competition.change_model(backend="recorded")
    shutil.rmtree(tmp_path / "data" / "raw")
    competition.generate()
    assert competition.outputs() == before


@pytest.fixture
def recorded(tmp_path: Path) -> CompetitionFolder:
    """A competition whose one program was run for real, recorded, and is to be replayed now."""
    with SlowOllama(0.002) as server:
        competition = laid_out(tmp_path, server.address, PROGRAM)
        competition.run(*STAGE, **TRUST)
    competition.run("-m", "pcgeval", "export", "recordings")
    competition.change_model(backend="recorded")
    return competition


def test_a_programs_trials_are_replayed_without_a_sandbox_and_answer_for_the_model_from_the_call_log(recorded):
    before = recorded.outputs()
    assert len(before) == 4 * 2
    missing, *others = (recorded.folder / "data" / "raw").rglob("*.json")
    missing.unlink()
    for path in others:  # as from another run
        path.write_text(path.read_text().replace('"seconds": ', '"seconds": 1'))
    recorded.run(*STAGE, **NO_SANDBOX)
    assert recorded.outputs() == before
    shutil.rmtree(recorded.folder / "data" / "raw")
    shutil.rmtree(recorded.folder / ".pcgeval")
    (recorded.folder / ".pcgeval/calls").mkdir(parents=True)
    shutil.copy(recorded.folder / RECORDING, recorded.folder / ".pcgeval/calls/of-a-colleague.jsonl")
    with SlowOllama() as server:
        recorded.change_model(backend="ollama", host=server.address)
        recorded.run(*STAGE, **TRUST)
        assert not server.asked
    assert recorded.outputs() == before


def test_a_reply_that_was_edited_in_the_recording_is_given_to_the_program_again(recorded):
    """Neither the finished trial nor the recorded one, both made from the old reply, stands in its way."""
    recorded.run(*STAGE, **NO_SANDBOX)
    path = recorded.folder / RECORDING
    first, *others = path.read_text().splitlines(keepends=True)
    before, trial = recorded.outputs(), json.loads(first)
    assert (trial["letter"], trial["trial"]) == ("A", 1)
    trial["record"]["exchanges"][2]["reply"]["text"] = "A new answer."  # the last reply is the program's answer
    path.write_text("".join([json.dumps(trial) + "\n", *others]))
    recorded.run(*STAGE, **TRUST)
    after = recorded.outputs()
    assert after["m/alpha/A/alpha_A_1.txt"] == b"A new answer."
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"m/alpha/A/alpha_A_1.txt", "m/alpha/A/alpha_A_1.json"}
