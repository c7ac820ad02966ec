"""A submission or params.yaml that is changed while the evaluation runs: no result of mixed programs, no wrong hash."""

import subprocess

import pytest
from model_servers import SlowOllama, wait_until
from this_machine import soak_only
from workspace import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder

OTHER_PROGRAM = {"main.py": PROGRAM["main.py"].replace("Build", "Construct")}
OTHER_PROMPT = {"prompt.txt": PROMPT["prompt.txt"].replace("Build", "Construct")}
TRIALS = 5


def started(competition: CompetitionFolder, server: SlowOllama) -> subprocess.Popen[str]:
    """Start the stage and wait until some trials are finished."""
    process = competition.command(*STAGE)
    wait_until(lambda: len(server.asked) >= 9, process)
    return process


def replace_submission(competition: CompetitionFolder, work: dict[str, str]) -> None:
    for name, text in work.items():
        file = competition.folder / "data/submissions/alpha" / name
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").replace(file)


def first_words(competition: CompetitionFolder) -> set[str]:
    """Return the first words that the model was asked: which of two submissions ran."""
    log = "".join(path.read_text() for path in competition.folder.glob("data/raw/m/alpha/*/alpha_*.json"))
    return {word for word in ("Build", "Construct") if f'"content": "{word} ' in log}


@pytest.mark.parametrize(
    ("work", "other"),
    [
        pytest.param(PROGRAM, OTHER_PROGRAM, marks=pytest.mark.needs_sandbox),
        pytest.param(PROMPT, OTHER_PROMPT, marks=soak_only),
    ],
)
def test_a_submission_that_is_replaced_while_it_is_evaluated(tmp_path, work, other):
    with SlowOllama(0.05) as server:
        competition = competition_folder(tmp_path, server.address, work, letters="AB", trials=TRIALS)
        process = started(competition, server)
        replace_submission(competition, other)
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 2
        assert "error: data/submissions/alpha: changed while" in stderr
        before, asked = competition.outputs(), len(server.asked)
        assert len(competition.records()) == 2 * TRIALS
        assert first_words(competition) <= {"Build"}
        replace_submission(competition, work)  # the old one again: its trials are finished
        competition.generate()
        assert (competition.outputs(), len(server.asked)) == (before, asked)
        replace_submission(competition, other)
        competition.generate()
        assert first_words(competition) <= {"Construct"}
    assert not [path for path in (tmp_path / ".pcgeval/snapshots").rglob("*") if path.is_file()]


@pytest.mark.parametrize("change", ["seed", "digest", "team"])
def test_params_that_are_changed_while_a_submission_is_evaluated(tmp_path, change):
    with SlowOllama(0.05) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=10)
        process = started(competition, server)
        match change:
            case "seed":
                competition.change_params("competition", seed=1)
            case "digest":
                competition.change_model(digest="cd" * 32)
            case "team":
                competition.add_team("beta", OTHER_PROMPT)
        _, stderr = process.communicate(timeout=300)
        assert (process.returncode, "error: params.yaml: changed while" in stderr) == (2, True)
        assert not competition.records("beta")
        server.digest = competition.params()["models"]["m"]["digest"]
        competition.generate()
        assert len(competition.records("beta")) == (20 if change == "team" else 0)
