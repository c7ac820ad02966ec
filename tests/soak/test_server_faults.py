"""A model's server fails for a while, for ever, or for one prompt: no trial is lost through it, and none for ever."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from competition_folder import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama
from soak import shortened

SIZE = {"letters": "ABCDEF", "trials": 2}


def competition(folder: Path, server: SlowOllama, work: dict[str, str] = PROMPT) -> CompetitionFolder:
    made = competition_folder(folder, server.address, work, **SIZE)  # type: ignore[arg-type]
    made.change_params("limits", seconds=1.5, call_seconds=0)  # so that a call is given up after two requests
    made.change_model(concurrency=1)
    return made


def reasons(made: CompetitionFolder) -> Counter[str | None]:
    """Return how many trials have a record, by the reason of their failure."""
    return Counter(record.reason for record in made.records())


@pytest.mark.parametrize(
    ("work", "status"),
    shortened(
        [
            (PROMPT, 500),
            pytest.param(PROGRAM, 500, marks=pytest.mark.needs_sandbox),
            (PROMPT, 0),
            pytest.param(PROGRAM, 0, marks=pytest.mark.needs_sandbox),
        ],
        1,
        2,
    ),
)
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
        assert "alpha with m: 2 trials failed through no fault of the submission" in said
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
        made.change_params("limits", seconds=3, call_seconds=0)
        server.seconds = 4
        made.generate()
        assert len(reasons(made)) == 1
        server.asked.clear()
        made.generate()
        assert not server.asked


CRASHING = "Build the letter C."


def history(made: CompetitionFolder) -> list[dict[str, object]]:
    return [json.loads(line) for line in (made.folder / "data/trial_history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("work", shortened([PROMPT, pytest.param(PROGRAM, marks=pytest.mark.needs_sandbox)], 1))
def test_a_prompt_that_crashes_the_server_each_time_can_be_counted_as_failed(tmp_path: Path, work: dict[str, str]):
    with SlowOllama(0.002, status=lambda text: 500 if text in {CRASHING, "Build C"} else 200) as server:
        made = competition(tmp_path, server, work)
        assert made.run_and_fail(*STAGE)[0] == 2
        code, said = made.run_and_fail("-m", "pcgeval", "record")
        assert (code, "C1, C2" in said) == (2, True)
        assert made.run_and_fail("-m", "pcgeval", "retry", "alpha", "--accept", " ")[0] == 2
        code, said = made.run_and_fail("-m", "pcgeval", "retry", "alpha", "--accept", "crashes three servers")
        assert (code, said.count("m alpha C")) == (0, 2)
        server.asked.clear()
        made.generate()
        assert not server.asked
        assert made.run_and_fail("-m", "pcgeval", "retry", "--accept", "once more")[1].startswith("0 failed trials")
    failed = [record for record in made.records() if record.reason]
    assert [record.cause for record in failed] == ["server"] * 2
    assert all("crashes three servers" in str(record.accepted) for record in failed)
    assert [(line["letter"], line["trial"], line["accepted"]) for line in history(made)] == [
        ("C", number, "crashes three servers") for number in (1, 2)
    ]
    before = made.outputs()
    made.run("-m", "pcgeval", "record")
    made.change_model(backend="recorded")
    shutil.rmtree(tmp_path / "data" / "raw")
    made.generate()
    assert made.outputs() == before


def test_a_retry_is_no_second_draw(tmp_path: Path):
    """Answered calls come from the call log, also where the trial failed: only what had no answer is asked again."""
    refused = {"Build the letter B."}
    with SlowOllama(0.002, status=lambda text: 400 if text in refused else 200) as server:
        made = competition(tmp_path, server)
        made.change_params("limits", tokens=15)  # each reply costs 16
        made.generate()
        assert sum("used 16 tokens" in str(record.reason) for record in made.records()) == 10
        before, finished = made.outputs(), {record.fingerprint: record for record in made.records()}
        server.asked.clear()
        assert made.run_and_fail("-m", "pcgeval", "retry", "--json")[0] == 0
        assert [line["reason"] for line in history(made)] == [record.reason for record in finished.values()]
        made.generate()
        assert len(server.asked) == 2
        assert made.outputs() == before
        assert made.run_and_fail("-m", "pcgeval", "retry", "alpha", "--reason", "refused")[0] == 0
        refused.clear()
        made.change_params("limits", tokens=99)
        made.generate()
        assert len(server.asked) == 4
        assert made.run_and_fail("-m", "pcgeval", "retry", "nobody")[0] == 2
    assert reasons(made) == {None: 12}
    assert len(history(made)) == 14


def test_a_submission_that_crashes_the_server_in_every_trial_is_settled_in_two_decisions(tmp_path: Path):
    with SlowOllama(0.002, status=lambda _: 500) as server:
        made = competition(tmp_path, server)
        for records in (3, 12):
            assert made.run_and_fail(*STAGE)[0] == 2
            assert len(made.records()) == records
            made.run("-m", "pcgeval", "retry", "alpha", "--accept", "its prompts do it")
        made.generate()
    failures = [str(record.failure) for record in made.records()]
    assert all("CUDA" in failure and "its prompts do it" in failure for failure in failures)
    assert len(history(made)) == 12


@pytest.mark.needs_sandbox
def test_the_time_in_which_a_server_is_waited_for_is_not_the_programs(tmp_path: Path):
    """Each request fails once; the pause before it is sent again is as long as a trial may take."""
    failed_once: set[str] = set()

    def status(text: str) -> int:
        if text in failed_once:
            return 200
        failed_once.add(text)
        return 503

    with SlowOllama(0.002, status=status) as server:
        made = competition_folder(tmp_path, server.address, PROGRAM, letters="AB", trials=2)
        made.change_params("limits", seconds=1, call_seconds=30)
        made.generate()
        assert len(server.asked) > 12
    assert reasons(made) == {None: 4}
