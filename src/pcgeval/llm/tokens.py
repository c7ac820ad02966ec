"""Count tokens, so that a prompt fits, and shorten texts that do not.

A model in this process counts with its own tokenizer. For all others there is an estimate that is meant to be too high:
a tokenizer that works on bytes has no token shorter than one. The tokenizers of the local models needed fewer tokens
for every text of human language, code or data that was tried.
"""

import math
import re
from bisect import bisect_right
from typing import Protocol, runtime_checkable

from pcgeval.core.untrusted import well_formed
from pcgeval.llm.protocol import Backend

MESSAGE_OVERHEAD = 32  # tokens that a chat template adds for a message, at most; a default system message included
_CHUNK = 4000  # characters that are counted at a time
_SEAM = 8  # tokens by which the sum of the counts of two halves may be above the whole's
_WORD = re.compile(rb" ?(?:[A-Z]?[a-z]+|[A-Z]+)")  # with the space before it, as in GPT-2's tokenizer
_SPACES = re.compile(rb" +")
_USUAL_BYTES = 4  # of a token
_MERGED_SPACES = 8  # that every tokenizer has a token for


def usual_tokens(text: str) -> int:
    """Return about how many tokens a text has: one for each four bytes, as in English prose and in code."""
    return math.ceil(len(well_formed(text).encode()) / _USUAL_BYTES)


class TokenCounter(Protocol):
    """A counter of tokens; usable from several threads."""

    def count(self, text: str) -> int:
        """Return how many tokens a text is within a message; an estimate is rather too high."""


@runtime_checkable
class HasTokenizer(Protocol):
    """A backend that counts tokens itself."""

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has within a message."""


def token_counter(backend: Backend) -> TokenCounter:
    """Return the best counter for a backend: its own tokenizer's where that is in this process, else the estimate."""
    return OwnTokens(backend) if isinstance(backend, HasTokenizer) else EstimatedTokens()


class OwnTokens:
    """Count with the tokenizer of a model in this process, which must not be closed meanwhile."""

    def __init__(self, model: HasTokenizer) -> None:
        self._model = model

    def count(self, text: str) -> int:
        """Return the number of tokens; raises LlmError if the model is closed."""
        return self._model.count_tokens(text)


class EstimatedTokens:
    """Count bytes, words and runs of spaces, for models whose tokenizer is not here."""

    def count(self, text: str) -> int:
        """Return an upper estimate of the number of tokens.

        Each byte counts as one, but a word as a third and two thirds a letter (words of random letters have about 0.6
        tokens a letter), and spaces that belong to no word as one and one for each further eight.
        """
        rest = well_formed(text).encode()
        words: list[bytes] = _WORD.findall(rest)
        letters = sum(len(word) - word.startswith(b" ") for word in words)
        rest = _WORD.sub(b"", rest)
        spaces: list[int] = [1 + math.ceil((len(run) - 1) / _MERGED_SPACES) for run in _SPACES.findall(rest)]
        return math.ceil((len(words) + 2 * letters) / 3) + sum(spaces) + len(rest) - rest.count(b" ")


def shortened(text: str, most: int, counter: TokenCounter, *, tail: float) -> str:
    """Cut out of a text's middle so that it has at most `most` tokens; a text that fits is returned as it is.

    A line says how many characters are left out. Only about `most` tokens are counted, however long the text is.

    Args:
        text: The text.
        most: Its tokens at most; where not even the line fits, nothing is left of the text.
        counter: What counts them.
        tail: The share of what is kept that comes from the end, 0 to 1.
    """
    if _fits(text, most, counter):
        return text
    room = most - counter.count(_left_out(len(text)))
    while room > 0:
        at_end = round(room * tail)
        start = _longest(text, room - at_end, counter, from_end=False)
        end = min(_longest(text, at_end, counter, from_end=True), len(text) - start - 1)
        kept = text[:start] + _left_out(len(text) - start - end) + text[len(text) - end :]
        excess = counter.count(kept) - most
        if excess <= 0:
            return kept
        room -= excess
    return ""


def _left_out(characters: int) -> str:
    return f"\n[... {characters} characters left out ...]\n"


def _fits(text: str, most: int, counter: TokenCounter) -> bool:
    """Tell whether a text has at most `most` tokens; a long one is not counted to its end."""
    least = 0
    for place in range(0, len(text), _CHUNK):
        least += counter.count(text[place : place + _CHUNK]) - _SEAM
        if least > most:
            return False
    return counter.count(text) <= most


def _longest(text: str, budget: int, counter: TokenCounter, *, from_end: bool) -> int:
    """Return how many characters from a text's start, or from its end, have `budget` tokens at most."""

    def part(begin: int, end: int) -> str:
        return text[max(len(text) - end, 0) : len(text) - begin] if from_end else text[begin:end]

    place = 0
    while place < len(text) and (tokens := counter.count(part(place, place + _CHUNK))) <= budget:
        budget -= tokens
        place += _CHUNK
    lengths = range(1, min(_CHUNK, len(text) - place) + 1)
    fitting = bisect_right(lengths, budget, key=lambda characters: counter.count(part(place, place + characters)))
    return min(place + fitting, len(text))
