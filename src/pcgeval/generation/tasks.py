"""The requests, the seeds and the fingerprints of the trials of one model and team."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol

from pcgeval.core.files import derived_seed, sha256_file, sha256_json
from pcgeval.formats.layout import Trial
from pcgeval.formats.params import Limits, Model, Params
from pcgeval.llm.protocol import ChatRequest, Message
from pcgeval.submissions.load import Program, Prompt, Submission

PROMPT_INTERFACE = "prompt-2"  # raise it when a prompt becomes another request
PROGRAM_INTERFACE = "program-3"  # raise it when programs see another interface
TEMPERATURE = 1  # the competition's rule; params may set another value for experiments


@dataclass(frozen=True)
class TrialJob:
    """One trial of a submission with one model."""

    trial: Trial
    model: Model
    digest: str
    seed: int

    def request(self, *messages: Message, repetition: int = 0) -> ChatRequest:
        """Return the request of a conversation, with the options that the competition and not the team decides.

        `repetition` says how often the trial asked the same before: every repetition has another seed.
        """
        seed = derived_seed(self.seed, repetition) if repetition else self.seed
        options = {"temperature": TEMPERATURE, **self.model.options, "seed": seed}
        return ChatRequest(self.model.name, self.digest, messages, options)


class TrialObserver(Protocol):
    """Follows trials while they run; the threads that run them call it."""

    def asking(self, trial: Trial, call: int) -> None:
        """Note that a trial's program starts (call 0), or that the trial makes its first call (1), second call..."""

    def ended(self, trial: Trial, printed: str) -> None:
        """Take the output of a trial's program: a stranger's text of bounded length. The record follows later."""


@dataclass(frozen=True)
class GenerationTask:
    """A submission to be run with one model."""

    submission: Submission
    model: Model
    digest: str
    limits: Limits
    master_seed: int

    def job(self, trial: Trial) -> TrialJob:
        """Return one trial of the task; its seed is the same for all teams and models, so that luck is shared."""
        return TrialJob(trial, self.model, self.digest, derived_seed(self.master_seed, trial.letter, trial.number))

    def request(self, trial: Trial) -> ChatRequest:
        """Return the only request of a prompt's trial."""
        assert isinstance(self.submission.work, Prompt)  # noqa: S101 - the caller knows
        return self.job(trial).request(Message("user", self.submission.work.for_letter(trial.letter)))

    def fingerprint(self, trial: Trial) -> str:
        """Return the SHA-256 of everything that decides a trial's response."""
        limits = self.limits.model_dump(exclude={"prompt_words", "outage_seconds"})
        if isinstance(self.submission.work, Prompt):
            return sha256_json([PROMPT_INTERFACE, self.request(trial).key, vars(trial), limits])
        key = self.job(trial).request().key
        return sha256_json([PROGRAM_INTERFACE, self._program, key, vars(trial), limits])

    @cached_property
    def _program(self) -> list[object]:
        """The program's entry, its files, and the lock of its packages."""
        program = self.submission.work
        assert isinstance(program, Program)  # noqa: S101 - the caller knows
        files = [[name, sha256_file(program.folder / name)] for name in program.files()]
        lock = program.lock
        return [program.entry, files, sha256_file(lock) if lock and lock.is_file() else None]


def present_fingerprint(params: Params, model: str, submission: Submission) -> Callable[[Trial, str], str]:
    """Return a function from a trial, and the digest in its record, to the fingerprint that it would have now.

    That digest counts where params.yaml pins none. The files of a program are read once for each digest.
    """
    settings = params.models[model]

    @cache
    def task(digest: str) -> GenerationTask:
        return GenerationTask(submission, settings, digest, params.limits, params.competition.seed)

    return lambda trial, digest: task(settings.digest or digest).fingerprint(trial)


def models_by_server(params: Params) -> list[list[str]]:
    """Return groups of models that share a server or this machine's memory; the recorded models are one group, too."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, model in params.models.items():
        match model.backend:
            case "ollama":
                address = model.host or os.environ.get("OLLAMA_HOST")
            case "openai":
                address = model.base_url
            case _:
                address = None
        server = model.backend, (address or "").casefold().removeprefix("http://").rstrip("/")
        groups.setdefault(server, []).append(name)
    return [*groups.values()]
