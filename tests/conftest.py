"""What all tests share: a profile for hypothesis, Ctrl-C, and one line about what this machine could not test."""

import os
import shutil
import signal

import pytest
from hypothesis import HealthCheck, settings

# A shell starts what runs in the background with Ctrl-C ignored, and so would be every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine may be busy, so no example has a deadline; `make test-soak` draws as many examples as hypothesis would.
settings.register_profile("default", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("default"), max_examples=200)
settings.load_profile("soak" if os.environ.get("PCGEVAL_SOAK") == "1" else "default")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was skipped for want of a sandbox, and how to get it."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "bubblewrap" in str(report.longrepr)]
    if skipped and shutil.which("bwrap") is None:
        terminalreporter.write_line(
            f"{len(skipped)} tests of the programs' sandbox were skipped: bubblewrap is missing. "
            "On Linux: apt install bubblewrap (or dnf, pacman); macOS has no such sandbox."
        )
