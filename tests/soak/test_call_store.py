"""Nothing is paid for twice: the requests that reach a scripted server, counted."""

import time
from pathlib import Path

import yaml
from competition_folder import PROMPT, STAGE, competition_folder
from slow_ollama import SlowOllama
from waiting import wait_until


def test_a_process_that_is_killed_while_another_waits_for_its_call(tmp_path: Path):
    """Two models of params.yaml are the same one, and the trials with the one run beside those with the other."""
    with SlowOllama(60) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
        models = yaml.safe_load((tmp_path / "params.yaml").read_text())["models"]
        competition.change_params("models", again=models["m"])
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
