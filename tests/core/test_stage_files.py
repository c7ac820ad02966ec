"""The files between stages: what is written is read again, and what is refused is named by file, field and value."""

import os
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core import stage_files
from pcgeval.core.errors import FileError
from pcgeval.core.stage_files import (
    ClassifierFile,
    ConstantsFile,
    DiversityFile,
    PromptRow,
    RankingFile,
    ReplaysFile,
    SimilarityFile,
    SimulationsFile,
    StabilityEntry,
    StabilityFile,
    by_trial,
    csv_text,
    plain,
    read_csv,
)

WRITTEN = {  # by the stages of a competition
    StabilityFile: "data/stability/*/*/?.json",
    SimulationsFile: "data/stability/*/*/simulations.json",
    ReplaysFile: "data/replays/*/*.json",
    SimilarityFile: "data/similarity/*/*/?.json",
    ClassifierFile: "data/similarity/*/*/classifier.json",
    RankingFile: "results/ranking.json",
}


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
def test_a_file_of_a_stage_is_written_again_with_the_same_bytes(
    competition: Path, tmp_path: Path, kind: type[stage_files.StageFile]
) -> None:
    paths = list(competition.glob(WRITTEN[kind]))
    assert paths
    for path in paths:
        kind.read(path).write(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == path.read_bytes()
    (constants, *_) = competition.glob("results/official/*/constants.json")
    assert ConstantsFile.read(constants).to_text() == constants.read_text()


@given(st.floats(0, 1), st.decimals(-1, 10**30, allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit_and_exact_numbers_every_digit(score: float, value: Decimal) -> None:
    text = f'{{"raws": [{{"tag": "t_A_1", "score": {score!r}}}]}}'
    assert StabilityFile.model_validate_json(text).levels[0].score == score
    assert Decimal(plain(value)) == value
    assert "E" not in plain(value).upper()
    assert plain(value) != "-0"


def test_the_first_entry_of_a_trial_counts() -> None:
    names = ("x/t_A_2.xml", "x/t_A_1.xml", "y/t_A_2.xml", "t_A_x")
    levels = by_trial(StabilityEntry(name=name, score=0.5) for name in names)
    assert {trial: entry.name for trial, entry in levels.items()} == {2: "x/t_A_2.xml", 1: "x/t_A_1.xml"}


@pytest.mark.parametrize(
    ("kind", "content", "fragments"),
    [
        (StabilityFile, '{"raws": [{"tag": "a", "score": 1.5}]}', ("raws.0.score", "1.5")),
        (SimilarityFile, '{"trials": [{"id": "a", "similarity": "x\\u001b"}]}', ("trials.0.similarity", "'x\\x1b'")),
        (ConstantsFile, '{"competitionScore": "1e999999999", "weights": []}', ("competitionScore", "1e999999999")),
        (DiversityFile, '{"diversityRate": 1, "trials": [' + "[" * 100_000, ("not valid JSON",)),
        (DiversityFile, '{"diversityRate": "' + "9" * 100_000 + '"}', ("diversityRate",)),
    ],
)
def test_a_refused_value_is_named(
    tmp_path: Path, kind: type[stage_files.StageFile], content: str, fragments: tuple[str, ...]
) -> None:
    (tmp_path / "A.json").write_text(content)
    with pytest.raises(FileError) as caught:
        kind.read(tmp_path / "A.json")
    message = str(caught.value)
    assert all(fragment in message for fragment in (*fragments, str(tmp_path / "A.json"), "dvc repro"))
    assert len(message) < 1000
    assert message.isprintable()


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_text('{"raws": []}')
    os.truncate(tmp_path / "large", stage_files.MAX_FILE_BYTES + 1)
    with pytest.raises(FileError, match=f"larger than {stage_files.MAX_FILE_BYTES} bytes"):
        StabilityFile.read(tmp_path / "large")


def test_tables_are_read_as_they_are_written(tmp_path: Path) -> None:
    rows = [PromptRow(team=team, normalised=Decimal("50.5"), score=Decimal("1E-7"), rank=-1) for team in ('a"b', "c,d")]
    text = csv_text(PromptRow, rows)
    assert text.split("\n") == [
        '"team","normalizedPromptScore","promptScore","rank"',
        '"a""b","50.5","0.0000001",-1',
        '"c,d","50.5","0.0000001",-1',
    ]
    (tmp_path / "table.csv").write_text(text)
    assert read_csv(PromptRow, tmp_path / "table.csv") == tuple(rows)
    (tmp_path / "table.csv").write_text(f"{text},1")
    with pytest.raises(FileError, match=r"table\.csv:3"):
        read_csv(PromptRow, tmp_path / "table.csv")
