import pytest

from pcgeval.core.errors import FileError
from pcgeval.core.layout import TRIALS_FILE, Trial, trial_file
from pcgeval.core.stage_files import TrialOutcome, failed, read_outcomes, succeeded, write_outcomes
from pcgeval.core.untrusted import files_below
from pcgeval.levels import stages
from pcgeval.levels.extraction import extract_code
from pcgeval.levels.stages import convert_stage, extract_stage
from pcgeval.levels.xml import level_xml

TEAM = "stackers"
GOOD = "Sure:\n```python\ndrop_block(\"b31\", 3)\ndrop_block('b13', 3)\n```\n"
HIGH = "```\n" + "drop_block('b13', 3)\n" * 6 + "```"


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "raw", tmp_path / "intermediate", tmp_path / "levels"


def put(raw, responses):
    """Write the raw step: text or bytes for a response, None for a response that is listed but absent."""
    for trial, response in responses.items():
        if response is not None:
            path = trial_file(raw, "raw", TEAM, trial)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(response if isinstance(response, bytes) else response.encode())
    write_outcomes(raw, [succeeded(trial) for trial in responses])


def names(folder):
    return [path.relative_to(folder).as_posix() for path in files_below(folder)]


def test_from_responses_to_levels(folders):
    raw, intermediate, levels = folders
    trials = [Trial("A", 1), Trial("A", 2), Trial("B", 1)]
    put(raw, dict(zip(trials, [GOOD, "no idea", HIGH], strict=True)))

    extracted = extract_stage(raw, intermediate, TEAM, trials)
    no_code = failed(Trial("A", 2), "extract", "no code: the response holds no closed fenced block (```...```)")
    assert extracted == [succeeded(Trial("A", 1)), no_code, succeeded(Trial("B", 1))]
    assert names(intermediate) == ["A/stackers_A_1.txt", "B/stackers_B_1.txt", TRIALS_FILE]
    assert (intermediate / "A/stackers_A_1.txt").read_bytes() == extract_code(GOOD).encode()

    converted = convert_stage(intermediate, levels, TEAM, trials)
    too_high = "Height boundary is intruded. (call 6: \"drop_block('b13', 3)\")"
    assert converted == [succeeded(Trial("A", 1)), no_code, failed(Trial("B", 1), "convert", too_high)]
    assert names(levels) == ["A/stackers_A_1.xml", TRIALS_FILE]
    assert (levels / "A/stackers_A_1.xml").read_bytes() == level_xml(extract_code(GOOD)).encode()
    assert read_outcomes(levels) == {outcome.key: outcome for outcome in converted}


def test_the_order_of_the_trials_changes_no_file(folders, tmp_path):
    raw, intermediate, _ = folders
    trials = [Trial("A", 1), Trial("A", 2), Trial("B", 1)]
    put(raw, dict.fromkeys(trials, GOOD))
    extract_stage(raw, intermediate, TEAM, trials)
    extract_stage(raw, tmp_path / "other", TEAM, reversed(trials))
    assert {name: (intermediate / name).read_bytes() for name in names(intermediate)} == {
        name: (tmp_path / "other" / name).read_bytes() for name in names(tmp_path / "other")
    }


def test_nothing_stale_stays(folders):
    raw, intermediate, _ = folders
    put(raw, {Trial("A", 1): GOOD, Trial("A", 2): GOOD})
    extract_stage(raw, intermediate, TEAM, [Trial("A", 1), Trial("A", 2)])
    put(raw, {Trial("A", 1): GOOD, Trial("A", 2): "sorry"})
    extract_stage(raw, intermediate, TEAM, [Trial("A", 1), Trial("A", 2)])
    assert names(intermediate) == ["A/stackers_A_1.txt", TRIALS_FILE]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (None, "stackers_A_1.txt is missing"),
        (b"```\xff```", "stackers_A_1.txt is not UTF-8 text (invalid start byte at byte 3)"),
        (
            "\ud800".encode("utf-8", "surrogatepass"),
            "stackers_A_1.txt is not UTF-8 text (invalid continuation byte at byte 0)",
        ),
        (b"x" * 101, "stackers_A_1.txt is larger than 100 bytes"),
        (b"", "no code: the response is empty"),
        (b"\0" * 100, "no code: the response holds no closed fenced block (```...```)"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_recorded_reason(folders, monkeypatch, response, reason):
    monkeypatch.setattr(stages, "MAX_BYTES", 100)
    raw, intermediate, _ = folders
    put(raw, {Trial("A", 1): response})
    assert extract_stage(raw, intermediate, TEAM, [Trial("A", 1)]) == [failed(Trial("A", 1), "extract", reason)]
    assert names(intermediate) == [TRIALS_FILE]


def test_earlier_failures_are_carried_on_and_hide_their_files(folders):
    raw, intermediate, _ = folders
    put(raw, {Trial("A", 1): GOOD})
    timeout = TrialOutcome(letter="A", trial=1, failed_stage="generate", reason="took longer than 120 s")
    write_outcomes(raw, [timeout])
    assert extract_stage(raw, intermediate, TEAM, [Trial("A", 1)]) == [timeout]
    assert names(intermediate) == [TRIALS_FILE]


def test_a_trial_that_the_step_before_does_not_list(folders):
    raw, intermediate, _ = folders
    put(raw, {Trial("A", 1): GOOD})
    (outcome,) = extract_stage(raw, intermediate, TEAM, [Trial("B", 1)])
    assert outcome == failed(Trial("B", 1), "extract", "the raw folder lists no such trial")


def test_without_the_step_before_nothing_is_removed(folders):
    raw, intermediate, _ = folders
    (intermediate / "A").mkdir(parents=True)
    with pytest.raises(FileError, match=r"trials\.json"):
        extract_stage(raw, intermediate, TEAM, [])
    assert (intermediate / "A").exists()


def test_the_input_is_never_emptied(folders):
    raw, _, _ = folders
    put(raw, {Trial("A", 1): GOOD})
    for target in (raw, raw.parent):
        with pytest.raises(FileError, match="replace its own input"):
            extract_stage(raw, target, TEAM, [Trial("A", 1)])
    assert (raw / "A/stackers_A_1.txt").exists()


def test_a_fault_of_the_machine_is_no_failed_trial(folders):
    raw, intermediate, _ = folders
    put(raw, {Trial("A", 1): None})
    (raw / "A/stackers_A_1.txt").mkdir(parents=True)
    with pytest.raises(FileError, match="not a regular file"):
        extract_stage(raw, intermediate, TEAM, [Trial("A", 1)])
