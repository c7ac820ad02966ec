"""The time of a trial ends while a call is under way: the call ends, and a program hands in what it has."""

from pathlib import Path

from competition_folder import PROMPT, competition_folder
from slow_ollama import SlowOllama
from soak import SOAK

BRANCHING = Path(__file__).parents[1] / "generation" / "examples" / "branching"
TREE_OF_THOUGHT = {path.relative_to(BRANCHING).as_posix(): path.read_text() for path in BRANCHING.rglob("*.*")}
TRIALS = 10 if SOAK else 2


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
    assert [each.reason for each in competition.records()] == [None, None]
