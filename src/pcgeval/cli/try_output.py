"""The output of `pcgeval try`: what is under way, each trial as it ends, and the means of the letters at the end."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict

from pcgeval.cli.level_output import level_lines
from pcgeval.cli.options import print_json, print_table
from pcgeval.cli.try_submission import LetterSummary, TriedTrial
from pcgeval.core.console import StatusLine, count, duration, print_stderr
from pcgeval.core.files import read_text
from pcgeval.core.layout import Trial
from pcgeval.core.untrusted import printable_line, printable_text

_SHOWN_WIDTH = 160  # characters of a line of a program or model


class TryDisplay:
    """Show a try on the terminal: activities on stderr, trials on stdout.

    Attributes:
        tried: The trials that have ended, in this order.
    """

    def __init__(self, status: StatusLine, total: int, *, json: bool) -> None:
        """Show nothing yet.

        Args:
            status: Where activities are shown.
            total: The number of trials.
            json: Print nothing on stdout but the whole at the end, as JSON.
        """
        self.tried: list[TriedTrial] = []
        self._status, self._total, self._json = status, total, json
        self._lock = threading.Lock()
        self._calls: dict[Trial, int] = {}  # of the trials under way
        self._pieces = 0  # of replies, since no other trial was under way

    def activity(self, text: str) -> None:
        """Show what is under way before the first trial."""
        self._status.show(text)

    def message(self, text: str) -> None:
        """Print a message that stays."""
        self._status.clear()
        print_stderr(text)

    def asking(self, trial: Trial, call: int) -> None:
        """Show that a trial's program is started, or that the model is asked."""
        with self._lock:
            self._calls[trial] = call
            if len(self._calls) == 1:
                self._pieces = 0
        self._show()

    def hear(self, _: str) -> None:
        """Count a piece of a reply; most servers send one for each token."""
        with self._lock:
            self._pieces += 1
        self._show()

    def ended(self, trial: Trial, printed: str) -> None:  # noqa: ARG002 - as every observer
        """Take note that a trial is not under way any more."""
        with self._lock:
            self._calls.pop(trial, None)

    def scored(self, trial: TriedTrial) -> None:
        """Print a trial."""
        self.tried.append(trial)
        self._status.clear()
        if self._json:
            self._status.show(describe(trial))
        else:
            sys.stdout.write(f"{printable_text(trial_text(trial))}\n\n")
            sys.stdout.flush()

    def finish(self, own: Sequence[LetterSummary], baseline: Sequence[LetterSummary], full_trials: int) -> None:
        """Print the means, or everything as JSON.

        Args:
            own: The means of the letters.
            baseline: Those of the competition's baseline; may be empty.
            full_trials: The trials of a whole evaluation with this model.
        """
        self._status.clear()
        if self._json:
            print_json(to_json(self.tried, own, baseline, full_trials))
        else:
            _print_summary(self.tried, own, baseline, full_trials)

    def _show(self) -> None:
        with self._lock:
            calls = {f"{trial.letter}{trial.number}": call for trial, call in self._calls.items()}
            pieces = self._pieces
        if calls:
            names = [f"{name}, call {call}" if call > 1 else name for name, call in calls.items()]
            word = "asking" if any(calls.values()) else "starting"
            heard = f": {count(pieces, 'token')} so far" if pieces else ""
            self._status.show(f"{word} {'; '.join(names)} ({len(self.tried)} of {self._total} trials done)", heard)


def describe(trial: TriedTrial) -> str:
    """Return a trial in a line: its scores, or why it has none."""
    name = f"{trial.trial.letter}{trial.trial.number}"
    cost = f"{count(len(trial.record.exchanges), 'call')}, {trial.record.tokens} tokens, {trial.seconds:.1f} s"
    cost += "" if trial.is_new else ", done before"
    return f"{name}: {trial.level.verdict} ({cost})"


