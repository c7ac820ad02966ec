"""A model's server fails for a while, for ever, or for one prompt: no trial is lost through it, and none for ever."""

from collections import Counter
from pathlib import Path

import pytest
from competition_folder import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama

SIZE = {"letters": "ABCDEF", "trials": 2}


def competition(folder: Path, server: SlowOllama, work: dict[str, str] = PROMPT) -> CompetitionFolder:
    made = competition_folder(folder, server.address, work, **SIZE)  # type: ignore[arg-type]
    made.change_params("limits", seconds=1.5)  # so that a call is given up after two requests
    made.change_model(concurrency=1)
    return made


def reasons(made: CompetitionFolder) -> Counter[str | None]:
    """Return how many trials have a record, by the reason of their failure."""
    return Counter(record.reason for record in made.records())


@pytest.mark.parametrize("work", [PROMPT, PROGRAM], ids=["prompt", "program"])
@pytest.mark.parametrize("status", [500, 0], ids=["out of memory", "hangs"])
def test_a_server_that_fails_for_a_night_stops_the_model_and_costs_no_trial(
    tmp_path: Path, work: dict[str, str], status: int
):
    with SlowOllama(0.002, status=lambda _: status) as server:
        made = competition(tmp_path, server, work)
        code, said = made.run_and_fail(*STAGE)
        assert (code, sum(reasons(made).values())) == (2, 3)
        assert "3 trials one after the other" in said
        assert len(server.asked) == (3 if status == 0 else 6)
        server.asked.clear()
        server.status = lambda _: 200
        made.generate()
        assert len(server.asked) == len(set(server.asked))
    assert reasons(made) == {None: 12}


def test_isolated_faults_are_repeated_by_the_next_run_alone(tmp_path: Path):
    with SlowOllama(0.002, status=lambda text: 500 if text == "Build the letter B." else 200) as server:
        made = competition(tmp_path, server)
        code, said = made.run_and_fail(*STAGE)
        assert (code, reasons(made)[None]) == (2, 10)
        assert "2 of 12 trials" in said
        assert "B1 (" in said
        assert "pcgeval retry alpha --accept" in said
        server.asked.clear()
        code, said = made.run_and_fail(*STAGE)
        assert (code, len(server.asked)) == (2, 4)  # two requests for each of the two
        server.status = lambda _: 200
        server.asked.clear()
        made.generate()
        assert len(server.asked) == 2
    assert reasons(made) == {None: 12}


def test_what_is_the_prompts_own_fault_is_final(tmp_path: Path):
    """A request that is refused, and a reply that goes on and on until time is up."""
    with SlowOllama(0.002, status=lambda text: 400 if text == "Build the letter B." else 200) as server:
        made = competition(tmp_path, server)
        made.generate()
        assert reasons(made)[None] == 10
        made.change_params("competition", characters="Z")
        made.change_params("limits", seconds=3)
        server.seconds = 4
        made.generate()
        assert len(reasons(made)) == 1
        server.asked.clear()
        made.generate()
        assert not server.asked
