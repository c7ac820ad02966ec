"""Recorded trials per second through the stage generate, with all that it writes; one figure a line."""

import tempfile
import time
from pathlib import Path
from typing import Any

from pcgeval.core.layout import trials
from pcgeval.core.params import Params, parse_params
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.generation.tasks import GenerationTask
from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.protocol import ChatReply
from pcgeval.llm.recorded import RecordedModel
from pcgeval.submissions.load import Prompt, Submission

DIGEST = "ab" * 32
SECTIONS = ("physics", "similarity", "diversity", "scoring", "rubric")
VALUES: dict[str, Any] = {
    "competition": {"name": "bench", "edition": "1", "characters": "ABCDEFGHIJ", "trials": 1000, "seed": 6280},
    "teams": ["alpha"],
    "models": {"m": {"backend": "recorded", "name": "m:1", "digest": DIGEST}},
    "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
    **{section: {} for section in SECTIONS},
}
PROMPT = "Build the letter <OBJECT> of blocks. " * 100  # 600 words, as prompts of the competition have
REPLY = ChatReply("```\n" + "drop_block('b31', 9)\n" * 30 + "```\n", 800, 300, "stop", 7.5)


def main() -> None:
    params = parse_params(VALUES, "bench")
    submission = Submission("alpha", Prompt(PROMPT))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(params, submission, folder / "recording.jsonl")
        for what in ("first", "finished_before"):
            wall, cpu = time.perf_counter(), time.process_time()
            replay(params, submission, folder)
            count = len(list(trials(params)))
            print(f"replay.{what} {count / (time.perf_counter() - wall):.0f} trials/s")
            print(f"replay.{what}_cpu {count / (time.process_time() - cpu):.0f} trials/cpu_s")


def record(params: Params, submission: Submission, path: Path) -> None:
    task = GenerationTask(submission, params.models["m"], DIGEST, params.limits, params.competition.seed)
    each = ((trial, task.request(trial).key) for trial in trials(params))
    write_recording(path, (LoggedCall(key=key, reply=REPLY) for trial, key in each))


def replay(params: Params, submission: Submission, folder: Path) -> None:
    """Run the trials of the stage generate, the reading of the recording included."""
    backend = RecordedModel.read(folder / "recording.jsonl", DIGEST)
    team = TeamTrials(submission, backend, folder / "raw")
    do_trials(params, "m", [team], lambda *_: None, state=folder / "state", calls=folder / "calls")


if __name__ == "__main__":
    main()
