"""Count tokens, so that a prompt fits, and cut texts that do not.

A model in this process counts with its own tokenizer. For all others there is an estimate that is meant to be too high:
a tokenizer that works on bytes has no token shorter than one. The tokenizers of the local models needed fewer tokens
for every text of human language, code or data that was tried.
"""

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from pcgeval.core.console import print_stderr
from pcgeval.core.untrusted import printable_line, well_formed
from pcgeval.llm.protocol import Backend, ChatReply, LlmError
from pcgeval.llm.protocol import usual_tokens as usual_tokens  # noqa: PLC0414 - exported

MESSAGE_OVERHEAD = 32  # tokens that a chat template adds for a message, at most; a default system message included
_LEAST_LEARNED = 300  # tokens of a prompt from which something is learned
_USUAL_SCALE = 0.7  # of the estimate, where an endpoint reports nothing
_SCALES = (0.25, 2.0)  # that can be believed
_SCALE_MARGIN = 1.02
_WORD = re.compile(rb" ?(?:[A-Z]?[a-z]+|[A-Z]+)")  # with the space before it, as in GPT-2's tokenizer
_MAX_REASON = 200  # characters of why a file cannot be fetched
_SPACES = re.compile(rb" +")
_LEAST_PIECE = 160  # characters that are counted at a time, to the end of their line
_PIECES = 512  # of a text
_MERGED_SPACES = 8  # that every tokenizer has a token for


class TokenCounter(Protocol):
    """A counter of tokens; usable from several threads."""

    def count(self, text: str) -> int:
        """Return how many tokens a text is within a message; an estimate is rather too high."""


@runtime_checkable
class HasTokenizer(Protocol):
    """A backend that counts tokens itself."""

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has within a message."""


class JudgeTokens:
    """The tokens of one grading's prompts: counted exactly, or estimated and corrected by what the endpoint reports.

    A prompt has `scale` times as many tokens as `counter` says. Once that `is_settled` it changes little.
    """

    def __init__(self, counter: TokenCounter, *, is_exact: bool) -> None:
        """Take a counter; the scale of an inexact one is 1, rather too high, until a reply tells."""
        self.counter, self._is_exact = counter, is_exact
        self.scale, self.is_settled = 1.0, is_exact

    def learn(self, counted: int, reply: ChatReply) -> None:
        """Compare a prompt's tokens as counted with those that its reply reports, if both can be believed."""
        if self._is_exact or counted < _LEAST_LEARNED:
            return
        read = min(reply.prompt_tokens, 10 * counted)  # an integer that is no float cannot be divided
        ratio = _USUAL_SCALE if reply.estimated else read / counted
        if not _SCALES[0] <= ratio <= _SCALES[1]:  # a server's fancy, or a prompt of which it dropped the beginning
            return
        if not self.is_settled:
            self.scale = ratio * _SCALE_MARGIN
        elif not reply.estimated:  # the most that a text has needed, as a prompt that is too long costs a request
            self.scale = max(ratio * _SCALE_MARGIN, self.scale)
        self.is_settled = True

    def raise_scale(self) -> None:
        """Take a quarter more tokens for true, after a prompt that was too long."""
        self.scale, self.is_settled = self.scale * 1.25, True


def judge_tokens(backend: Backend, tokenizer: str | None, report: Callable[[str], None] = print_stderr) -> JudgeTokens:
    """Return the best count for a model: its own tokenizer's, one that is named, or the estimate.

    Args:
        backend: The model's; one in this process counts itself.
        tokenizer: The path of a `tokenizer.json`, or a tiktoken encoding, which is used where that is installed.
        report: Is told when the file of an encoding cannot be fetched, so that tokens are estimated.

    Raises:
        LlmError: The file is no tokenizer, or tiktoken has no such encoding.
    """
    if isinstance(backend, HasTokenizer):
        return JudgeTokens(OwnTokens(backend), is_exact=True)
    if tokenizer is not None and tokenizer.endswith(".json"):
        return JudgeTokens(_FileTokens(tokenizer), is_exact=True)
    if tokenizer is not None and find_spec("tiktoken"):
        try:
            return JudgeTokens(_TiktokenTokens(tokenizer), is_exact=True)
        except (OSError, ValueError) as error:  # the file is fetched from the network once
            reason = printable_line(str(error), _MAX_REASON)
            report(
                f"tokenizer {tokenizer}: its file cannot be fetched ({reason}). Tokens are estimated, and corrected by "
                "the endpoint's usage. For exact ones let tiktoken fetch the file once, or name the folder that has it "
                "in TIKTOKEN_CACHE_DIR."
            )
    return JudgeTokens(EstimatedTokens(), is_exact=False)


