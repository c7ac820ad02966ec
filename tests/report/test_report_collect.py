"""What the report reads and derives: values of the stages' files, and files that are missing, broken or of a round."""

from dataclasses import replace
from decimal import Decimal

import pytest
from evaluated_round import PARAMS
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_json, write_json
from pcgeval.report.collect import collect
from pcgeval.report.formats import figure


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results/official/large/trial_scores.csv", b"\xff\xfe"),
        ("data/stability/large/builders/trials.json", b"[" * 100_000),
        ("data/raw/large/builders/T/builders_T_1.txt", None),
        ("data/grades/cheats/grade.json", b'{"a": NaN}'),
    ],
)
def test_a_broken_or_missing_file_is_named(workspace, name, content):
    (workspace / name).unlink()
    if content is not None:
        (workspace / name).write_bytes(content)
    with pytest.raises(FileError, match=rf"{name}.*dvc repro") as caught:
        collect(PARAMS, workspace)
    assert len(str(caught.value)) < 2000


def test_a_trial_that_did_not_fail_lacks_no_measurement_and_a_long_response_is_cut(workspace):
    response = b"\xff" + "é".encode() * 1_000_000
    (workspace / "data/raw/large/builders/I/builders_I_1.txt").write_bytes(response)
    builders, *_ = collect(PARAMS, workspace).teams
    assert [trial.reply for trial in builders.trials if len(trial.reply) > 1000] == [f"\ufffd{'é' * 1999}…"]
    path = workspace / "data/similarity/large/builders/I.json"
    write_json(path, read_json(path) | {"trials": read_json(path)["trials"][:-1]})
    with pytest.raises(FileError, match="letter I, trial 2 did not fail"):
        collect(PARAMS, workspace)


def test_a_ranking_of_other_params_is_refused(evaluated):
    for change in ({"teams": ("zero-shot", "builders")}, {"models": {"large": PARAMS.models["large"]}}):
        with pytest.raises(FileError, match=r"ranking\.json: has other teams, models, letters or trials"):
            collect(PARAMS.model_copy(update=change), evaluated)


def test_why_a_trial_that_did_not_fail_adds_nothing(evaluated):
    alone, letter = (model.letters[0] for model in collect(PARAMS, evaluated).teams[0].models)
    trial, level = letter.trials[0], letter.trials[0].level
    zero = replace(trial, score=Decimal(0))
    assert letter.why_zero(trial) is None
    assert "no block stayed" in letter.why_zero(replace(zero, stability=0.0))
    assert "empty" in letter.why_zero(replace(zero, stability=0.0, level=level.model_copy(update={"types": ()})))
    assert "does not see the letter" in letter.why_zero(replace(zero, similarity=0.0))
    assert "no diversity" in alone.why_zero(alone.trials[0])


@given(st.floats(0, 1000, exclude_min=True), st.integers(1, 6))
def test_only_zero_looks_like_zero(value, digits):
    shown = figure(value, digits)
    assert shown.startswith("<") or float(shown) > 0
    assert abs(float(shown.lstrip("<")) - value) <= 10.0**-digits
    assert figure(0, digits) == "0"
