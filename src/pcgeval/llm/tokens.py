"""How many tokens a text is, so that a prompt fits; and texts made to fit.

A model in this process counts with its own tokenizer. For all others there is an estimate that is meant to be too high:
byte-pair encoding by some 1500 merges learned from our own texts (`common_merges.txt`, made by
`training/token_merges.py`). A tokenizer that knows only the commonest pieces of words needs more tokens than one that
knows a hundred thousand. White space is merged up to eight spaces only, and bytes beyond ASCII not. The tokenizers of
the local models never needed more for any text that was tried.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pcgeval.llm.llamacpp import LlamaCpp
from pcgeval.llm.protocol import Backend

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import Sequence

MERGES_FILE = Path(__file__).with_name("common_merges.txt")
MESSAGE_OVERHEAD = 32  # tokens that a chat template adds for a message, at most; a default system message included
_CHUNK = 4000  # characters that are counted at a time
_SEAM = 8  # tokens by which the sum of the counts of two halves may be above the whole's


class TokenCounter(Protocol):
    """Counts tokens; usable from several threads."""

    @property
    def name(self) -> str:
        """`own` or `estimate`."""

    def count(self, text: str) -> int:
        """Return how many tokens a text is within a message; an estimate is rather too high."""


def token_counter(backend: Backend) -> TokenCounter:
    """Return the best counter for a backend: its own tokenizer's where that is in this process, else the estimate."""
    return OwnTokens(backend) if isinstance(backend, LlamaCpp) else EstimatedTokens()


class OwnTokens:
    """Counts with the tokenizer of a model in this process."""

    name = "own"

    def __init__(self, model: LlamaCpp) -> None:
        """Take the model; it must not be closed while it is counted with."""
        self._model = model

    def count(self, text: str) -> int:
        """Return the number of tokens; raises LlmError if the model is closed."""
        return self._model.count_tokens(text)


class EstimatedTokens:
    """Counts rather too many tokens, for models whose tokenizer is not here."""

    name = "estimate"

    def count(self, text: str) -> int:
        """Return an upper estimate of the number of tokens."""
        well_formed = text.encode("utf-8", "replace").decode()
        pieces = (well_formed[place : place + _CHUNK] for place in range(0, len(text), _CHUNK))
        return sum(1 + len(_few_merges().encode(piece, add_special_tokens=False).ids) for piece in pieces)


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
    """Whether a text has at most `most` tokens; a long one is not counted to its end."""
    least = 0
    for place in range(0, len(text), _CHUNK):
        least += counter.count(text[place : place + _CHUNK]) - _SEAM
        if least > most:
            return False
    return counter.count(text) <= most


def _longest(text: str, budget: int, counter: TokenCounter, *, from_end: bool) -> int:
    """Return how many characters from a text's start, or from its end, have `budget` tokens at most."""

    def part(begin: int, end: int) -> str:
        return text[len(text) - end : len(text) - begin] if from_end else text[begin:end]

    place = 0
    while place < len(text):
        tokens = counter.count(part(place, min(place + _CHUNK, len(text))))
        if tokens > budget:
            break
        budget -= tokens
        place += _CHUNK
    else:
        return len(text)
    fits, too_long = place, min(place + _CHUNK, len(text))
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if counter.count(part(place, middle)) <= budget:
            fits = middle
        else:
            too_long = middle
    return fits


def word_splitter() -> "Sequence":
    """Return what parts a text before it is merged: words and marks apart as in GPT-2's, each digit by itself."""
    from tokenizers import pre_tokenizers  # noqa: PLC0415 - only an estimate needs it

    return pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(individual_digits=True)]
    )


@functools.cache
def _few_merges() -> "Tokenizer":
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 - only an estimate needs it

    lines = MERGES_FILE.read_text("utf-8").splitlines()
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(merge) for merge in merges)]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = word_splitter()
    return tokenizer
