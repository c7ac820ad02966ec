"""From a submission to one response a trial: the generate step.

Every finished trial lies on disk with a fingerprint of all that made it. A run that was killed goes on after the last
finished trial, and a trial whose prompt, model, options, seed or limits changed is asked again.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pcgeval.competition.layout import Trial, trials
from pcgeval.competition.outcomes import Outcome, failed, succeeded, write_outcomes
from pcgeval.competition.params import Limits, Model, Params
from pcgeval.competition.submissions import Submission
from pcgeval.files import sha256_bytes, sha256_json
from pcgeval.llm.protocol import Backend, CallError, ChatReply, ChatRequest, LlmError, Message
from pcgeval.programs.records import Exchange, TrialRecord, finished_trial, record_path, write_trial

INTERFACE = "prompt-1"  # raise it when the way in which a prompt becomes a request changes
TEMPERATURE = 1  # the competition's rule; params may set another value for experiments

Report = Callable[[Trial, TrialRecord, bool], None]  # trial, its record, whether it was asked just now


@dataclass(frozen=True)
class Task:
    """Everything that one model and team need to be run."""

    submission: Submission
    model: Model
    digest: str
    limits: Limits
    master_seed: int

    def request(self, trial: Trial) -> ChatRequest:
        """Return the one request of a prompt submission's trial."""
        message = Message("user", self.submission.prompt_for(trial.letter))
        options = {"temperature": TEMPERATURE, **self.model.options, "seed": trial_seed(self.master_seed, trial)}
        return ChatRequest(self.model.name, self.digest, (message,), options)

    def fingerprint(self, trial: Trial) -> str:
        """Return the SHA-256 of all that decides a trial's response."""
        return sha256_json([INTERFACE, self.request(trial).key, asdict(trial), self.limits.tokens, self.limits.seconds])


def trial_seed(master_seed: int, trial: Trial) -> int:
    """Derive a trial's seed, in [0, 2**31); it is the same for all teams and models, so that luck is shared."""
    digest = hashlib.sha256(f"{master_seed}/{trial.letter}/{trial.number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def generate_step(
    params: Params, model: str, submission: Submission, backend: Backend, folder: Path, report: Report
) -> None:
    """Ask for every trial that is not yet finished, then list what became of all of them.

    Args:
        params: The competition.
        model: The model's key in params.
        submission: The team's prompt.
        backend: Where the model is asked.
        folder: The raw folder of the model and team; finished trials in it are kept.
        report: Called after each trial, finished before or just now.

    Raises:
        LlmError: The backend cannot serve; finished trials stay and the next run goes on.
    """
    task = Task(
        submission,
        params.models[model],
        _pinned_digest(params.models[model], backend),
        params.limits,
        params.competition.seed,
    )
    wanted = list(trials(params))
    _remove_strangers(folder, submission.team, wanted)
    outcomes = []
    for trial in wanted:
        record = finished_trial(folder, submission.team, trial, task.fingerprint(trial))
        fresh = record is None
        record = record or _run_trial(task, trial, backend, folder)
        outcomes.append(_outcome(trial, record))
        report(trial, record, fresh)
    write_outcomes(folder, outcomes)


def _pinned_digest(model: Model, backend: Backend) -> str:
    found = backend.digest()
    if model.digest is not None and found != model.digest:
        raise LlmError(
            f"model {model.name}: params.yaml pins digest {model.digest}, but the backend serves {found}. "
            "Fetch the pinned model, or change the digest in params.yaml to evaluate the other one."
        )
    return found


def _run_trial(task: Task, trial: Trial, backend: Backend, folder: Path) -> TrialRecord:
    request = task.request(trial)
    exchanges: tuple[Exchange, ...] = ()
    reason = None
    response = ""
    try:
        reply = backend.chat(request, task.limits.seconds)
        exchanges = (Exchange(request.key, reply),)
        reason = _over_limit(reply, task.limits)
        response = "" if reason else reply.text
    except CallError as error:
        reason = str(error)
    # the file is written as UTF-8, so lone surrogates are replaced before the hash is taken
    response = response.encode("utf-8", errors="replace").decode("utf-8")
    record = TrialRecord(
        fingerprint=task.fingerprint(trial),
        seed=int(request.options["seed"]),
        model=task.model.name,
        digest=task.digest,
        exchanges=exchanges,
        response_sha256=sha256_bytes(response.encode("utf-8")),
        reason=reason,
    )
    write_trial(folder, task.submission.team, trial, response, record)
    return record


def _over_limit(reply: ChatReply, limits: Limits) -> str | None:
    if (used := reply.prompt_tokens + reply.output_tokens) > limits.tokens:
        return f"used {used} tokens; the limit is {limits.tokens}"
    if reply.seconds > limits.seconds:
        return f"took {reply.seconds:.0f} s; the limit is {limits.seconds:.0f} s"
    return None


def _outcome(trial: Trial, record: TrialRecord) -> Outcome:
    return succeeded(trial) if record.reason is None else failed(trial, "generate", record.reason)


def _remove_strangers(folder: Path, team: str, wanted: Iterable[Trial]) -> None:
    """Remove what no wanted trial owns, so that the folder holds the same bytes as a run from scratch."""
    if not folder.is_dir():
        return
    own = {record_path(folder, team, trial).with_suffix(suffix) for trial in wanted for suffix in (".txt", ".json")}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in own:
            path.unlink()
