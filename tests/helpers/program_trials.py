"""Programs of the tests, and a model that answers them from a function."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

from handed_in_for_tests import write_folder

from pcgeval.formats.layout import Trial
from pcgeval.formats.params import Limits, Model
from pcgeval.generation.tasks import TrialJob
from pcgeval.llm.protocol import ChatReply, ChatRequest
from pcgeval.submissions.load import Program

SEED = 77
JOB = TrialJob(
    Trial("K", 3), Model(backend="ollama", name="test-model", options={"num_ctx": 4096}), digest="d" * 64, seed=SEED
)
SAID = f"reply to 1 messages with seed {SEED}"
HEADER = """
from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_loop import TrialLoop
"""


def reply(text: str, seconds: float = 0.0) -> ChatReply:
    """Return a reply that costs 7 tokens."""
    return ChatReply(text, 3, 4, "stop", seconds)


def echo(request: ChatRequest) -> str:
    """Answer with the number of messages and the seed: different conversations get different replies."""
    return f"reply to {len(request.messages)} messages with seed {request.options['seed']}"


class TestModel:
    """A backend that answers from a function and keeps the requests and their time-outs."""

    __test__ = False

    def __init__(self, answers: Callable[[ChatRequest], str | ChatReply] = echo) -> None:
        self.answers = answers
        self.requests: list[ChatRequest] = []
        self.timeouts: list[float] = []

    def digest(self) -> str:
        return JOB.digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        self.requests.append(request)
        self.timeouts.append(timeout)
        answer = self.answers(request)
        return answer if isinstance(answer, ChatReply) else reply(answer)


def limits(tokens: int = 25_000, seconds: float = 30, call_seconds: float = 0) -> Limits:
    return Limits(tokens=tokens, seconds=seconds, call_seconds=call_seconds, prompt_words=900)


def write_program(folder: Path, source: str) -> Program:
    """Write a program of one file; `source` stands below the interface's imports."""
    return Program(write_folder(folder, {"main.py": HEADER + dedent(source)}), "main.py")


def loop(body: str) -> str:
    """Return a program whose `run` is the given lines."""
    indented = "\n".join(f"        {line}" for line in dedent(body).strip("\n").splitlines())
    return f"""
class Loop(TrialLoop):
    @staticmethod
    def run(ctx, letter):
{indented}

if __name__ == "__main__":
    run_evaluation("name", Loop)
"""
