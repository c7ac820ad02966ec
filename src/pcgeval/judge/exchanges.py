"""The judge's exchanges with its model: kept as they happen, found again by the SHA-256 of what was asked.

They lie in JSON-lines files with one line a call: `{"key", "leaf", "kind", "vote", "attempt", "sent", "reply": {text,
prompt_tokens, output_tokens, done_reason, seconds}}`; a call that came to nothing has `"reason"` in place of `"reply"`.
`sent` is the SHA-256 of the messages after they were cut to the model's context. A recording is only read. A journal
grows by one line a call, each on the disk before the reply is used; at the end of a grading it is written anew, sorted
and with no more than this grading used, so that the same grading leaves the same bytes.
"""

import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import FileError, to_json, write_bytes
from pcgeval.llm.keeping import cannot_keep, check_room
from pcgeval.llm.protocol import ChatReply

CallKind = Literal["rank", "grade", "parse"]
CALL_KINDS: tuple[CallKind, ...] = ("rank", "grade", "parse")
MAX_BYTES = 2**30  # of a file of exchanges; 2 551 leaves of 12 calls with long answers have a tenth


_BEGINNING = b'{"attempt":'  # of each line


class ExchangesError(PcgevalError):
    """A file that another grading uses at this moment."""


@dataclass(frozen=True)
class JudgeExchange:
    """One call about one leaf: the key of what was asked, and the reply, or why there was none."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    key: str
    leaf: str
    kind: CallKind
    vote: int
    attempt: int
    sent: str
    reply: ChatReply | None = None
    reason: str | None = None


_EXCHANGE = TypeAdapter(JudgeExchange)


class Exchanges:
    """All exchanges that a grading may use: recordings, and the journal in which it keeps its own.

    A context manager; several threads may use it. Leaving it without `finish` keeps the journal as it has grown.
    """

    def __init__(self, journal: Path | None = None, recordings: Iterable[Path] = ()) -> None:
        """Read recordings (those that exist) and a journal, whose lines win; without one nothing is kept on disk.

        Raises:
            FileError: A line of a recording is no exchange, the journal is a file of another kind, or a file cannot be
                read; the message names it.
            ExchangesError: Another grading keeps its exchanges in the same journal.
        """
        self.journal = journal
        self._known: dict[str, JudgeExchange] = {}
        self._used: dict[str, JudgeExchange] = {}
        self._lock = threading.Lock()
        self._file: int | None = None
        for path in recordings:
            if path.is_file():
                self._known.update((each.key, each) for each in read_exchanges(path))
        if journal is not None:
            with ExitStack() as undone:
                self._file = locked(journal)
                undone.callback(self.close)
                self._go_on(journal, self._file)
                undone.pop_all()

    def _go_on(self, journal: Path, file: int) -> None:
        """Read what an earlier grading left, and cut off a line that a crash left incomplete."""
        content = _content(journal)
        if not _BEGINNING.startswith(content[: len(_BEGINNING)]):  # the first line, too, may be incomplete
            raise FileError(f"{journal}: holds no exchanges of a judge. Name another file, or remove it.")
        whole = content.rfind(b"\n") + 1
        for line in content[:whole].splitlines():
            if (exchange := _parsed(line)) is not None:  # a crash of the disk may have left garbage
                self._known[exchange.key] = exchange
        os.ftruncate(file, whole)

    def find(self, key: str, *, failed_too: bool) -> JudgeExchange | None:
        """Return what came of a call; one that came to nothing only with `failed_too`: it may be made again."""
        with self._lock:
            exchange = self._known.get(key)
            if exchange is None or (exchange.reply is None and not failed_too):
                return None
            self._used[key] = exchange
            return exchange

    def check_room(self) -> None:
        """See to it that a reply can be kept before it is paid for.

        Raises:
            LlmError: The disk is almost full.
        """
        if self.journal is not None:
            check_room(self.journal)

    def keep(self, exchange: JudgeExchange) -> None:
        """Add a call just made; it is on the disk when this returns.

        Raises:
            LlmError: It cannot be written.
        """
        with self._lock:
            if self._file is not None and self.journal is not None:
                try:
                    _append(self._file, _line(exchange))
                except OSError as error:
                    raise cannot_keep(self.journal, error.strerror or str(error)) from error
            self._known[exchange.key] = self._used[exchange.key] = exchange

    def finish(self, *, is_complete: bool) -> None:
        """Write the journal anew: what this grading used, and all else as well if it is not complete."""
        if self.journal is not None:
            with self._lock:
                kept = self._used if is_complete else self._known
                content = b"".join(_line(each) for each in sorted(kept.values(), key=_place))
            write_bytes(self.journal, content)

    def close(self) -> None:
        """Let go of the journal, when a reply that is being kept is whole."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the journal."""
        self.close()


def named_recordings(path: Path | str | None) -> list[Path]:
    """Return the recording that somebody named, if any; raises FileError if it is not there."""
    if path is None:
        return []
    if not Path(path).is_file():
        raise FileError(f"{path}: no such recording. Name a file of exchanges, or leave it out.")
    return [Path(path)]


def read_exchanges(path: Path) -> Iterator[JudgeExchange]:
    """Yield the exchanges of a recording.

    Raises:
        FileError: A line is no exchange, or the file cannot be read.
    """
    for number, line in enumerate(_content(path).splitlines(), start=1):
        if line.strip():
            if (exchange := _parsed(line)) is None:
                raise FileError(
                    f"{path}:{number}: no exchange of a judge. Restore the file from git, or drop the line."
                )
            yield exchange


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f"{path}: has more than {MAX_BYTES // 2**20} MB. Restore the file from git, or remove it.")
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}). Check that it is a readable file.") from error


def locked(path: Path) -> int:
    """Open a file for this grading alone and return its descriptor; the system lets go of it however a process ends.

    Raises:
        ExchangesError: Another grading has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            message = f"{path}: another grading of it is running. Wait until that ends, or stop it."
            raise ExchangesError(message) from None
        if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
            return file
        os.close(file)  # another grading wrote it anew in this moment


def _append(file: int, content: bytes) -> None:
    size = os.fstat(file).st_size
    try:
        while content:
            content = content[os.write(file, content) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise


def _place(exchange: JudgeExchange) -> tuple[str, int, int, int, str]:
    kind = CALL_KINDS.index(exchange.kind)
    return exchange.leaf, exchange.vote, kind, exchange.attempt, exchange.key


def _line(exchange: JudgeExchange) -> bytes:
    values = {name: value for name, value in asdict(exchange).items() if value is not None}
    return to_json(values, indent=None).encode() + b"\n"


def _parsed(line: bytes) -> JudgeExchange | None:
    try:
        exchange = _EXCHANGE.validate_json(line)
    except ValidationError:
        return None
    return None if (exchange.reply is None) == (exchange.reason is None) else exchange
