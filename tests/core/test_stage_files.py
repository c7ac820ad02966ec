"""The files between stages: what is written is read again, and what is refused is named by file, field and value."""

import os
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core import stage_files
from pcgeval.core.errors import FileError
from pcgeval.core.layout import Trial
from pcgeval.core.stage_files import (
    BlockPath,
    ClassifierFile,
    ConstantsFile,
    DiversityFile,
    KeptSimulation,
    LabelProbability,
    OfficialWeight,
    PairDistance,
    PicturePrediction,
    PromptRow,
    RankedTeam,
    RankingFile,
    RankingIntervals,
    RankingRules,
    ReplayedTrial,
    ReplaysFile,
    ResultHash,
    ScoreInterval,
    SimilarityEntry,
    SimilarityFile,
    SimulatedLevel,
    SimulatedTrial,
    SimulationsFile,
    StabilityEntry,
    StabilityFile,
    TeamModelScore,
    TrialVector,
    by_trial,
    csv_text,
    failed,
    plain,
    read_csv,
    read_outcomes,
    succeeded,
    write_outcomes,
)


def entries(*names: str) -> tuple[StabilityEntry, ...]:
    return tuple(StabilityEntry(name=name, score=0.5) for name in names)


END = {
    "types": ("RectSmall", "SquareTiny"),
    "positions": ((1.0, -3.25, 0.1), (0.1 + 0.2, 5e-324, 1e22)),
    "moved": (True, False),
    "dead": (False, True),
}
PATHS = (BlockPath(block=0, keys=((0, 1000, -3250, 6), (1300, 1020, -3400, 90))),)
ALPHA = RankedTeam(
    team="alpha",
    status="ranked",
    rank=1,
    winner=True,
    total=Decimal("1E-7"),
    normalised=Decimal("50.10"),
    interval=ScoreInterval(1.0, 2.0),
    models={"m": TeamModelScore(score=Decimal("1e30"), normalised=Decimal(-1) / 3, failed_trials=2, blocks=9)},
    disqualified=None,
)
BETA = ALPHA.model_copy(
    update={
        "status": "disqualified",
        "rank": None,
        "total": None,
        "interval": None,
        "models": {},
        "disqualified": "\u2028",
    }
)
FILES = (
    StabilityFile(count=1, rate=0.5, levels=entries("t/levels/A/t_A_1.xml")),
    SimilarityFile(
        count=1,
        rate=1 / 3,
        trials=(SimilarityEntry(name="t_A_1", label="A", similarity=1 / 3),),
        predictions=(
            PicturePrediction(
                name="t_A_1",
                probabilities=(LabelProbability(id=0, label="A", probability=1.0),),
                embedding=(-0.5, 1e-9),
            ),
        ),
    ),
    DiversityFile(
        count=2,
        rate=0.1,
        trials=(TrialVector(trial="t_A_1", vector=(0.1, 0.9)), TrialVector(trial="t_A_2", vector=(0.2, 0.8))),
        distances=(PairDistance(pair={"trial1": "t_A_1", "trial2": "t_A_2"}, distance=0.1),),
    ),
    SimulationsFile(
        engine={"name": "pymunk", "version": "7"},
        packages={"numpy": "2"},
        physics={"seed": 1, "iterations": None},
        trials=(SimulatedTrial(letter="A", trial=1, best_of=2, starts=(0.5, 1.0), **END),),
    ),
    KeptSimulation(level=SimulatedLevel(**END), paths=PATHS),
    KeptSimulation(reason="no block"),
    ReplaysFile(trials=(ReplayedTrial(letter="A", trial=1, paths=PATHS),)),
    ClassifierFile(name="data/classifier", sha256="ab" * 32),
    ConstantsFile(
        total=Decimal("0.1"),
        weights=(
            OfficialWeight(
                letter="A",
                weight=Decimal(0),
                stability=Decimal("-0.0"),
                similarity=Decimal(1),
                diversity=Decimal("1e9"),
            ),
        ),
    ),
    RankingFile(
        winners=("alpha",),
        reason="It has the most points.",
        baseline=None,
        rules=RankingRules(version=1, letters="AB", trials=2, official_quirks=False),
        engine="pymunk 7",
        classifier="c",
        packages={"torch": ("2.1", "2.2")},
        intervals=RankingIntervals(level=0.9, resamples=10, seed=1),
        teams=(ALPHA, BETA),
        result=ResultHash(sha256="ab" * 32, parts={"rules": "cd" * 32}),
    ),
)


@pytest.mark.parametrize("value", FILES, ids=lambda value: type(value).__name__)
def test_a_stage_file_is_read_as_it_was_written_and_written_again_with_the_same_bytes(
    tmp_path: Path, value: stage_files.StageFile
) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    value.write(one)
    read = type(value).read(one)
    assert read == value
    read.write(two)
    assert two.read_bytes() == one.read_bytes()


def test_every_stage_file_of_this_module_is_among_those() -> None:
    kinds = {kind for kind in stage_files.StageFile.__subclasses__() if kind.__module__ == stage_files.__name__}
    assert {type(value) for value in FILES} == kinds


@given(st.floats(0, 1), st.decimals(-1, 10**30, allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit_and_exact_numbers_every_digit(score: float, value: Decimal) -> None:
    text = f'{{"raws": [{{"tag": "t_A_1", "score": {score!r}}}]}}'
    assert StabilityFile.model_validate_json(text).levels[0].score == score
    assert Decimal(plain(value)) == value
    assert "E" not in plain(value).upper()
    assert plain(value) != "-0"


def test_outcomes_name_the_stage_under_the_key_of_the_file(tmp_path: Path) -> None:
    write_outcomes(tmp_path, [failed(Trial("B", 1), "extract", "no code"), succeeded(Trial("A", 2))])
    assert '"failed_step": "extract"' in (tmp_path / "trials.json").read_text()
    outcomes = read_outcomes(tmp_path)
    assert list(outcomes) == [Trial("A", 2), Trial("B", 1)]
    assert (outcomes[Trial("B", 1)].failed_stage, outcomes[Trial("A", 2)].failed_stage) == ("extract", None)


def test_the_first_entry_of_a_trial_counts() -> None:
    levels = entries("x/t_A_2.xml", "x/t_A_1.xml", "y/t_A_2.xml", "t_A_x")
    assert {trial: entry.name for trial, entry in by_trial(levels).items()} == {2: "x/t_A_2.xml", 1: "x/t_A_1.xml"}


@pytest.mark.parametrize(
    ("kind", "content", "fragments"),
    [
        (StabilityFile, '{"raws": [{"tag": "a", "score": 1.5}]}', ("raws.0.score", "1.5")),
        (SimilarityFile, '{"trials": [{"id": "a", "similarity": "x\\u001b"}]}', ("trials.0.similarity", "'x\\x1b'")),
        (ConstantsFile, '{"competitionScore": "1e999999999", "weights": []}', ("competitionScore", "1e999999999")),
        (ConstantsFile, '{"competitionScore": "NaN", "weights": []}', ("competitionScore",)),
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
