"""A server fails for a while, for ever, or for one prompt, or a run that asks it is killed: no trial is lost by it."""

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from model_servers import SlowOllama, wait_until
from workspace import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder

from pcgeval.formats.layout import CALLS
from pcgeval.llm.blame import TEXT


def competition(folder: Path, server: SlowOllama, work: dict[str, str] = PROMPT) -> CompetitionFolder:
    tested = competition_folder(folder, server.address, work, letters="ABCDEF", trials=2)
    tested.change_params("limits", seconds=1.5, call_seconds=0, outage_seconds=2)
    tested.change_model(concurrency=1)
    return tested


def kinds(tested: CompetitionFolder, team: str = "alpha") -> Counter[str | None]:
    """Return how many trials of a team have a record, by the kind of their failure."""
    return Counter(record.failure and record.failure.kind for record in tested.records(team))


@pytest.mark.parametrize(
    ("work", "status"), [(PROMPT, 0), (PROMPT, 400), pytest.param(PROGRAM, 500, marks=pytest.mark.needs_sandbox)]
)
def test_a_server_that_fails_for_a_night_stops_the_model_and_costs_no_trial(tmp_path, work, status):
    with SlowOllama(0.002, status=lambda _: status) as server:
        tested = competition(tmp_path, server, work)
        code, output = tested.run_and_fail(*STAGE)
        assert (code, tested.records(), server.asked) == (2, [], [])
        assert output.count("waiting for the server") <= 1
        assert "outage_seconds" in output
        server.status = lambda _: 200
        tested.change_params("limits", seconds=100)  # enough for a program on a busy machine
        tested.generate()
        assert len(server.asked) == len(set(server.asked))
    assert kinds(tested) == {None: 12}


def test_an_outage_in_the_middle_of_a_run_is_waited_for(tmp_path):
    failing = iter([False, True, True, True])
    with SlowOllama(0.002, status=lambda _: 500 if next(failing, False) else 200) as server:
        tested = competition(tmp_path, server)
        tested.change_params("limits", outage_seconds=60)
        tested.generate()
        assert (kinds(tested), server.neutral) == ({None: 12}, 1 + 3)


def test_a_server_that_hangs_is_never_the_prompts_fault(tmp_path):
    with SlowOllama(60) as server:
        server.neutral_seconds = 60
        tested = competition(tmp_path, server)
        tested.add_team("beta", {"prompt.txt": "Draw <OBJECT>."})
        code, output = tested.run_and_fail(*STAGE)
        assert code == 2
        assert "no whole answer" in output
        assert tested.records() == tested.records("beta") == []
        server.seconds = server.neutral_seconds = 0.002
        tested.generate()
    assert kinds(tested) == kinds(tested, "beta") == {None: 12}


@pytest.mark.parametrize("status", [500, 0])
def test_a_prompt_that_breaks_the_server_or_never_ends_is_a_zero_with_proof_and_stops_nobody(tmp_path, status):
    with SlowOllama(0.002, status=lambda text: status if "Break" in text else 200) as server:
        tested = competition(tmp_path, server)
        tested.change_params("competition", characters="A", trials=2)
        tested.change_params("limits", seconds=0.3)
        tested.add_team("beta", {"prompt.txt": "Break <OBJECT>."})
        tested.generate()
        asked = len(server.asked)
        tested.generate()
        assert len(server.asked) == asked  # the failure is final
    assert (kinds(tested), kinds(tested, "beta")) == ({None: 2}, {"request-fails": 2})
    for record in tested.records("beta"):
        assert [attempt.neutral is not None for attempt in record.failed_calls[0].attempts] == [True, True]


def test_a_process_that_is_killed_while_another_waits_for_its_call(tmp_path):
    """Two folders have one call log, as a competition and its round do."""
    hanging = threading.Event()
    hanging.set()
    with SlowOllama(0.01, status=lambda text: 0 if hanging.is_set() and text != TEXT else 200) as server:
        folders = tmp_path / "one", tmp_path / "other"
        one, other = (competition_folder(folder, server.address, PROMPT, letters="AB", trials=2) for folder in folders)
        for folder in folders:
            (folder / ".pcgeval").mkdir()
            (folder / CALLS).symlink_to(tmp_path)
        first = one.command(*STAGE)
        wait_until(lambda: len(server.asked) >= 2, first)
        second = other.command(*STAGE)
        wait_until(lambda: server.neutral >= 2, second)
        time.sleep(1)
        assert len(server.asked) == 2
        hanging.clear()
        first.kill()
        first.communicate()
        _, stderr = second.communicate(timeout=120)
        assert second.returncode == 0, stderr
        assert len(server.asked) == 2 + 4
    assert not [*tmp_path.glob("asking/*")]
