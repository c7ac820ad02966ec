"""Diversity against the official script's results and against the definition."""

import gzip
import json
import math
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from params_for_tests import contents, file_states, small_params

from pcgeval import PcgevalError, diversity
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.core.layout import DATA, stage_dir
from pcgeval.similarity.diversity import DiversityError, diversity_stage, mean_distances, pair_distances

GOLDEN = Path(__file__).parents[1] / "golden" / "diversity" / "diversity.json.gz"
CASES = {case["case"]: case for case in json.loads(gzip.decompress(GOLDEN.read_bytes()))}
ordinary = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
vectors = arrays.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=ordinary)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden(case):
    counted = case["vectors"][: case["count"]]
    assert diversity(counted, case["n_trial"]) == pytest.approx(case["diversityRate"], abs=1e-12)
    assert pair_distances(counted) == pytest.approx([each[2] for each in case["distances"]], abs=1e-12)


def literal_distance(one, other):
    length = math.sqrt(sum(value * value for value in one)) * math.sqrt(sum(value * value for value in other))
    return 1 - sum(a * b for a, b in zip(one, other, strict=True)) / length if length else 0.0


@settings(deadline=None)
@given(vectors, st.integers(2, 12))
def test_the_definition(rows, trials):
    pairs = [literal_distance(rows[i], rows[j]) for i in range(len(rows)) for j in range(i + 1, len(rows))]
    assert pair_distances(rows) == pytest.approx(pairs, abs=1e-9)
    assert diversity(rows, trials) == pytest.approx(sum(pairs) / (trials * (trials - 1) / 2), abs=1e-9)


@settings(deadline=None)
@given(vectors, st.floats(1e-150, 1e150))
def test_lengths_do_not_matter(rows, factor):
    assert pair_distances(rows * factor) == pytest.approx(pair_distances(rows), abs=1e-9)


@settings(deadline=None)
@given(vectors)
def test_distances_are_from_0_to_2(rows):
    assert ((pair_distances(rows) >= 0) & (pair_distances(rows) <= 2)).all()


def test_trials_without_a_vector_make_no_pair():
    rows = [[1, 0], [0, 1]]
    assert diversity(rows, 2) == 1
    assert diversity(rows, 3) == pytest.approx(1 / 3)
    assert diversity(rows[:1], 3) == 0
    assert diversity([], 3) == 0


def test_the_longest_vectors_do_not_overflow():
    assert diversity([[1e308, 0], [0, 1e308]], 2) == 1
    assert diversity([[1e-320, 0], [0, 1e-320]], 2) == 1


def test_a_vector_of_zeros_is_no_distance_away():
    assert diversity([[0, 0], [1, 0]], 2) == 0


@pytest.mark.parametrize("trials", [1, 0, -1])
def test_one_trial_has_no_diversity(trials):
    with pytest.raises(DiversityError, match="too few"):
        diversity([[1, 0]], trials)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([[1, 0], [math.nan, 1]], "vector 1 of 2 is not finite"),
        ([[math.inf, 0]], "vector 0 of 1 is not finite"),
        ([[1, 0], [1]], "one length"),
        ([["a"]], "one length"),
        ([[10**400]], "one length"),
        ([1, 2], "shape"),
        ([[[1]]], "shape"),
    ],
)
def test_what_cannot_be_compared_is_refused(rows, complaint):
    with pytest.raises(DiversityError, match=complaint):
        diversity(rows, 3)


# --- the stage ---


def similarity_file(*trials, count=None):
    """An official file from (id, {label: probability}, embedding) triples."""
    raws = [
        {
            "id": name,
            "raws": [
                {"id": place, "label": label, "softmax_prob": value}
                for place, (label, value) in enumerate(labels.items())
            ],
            "cls_embedding": embedding,
        }
        for name, labels, embedding in trials
    ]
    return {"count": len(trials) if count is None else count, "trials": [], "similarities": raws}


ONE = ("t_A_1.png", {"A": 0.9, "B": 0.1}, [1.0, 0.0])
TWO = ("t_A_2.png", {"B": 0.7, "A": 0.3}, [0.0, 1.0])


def run_stage(root, value, kind="softmax", trials=3):
    params = small_params("A", trials, teams=("t",), diversity={"vectors": kind})
    text = value if isinstance(value, str) else json.dumps(value)
    write_text(root / stage_dir("similarity", "m", "t") / "A.json", text)
    diversity_stage(params, root)
    return json.loads((root / stage_dir("diversity", "m", "t") / "A.json").read_text())


def test_the_stage_writes_the_official_format(tmp_path):
    found = run_stage(tmp_path, similarity_file(ONE, TWO))
    distance = round(1 - (0.9 * 0.3 + 0.1 * 0.7) / math.sqrt(0.82 * 0.58), 7)
    assert found == {
        "count": 2,
        "diversityRate": pytest.approx(distance / 3, abs=1e-7),
        "trials": [{"trial": "t_A_1", "vector": [0.9, 0.1]}, {"trial": "t_A_2", "vector": [0.3, 0.7]}],
        "diversities": [{"pair": {"trial1": "t_A_1", "trial2": "t_A_2"}, "distance": distance}],
    }


def test_embeddings_are_compared_when_asked_for(tmp_path):
    found = run_stage(tmp_path, similarity_file(ONE, TWO), kind="cls", trials=2)
    assert found["diversityRate"] == 1
    assert found["trials"][1]["vector"] == [0.0, 1.0]


