"""Progress and messages while a stage runs."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from pcgeval.core import console
from pcgeval.core.console import Progress, StatusLine, duration


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    # not in the module `time` itself: the event loop of a server in another thread would sleep for hours
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    return now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def spoken(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = False) -> io.StringIO:
    text = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setenv("COLUMNS", "60")
    return text


def test_rate_time_left_tokens_and_failures(monkeypatch: pytest.MonkeyPatch, clock: list[float]):
    text = spoken(monkeypatch)
    progress = Progress("generate alpha", 100)
    for _ in range(10):
        progress.step("kept", tokens=5, repeated=True)
    assert text.getvalue() == ""  # nothing twice within five seconds
    clock[0] += 10
    for at in range(10):
        progress.step(f"A{at}: new", tokens=100, failed=at < 2)
    assert text.getvalue() == ("generate alpha: 11/100, 6.0/min, about 15 min left, 150 tokens, 1 failed (A0: new)\n")
    clock[0] += 10
    progress.step("B1", tokens=1)
    # kept ones took no time: 11 new ones in 20 s, 79 are left
    assert text.getvalue().splitlines()[1] == (
        "generate alpha: 21/100, 33.0/min, about 2 min left, 1051 tokens, 2 failed (B1)"
    )


def test_the_last_line_is_always_said(monkeypatch: pytest.MonkeyPatch, clock: list[float]):
    text = spoken(monkeypatch)
    progress = Progress("x", 2)
    progress.step()
    clock[0] += 0.5
    progress.step("end")
    assert text.getvalue() == "x: 2/2, 4.0/s (end)\n"


def test_a_hostile_reason_controls_no_terminal(monkeypatch: pytest.MonkeyPatch, clock: list[float]):
    text = spoken(monkeypatch)
    assert clock
    Progress("x", 1).step("\x1b[2J\n[bold]\u202e")
    (line,) = text.getvalue().splitlines()
    assert line.isprintable()
    assert "[2J [bold]" in line


def test_a_terminal_shows_a_bar_that_ends_with_its_context(monkeypatch: pytest.MonkeyPatch):
    text = spoken(monkeypatch, terminal=True)
    with Progress("classify", 3) as progress:
        for letter in "ABC":
            progress.step(f"{letter} [bold]\x1b[2J", failed=letter == "B")
    shown = text.getvalue()
    assert all(word in shown for word in ("classify", "3/3", "1 failed", "(C [bold] [2J)", "\x1b[?25h"))
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (99.4, "99 s"), (100, "2 min"), (5900, "98 min"), (6000, "1 h 40 min"), (90_000, "25 h 0 min")],
)
def test_durations(seconds: float, words: str):
    assert duration(seconds) == words


def test_a_status_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, clock: list[float]):
    text = spoken(monkeypatch)
    status = StatusLine(every=1.85)
    status.show("asking I1")
    for tokens in range(1, 20):
        clock[0] += 0.1
        status.show("asking I1", f": {tokens} tokens")
    status.show("asking L1")
    assert text.getvalue().splitlines() == ["asking I1", "asking I1: 19 tokens", "asking L1"]


def test_a_status_ends_with_its_context(monkeypatch: pytest.MonkeyPatch):
    text = spoken(monkeypatch, terminal=True)
    with StatusLine() as status:
        status.show("asking I1 [bold]", ": 57 tokens so far")
    shown = text.getvalue()
    assert "asking I1 [bold]: 57 tokens so far" in shown
    status.show("asking I1", ": 58 tokens so far")  # a thread that still runs
    assert text.getvalue() == shown
