"""Lay the conversations of trials beside the answers, for an inspector who decides what a flag or a failure means.

All texts are those of strangers: they are cut, and whoever shows them makes them printable.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text
from pcgeval.core.layout import (
    OFFICIAL_RESULTS,
    SUBMISSIONS,
    Trial,
    letter_file,
    stage_dir,
    trial_file,
    trials,
)
from pcgeval.core.params import Params
from pcgeval.core.stage_files import (
    SimilarityFile,
    StabilityFile,
    StageFile,
    TrialOutcome,
    TrialRow,
    by_trial,
    plain,
    read_csv,
    read_outcomes,
)
from pcgeval.core.trials import FailedCall, Flag, TrialRecord, read_record, record_path
from pcgeval.report.formats import shortened
from pcgeval.scoring.official_files import TRIAL_SCORES
from pcgeval.submissions.load import Prompt, Submission, load_submission

LONGEST_MESSAGE = 4_000  # characters of each message and of the answer
MOST_MESSAGES = 40  # of one conversation: the first half and the last half
_Kind = TypeVar("_Kind", bound=StageFile)


@dataclass(frozen=True)
class ConversationMessage:
    """One message of a trial.

    Attributes:
        speaker: Who wrote it: `program` with the role that it gave it, `prompt`, `model`, or `pcgeval` for a note.
        text: The message, cut if it is long.
    """

    speaker: str
    text: str


@dataclass(frozen=True)
class InspectedTrial:
    """One trial with all that an inspector wants beside each other.

    What is not there (yet) is None: the record of a response that was made elsewhere, the stages that a trial did not
    reach, the scores before the stage `score`.

    Attributes:
        failed_stage: Where it failed; None if it did not.
        cause: Whose fault that was, if not the submission's; such a trial is done again unless it was accepted.
        conversation: The messages in the order in which they were sent; what a call repeats is left out.
        answer: What was handed in, cut if it is long.
        picture: The file of its level's picture.
    """

    model: str
    team: str
    trial: Trial
    failed_stage: str | None
    reason: str | None
    cause: str | None
    accepted: str | None
    flags: tuple[Flag, ...]
    calls: int | None
    tokens: int | None
    seed: int | None
    conversation: tuple[ConversationMessage, ...]
    answer: str
    stability: float | None
    similarity: float | None
    score: Decimal | None
    picture: Path | None

    @property
    def stands_out(self) -> bool:
        """Whether it failed or is flagged."""
        return bool(self.failed_stage or self.flags)

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for JSON."""
        values = asdict(self)
        trial = values.pop("trial")
        return {
            **values,
            "letter": trial["letter"],
            "trial": trial["number"],
            "score": None if self.score is None else plain(self.score),
            "picture": None if self.picture is None else str(self.picture),
        }


def inspected_trials(
    params: Params, team: str, model: str, wanted: Iterable[Trial] | None = None
) -> Iterator[InspectedTrial]:
    """Yield the trials of a team with a model that are on the disk, in order; a run may be writing others.

    Args:
        params: The competition.
        team: One of its teams.
        model: One of its models.
        wanted: Only these trials; all of them if None.

    Raises:
        SubmissionError: The team's submission cannot be read.
    """
    submission = load_submission(SUBMISSIONS / team)
    raw, images = stage_dir("raw", model, team), stage_dir("images", model, team)
    outcomes = _outcomes(model, team)
    scores = _scores(model, team)
    chosen = list(trials(params) if wanted is None else wanted)
    stabilities, similarities = {}, {}
    for letter in dict.fromkeys(each.letter for each in chosen):
        if stability := if_whole(StabilityFile, letter_file(stage_dir("stability", model, team), letter)):
            stabilities[letter] = by_trial(stability.levels)
        if similarity := if_whole(SimilarityFile, letter_file(stage_dir("similarity", model, team), letter)):
            similarities[letter] = by_trial(similarity.trials)
    for trial in chosen:
        try:
            answer = read_text(trial_file(raw, "raw", team, trial))
            path = record_path(raw, team, trial)
            record = read_record(path) if path.exists() else None
        except FileError:  # not there yet
            continue
        outcome = outcomes.get(trial)
        failed_stage, reason = (outcome.failed_stage, outcome.reason) if outcome else (None, None)
        if record and record.reason is not None:
            failed_stage, reason = "generate", record.reason
        measured, seen = stabilities.get(trial.letter, {}), similarities.get(trial.letter, {})
        picture = trial_file(images, "images", team, trial)
        yield InspectedTrial(
            model=model,
            team=team,
            trial=trial,
            failed_stage=failed_stage,
            reason=reason,
            cause=record.cause if record else None,
            accepted=record.accepted if record else None,
            flags=record.flags if record else (),
            calls=len(record.exchanges) if record else None,
            tokens=record.tokens if record else None,
            seed=record.seed if record else None,
            conversation=tuple(conversation(submission, trial, record)) if record else (),
            answer=shortened(answer, LONGEST_MESSAGE),
            stability=measured[trial.number].score if trial.number in measured else None,
            similarity=seen[trial.number].similarity if trial.number in seen else None,
            score=scores.get(trial),
            picture=picture if picture.is_file() else None,
        )


def conversation(
    submission: Submission, trial: Trial, record: TrialRecord, most: int = MOST_MESSAGES
) -> Iterator[ConversationMessage]:
    """Yield the messages of a trial as they were sent, without what a call repeats of the one before.

    Of a conversation of more than `most` messages the middle is left out; a note stands in its place.
    """
    messages = list(_messages(submission, trial, record))
    half = most // 2
    for number, each in enumerate(messages):
        if len(messages) <= most or not half <= number < len(messages) - half:
            yield ConversationMessage(each.speaker, shortened(each.text, LONGEST_MESSAGE))
        elif number == half:
            yield ConversationMessage("pcgeval", f"{len(messages) - 2 * half} messages are left out here")


def _messages(submission: Submission, trial: Trial, record: TrialRecord) -> Iterator[ConversationMessage]:
    length = 0  # messages of the call before, its reply included
    for call in record.calls:
        if isinstance(call, FailedCall):
            yield ConversationMessage("pcgeval", f"call {call.turn} got no reply: {call.reason}")
            continue
        if call.messages is None:
            if isinstance(submission.work, Prompt):
                yield ConversationMessage("prompt", submission.work.for_letter(trial.letter))
        else:
            if length and call.repeats != length:
                where = f"goes on after the first {call.repeats} messages" if call.repeats else "begins anew"
                yield ConversationMessage("pcgeval", f"the conversation {where}")
            for message in call.messages:
                yield ConversationMessage(f"program as {message.role}", message.content)
            length = (call.repeats or 0) + len(call.messages) + 1
        yield ConversationMessage("model", call.reply.text)


def _outcomes(model: str, team: str) -> Mapping[Trial, TrialOutcome]:
    """Return the outcomes of the trials; none before their levels were simulated."""
    try:
        return read_outcomes(stage_dir("stability", model, team))
    except FileError:
        return {}


def _scores(model: str, team: str) -> dict[Trial, Decimal]:
    try:
        rows = read_csv(TrialRow, OFFICIAL_RESULTS / model / TRIAL_SCORES)
    except FileError:
        return {}
    return {Trial(each.letter, each.trial): each.score for each in rows if each.team == team}


def if_whole(kind: type[_Kind], path: Path) -> _Kind | None:
    """Read a stage's file; None if it is not there yet, or only half."""
    try:
        return kind.read(path)
    except FileError:
        return None
