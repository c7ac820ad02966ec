"""The time of a trial ends while a call is under way: the call ends, and a program hands in what it has."""

from pathlib import Path

import pytest
from competition_folder import PROGRAM, PROMPT, competition_folder
from slow_ollama import SlowOllama
from soak import SOAK

BRANCHING = Path(__file__).parents[1] / "generation" / "examples" / "branching"
TREE_OF_THOUGHT = {path.relative_to(BRANCHING).as_posix(): path.read_text() for path in BRANCHING.rglob("*.*")}
TRIALS = 10 if SOAK else 2


@pytest.mark.needs_sandbox
def test_a_tree_of_thought_hands_in_what_it_has_when_its_time_ends_in_a_call(tmp_path: Path):
    with SlowOllama(0.7) as server:  # 8 calls of a trial take 5.6 s
        competition = competition_folder(tmp_path, server.address, TREE_OF_THOUGHT, letters="AB", trials=TRIALS)
        competition.change_params("limits", seconds=4)
        competition.generate()
    found = competition.records()
    assert {each.reason for each in found} == {None}
    assert all(4 < len(each.exchanges) < 8 for each in found)  # the first choice was made, the second was not


def test_the_late_reply_to_a_prompt_counts(tmp_path: Path):
    with SlowOllama(1.0) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="A", trials=2)
        competition.change_params("limits", seconds=0.5)
        competition.generate()
    assert [record.reason for record in competition.records()] == [None, None]


ENDLESS = {"main.py": PROGRAM["main.py"].replace("return answer", "while True: pass")}
CATCHES_ALL = """
            while True:
                try:
                    answer = chat_with_llm(ctx, messages)[0]
                except Exception:
                    continue
"""
STUBBORN = {
    "main.py": PROGRAM["main.py"].replace("\n            answer = chat_with_llm(ctx, messages)[0]\n", CATCHES_ALL)
}


@pytest.mark.needs_sandbox
@pytest.mark.parametrize(("work", "seconds"), [(ENDLESS, 0), (STUBBORN, 0.3)])
def test_the_hard_end_names_the_limit(tmp_path: Path, work: dict[str, str], seconds: float):
    with SlowOllama(seconds) as server:
        competition = competition_folder(tmp_path, server.address, work, letters="A", trials=2)
        competition.change_params("limits", seconds=1, call_seconds=1.5)
        competition.generate()
        reasons = {str(record.reason) for record in competition.records()}
        assert all(reason.startswith("took more than 1 s") for reason in reasons)
        asked = len(server.asked)
        competition.generate()  # it is the trial's own failure, and final
        assert len(server.asked) == asked