class _FileTokens:
    """Count with a tokenizer.json as Hugging Face has it."""

    def __init__(self, path: str) -> None:
        try:
            text = Path(path).read_text("utf-8")
            json.loads(text)["model"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise LlmError(f"{path}: no tokenizer that can be read ({error}). Correct profile.tokenizer.") from error
        self._encode = import_module("tokenizers").Tokenizer.from_str(text).encode

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self._encode(well_formed(text), add_special_tokens=False).ids)


class _TiktokenTokens:
    """Count with an encoding of tiktoken."""

    def __init__(self, encoding: str) -> None:
        tiktoken = import_module("tiktoken")
        if encoding not in (known := tiktoken.list_encoding_names()):
            raise LlmError(
                f"{encoding!r:.80} is no encoding of tiktoken ({', '.join(sorted(known))}) and no path of a "
                "tokenizer.json. Correct profile.tokenizer."
            )
        self._encode = tiktoken.get_encoding(encoding).encode_ordinary

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self._encode(well_formed(text)))


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


class Cut(NamedTuple):
    """The shown part of a text, its tokens, its share of the text, and between which pieces the middle is missing."""

    text: str
    tokens: int
    share: float
    start: int = 0
    end: int = 0


class CountedText:
    """A text whose tokens were counted once, a few lines at a time, so that any cut of it is known."""

    def __init__(self, text: str, counter: TokenCounter) -> None:
        """Count it."""
        self.text, self._counter = text, counter
        self._ends = [0]
        size = max(_LEAST_PIECE, len(text) // _PIECES)
        while (start := self._ends[-1]) < len(text):
            end = text.find("\n", start + size) + 1 or len(text)
            self._ends.append(end if end - start <= 4 * size else start + size)
        pieces = zip(self._ends, self._ends[1:], strict=False)
        self._tokens = [0, *accumulate(counter.count(text[start:end]) for start, end in pieces)]

    @property
    def tokens(self) -> int:
        """Its tokens."""
        return self._tokens[-1]

    def cut(self, most: int, tail: float) -> Cut:
        """Return what is left of the text with at most `most` tokens.

        It is cut at the ends of lines. `tail` is the share of what is kept that comes from its end.
        """
        if self.tokens <= most:
            return Cut(self.text, self.tokens, 1.0)
        room = most - (note := self._counter.count(left_out(len(self.text))))
        last = len(self._tokens) - 1
        head = max(bisect_right(self._tokens, room - round(room * tail)) - 1, 0)
        rest = room - self._tokens[head]
        end = last - sum(self.tokens - self._tokens[place] <= rest for place in range(head, last)) if tail else last
        kept = self._ends[head] + len(self.text) - self._ends[end]
        if kept == 0:
            return Cut("", 0, 0.0)
        text = self.text[: self._ends[head]] + left_out(len(self.text) - kept) + self.text[self._ends[end] :]
        tokens = self._tokens[head] + note + self.tokens - self._tokens[end]
        return Cut(text, tokens, kept / len(self.text), head, end)

    def missing(self, cut: Cut, most: int) -> Cut:
        """Return the beginning of what a cut left out, with at most `most` tokens."""
        end = min(bisect_right(self._tokens, self._tokens[cut.start] + most) - 1, cut.end)
        text = self.text[self._ends[cut.start] : self._ends[end]]
        return Cut(text, self._tokens[end] - self._tokens[cut.start], len(text) / len(self.text))


def left_out(characters: int) -> str:
    """Return the line that stands where so many characters of a text are left out."""
    return f"\n[... {characters} characters left out ...]\n"
