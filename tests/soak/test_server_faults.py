"""A server fails for a while, for ever, or for one prompt, or a run that asks it is killed: no trial is lost by it."""

import time
from collections import Counter
from pathlib import Path

import pytest
from competition_folder import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama
from waiting import wait_until


def competition(folder: Path, server: SlowOllama, work: dict[str, str] = PROMPT) -> CompetitionFolder:
    tested = competition_folder(folder, server.address, work, letters="ABCDEF", trials=2)
    tested.change_params("limits", seconds=1.5, call_seconds=0)  # so that a call is given up after two requests
    tested.change_model(concurrency=1)
    return tested


def reasons(tested: CompetitionFolder) -> Counter[str | None]:
    """Return how many trials have a record, by the reason of their failure."""
    return Counter(record.reason for record in tested.records())


@pytest.mark.parametrize(("work", "status"), [(PROMPT, 0), pytest.param(PROGRAM, 500, marks=pytest.mark.needs_sandbox)])
def test_a_server_that_fails_for_a_night_stops_the_model_and_costs_no_trial(tmp_path, work, status):
    with SlowOllama(0.002, status=lambda _: status) as server:
        tested = competition(tmp_path, server, work)
        code, output = tested.run_and_fail(*STAGE)
        assert (code, sum(reasons(tested).values())) == (2, 3)
        assert "3 trials one after the other" in output
        server.asked.clear()
        server.status = lambda _: 200
        tested.change_params("limits", seconds=100)  # enough for a program on a busy machine
        tested.generate()
        assert len(server.asked) == len(set(server.asked))
    assert reasons(tested) == {None: 12}


def test_a_server_that_hangs_is_never_the_prompts_fault(tmp_path):
    with SlowOllama(60) as server:
        tested = competition(tmp_path, server)
        for team, verb in (("beta", "Draw"), ("gamma", "Make")):
            tested.add_team(team, {"prompt.txt": f"{verb} <OBJECT>."})
        code, output = tested.run_and_fail(*STAGE)
        assert code == 2
        assert "no whole answer" in output
        assert output.count("3 trials one after the other") == 1  # of all teams together
        assert len(server.asked) <= 2 * 3
        server.seconds = 0.002
        tested.generate()
    assert {record.reason for team in ("alpha", "beta", "gamma") for record in tested.records(team)} == {None}


def test_a_process_that_is_killed_while_another_waits_for_its_call(tmp_path):
    """Two models of params.yaml are the same one, and the trials with the one run beside those with the other."""
    with SlowOllama(60) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
        competition.change_params("models", again=competition.params()["models"]["m"])
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
