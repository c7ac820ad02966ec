"""The stages extract and convert, and why a trial that they leave out has no level."""

import pytest
from params_for_tests import contents, small_params

from pcgeval import extract_code, level_xml
from pcgeval.core.errors import FileError
from pcgeval.core.failures import failure
from pcgeval.core.files import write_bytes
from pcgeval.core.layout import DATA, Trial, stage_dir, summaries_file, trial_file
from pcgeval.core.stage_files import read_failures
from pcgeval.core.trials import TrialSummary, TrialUsage, write_summaries
from pcgeval.levels import stages
from pcgeval.levels.stages import convert_stage, extract_stage

PARAMS = small_params("AB")
GOOD = b"Sure:\n```python\ndrop_block(\"b31\", 3)\ndrop_block('b13', 3)\n```\n"
HIGH = b"```\n" + b"drop_block('b13', 3)\n" * 6 + b"```"
FIRST, SECOND, THIRD = Trial("A", 1), Trial("A", 2), Trial("B", 1)


def path_of(root, stage, trial):
    return trial_file(root / stage_dir(stage, "m", "team"), stage, "team", trial)


def written(root, stage):
    files = contents(root / DATA / stage)
    return {name: content for name, content in files.items() if not name.endswith("failures.json")}


def failures(root, stage):
    return read_failures(root / stage_dir(stage, "m", "team"))


def convert(root, responses):
    (root / stage_dir("raw", "m", "team")).mkdir(parents=True)
    for trial, response in responses.items():
        write_bytes(path_of(root, "raw", trial), response)
    extract_stage(PARAMS, root)
    convert_stage(PARAMS, root)


def test_from_responses_to_levels(tmp_path):
    convert(tmp_path, {FIRST: GOOD, SECOND: b"no idea", THIRD: HIGH})
    codes = {trial: extract_code(response.decode()) for trial, response in ((FIRST, GOOD), (THIRD, HIGH))}
    assert written(tmp_path, "intermediate") == {
        "m/team/A/team_A_1.txt": codes[FIRST].encode(),
        "m/team/B/team_B_1.txt": codes[THIRD].encode(),
    }
    assert written(tmp_path, "levels") == {"m/team/A/team_A_1.xml": level_xml(codes[FIRST]).encode()}
    assert {trial: failed.sentence for trial, failed in failures(tmp_path, "intermediate").items()} == {
        SECOND: "the response holds no fenced block (```...```)",
        Trial("B", 2): "the file of the response is missing",
    }
    high = "Height boundary is intruded. (call 6: \"drop_block('b13', 3)\")"
    assert failures(tmp_path, "levels") == failures(tmp_path, "intermediate") | {
        THIRD: failure("too-high", number=6, call=repr("drop_block('b13', 3)"))
    }
    assert failures(tmp_path, "levels")[THIRD].sentence == high


def test_what_generate_said_of_a_trial_is_its_failure_or_explains_a_reply_without_a_call(tmp_path):
    late, cut = failure("late-call", seconds=500), failure("cut-off", tokens=200, limit="num_predict")
    usage = TrialUsage(1, 9)
    rows = [
        TrialSummary("A", 1, "0" * 64, late, usage),
        TrialSummary("A", 2, "0" * 64, None, usage, cut),
        TrialSummary("B", 1, "0" * 64, None, usage, cut),
    ]
    write_summaries(tmp_path / summaries_file("m", "team"), rows)
    convert(tmp_path, {FIRST: b"", SECOND: b"```\ndrop_block('b13',", THIRD: GOOD})
    found = failures(tmp_path, "levels")
    assert (found[FIRST], found[SECOND], THIRD in found) == (late, cut, False)


@pytest.mark.parametrize(
    ("responses", "reason"),
    [
        ({}, "is missing"),
        ({FIRST: b"```\xff```"}, "is not UTF-8 text (invalid start byte at byte 3)"),
        ({FIRST: b"x" * 101}, "is larger than 100 bytes"),
    ],
)
def test_a_response_that_cannot_be_used_is_a_reason(tmp_path, monkeypatch, responses, reason):
    monkeypatch.setattr(stages, "MAX_BYTES", 100)
    convert(tmp_path, responses)
    assert reason in failures(tmp_path, "levels")[FIRST].sentence


@pytest.mark.parametrize(("stage", "source"), [(extract_stage, "raw"), (convert_stage, "intermediate")])
def test_a_fault_of_the_machine_is_no_failed_trial(tmp_path, stage, source):
    convert(tmp_path, {FIRST: GOOD})
    path_of(tmp_path, source, FIRST).unlink()
    path_of(tmp_path, source, FIRST).mkdir()
    with pytest.raises(FileError, match="not a regular file"):
        stage(PARAMS, tmp_path)
    assert list(written(tmp_path, "levels")) == ["m/team/A/team_A_1.xml"]
