"""The stages extract and convert, and why a trial that they leave out has no level."""

import pytest
from params_for_tests import contents, small_params

from pcgeval import extract_code, level_xml
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_bytes
from pcgeval.formats.failures import failure
from pcgeval.formats.layout import DATA, Trial, stage_dir, summaries_file, trial_file
from pcgeval.formats.stages import read_failures, write_failures
from pcgeval.formats.trials import TrialSummary, TrialUsage, write_summaries
from pcgeval.levels import stages
from pcgeval.levels.stages import convert_stage, extract_stage

PARAMS = small_params("AB")
GOOD = b"Sure:\n```python\ndrop_block(\"b31\", 3)\ndrop_block('b13', 3)\n```\n"
HIGH = b"```\n" + b"drop_block('b13', 3)\n" * 6 + b"```"
FIRST, SECOND, THIRD = Trial("A", 1), Trial("A", 2), Trial("B", 1)


def path_of(root, stage, trial):
    return trial_file(root / stage_dir(stage, "m", "team"), stage, "team", trial)


def files_of(root, stage):
    files = contents(root / DATA / stage)
    return {name: content for name, content in files.items() if not name.endswith("failures.json")}


def convert(root, responses):
    (root / stage_dir("raw", "m", "team")).mkdir(parents=True)
    for trial, response in responses.items():
        write_bytes(path_of(root, "raw", trial), response)
    extract_stage(PARAMS, root)
    convert_stage(PARAMS, root)


def failures_of(root, stage):
    return {trial: found.kind for trial, found in read_failures(root / stage_dir(stage, "m", "team")).items()}


def test_from_responses_to_levels(tmp_path):
    convert(tmp_path, {FIRST: GOOD, SECOND: b"no idea", THIRD: HIGH})
    codes = {trial: extract_code(response.decode()) for trial, response in ((FIRST, GOOD), (THIRD, HIGH))}
    assert files_of(tmp_path, "intermediate") == {
        "m/team/A/team_A_1.txt": codes[FIRST].encode(),
        "m/team/B/team_B_1.txt": codes[THIRD].encode(),
    }
    assert files_of(tmp_path, "levels") == {"m/team/A/team_A_1.xml": level_xml(codes[FIRST]).encode()}
    assert failures_of(tmp_path, "intermediate") == {SECOND: "no-fence", Trial("B", 2): "response-unreadable"}
    failures = read_failures(tmp_path / stage_dir("levels", "m", "team"))
    assert failures.keys() == {SECOND, THIRD, Trial("B", 2)}
    sentence = failures[THIRD].sentence
    assert sentence.startswith("Height boundary is intruded. (call 6: `drop_block('b13', 3)`; 1 of 16 rows")


def test_what_generate_found_is_taken_over_and_the_end_of_a_reply_explains_why_it_holds_no_call(tmp_path):
    late, cut = failure("late-call", seconds=500, detail="of a stranger"), failure("cut-off", tokens=200, limit="limit")
    usage = TrialUsage(1, 300)
    summaries = [TrialSummary("A", 1, "0" * 64, late, usage), TrialSummary("A", 2, "0" * 64, None, usage, cut)]
    write_summaries(
        tmp_path / summaries_file("m", "team"), [*summaries, TrialSummary("B", 1, "0" * 64, None, usage, cut)]
    )
    convert(tmp_path, {FIRST: b"", SECOND: b"```\ndrop_block('b11', 1)", THIRD: GOOD})
    for stage in ("intermediate", "levels"):
        failures = read_failures(tmp_path / stage_dir(stage, "m", "team"))
        assert [failures.get(trial) for trial in (FIRST, SECOND, THIRD)] == [
            failure("late-call", seconds=500),
            cut,
            None,
        ]


def test_code_of_another_tool_is_converted_whatever_an_earlier_run_said(tmp_path):
    convert(tmp_path, {})
    folder = tmp_path / stage_dir("intermediate", "m", "team")
    write_failures(folder, {FIRST: failure("empty-response"), SECOND: failure("empty-response")})
    write_bytes(path_of(tmp_path, "intermediate", FIRST), b"drop_block('b11', 1)\n")
    convert_stage(PARAMS, tmp_path)
    assert list(files_of(tmp_path, "levels")) == ["m/team/A/team_A_1.xml"]
    (folder / "failures.json").unlink()
    convert_stage(PARAMS, tmp_path)
    assert failures_of(tmp_path, "levels") == dict.fromkeys([SECOND, THIRD, Trial("B", 2)], "code-unreadable")


@pytest.mark.parametrize(
    ("responses", "words"),
    [({}, "is missing"), ({FIRST: b"```\xff```"}, "is not UTF-8 text"), ({FIRST: b"x" * 101}, "larger than 100 bytes")],
)
def test_a_response_that_cannot_be_used_is_a_reason(tmp_path, monkeypatch, responses, words):
    monkeypatch.setattr(stages, "MAX_BYTES", 100)
    convert(tmp_path, responses)
    assert not files_of(tmp_path, "levels")
    failures = read_failures(tmp_path / stage_dir("levels", "m", "team"))
    assert failures[FIRST].kind == "response-unreadable"
    assert words in failures[FIRST].sentence


@pytest.mark.parametrize(("stage", "source"), [(extract_stage, "raw"), (convert_stage, "intermediate")])
def test_a_fault_of_the_machine_is_no_failed_trial(tmp_path, stage, source):
    convert(tmp_path, {FIRST: GOOD})
    path_of(tmp_path, source, FIRST).unlink()
    path_of(tmp_path, source, FIRST).mkdir()
    with pytest.raises(FileError, match="not a regular file"):
        stage(PARAMS, tmp_path)
    assert list(files_of(tmp_path, "levels")) == ["m/team/A/team_A_1.xml"]
