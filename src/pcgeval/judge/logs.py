"""Making the log of reproduce.sh short without losing what it says: time stamps, progress and repeats go."""

import re
from itertools import groupby

from pcgeval.judge.files import clean

MAX_LINE = 2000  # characters; of a longer line the beginning and the end are kept
MAX_LOG = 4_000_000  # characters; of a longer log the beginning and the end are kept
_MOST_TO_HEAD = 1_000_000
# 2024-05-01 12:00:00,123 or 2024-05-01T12:00:00Z or [12:00:00], perhaps several, at the beginning of a line
_TIME = r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_STAMP = re.compile(
    rf"(?:[\[(]?(?:[0-9]{{4}}[-/][0-9]{{2}}[-/][0-9]{{2}}[T ]{{1,2}})?{_TIME}[\])]?[ \t:|-]{{0,4}}){{1,4}}"
)
# 45%|####  | 9/20 or 9/20 [====>.....] or a thin bar: what common tools print once a step; a table has none of these
_PROGRESS = re.compile(
    r"[0-9]%\|[^|]{0,200}\| {0,9}[0-9][0-9.kMG]{0,12}/|[0-9]/[0-9]{1,12} {1,4}\[[=>.\s]{5,200}\]|[━█]{5}"
)


def reduced(log: str) -> str:
    """Return a log without the times of its lines, with only the last of adjacent progress, and repeats counted.

    A line that was overwritten in place, as with a carriage return, is kept as it was last. The result depends on the
    log alone, and takes linear time.
    """
    lines = map(_line, _bounded(log).replace("\r\n", "\n").split("\n"))
    kept: list[str] = []
    for is_progress, run in groupby(lines, key=lambda line: _PROGRESS.search(line) is not None):
        *earlier, last = run
        # of adjacent progress, what says that something is done, and the last line
        kept += [*(line for line in earlier if not is_progress or "100%" in line), last]
    shown: list[str] = []
    for line, repeats in groupby(kept):
        times = sum(1 for _ in repeats)
        shown += [line, f"[the line above {times} times]"] if times > 1 and line else [line]
    return "\n".join(shown)


def _bounded(log: str) -> str:
    if len(log) <= MAX_LOG:
        return log
    left_out = len(log) - MAX_LOG
    tail = log[len(log) - (MAX_LOG - _MOST_TO_HEAD) :]
    return f"{log[:_MOST_TO_HEAD]}\n[... {left_out} characters left out ...]\n{tail}"


def _line(line: str) -> str:
    if not line:
        return line
    line = line.rstrip("\r \t").rpartition("\r")[2]
    if len(line) > MAX_LINE:
        half = MAX_LINE // 2
        line = f"{line[:half]} [... {len(line) - 2 * half} characters left out ...] {line[-half:]}"
    line = clean(line)
    stamp = _STAMP.match(line)
    return line[stamp.end() :] if stamp else line
