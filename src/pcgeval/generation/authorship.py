"""Tell whose words a program's answer is: the model's, or the program's own.

The competition ranks what the model writes, so a program may choose and cut the model's replies but not write the level
itself. Only the broker sees both sides; what it finds here is for an inspector and changes no score by itself.
"""

import re

from pcgeval.core.untrusted import well_formed

_CALL = re.compile(r"drop_block\s*\([^()]*\)")


class Transcript:
    """Collect the words of the model in one trial."""

    def __init__(self) -> None:
        """Begin with an empty trial."""
        self._replies: list[str] = []  # in the order in which they came

    def add_reply(self, text: str) -> None:
        """Add a reply of the model."""
        self._replies.append(_comparable(text))

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


def _comparable(text: str) -> str:
    """Return a text with single spaces outside of its calls; within a call white space can change what is extracted."""
    text = well_formed(text)
    pieces, end = [], 0
    for call in _CALL.finditer(text):
        pieces += [" ".join(text[end : call.start()].split()), call[0]]
        end = call.end()
    pieces.append(" ".join(text[end:].split()))
    return " ".join(piece for piece in pieces if piece)
