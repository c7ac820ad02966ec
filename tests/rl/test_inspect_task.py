"""The task for Inspect: its samples, its measures with Inspect's mock model, and the command with a server."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import pytest
from model_servers import ScriptedEndpoint
from pydantic import ValidationError

from pcgeval import diversity, score_level
from pcgeval.core.files import derived_seed
from pcgeval.submissions.load import SubmissionError

inspect_ai = pytest.importorskip("inspect_ai", reason="`make environments` installs the extra inspect")

from inspect_ai.log import EvalLog, read_eval_log  # noqa: E402
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402

from pcgeval.rl.inspect_task import letters  # noqa: E402

MADE = Path(__file__).parents[2] / "data" / "examples" / "letters"
NO_LEVEL = "I would rather not."
BARE_CALLS = "drop_block('b13', 5)"
OTHER_I = "```\ndrop_block('b31', 5)\ndrop_block('b13', 5)\ndrop_block('b31', 5)\n```"
FALLS = "```\ndrop_block('b11', 5)\ndrop_block('b31', 6)\n```"


def made(letter: str) -> str:
    return f"```\n{(MADE / f'{letter}.txt').read_text()}\n```"


def measured(log: EvalLog) -> dict[str, float]:
    assert log.status == "success", log.error
    return {
        score.name if name == "mean" else name: metric.value
        for score in log.results.scores
        for name, metric in score.metrics.items()
        if name != "stderr"
    }


def evaluated(folder: Path, replies: Mapping[tuple[str, int], str]) -> EvalLog:
    """Evaluate three trials of I and L with a model that replies by the seeds of letter and trial."""
    by_seed = {derived_seed(7, *trial): reply for trial, reply in replies.items()}

    def reply(_messages: object, _tools: object, _choice: object, config: object) -> ModelOutput:
        output = ModelOutput.from_content("mock", by_seed[config.seed])
        output.usage = ModelUsage()  # Inspect would fetch a tokenizer to count
        return output

    model = get_model("mockllm/model", custom_outputs=reply)
    (log,) = inspect_ai.eval(letters("IL", 3, seed=7), model, log_dir=str(folder), display="none")
    return log


def test_the_measures_are_those_of_score_level_and_diversity(tmp_path):
    replies = {
        ("I", 1): made("I"),
        ("I", 2): OTHER_I,
        ("I", 3): NO_LEVEL,
        ("L", 1): made("L"),
        ("L", 2): FALLS,
        ("L", 3): BARE_CALLS,
    }
    log = evaluated(tmp_path, replies)
    levels = {trial: score_level(reply, trial[0], read_as="response") for trial, reply in replies.items()}

    def of_letter(letter: str) -> float:
        vectors = [[*level.probabilities.values()] for trial, level in levels.items() if trial[0] == letter]
        return diversity([vector for vector in vectors if vector], 3)

    values = measured(log)
    assert values == {
        "similarity": pytest.approx(fmean(level.similarity for level in levels.values())),
        "stability": pytest.approx(fmean(level.stability for level in levels.values())),
        "recognised": pytest.approx(fmean(level.recognised for level in levels.values())),
        "diversity": pytest.approx(fmean(map(of_letter, "IL"))),
    }
    assert all(0 < value < 1 for value in values.values())
    scores = {sample.id: sample.scores["level"] for sample in log.samples}
    assert scores["I_1"].value["recognised"] == 1
    assert "drop_block" in scores["I_1"].answer
    assert set(scores["L_3"].value.values()) == {0}, "bare calls are no answer"
    assert "failed in extract" in scores["I_3"].explanation


def test_letters_trials_and_a_prompt_of_ones_own_are_samples(tmp_path):
    task = letters("XI", 2, "Build <OBJECT>, the letter <OBJECT>.", seed=7)
    assert [sample.id for sample in task.dataset] == ["I_1", "I_2", "X_1", "X_2"]
    assert [sample.target for sample in task.dataset] == ["I", "I", "X", "X"]
    assert task.dataset[0].input == "Build I, the letter I."
    assert len({sample.metadata["seed"] for sample in task.dataset}) == 4
    assert letters(prompt=["Build <OBJECT>", " please"]).dataset[0].input == "Build A, please"  # from a command line
    (tmp_path / "prompt.txt").write_text("Make <OBJECT>")
    for prompt in (tmp_path, tmp_path / "prompt.txt"):
        assert letters(prompt=str(prompt)).dataset[0].input == "Make A"
    assert "the capital letter A " in letters().dataset[0].input


def test_what_cannot_be_asked_is_refused_before_a_token_is_paid(tmp_path):
    for arguments in ({"letters": "il"}, {"letters": "II"}, {"trials": 0}, {"seed": -1}):
        with pytest.raises(ValidationError):
            letters(**arguments)
    with pytest.raises(SubmissionError, match=r"prompt\.txt"):
        letters(prompt=str(tmp_path / "prompt.txt"))


def test_the_command_asks_a_server_with_the_seeds_and_the_temperature_of_a_competition(tmp_path):
    words = "eval pcgeval/letters --model ollama/a-model -T letters=IL -T trials=2 --display plain --log-dir logs"
    command = Path(sys.executable).with_name("inspect")
    with ScriptedEndpoint() as server:  # its replies hold no level
        environment = {**os.environ, "OLLAMA_BASE_URL": server.base_url, "NO_COLOR": "1"}
        done = subprocess.run(
            [command, *words.split()], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    seeds = {derived_seed(0, letter, trial) for letter in "IL" for trial in (1, 2)}
    assert {body["seed"] for body in server.asked} == seeds
    assert {(body["model"], body["temperature"]) for body in server.asked} == {("a-model", 1)}
    (log,) = (tmp_path / "logs").iterdir()
    assert measured(read_eval_log(str(log))) == dict.fromkeys(("similarity", "stability", "recognised", "diversity"), 0)
    assert re.search(r"similarity +stability +recognised", done.stdout), done.stdout
