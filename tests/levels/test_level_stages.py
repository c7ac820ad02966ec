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

PARAMS = small_params("AB")
GOOD = b"Sure:\n```python\ndrop_block(\"b31\", 3)\ndrop_block('b13', 3)\n```\n"
HIGH = b"```\n" + b"drop_block('b13', 3)\n" * 6 + b"```"
FIRST, SECOND, THIRD = Trial("A", 1), Trial("A", 2), Trial("B", 1)


def path_of(root, stage, trial):
    return trial_file(root / stage_dir(stage, "m", "team"), stage, "team", trial)


def convert(root, responses):
    (root / stage_dir("raw", "m", "team")).mkdir(parents=True)
    for trial, response in responses.items():
        write_bytes(path_of(root, "raw", trial), response)
    extract_stage(PARAMS, root)
    convert_stage(PARAMS, root)


def test_from_responses_to_levels(tmp_path):
    convert(tmp_path, {FIRST: GOOD, SECOND: b"no idea", THIRD: HIGH})
    codes = {trial: extract_code(response.decode()) for trial, response in ((FIRST, GOOD), (THIRD, HIGH))}
    assert contents(tmp_path / DATA / "intermediate") == {
        "m/team/A/team_A_1.txt": codes[FIRST].encode(),
        "m/team/B/team_B_1.txt": codes[THIRD].encode(),
    }
    assert contents(tmp_path / DATA / "levels") == {"m/team/A/team_A_1.xml": level_xml(codes[FIRST]).encode()}
    for trial, failure, stage, reason in (
        (FIRST, "took longer than 120 s", "generate", "took longer than 120 s"),
        (SECOND, None, "extract", "no code: the response holds no closed fenced block (```...```)"),
        (THIRD, None, "convert", "Height boundary is intruded. (call 6: \"drop_block('b13', 3)\")"),
    ):
        assert missing_level(path_of(tmp_path, "raw", trial), trial, failure) == failed(trial, stage, reason)


@pytest.mark.parametrize(
    ("responses", "reason"),
    [
        ({}, "team_A_1.txt is missing"),
        ({FIRST: b"```\xff```"}, "team_A_1.txt is not UTF-8 text (invalid start byte at byte 3)"),
        ({FIRST: b"x" * 101}, "team_A_1.txt is larger than 100 bytes"),
    ],
)
def test_a_response_that_cannot_be_used_is_a_reason(tmp_path, monkeypatch, responses, reason):
    monkeypatch.setattr(stages, "MAX_BYTES", 100)
    convert(tmp_path, responses)
    assert not contents(tmp_path / DATA / "levels")
    assert missing_level(path_of(tmp_path, "raw", FIRST), FIRST, None) == failed(FIRST, "extract", reason)


@pytest.mark.parametrize(("stage", "source"), [(extract_stage, "raw"), (convert_stage, "intermediate")])
def test_a_fault_of_the_machine_is_no_failed_trial(tmp_path, stage, source):
    convert(tmp_path, {FIRST: GOOD})
    path_of(tmp_path, source, FIRST).unlink()
    path_of(tmp_path, source, FIRST).mkdir()
    with pytest.raises(FileError, match="not a regular file"):
        stage(PARAMS, tmp_path)
    assert list(contents(tmp_path / DATA / "levels")) == ["m/team/A/team_A_1.xml"]
