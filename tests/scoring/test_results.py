"""Reading official measurement files: what is absent, what is refused and how it is said."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_examples import CASES, GOLDEN, golden_teams, golden_text, write_json, write_official

from pcgeval import Entry, LetterResults, PcgevalError, Provenance, ScoringRules
from pcgeval.core import stage_files
from pcgeval.core.errors import FileError
from pcgeval.core.layout import trial_number
from pcgeval.scoring.decimals import from_float
from pcgeval.scoring.inputs import ScoringError, read_source

RULES = ScoringRules("A", 2)
QUIRKS = ScoringRules("A", 2, official_quirks=True)


@pytest.fixture
def team(tmp_path):
    """A team `t` with two trials of A."""
    pairs = [("t_A_1.xml", 1.0), ("t_A_2.xml", 0.5)]
    write_official(tmp_path / "source", {"t": {"A": {"stability": pairs, "similarity": pairs, "diversity": 0.25}}})
    return tmp_path / "source" / "t"


def stability(team):
    return team / "stability" / "A.json"


def test_what_is_there(team):
    found = read_source(team.parent, RULES)["t"]
    values = (Entry(1, from_float(1.0)), Entry(2, from_float(0.5)))
    assert found.letters == {"A": LetterResults(values, values, from_float(0.25))}
    assert found.failed_trials == 0
    assert found.provenance == Provenance("unknown", "unknown")


@pytest.mark.parametrize("case", CASES)
def test_the_official_layout_holds_what_was_put_into_it(case, tmp_path):
    write_official(tmp_path, json.loads(golden_text(case, "inputs.json")))
    found = read_source(tmp_path, ScoringRules())
    expected = golden_teams(case)
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        assert {letter: values for letter, values in found[name].letters.items() if values != LetterResults()} == {
            letter: values for letter, values in each.letters.items() if values != LetterResults()
        }


def test_golden_cases_are_all_here():
    assert len(CASES) == 8
    assert (GOLDEN / "t8_ties").is_dir()


def test_logs_results_and_hidden_folders_are_no_teams(team):
    for name in ("logs", "result", ".git"):
        (team.parent / name).mkdir()
    (team.parent / "notes.txt").write_text("no team")
    assert list(read_source(team.parent, RULES)) == ["t"]


@pytest.mark.parametrize("step", ["stability", "similarity"])
def test_absent_files_are_none_and_their_trials_failed(team, step):
    (team / step / "A.json").unlink()
    found = read_source(team.parent, RULES)["t"]
    assert getattr(found.letters["A"], step) is None
    assert found.failed_trials == 2


def test_an_empty_team_folder_is_a_team_without_files(tmp_path):
    (tmp_path / "t").mkdir()
    found = read_source(tmp_path, RULES)["t"]
    assert found.letters == {"A": LetterResults()}
    assert found.failed_trials == 2


def test_engine_and_classifier_are_read_where_they_are_written(team):
    write_json(team / "stability" / "simulations.json", {"engine": "pymunk 7.1"})
    write_json(team / "similarity" / "classifier.json", {"name": "vit", "sha256": "ab"})
    assert read_source(team.parent, RULES)["t"].provenance == Provenance("pymunk 7.1", "vit sha256:ab")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("/Users/eval/competition/a/levels/A/a_A_10.xml", 10),
        ("a_A_1.png", 1),
        ("a_A_1", 1),
        ("7.xml", 7),
        ("a_b_c_A_3 (copy).xml", 3),
        ("a_A_-1.png", -1),
        ("a_A_.png", None),
        ("a_A_x", None),
        ("", None),
        ("a_A_٣.png", None),  # an Arabic digit
        ("a_A_" + "9" * 100_000, None),
    ],
)
def test_trial_numbers(name, number):
    assert trial_number(name) == number


@settings(deadline=None)
@given(st.text(), st.integers(0, 10**9))
def test_the_number_after_the_last_underscore(before, number):
    assert trial_number(f"{before}_{number}.xml") == number


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "object"),
        ('{"raws": {}}', "raws"),
        ('{"raws": [1]}', r"raws\.0"),
        ('{"raws": [{"tag": 1, "score": 1}]}', r"raws\.0\.tag.*found 1"),
        ('{"raws": [{"tag": "t_A_1"}]}', r"raws\.0\.score.*required"),
        ('{"raws": [{"tag": "t_A_1", "score": null}]}', r"raws\.0\.score.*found None"),
        ('{"raws": [{"tag": "t_A_1", "score": true}]}', r"raws\.0\.score.*found True"),
        ('{"raws": [{"tag": "t_A_1", "score": "1"}]}', r"raws\.0\.score.*found '1'"),
        ('{"raws": [{"tag": "t_A_1", "score": NaN}]}', r"raws\.0\.score.*finite"),
        ('{"raws": [{"tag": "t_A_1", "score": 1e999}]}', r"raws\.0\.score.*finite"),
        ('{"raws": [{"tag": "t_A_1", "score": -0.5}]}', r"raws\.0\.score.*found -0\.5"),
        ('{"raws": [{"tag": "t_A_1", "score": 2}]}', r"raws\.0\.score.*found 2"),
        ('{"raws": [{"tag": "t_A_1", "score": ' + "9" * 100_000 + "}]}", "number out of range"),
        ('{"raws": [{"tag": "\\ud800", "score": 1}]}', "not valid JSON"),
        ('{"raws": [{"tag": "t_A_x", "score": 1}]}', "does not end in a trial number"),
    ],
)
def test_a_malformed_file_is_refused_by_name(team, content, complaint):
    stability(team).write_text(content)
    with pytest.raises(PcgevalError, match=complaint) as caught:
        read_source(team.parent, RULES)
    assert str(stability(team)) in str(caught.value)


def test_a_nameless_entry_is_kept_with_the_scripts_quirk(team):
    stability(team).write_text('{"raws": [{"tag": "t_A_x", "score": 1}]}')
    assert read_source(team.parent, QUIRKS)["t"].letters["A"].stability == (Entry(None, from_float(1.0)),)


def test_a_softmax_just_above_one_is_taken(team):
    write_json(team / "similarity" / "A.json", {"trials": [{"id": "t_A_1", "similarity": 1.0000001192092896}]})
    assert read_source(team.parent, RULES)["t"].letters["A"].similarity == (Entry(1, from_float(1.0000001192092896)),)


@pytest.mark.parametrize("content", ["[]", "{}", '{"diversityRate": "1"}', '{"diversityRate": -1}'])
def test_a_malformed_diversity_is_refused(team, content):
    (team / "diversity" / "A.json").write_text(content)
    with pytest.raises(FileError, match=r"diversityRate|object"):
        read_source(team.parent, RULES)


def test_diversity_may_exceed_one(team):
    (team / "diversity" / "A.json").write_text('{"diversityRate": 4.4}')
    assert read_source(team.parent, RULES)["t"].letters["A"].diversity == from_float(4.4)


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ({"name": "pymunk", "version": "7.1.0", "chipmunk": "7.0.3"}, "pymunk 7.1.0 (chipmunk 7.0.3)"),
        ({"name": "box2d", "version": "2.3"}, "box2d 2.3"),
        ("pymunk 7.1", "pymunk 7.1"),
    ],
)
def test_an_engine_is_one_line(team, engine, line):
    write_json(team / "stability" / "simulations.json", {"engine": engine})
    assert read_source(team.parent, RULES)["t"].provenance.engine == line


@pytest.mark.parametrize("content", ["[]", '{"engine": 1}', '{"engine": {"name": "pymunk"}}'])
def test_a_malformed_engine_is_refused(team, content):
    (team / "stability" / "simulations.json").write_text(content)
    with pytest.raises(FileError, match=r"engine|object"):
        read_source(team.parent, RULES)


def test_bytes_that_are_no_text_are_refused(team):
    stability(team).write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="not valid JSON"):
        read_source(team.parent, RULES)


def test_a_large_file_is_refused_unread(team, monkeypatch):
    monkeypatch.setattr(stage_files, "MAX_FILE_BYTES", 10)
    with pytest.raises(FileError, match="10 bytes"):
        read_source(team.parent, RULES)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_is_refused_without_waiting(team, make):
    stability(team).unlink()
    make(stability(team))
    with pytest.raises(FileError, match=r"not a regular file|is a link"):
        read_source(team.parent, RULES)


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", b"\xff".decode(errors="surrogateescape")])
def test_a_folder_name_that_cannot_be_shown_is_refused(team, name):
    (team.parent / name).mkdir()
    with pytest.raises(ScoringError, match="is no team name"):
        read_source(team.parent, RULES)


def test_a_folder_without_teams_is_refused(tmp_path):
    with pytest.raises(ScoringError, match="no team folders"):
        read_source(tmp_path, RULES)


def test_a_folder_of_models_is_not_taken_for_one_of_teams(tmp_path):
    (tmp_path / "model/team/stability").mkdir(parents=True)
    with pytest.raises(ScoringError, match="one model"):
        read_source(tmp_path, ScoringRules())
    assert read_source(tmp_path / "model", ScoringRules()).keys() == {"team"}


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ScoringError, match="cannot be read"):
        read_source(tmp_path / "nowhere", RULES)
