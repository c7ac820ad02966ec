"""Have failed trials done again, or count failures that are not the submission's: the organiser's two decisions.

Each is a line of `data/trial_history.jsonl`, which is only ever appended to and is committed to git: who decided it,
when, and what the trial's record said before. A trial that is done again has the same seed, and its answered calls come
from the call log, so only what failed is asked anew: nobody gets another draw.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pcgeval.core.files import to_json
from pcgeval.core.layout import DATA, STATE, Trial, generation_lock, stage_dir, trials
from pcgeval.core.locks import lock_folder
from pcgeval.core.params import Params
from pcgeval.core.trials import FaultCause, TrialRecord, read_record, record_path, write_trial

TRIAL_HISTORY = DATA / "trial_history.jsonl"


@dataclass(frozen=True)
class TrialDecision:
    """One line of the history: a failed trial as it was, and what was decided about it.

    Attributes:
        time: In UTC, ISO 8601.
        who: Who decided.
        model: The model's key in params.
        team: The team.
        letter: The trial's letter.
        trial: Its number.
        fingerprint: Of all that made it.
        reason: Why it failed.
        cause: Whose fault it was, if not the submission's.
        accepted: Why the failure counts; None: the trial is done again.
    """

    time: str
    who: str
    model: str
    team: str
    letter: str
    trial: int
    fingerprint: str
    reason: str
    cause: FaultCause | None
    accepted: str | None


_DECISION = TypeAdapter(TrialDecision)


def decide_failed_trials(
    params: Params,
    who: str,
    *,
    team: str | None = None,
    reason: str = "",
    accept: str | None = None,
    state: Path = STATE,
) -> list[TrialDecision]:
    """Make failed trials be done again by the next run, or count them as failed; return what was decided.

    Args:
        params: The competition.
        who: Who decides.
        team: Only this team's trials.
        reason: Only trials whose reason contains this text.
        accept: Why failures that are not the submission's count as they are; others are left alone.
        state: Where locks lie.

    Raises:
        FileError: A record cannot be read.
        FolderBusyError: A run is doing the team's trials.
    """
    decided = []
    for model in params.models:
        for each in params.teams if team is None else [team]:
            folder = stage_dir("raw", model, each)
            if not folder.is_dir():
                continue
            with lock_folder(folder, generation_lock(model, state)):
                for trial, record in _failed(params, folder, each):
                    if reason not in (record.reason or "") or (accept is not None and record.is_final):
                        continue
                    decision = TrialDecision(
                        datetime.now(UTC).isoformat(timespec="seconds"),
                        who,
                        model,
                        each,
                        trial.letter,
                        trial.number,
                        record.fingerprint,
                        record.reason or "",
                        record.cause,
                        accept,
                    )
                    _append(decision)
                    if accept is None:
                        record_path(folder, each, trial).unlink()
                    else:
                        write_trial(folder, each, trial, "", replace(record, accepted=f"{who}: {accept}"))
                    decided.append(decision)
    return decided


def unknown_decisions(
    params: Params, model: str, team: str, folder: Path, history: Path = TRIAL_HISTORY
) -> list[Trial]:
    """Return the trials whose records tell of an accepted failure that the history does not hold.

    Args:
        params: The competition.
        model: The model's key in params.
        team: The team.
        folder: The raw folder of the model and team.
        history: The file of all decisions; a line that is none, as of a run that was killed, vouches for nothing.

    Raises:
        FileError: A record cannot be read.
    """
    known = set()
    for line in history.read_bytes().splitlines() if history.exists() else []:
        with suppress(ValidationError):
            each = _DECISION.validate_json(line)
            known.add((each.model, each.team, Trial(each.letter, each.trial), f"{each.who}: {each.accepted}"))
    failed = [(trial, record.accepted) for trial, record in _failed(params, folder, team) if record.accepted]
    return [trial for trial, accepted in failed if (model, team, trial, accepted) not in known]


def _failed(params: Params, folder: Path, team: str) -> Iterator[tuple[Trial, TrialRecord]]:
    for trial in trials(params):
        path = record_path(folder, team, trial)
        if path.exists() and (record := read_record(path)).reason is not None:
            yield trial, record


def _append(decision: TrialDecision) -> None:
    is_torn = TRIAL_HISTORY.exists() and not TRIAL_HISTORY.read_bytes().endswith(b"\n")  # the disk was full
    with TRIAL_HISTORY.open("a", encoding="utf-8") as file:
        file.write("\n" * is_torn + to_json(asdict(decision), indent=None) + "\n")
        file.flush()
        os.fsync(file.fileno())
