"""Chance in a competition: branches differ, trials differ, rounds differ, and all of it can be repeated."""

from pathlib import Path

import pytest
from competition_folder import PROGRAM, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama

pytestmark = pytest.mark.needs_sandbox
BRANCHES = {
    "main.py": PROGRAM["main.py"]
    .replace("for turn in range(3):", "for turn in range(4):")
    .replace("chat_with_llm(ctx, messages)", "chat_with_llm(ctx, messages[:1])")
}
SEEDED = {
    "main.py": PROGRAM["main.py"]
    .replace("\nclass", "\nimport random\nrandom.seed(42)\nown = random.Random(7)\n\nclass")
    .replace('f"Build {target_character}"', 'f"Build with {random.random()} and {own.random()}"')
}


def run(folder: Path, work: dict[str, str]) -> tuple[CompetitionFolder, int]:
    """Run two trials; return the competition and how many different requests were made."""
    with SlowOllama(0.002) as server:
        competition = competition_folder(folder, server.address, work, letters="A", trials=2)
        competition.generate()
        return competition, len(set(server.asked))


def test_the_branches_of_a_tree_get_replies_of_their_own(tmp_path: Path):
    competition, requests = run(tmp_path, BRANCHES)
    different = [len({exchange.reply.text for exchange in record.exchanges}) for record in competition.records()]
    assert different == [4, 4]
    assert requests == 8


def test_a_program_that_seeds_its_random_numbers_draws_others_in_each_trial_and_the_same_again(tmp_path: Path):
    first, second = (run(tmp_path / name, SEEDED)[0] for name in ("first", "second"))
    drawn = [record.exchanges[0].messages[0].content.split()[2::2] for record in first.records()]  # type: ignore[index]
    assert len({number for each in drawn for number in each}) == 4
    assert first.timeless_outputs() == second.timeless_outputs()
