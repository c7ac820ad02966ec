"""Recordings of programs: finished trials come again without a sandbox, as long as the program is the same."""

import json
import shutil
from pathlib import Path

import pytest
from competition_folder import PROGRAM, REPEATING, STAGE, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama

NO_SANDBOX = {"PCGEVAL_NO_SANDBOX": "1"}
TRUST = {"PCGEVAL_TRUST_PROGRAMS": "1"}
CALLS = Path("data/recordings/m/alpha/calls.jsonl")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A competition whose one program was run for real, recorded, and is to be replayed now."""
    with SlowOllama(0.002) as server:
        folder = tmp_path_factory.mktemp("played")
        competition = competition_folder(folder, server.address, PROGRAM, letters="AB", trials=2)
        competition.run(*STAGE, **TRUST)
    competition.run("-m", "pcgeval", "export", "recordings")
    competition.change_model(backend="recorded")
    return folder


@pytest.fixture
def recorded(played: Path, tmp_path: Path) -> CompetitionFolder:
    """A copy of it."""
    return CompetitionFolder(shutil.copytree(played, tmp_path / "competition"))


def test_finished_trials_are_replayed_byte_for_byte_without_a_sandbox(recorded: CompetitionFolder) -> None:
    before = recorded.outputs()
    assert len(before) == 4 * 2
    shutil.rmtree(recorded.folder / "data" / "raw")
    recorded.run(*STAGE, **NO_SANDBOX)
    assert recorded.outputs() == before


def test_a_recording_that_is_copied_into_the_call_log_answers_for_the_model(recorded: CompetitionFolder) -> None:
    before = recorded.outputs()
    shutil.rmtree(recorded.folder / "data" / "raw")
    shutil.rmtree(recorded.folder / ".pcgeval")
    (recorded.folder / ".pcgeval/calls").mkdir(parents=True)
    shutil.copy(recorded.folder / CALLS, recorded.folder / ".pcgeval/calls/of-a-colleague.jsonl")
    with SlowOllama() as server:
        recorded.change_model(backend="ollama", host=server.address)
        recorded.run(*STAGE, **TRUST)
        assert not server.asked
    assert recorded.outputs() == before


def test_a_program_that_was_changed_is_run_again(recorded: CompetitionFolder) -> None:
    (recorded.folder / "data/submissions/alpha/main.py").write_text(REPEATING["main.py"])
    code, said = recorded.run_and_fail(*STAGE, **NO_SANDBOX)
    assert code == 2
    assert "PCGEVAL_TRUST_PROGRAMS=1" in said  # it needs a sandbox, and a stranger's answers are not taken for its own


def test_a_reply_that_was_edited_in_the_recording_is_given_to_the_program_again(recorded: CompetitionFolder) -> None:
    """Neither the finished trial nor the recorded one, both made from the old reply, stands in its way."""
    path = recorded.folder / CALLS
    first, *others = path.read_text().splitlines(keepends=True)
    before = recorded.outputs()
    trial = json.loads(first)
    assert (trial["letter"], trial["trial"]) == ("A", 1)
    trial["record"]["exchanges"][2]["reply"]["text"] = "A new answer."  # the last reply is the program's answer
    path.write_text("".join([json.dumps(trial) + "\n", *others]))
    recorded.run(*STAGE, **TRUST)
    after = recorded.outputs()
    assert after["m/alpha/A/alpha_A_1.txt"] == b"A new answer."
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"m/alpha/A/alpha_A_1.txt", "m/alpha/A/alpha_A_1.json"}


@pytest.mark.parametrize(("old", "new"), [('"letter":"A"', '"letter":7'), ('"exchanges":[', '"exchanges":[3,')])
def test_a_line_that_is_no_recorded_trial_is_named(recorded: CompetitionFolder, old: str, new: str) -> None:
    path = recorded.folder / CALLS
    path.write_text(path.read_text().replace(old, new, 1))
    code, said = recorded.run_and_fail(*STAGE)
    assert code == 2
    assert "calls.jsonl:1: not a recorded call or trial" in said
