"""The files between stages: what is written is read again, and what is refused is named by file, field and value."""

import math
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pcgeval.core.errors import FileError
from pcgeval.core.text import plain
from pcgeval.formats.results import ConstantsFile, RankingFile
from pcgeval.formats.stages import (
    ClassifierFile,
    DiversityFile,
    ReplaysFile,
    SimilarityFile,
    SimulationsFile,
    StabilityFile,
    StageFile,
    is_recognised,
)

WRITTEN = {  # by the stages of a competition
    StabilityFile: "data/stability/*/*/?.json",
    SimulationsFile: "data/stability/*/*/simulations.json",
    ReplaysFile: "data/replays/*/*.json",
    SimilarityFile: "data/similarity/*/*/?.json",
    ClassifierFile: "data/similarity/*/*/classifier.json",
    RankingFile: "results/ranking.json",
}


@pytest.mark.parametrize(
    ("stability", "similarity", "others", "recognised"),
    [
        (0.9, 0.5, [0.3, 0.2], True),
        (27 / 30, 0.5, [], True),
        (26 / 29, 0.9, [0.1], False),  # 89.7 %
        (1.0, 0.4, [0.6], False),
        (1.0, 0.4, [0.4, 0.2], True),  # no letter is more probable
        (1.0, 0.0, [1.0], False),
        (math.nan, 0.5, [0.2], False),
        (1.0, math.nan, [0.2], False),
        (1.0, 0.5, [math.nan], False),
        (None, 0.5, [0.2], False),
    ],
)
def test_a_level_is_recognised_if_its_letter_is_the_likeliest_and_nine_tenths_stay(
    stability, similarity, others, recognised
) -> None:
    for probabilities in ([similarity, *others], [*others, similarity]):
        assert is_recognised(stability, similarity, probabilities) is recognised
    assert not is_recognised(stability, None, [])


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
def test_a_file_of_a_stage_is_written_again_with_the_same_bytes(competition: Path, tmp_path: Path, kind) -> None:
    paths = list(competition.glob(WRITTEN[kind]))
    assert paths
    for path in paths:
        kind.read(path).write(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == path.read_bytes()


@given(st.floats(0, 1), st.decimals(-1, 10**30, allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit_and_exact_numbers_every_digit(score: float, value: Decimal) -> None:
    text = f'{{"raws": [{{"tag": "t_A_1", "score": {score!r}}}]}}'
    assert StabilityFile.model_validate_json(text).levels[0].score == score
    assert Decimal(plain(value)) == value
    assert "E" not in plain(value).upper()
    assert plain(value) != "-0"


@pytest.mark.parametrize(
    ("kind", "content", "fragments"),
    [
        (SimilarityFile, '{"trials": [{"id": "a", "similarity": "x\\u001b"}]}', ("trials.0.similarity", "'x\\x1b'")),
        (ConstantsFile, '{"competitionScore": "1e999999999", "weights": []}', ("competitionScore", "1e999999999")),
        (DiversityFile, '{"diversityRate": 1, "trials": [' + "[" * 100_000, ("not valid JSON",)),
    ],
)
def test_a_refused_value_is_named(tmp_path: Path, kind: type[StageFile], content: str, fragments: tuple[str, ...]):
    (tmp_path / "A.json").write_text(content)
    with pytest.raises(FileError) as caught:
        kind.read(tmp_path / "A.json")
    message = str(caught.value)
    assert all(fragment in message for fragment in (*fragments, str(tmp_path / "A.json"), "dvc repro"))
    assert len(message) < 1000
    assert message.isprintable()
