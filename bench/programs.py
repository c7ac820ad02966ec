"""Measure what running a program adds to asking the model: wall time per trial and per call, a figure a line.

The model answers at once, so that all that is measured is ours: the sandbox, a fresh Python, the interface packages,
the pipe and the broker. What a program itself imports would take as long in any harness; this one imports nothing.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from pcgeval.core.layout import Trial
from pcgeval.core.params import Limits, Model
from pcgeval.generation.runners import ProgramRunner
from pcgeval.generation.tasks import TrialJob
from pcgeval.llm.protocol import ChatReply, ChatRequest
from pcgeval.sandbox.sandbox import ResourceLimits, SandboxError, open_sandbox
from pcgeval.submissions.load import Program

TRIALS = 50
CALLS = 20
REPLY = ChatReply("```\n" + "drop_block('b11', 3)\n" * 40 + "```", 900, 400, "stop", 0.0)
PROGRAM = """
from llms4pcg.competition import TrialLoop, chat_with_llm, run_evaluation

class Loop(TrialLoop):
    @staticmethod
    def run(ctx, target_character):
        messages = [{"role": "user", "content": "Build the letter. " * 200}]
        for _ in range(%d):
            answer = chat_with_llm(ctx, messages)[0]
        return answer

if __name__ == "__main__":
    run_evaluation("bench", Loop)
"""


class AtOnce:
    """A backend that takes no time."""

    def digest(self) -> str:
        return "0" * 64

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002
        return REPLY


def milliseconds(runner: ProgramRunner, number: int) -> float:
    """Return the wall time of one trial."""
    model = AtOnce()
    job = TrialJob(Trial("A", number), Model(backend="ollama", name="bench"), model.digest(), seed=1)
    start = time.perf_counter()
    done = runner.run_trial(job, model)
    taken = 1000 * (time.perf_counter() - start)
    if done.reason is not None:
        raise SystemExit(f"the trial failed: {done.reason}")
    return taken


def main() -> None:
    limits = Limits(tokens=10**9, seconds=60, prompt_words=900)
    try:
        sandbox = open_sandbox(ResourceLimits(), trust_programs=False)
    except SandboxError as error:
        print(f"programs skipped: {error}")
        return
    with tempfile.TemporaryDirectory() as folder:
        runners = []
        for calls in (1, 1 + CALLS):
            program = Program(Path(folder, str(calls)), "main.py")
            program.folder.mkdir()
            (program.folder / program.entry).write_text(PROGRAM % calls)
            runners.append(ProgramRunner(program, sandbox, limits, Path(sys.executable)))
        pairs = [[milliseconds(runner, number) for runner in runners] for number in range(TRIALS)]
    one, many = (statistics.median(column) for column in zip(*pairs, strict=True))
    per_call = (many - one) / CALLS
    print(f"programs.trial {one - per_call:.1f} ms/trial added over asking the model directly (sandbox included)")
    print(f"programs.call {per_call:.2f} ms/call added over asking the model directly")


if __name__ == "__main__":
    main()