def trial_text(trial: TriedTrial) -> str:
    """Return a trial in lines: its scores or its failure, the level before and after, and what its program printed."""
    lines = [describe(trial)]
    if trial.supplied.supplied:
        lines.append(f"  {trial.supplied}")
    lines += [f"  flagged: {flag.kind}: {flag.detail}" for flag in trial.record.flags]
    if trial.level.simulated:
        lines += [f"    {line}".rstrip() for line in level_lines(trial.level)]
    elif trial.record.reason is None:  # there is a response, and no level in it: its end shows why
        lines += ["  the response ends:", *(f"  | {line}" for line in _last_lines(read_text(trial.response), 6))]
    if cut := [one.reply.output_tokens for one in trial.record.exchanges if one.reply.done_reason == "length"]:
        lines.append(f"  the model's reply was cut off after {cut[-1]} tokens, the model's num_predict or num_ctx")
    if trial.printed:
        lines.append(f"  printed, {trial.printed}:")
        lines += [f"  | {line}" for line in _last_lines(read_text(trial.printed), 20)]
    lines += [f"  {path}" for path in (trial.response, trial.picture) if path and path.stat().st_size]
    return "\n".join(lines)


def _last_lines(text: str, most: int) -> list[str]:
    """Return the last lines of a text, where an error stands, each cut to a width."""
    lines = text.splitlines()
    left_out = len(lines) - most
    shown = [line if len(line) <= _SHOWN_WIDTH else f"{line[:_SHOWN_WIDTH]}..." for line in lines[-most:]]
    return [*([f"[lines before these: {left_out}]"] if left_out > 0 else []), *shown]


def _seconds_of_full_run(tried: Sequence[TriedTrial], full_trials: int) -> float:
    """Return the model's time for so many trials, at the mean of those that were tried."""
    return full_trials * sum(trial.seconds for trial in tried) / len(tried)


def _print_summary(
    tried: Sequence[TriedTrial], own: Sequence[LetterSummary], baseline: Sequence[LetterSummary], full_trials: int
) -> None:
    """Print the means of each letter, with those of the baseline below them, and the time of a full run."""
    columns = (
        "letter",
        "team",
        "trials",
        "failed",
        "stability",
        "similarity",
        "score",
        "diversity",
        "score x diversity",
    )
    rows: list[tuple[str, ...]] = []
    for summary in own:
        rows += map(_row, [summary, *(other for other in baseline if other.letter == summary.letter)])
    print_table(columns, rows)
    if not baseline:
        note = "the baseline's results with this model are shown in the folder of a competition that has evaluated them"
        sys.stdout.write(f"{note}\n")
    failed = sum(trial.level.reason is not None for trial in tried)
    pace = ""
    if seconds := _seconds_of_full_run(tried, full_trials):
        pace = f"; a full run with this model, {full_trials} trials, takes about {duration(seconds)} at this pace"
    sys.stdout.write(
        "means of all trials, a failed one counts 0; a letter's weight comes on top of it in a competition\n"
        f"{count(len(tried), 'trial')}, {failed} failed{pace}\n"
    )


def _row(summary: LetterSummary) -> tuple[str, ...]:
    """Return a line of the table; what is not known is a dash."""
    known = summary.diversity is not None
    return (
        summary.letter,
        printable_line(summary.team),
        str(summary.trials),
        "-" if summary.failed is None else str(summary.failed),
        f"{summary.stability:.3f}",
        f"{summary.similarity:.4f}",
        f"{summary.score:.4f}",
        f"{summary.diversity:.4f}" if known else "-",
        f"{summary.score * (summary.diversity or 0):.6f}" if known else "-",
    )


def to_json(
    tried: Sequence[TriedTrial], own: Sequence[LetterSummary], baseline: Sequence[LetterSummary], full_trials: int
) -> dict[str, object]:
    """Return a try as JSON values."""
    return {
        "trials": [
            {
                "letter": trial.trial.letter,
                "trial": trial.trial.number,
                "score": trial.level.score,
                "stability": trial.level.stability,
                "similarity": trial.level.similarity,
                "failed_stage": trial.level.failed_stage,
                "reason": trial.level.reason,
                "likeliest": [list(one) for one in trial.level.likeliest],
                "picture": str(trial.picture) if trial.picture else None,
                "printed": str(trial.printed) if trial.printed else None,
                "calls": len(trial.record.exchanges),
                "tokens": trial.record.tokens,
                "supplied": asdict(trial.supplied),
                "seconds": round(trial.seconds, 3),
                "flags": [{"kind": flag.kind, "detail": flag.detail} for flag in trial.record.flags],
            }
            for trial in tried
        ],
        "letters": [asdict(summary) for summary in own],
        "baseline": [asdict(summary) for summary in baseline],
        "full_run": {"trials": full_trials, "seconds": round(_seconds_of_full_run(tried, full_trials), 1)},
    }
