"""The stages extract and convert, and why a trial that they leave out has no level."""

import pytest
from params_for_tests import contents, small_params

from pcgeval import extract_code, level_xml
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_bytes
from pcgeval.core.layout import DATA, Trial, stage_dir, trial_file
from pcgeval.core.stage_files import failed
from pcgeval.levels import stages
from pcgeval.levels.stages import convert_stage, extract_stage, missing_level

TEAM = "stackers"
PARAMS = small_params("AB", teams=(TEAM,))
GOOD = "Sure:\n```python\ndrop_block(\"b31\", 3)\ndrop_block('b13', 3)\n```\n"
HIGH = "```\n" + "drop_block('b13', 3)\n" * 6 + "```"
FIRST, SECOND = Trial("A", 1), Trial("A", 2)
OUTPUTS = ("intermediate", "levels")


def put(root, responses):
    """Write responses, each a text or bytes."""
    raw = root / stage_dir("raw", "m", TEAM)
    raw.mkdir(parents=True, exist_ok=True)
    for trial, response in responses.items():
        write_bytes(trial_file(raw, "raw", TEAM, trial), response if isinstance(response, bytes) else response.encode())


def run(root, params=PARAMS):
    extract_stage(params, root)
    convert_stage(params, root)


def why(root, trial=FIRST, failure=None):
    """Return why a trial of the team has no level."""
    return missing_level(trial_file(root / stage_dir("raw", "m", TEAM), "raw", TEAM, trial), trial, failure)


def test_from_responses_to_levels(tmp_path):
    put(tmp_path, {FIRST: GOOD, SECOND: "no idea", Trial("B", 1): HIGH})
    run(tmp_path)
    code, levels = (contents(tmp_path / DATA / stage) for stage in OUTPUTS)
    assert code == {
        "m/stackers/A/stackers_A_1.txt": extract_code(GOOD).encode(),
        "m/stackers/B/stackers_B_1.txt": extract_code(HIGH).encode(),
    }
    assert levels == {"m/stackers/A/stackers_A_1.xml": level_xml(extract_code(GOOD)).encode()}
    no_code = "no code: the response holds no closed fenced block (```...```)"
    assert why(tmp_path, SECOND) == failed(SECOND, "extract", no_code)
    too_high = "Height boundary is intruded. (call 6: \"drop_block('b13', 3)\")"
    assert why(tmp_path, Trial("B", 1)) == failed(Trial("B", 1), "convert", too_high)
    assert why(tmp_path, failure="took longer than 120 s") == failed(FIRST, "generate", "took longer than 120 s")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (None, "stackers_A_1.txt is missing"),
        (b"```\xff```", "stackers_A_1.txt is not UTF-8 text (invalid start byte at byte 3)"),
        (b"x" * 101, "stackers_A_1.txt is larger than 100 bytes"),
    ],
)
def test_a_response_that_cannot_be_used_is_a_reason(tmp_path, monkeypatch, response, reason):
    monkeypatch.setattr(stages, "MAX_BYTES", 100)
    put(tmp_path, {} if response is None else {FIRST: response})
    run(tmp_path)
    assert not contents(tmp_path / DATA / "levels")
    assert why(tmp_path) == failed(FIRST, "extract", reason)


@pytest.mark.parametrize(("stage", "source"), [(extract_stage, "raw"), (convert_stage, "intermediate")])
def test_a_fault_of_the_machine_is_no_failed_trial(tmp_path, stage, source):
    put(tmp_path, {FIRST: GOOD})
    run(tmp_path)
    path = trial_file(tmp_path / stage_dir(source, "m", TEAM), source, TEAM, FIRST)
    path.unlink()
    path.mkdir()
    with pytest.raises(FileError, match="not a regular file"):
        stage(PARAMS, tmp_path)
    assert list(contents(tmp_path / DATA / "levels")) == ["m/stackers/A/stackers_A_1.xml"]
