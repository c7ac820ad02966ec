"""Diversity against the official script's results and against the definition."""

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays
from params_for_tests import contents, small_params

from pcgeval import PcgevalError, diversity
from pcgeval.core.files import write_text
from pcgeval.formats.layout import DATA, stage_dir
from pcgeval.similarity.diversity import mean_distances
from pcgeval.similarity.stage import diversity_stage

GOLDEN = Path(__file__).parents[1] / "golden" / "diversity" / "diversity.json.gz"
CASES = {case["case"]: case for case in json.loads(gzip.decompress(GOLDEN.read_bytes()))}
ordinary = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
vectors = arrays.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=ordinary)


def classified(name, shares, embedding):
    raws = [{"label": label, "softmax_prob": share} for label, share in shares.items()]
    return {"id": name, "raws": raws, "cls_embedding": embedding}


def similarity_file(*entries, **more):
    return {"count": len(entries), "trials": [], "similarities": entries, **more}


def run_stage(root, value, kind="softmax", trials=3):
    path = root / stage_dir("similarity", "m", "t") / "A.json"
    write_text(path, json.dumps(value))
    diversity_stage(small_params("A", trials, teams=("t",), diversity={"vectors": kind}), root)
    return json.loads((root / stage_dir("diversity", "m", "t") / "A.json").read_text())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden(case, tmp_path):
    counted = case["vectors"][: case["count"]]
    if case["count"] > case["n_trial"]:  # the official script divides by fewer pairs than there are
        with pytest.raises(PcgevalError, match="too few"):
            diversity(counted, case["n_trial"])
        return
    assert diversity(counted, case["n_trial"]) == pytest.approx(case["diversityRate"], abs=1e-12)
    trials = [classified(f"t_A_{number}.png", {}, vector) for number, vector in enumerate(counted, start=1)]
    file = run_stage(tmp_path, similarity_file(*trials), "cls", case["n_trial"])
    distances = [pair["distance"] for pair in file["diversities"]]
    assert distances == pytest.approx([distance[2] for distance in case["distances"]], abs=1e-7)


def literal_distance(one, other):
    length = math.sqrt(sum(value * value for value in one)) * math.sqrt(sum(value * value for value in other))
    return 1 - sum(a * b for a, b in zip(one, other, strict=True)) / length if length else 0.0


@given(vectors, st.integers(6, 12) | st.none(), st.floats(1e-150, 1e150))
@example(np.array([[2, 7, 5]] * 2), None, 1.0)  # whose cosine is a bit above 1
def test_the_definition_in_which_lengths_do_not_matter(rows, trials, factor):
    trials = trials or max(2, len(rows))
    pairs = [literal_distance(rows[i], rows[j]) for i in range(len(rows)) for j in range(i + 1, len(rows))]
    expected = sum(pairs) / (trials * (trials - 1) / 2)
    assert diversity(rows, trials) == pytest.approx(expected, abs=1e-9)
    assert diversity(rows * factor, trials) == pytest.approx(expected, abs=1e-9)
    assert diversity(rows, trials) >= 0


@pytest.mark.parametrize(
    ("rows", "trials", "complaint"),
    [
        ([[1, 0]], 0, "too few"),
        ([[1, 0]] * 4, 2, "2 is .* too few for 4 vectors"),
        ([[1, 0]] * 3, float("nan"), "nan is no number of trials"),
        ([[1, 0]] * 3, 3.5, "3.5 is no number of trials"),
        *((rows, 3, "finite") for rows in ([[1, 0], [math.nan, 1]], [1, 2])),
        *((rows, 3, "one length") for rows in ([[1, 0], [1]], [["a"]], [[10**400]])),
    ],
)
def test_vectors_that_cannot_be_compared_are_refused(rows, trials, complaint):
    with pytest.raises(PcgevalError, match=complaint):
        diversity(rows, trials)


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3) | st.just([]), min_size=2, max_size=6))
def test_mean_distances_are_the_parts_of_the_competitions_diversity(group):
    means = mean_distances(group, len(group))
    for place, vector in enumerate(group):
        others = [other for index, other in enumerate(group) if index != place and other]
        literal = sum(literal_distance(vector, other) for other in others) / (len(group) - 1) if vector else 0
        assert means[place] == pytest.approx(literal, abs=1e-9)
    assert np.mean(means) == pytest.approx(diversity([vector for vector in group if vector], len(group)), abs=1e-9)


ONE = classified("t_A_1.png", {"A": 0.9, "B": 0.1}, [1.0, 0.0])
TWO = classified("t_A_2.png", {"B": 0.7, "A": 0.3}, [0.0, 1.0])


def test_the_stage_writes_the_official_format_with_7_decimals(tmp_path):
    distance = round(1 - (0.9 * 0.3 + 0.1 * 0.7) / math.sqrt(0.82 * 0.58), 7)
    written = {
        "count": 2,
        "diversityRate": pytest.approx(distance / 3, abs=1e-7),
        "trials": [{"trial": "t_A_1", "vector": [0.9, 0.1]}, {"trial": "t_A_2", "vector": [0.3, 0.7]}],
        "diversities": [{"pair": {"trial1": "t_A_1", "trial2": "t_A_2"}, "distance": distance}],
    }
    assert run_stage(tmp_path, similarity_file(ONE, TWO)) == written
    assert run_stage(tmp_path, similarity_file(ONE, TWO), "cls")["diversityRate"] == pytest.approx(1 / 3, abs=1e-7)
    assert run_stage(tmp_path, similarity_file(ONE, TWO), "cls", 4)["diversityRate"] == pytest.approx(1 / 6, abs=1e-7)
    assert run_stage(tmp_path, similarity_file(ONE, TWO, TWO, count=2)) == written  # of the counted trials
    nothing = {"count": 0, "diversityRate": 0.0, "trials": [], "diversities": []}
    assert run_stage(tmp_path, similarity_file()) == nothing


@pytest.mark.parametrize(
    ("value", "kind", "complaint"),
    [
        (similarity_file(ONE, count=2), "softmax", "count is 2 of 1"),
        (similarity_file(ONE, classified("t_A_2", {"A": 0.5, "C": 0.5}, [])), "softmax", "different labels"),
        (similarity_file(ONE, classified("t_A_2", {}, [1.0])), "cls", "t/A.json: .*one length"),
        # as the tools of 2024 write it: an unknown diversity is not 0
        (similarity_file(*[classified(f"t_A_{n}", {"A": 1.0}, []) for n in (1, 2)]), "cls", "t_A_1' has no cls vector"),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, value, kind, complaint):
    with pytest.raises(PcgevalError, match=complaint) as caught:
        run_stage(tmp_path, value, kind)
    assert str(tmp_path / "data/similarity/m/t/A.json") in str(caught.value)
    assert not contents(tmp_path / DATA / "diversity")
