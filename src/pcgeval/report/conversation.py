"""Put the conversation of a trial together again, for people who look at it.

All texts are those of strangers: they are cut, and whoever shows them makes them printable.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pcgeval.core.layout import Trial
from pcgeval.core.trials import FailedCall, TrialRecord
from pcgeval.report.formats import shortened
from pcgeval.submissions.load import Prompt, Submission

LONGEST_MESSAGE = 4_000  # characters of a message or an answer
MOST_MESSAGES = 40  # of one conversation: the first half and the last half


@dataclass(frozen=True)
class ConversationMessage:
    """One message of a trial.

    Attributes:
        speaker: Who wrote it: `program` with the role that it gave it, `prompt`, `model`, or `pcgeval` for a note.
        text: The message, cut if it is long.
    """

    speaker: str
    text: str


def conversation(
    submission: Submission, trial: Trial, record: TrialRecord, most: int = MOST_MESSAGES
) -> Iterator[ConversationMessage]:
    """Yield the messages of a trial as they were sent, without what a call repeats of the one before.

    Of a conversation of more than `most` messages the middle is left out; a note stands in its place.
    """
    messages = list(_messages(submission, trial, record))
    half = most // 2
    for number, message in enumerate(messages):
        if len(messages) <= most or not half <= number < len(messages) - half:
            yield ConversationMessage(message.speaker, shortened(message.text, LONGEST_MESSAGE))
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
