"""Put the conversation of a trial together again, for people who look at it.

All texts are those of strangers: they are cut, and whoever shows them makes them printable.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pcgeval.core.layout import Trial
from pcgeval.core.trials import FailedCall, TrialRecord
from pcgeval.report.formats import shortened
from pcgeval.submissions.load import Prompt, Submission

LONGEST_MESSAGE = 4_000  # characters of a message or an answer
MOST_MESSAGES = 40  # of one conversation: the first half and the last half


@dataclass(frozen=True)
class ConversationMessage:
    """One message; its speaker is `program` with a role, `prompt`, `model`, or `pcgeval` for a note."""

    speaker: str
    text: str


def conversation(
    submission: Submission,
    trial: Trial,
    record: TrialRecord,
    most: int = MOST_MESSAGES,
    longest: int = LONGEST_MESSAGE,
) -> Iterator[ConversationMessage]:
    """Yield the messages of a trial as they were sent, without what a call repeats of the one before.

    Of a conversation of more than `most` messages the middle is left out, with a note in its place. A message has at
    most `longest` characters.
    """
    messages = list(_messages(submission, trial, record))
    half = most // 2
    if left_out := messages[half:-half] if len(messages) > most else []:
        note = ConversationMessage("pcgeval", f"{len(left_out)} messages are left out here")
        messages = [*messages[:half], note, *messages[-half:]]
    for message in messages:
        yield replace(message, text=shortened(message.text, longest))


def _messages(submission: Submission, trial: Trial, record: TrialRecord) -> Iterator[ConversationMessage]:
    length = 0  # messages of the call before, its reply included
    for call in record.calls:
        if isinstance(call, FailedCall):
            yield ConversationMessage("pcgeval", f"call {call.turn} got no reply: {call.reason}")
            continue
        if isinstance(submission.work, Prompt) and call.messages is None:
            yield ConversationMessage("prompt", submission.work.for_letter(trial.letter))
        elif call.messages is not None:
            if length and call.repeats != length:
                where = f"goes on after the first {call.repeats} messages" if call.repeats else "begins anew"
                yield ConversationMessage("pcgeval", f"the conversation {where}")
            for message in call.messages:
                yield ConversationMessage(f"program as {message.role}", message.content)
            length = (call.repeats or 0) + len(call.messages) + 1
        yield ConversationMessage("model", call.reply.text)
