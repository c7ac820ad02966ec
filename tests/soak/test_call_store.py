"""Nothing is paid for twice: the requests that reach a scripted server, counted."""

import time
from pathlib import Path

import pytest
import yaml
from competition_folder import PROGRAM, PROMPT, REPEATING, STAGE, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama
from soak import shortened
from waiting import wait_until


@pytest.mark.parametrize(
    "work",
    shortened(
        [PROMPT, *(pytest.param(program, marks=pytest.mark.needs_sandbox) for program in (PROGRAM, REPEATING))], 1
    ),
)
def test_two_processes_that_ask_the_same_at_the_same_moment_pay_once(tmp_path: Path, work: dict[str, str]):
    """Two models of params.yaml are the same one, and each trial with the one runs beside that with the other."""
    with SlowOllama(1) as server:
        competition = with_two_names(tmp_path, server, work)
        running = [competition.command(STAGE[0], model) for model in ("m", "again")]
        for process in running:
            _, stderr = process.communicate(timeout=300)
            assert process.returncode == 0, stderr
        assert len(server.asked) == (4 if work is PROMPT else 12)


def with_two_names(folder: Path, server: SlowOllama, work: dict[str, str]) -> CompetitionFolder:
    """Lay out a competition whose model has two keys in params.yaml."""
    competition = competition_folder(folder, server.address, work, letters="AB", trials=2)
    models = yaml.safe_load((folder / "params.yaml").read_text())["models"]
    competition.change_params("models", again=models["m"])
    return competition


def test_a_process_that_is_killed_while_another_waits_for_its_call(tmp_path: Path):
    with SlowOllama(60) as server:
        competition = with_two_names(tmp_path, server, PROMPT)
        first = competition.command(*STAGE)
        wait_until(lambda: len(server.asked) >= 2, first)
        second = competition.command(STAGE[0], "again")
        wait_until((tmp_path / ".pcgeval/locks/again.lock").exists, second)
        time.sleep(1)
        assert len(server.asked) == 2
        server.seconds = 0.01
        first.kill()
        first.communicate()
        _, stderr = second.communicate(timeout=120)
        assert second.returncode == 0, stderr
        assert len(server.asked) == 2 + 4
    assert not [*tmp_path.glob(".pcgeval/calls/asking/*")]
