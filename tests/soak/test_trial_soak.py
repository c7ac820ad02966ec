"""What a trial gets: random numbers that can be repeated, and its time, to the last call."""

from pathlib import Path

import pytest
from competition_folder import PROGRAM, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama
from soak import SOAK

SOURCE = PROGRAM["main.py"]
SEEDED = SOURCE.replace("\nclass", "\nimport random\nrandom.seed(42)\nown = random.Random(7)\n\nclass").replace(
    'f"Build {target_character}"', 'f"Build with {random.random()} and {own.random()}"'
)
CATCHES_ALL = """
            while True:
                try:
                    answer = chat_with_llm(ctx, messages)[0]
                except Exception:
                    continue
"""
STUBBORN = SOURCE.replace("\n            answer = chat_with_llm(ctx, messages)[0]\n", CATCHES_ALL)
BRANCHING = Path(__file__).parents[1] / "generation" / "examples" / "branching"
TREE_OF_THOUGHT = {path.relative_to(BRANCHING).as_posix(): path.read_text() for path in BRANCHING.rglob("*.*")}


def two_trials(
    folder: Path, work: dict[str, str], call_takes: float = 0.002, letters: str = "A", trials: int = 2, **limits: float
) -> CompetitionFolder:
    """Run trials on a server, with the seconds that a call takes, and return the competition."""
    with SlowOllama(call_takes) as server:
        competition = competition_folder(folder, server.address, work, letters=letters, trials=trials)
        competition.change_params("limits", **limits)
        competition.generate()
        asked = list(server.asked)
        competition.generate()
        assert server.asked == asked  # whatever the trials came to is final
    return competition


@pytest.mark.needs_sandbox
def test_a_program_that_seeds_its_random_numbers_draws_others_in_each_trial_and_the_same_again(tmp_path: Path):
    first, second = (two_trials(tmp_path / name, {"main.py": SEEDED}) for name in ("first", "second"))
    drawn = [record.exchanges[0].messages[0].content.split()[2::2] for record in first.records()]  # type: ignore[index]
    assert len({number for numbers in drawn for number in numbers}) == 4
    assert first.timeless_outputs() == second.timeless_outputs()


@pytest.mark.needs_sandbox
def test_a_tree_of_thought_hands_in_what_it_has_when_its_time_ends_in_a_call(tmp_path: Path):
    trials = 10 if SOAK else 2  # of 8 calls, which take 5.6 s
    competition = two_trials(tmp_path, TREE_OF_THOUGHT, 0.7, "AB", trials, seconds=4)
    records = competition.records()
    assert {record.reason for record in records} == {None}
    assert all(4 < len(record.exchanges) < 8 for record in records)  # the first choice was made, the second was not


@pytest.mark.needs_sandbox
def test_the_hard_end_names_the_limit(tmp_path: Path):
    competition = two_trials(tmp_path, {"main.py": STUBBORN}, 0.3, seconds=1, call_seconds=1.5)
    assert all(str(record.reason).startswith("took more than 1 s") for record in competition.records())
