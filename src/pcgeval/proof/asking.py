"""Ask calls of data/raw again, with the same model, messages, options and seed.

The audit shows that the results follow from the replies. Only asking again can show that a model really gave them.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from pcgeval.core.console import Progress
from pcgeval.core.text import printable_line
from pcgeval.formats.layout import SUBMISSIONS, Trial, stage_dir
from pcgeval.formats.params import Params
from pcgeval.formats.trials import Exchange, TrialRecord, read_record, record_path
from pcgeval.generation.tasks import GenerationTask, TrialJob
from pcgeval.llm.backends import find_model, open_backend, pinned_digest
from pcgeval.llm.protocol import Backend, CallError, ChatRequest, LlmError, Message
from pcgeval.proof.audit import shown
from pcgeval.submissions.load import Program, Prompt, load_submissions


@dataclass(frozen=True)
class AskedCall:
    """One call that was asked again."""

    model: str  # the model's key in params.yaml
    team: str
    letter: str
    trial: int
    turn: int  # among the answered calls of the trial, from 1
    same: bool | None  # text and tokens of the answer; None: there was no answer
    detail: str  # where the answers differ, or why there is none

    def __str__(self) -> str:
        """Return the call and its outcome in a line."""
        outcome = {True: "the same answer", False: "another answer", None: "no answer"}[self.same]
        place = f"{self.team} with {self.model}, {self.letter}{self.trial}, call {self.turn}"
        return f"{place}: {outcome}{f': {self.detail}' if self.detail else ''}"


def ask_again(
    root: Path, params: Params, number: int, *, report: Callable[[str], None] = lambda _: None
) -> list[AskedCall]:
    """Ask a sample of the calls in data/raw again, or all if they are fewer; everybody draws the same sample.

    The same bytes of a model on the same kind of machine give the same answer to a seed; another version of the server,
    another processor or GPU may give another one, as may a server that answers several at once. Recorded models that
    pcgeval can run itself are asked in this process, others where params.yaml says, or of this machine's Ollama server.
    `report` receives messages for a person.
    """
    submissions = load_submissions(params.teams, root / SUBMISSIONS)
    calls: list[tuple[str, str, Trial, int, TrialRecord]] = []
    for model, team, trial in product(params.models, params.teams, params.trials()):
        path = record_path(root / stage_dir("raw", model, team), team, trial)
        record = read_record(path) if path.exists() else None
        calls += [(model, team, trial, turn, record) for turn in range(len(record.exchanges))] if record else []
    chosen = sorted(random.Random(0).sample(range(len(calls)), min(number, len(calls))))  # noqa: S311 - no secret
    asked = []
    opened, digest, fault = "", "", ""
    backend: Backend | None = None  # one at a time: a model may fill the memory
    progress = Progress("calls asked again", len(chosen))
    for model, team, trial, turn, record in (calls[place] for place in chosen):
        settings = params.models[model]
        if settings.backend == "recorded":
            name = "llamacpp" if find_model(settings.name) else "ollama"
            settings = settings.model_copy(update={"backend": name})
        if model != opened:
            report(f"asking {model} again")
            opened, backend = model, None
            try:
                backend = open_backend(settings, report=report)
                digest = pinned_digest(settings, backend)
            except LlmError as error:
                backend, fault = None, printable_line(str(error))
        same: bool | None = None
        if backend is None:
            detail = fault
        elif digest != record.digest:
            detail = f"the server has another model of this name, with digest {digest}"
        else:
            task = GenerationTask(submissions[team], settings, digest, params.limits, params.competition.seed)
            request = list(_requests(task.job(trial), submissions[team].work, record))[turn]
            same, detail = _ask(request, record.exchanges[turn], backend, params.limits.call_seconds)
        asked.append(AskedCall(model, team, trial.letter, trial.number, turn + 1, same, detail))
        progress.step()
    return asked


def _ask(request: ChatRequest, exchange: Exchange, backend: Backend, seconds: float) -> tuple[bool | None, str]:
    """Ask a call again and return whether the answer is the same, and how it differs."""
    if request.key != exchange.key:
        return None, "the submission, model, seed or options have changed since it was recorded"
    try:
        reply = backend.chat(request, seconds)
    except (CallError, LlmError) as error:
        return None, printable_line(str(error))
    if reply.text != exchange.reply.text:
        before, now = shown(exchange.reply.text, reply.text)
        return False, f"{before!r} is recorded, and {now!r} is answered"
    is_same = (reply.prompt_tokens, reply.output_tokens) == (exchange.reply.prompt_tokens, exchange.reply.output_tokens)
    return is_same, "" if is_same else "the same text with other numbers of tokens"


def _requests(job: TrialJob, work: Prompt | Program, record: TrialRecord) -> Iterator[ChatRequest]:
    """Yield the request of each answered call of a trial by what was sent, as the broker makes it."""
    conversation: tuple[Message, ...] = ()
    repetitions: Counter[str] = Counter()
    for exchange in record.exchanges:
        if isinstance(work, Prompt):
            sent: tuple[Message, ...] = (Message("user", work.for_letter(job.trial.letter)),)
        else:
            sent = conversation[: exchange.repeats or 0] + (exchange.messages or ())
        first = job.request(*sent).key
        yield job.request(*sent, repetition=repetitions[first])
        repetitions[first] += 1
        conversation = (*sent, Message("assistant", exchange.reply.text))
