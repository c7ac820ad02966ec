"""Tell whose words a program's answer is: the model's, or the program's own.

The competition ranks what the model writes, so a program may choose and cut the model's replies but not write the level
itself. Only the broker sees both sides; what it finds here is for an inspector and changes no score by itself.
"""

import re

from pcgeval.core.untrusted import well_formed

_CALL = re.compile(r"drop_block\s*\([^()]*\)")


class Transcript:
    """Collect the words of the model and of the program in one trial."""

    def __init__(self) -> None:
        """Begin with an empty trial."""
        self._replies: list[str] = []  # of the model, in the order in which they came
        self._reply_calls: list[str] = []
        self._own_calls: list[str] = []  # of each message that the program wrote
        self._known: set[str] = set()  # messages that were looked at already

    def add_message(self, text: str) -> None:
        """Add a message that the program sends, before the reply to it is added."""
        if text in self._known or self.is_reply(text):
            return
        self._known.add(text)
        calls = _calls(text)
        for reply in self._reply_calls:  # a program may quote the model; what is quoted is the model's
            calls = calls.replace(reply, "\n\0\n")
        if "drop_block" in calls:
            self._own_calls.append(calls)

    def add_reply(self, text: str) -> None:
        """Add a reply of the model."""
        self._replies.append(_comparable(text))
        if calls := _calls(text):
            self._reply_calls.append(calls)

    def is_reply(self, text: str) -> bool:
        """Tell whether a text is one of the model's replies; white space outside of calls does not matter."""
        return _comparable(text) in self._replies

    def is_joined(self, text: str) -> bool:
        """Tell whether a text is several whole replies in the order in which they came, and nothing else."""
        wanted = _comparable(text)
        ends = {0}
        for reply in self._replies:
            new = {end + len(reply) for end in ends if reply and wanted.startswith(reply, end)}
            ends |= {end + wanted[end : end + 1].isspace() for end in new}
        return len(wanted) in ends

    def was_dictated(self, text: str) -> bool:
        """Tell whether the program itself wrote an answer's calls, one after the other, in a message to the model."""
        calls = _calls(text)
        return bool(calls) and any(calls in own for own in self._own_calls)


def _comparable(text: str) -> str:
    """Return a text with single spaces outside of its calls; within a call white space can change what is extracted."""
    text = well_formed(text)
    pieces, end = [], 0
    for call in _CALL.finditer(text):
        pieces += [" ".join(text[end : call.start()].split()), call[0]]
        end = call.end()
    pieces.append(" ".join(text[end:].split()))
    return " ".join(piece for piece in pieces if piece)


def _calls(text: str) -> str:
    """Return the calls in a text without white space, each on a line of its own; empty if there are none."""
    calls = ["".join(call.split()).replace('"', "'") for call in _CALL.findall(text)]
    return "".join(f"\n{call}\n" for call in calls)
