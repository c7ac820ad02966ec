"""Progress and messages while a stage runs."""

import io
import sys
from types import SimpleNamespace

import pytest

from pcgeval.core import console
from pcgeval.core.console import Progress, StatusLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def captured(monkeypatch: pytest.MonkeyPatch, text: io.StringIO) -> io.StringIO:
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setenv("COLUMNS", "60")
    return text


def test_lines_show_rate_time_left_tokens_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    # not in the module `time` itself: the event loop of a server in another thread would sleep for hours
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    shown = captured(monkeypatch, io.StringIO())
    progress = Progress("generate alpha", 22)
    for _ in range(10):
        progress.step("kept", tokens=5, repeated=True)
    assert shown.getvalue() == ""  # the next line comes after five seconds
    clock[0] += 10
    for number in range(10):
        progress.step(f"A{number}: new", tokens=100, failed=number < 2)
    clock[0] += 10
    progress.step("\x1b[2J\n[bold]\u202e", tokens=1)  # a hostile reason
    clock[0] += 0.5
    progress.step("end")
    assert shown.getvalue().splitlines() == [
        "generate alpha: 11/22, 6.0/min, about 2 min left, 150 tokens, 1 failed (A0: new)",
        "generate alpha: 21/22, 33.0/min, about 2 s left, 1051 tokens, 2 failed ( [2J [bold] )",
        "generate alpha: 22/22, 35.1/min, 1051 tokens, 2 failed (end)",
    ]


def test_a_terminal_shows_a_line_that_changes_and_ends_with_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = captured(monkeypatch, Terminal())
    with Progress("classify", 3) as progress:
        for letter in "ABC":
            progress.step(f"{letter} [bold]\x1b[2J", failed=letter == "B")
    text = terminal.getvalue()
    assert "\u2501" in text  # a bar, where there is room
    assert "classify: 2/3" in text
    assert text.endswith("1 failed (C [bold] [2J)\n")
    assert "\x1b[2J" not in text
    assert "\x1b[?25h" in text  # the cursor is shown again
    with StatusLine() as status:
        status.show("asking I1 [bold]", ": 57 tokens so far")
    text = terminal.getvalue()
    assert "asking I1 [bold]: 57 tokens so far" in text
    status.show("asking I1", ": 58 tokens so far")  # a thread that still runs
    assert terminal.getvalue() == text