def test_results_are_rounded(tmp_path):
    found = run_stage(tmp_path, similarity_file(ONE, TWO))
    assert found["diversityRate"] == round(found["diversityRate"], 7)


def test_a_letter_whose_trials_all_failed(tmp_path):
    assert run_stage(tmp_path, similarity_file()) == {"count": 0, "diversityRate": 0.0, "trials": [], "diversities": []}


def test_only_the_counted_trials_are_compared(tmp_path):
    found = run_stage(tmp_path, similarity_file(ONE, TWO, TWO, count=2))
    assert [each["trial"] for each in found["trials"]] == ["t_A_1", "t_A_2"]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("{", "not valid JSON"),
        ([], "object"),
        ({}, "trials"),
        ({"count": 1, "trials": [], "similarities": {"a": 1}}, "similarities"),
        ({"count": 1, "trials": [], "similarities": [{"id": 1}]}, r"similarities\.0\.id"),
        ({"count": 1, "trials": [], "similarities": [{"id": "a"}]}, r"similarities\.0\.raws"),
        ({"count": "1", "trials": [], "similarities": []}, "count"),
        (similarity_file(ONE, count=2), "count is 2 of 1"),
        (similarity_file(ONE, count=-1), "count is -1 of 1"),
        (similarity_file(ONE, ("t_A_2", {"A": 0.5, "C": 0.5}, [])), "different labels"),
        (similarity_file(("t_A_1", {"A": math.nan}, [])), r"softmax_prob.*finite"),
        (similarity_file(("t_A_1", {"A": None}, [])), r"softmax_prob.*number"),
        (similarity_file(("t_A_1", {"A": "x"}, [])), r"softmax_prob.*number"),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, value, complaint):
    with pytest.raises(PcgevalError, match=complaint) as caught:
        run_stage(tmp_path, value)
    assert str(tmp_path / "data/similarity/m/t/A.json") in str(caught.value)
    assert not contents(tmp_path / DATA / "diversity")


def test_embeddings_of_different_lengths_are_refused(tmp_path):
    with pytest.raises(DiversityError, match=r"team t, letter A: .*one length"):
        run_stage(tmp_path, similarity_file(ONE, ("t_A_2.png", {"A": 1.0, "B": 0.0}, [1.0])), kind="cls")


def test_a_missing_file_is_refused_and_nothing_is_removed(tmp_path):
    run_stage(tmp_path, similarity_file(ONE, TWO))
    before = contents(tmp_path / DATA / "diversity")
    (tmp_path / "data/similarity/m/t/A.json").unlink()
    with pytest.raises(FileError, match=r"A\.json: is missing"):
        diversity_stage(small_params("A", teams=("t",)), tmp_path)
    shutil.rmtree(tmp_path / "data/similarity")
    with pytest.raises(FileError, match="data/similarity: is missing"):
        diversity_stage(small_params("A", teams=("t",)), tmp_path)
    assert contents(tmp_path / DATA / "diversity") == before


def test_all_models_and_teams_are_done_and_those_that_left_are_removed(tmp_path):
    everybody = small_params("AB", teams=("t", "leavers"), models=("m", "n"))
    for model, team, letter in product("mn", everybody.teams, "AB"):
        text = json.dumps(similarity_file(ONE, TWO))
        write_text(tmp_path / stage_dir("similarity", model, team) / f"{letter}.json", text)
    diversity_stage(everybody, tmp_path)
    assert len(contents(tmp_path / DATA / "diversity")) == 8
    diversity_stage(small_params("A", teams=("t",)), tmp_path)
    assert [path.name for path in sorted((tmp_path / DATA / "diversity").rglob("*"))] == ["m", "t", "A.json"]


def test_a_file_that_stays_the_same_is_not_written_again(tmp_path):
    params = small_params("AB", teams=("t",))
    for letter in "AB":
        text = json.dumps(similarity_file(ONE, TWO))
        write_text(tmp_path / stage_dir("similarity", "m", "t") / f"{letter}.json", text)
    diversity_stage(params, tmp_path)
    before = file_states(tmp_path / DATA / "diversity")
    diversity_stage(params, tmp_path)
    assert file_states(tmp_path / DATA / "diversity") == before
    write_text(tmp_path / stage_dir("similarity", "m", "t") / "B.json", json.dumps(similarity_file(ONE)))
    diversity_stage(params, tmp_path)
    after = file_states(tmp_path / DATA / "diversity")
    assert [name for name in after if after[name] != before[name]] == ["m/t/B.json"]


groups = st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3) | st.just([]), min_size=2, max_size=6)


@given(groups)
def test_mean_distances_are_the_parts_of_the_competitions_diversity(group):
    found = mean_distances(group, len(group))
    for place, vector in enumerate(group):
        others = [each for index, each in enumerate(group) if index != place and each]
        literal = sum(literal_distance(vector, other) for other in others) / (len(group) - 1) if vector else 0
        assert found[place] == pytest.approx(literal, abs=1e-9)
    assert np.mean(found) == pytest.approx(diversity([each for each in group if each], len(group)), abs=1e-9)


def test_equal_levels_have_no_distance():
    assert mean_distances([[0.2, 0.8]] * 3, 3) == pytest.approx((0, 0, 0))
    assert mean_distances([[], []], 2) == (0, 0)
