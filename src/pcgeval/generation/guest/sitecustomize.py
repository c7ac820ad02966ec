"""Offer the competition's packages and watch for other hosts; Python runs this before a program.

This affects the program's process alone, and no rule relies on it: the broker at the other end of the pipe enforces the
rules, in a process that the program cannot reach. All modules of the guest need the standard library alone.
"""  # noqa: INP001 - found through PYTHONPATH, as all here

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcgeval.generation.guest import pcgeval_guest
else:
    import pcgeval_guest

PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")  # three generations of one interface
MODULES = ("", ".competition", ".models", ".models.trial_context", ".models.trial_loop", ".utils")


class SortedScan(Iterator[os.DirEntry[Any]], AbstractContextManager[Any]):
    """An os.scandir sorted by name, because the order of names on a disk must not decide an answer."""

    def __init__(self, path: Any = None) -> None:
        """Read the whole folder."""
        with _scandir(path) as entries:
            self._entries = iter(sorted(entries, key=attrgetter("name")))

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._entries)

    def __exit__(self, *_: object) -> None:
        pass

    close = __exit__


def watch(event: str, details: tuple[Any, ...]) -> None:
    """Tell the broker when the program looks up or calls a machine; the sandbox has no network anyway."""
    if event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = details[0]
    elif event in {"socket.connect", "socket.sendto", "socket.sendmsg"} and isinstance(details[1], tuple):
        host = details[1][0]
    else:
        return
    if host:
        name = host.decode(errors="replace") if isinstance(host, bytes) else host
        pcgeval_guest.tell_contact(f"tried to reach {name}")


_scandir, _listdir = os.scandir, os.listdir
os.scandir = SortedScan  # type: ignore[assignment]
os.listdir = lambda path=None: sorted(_listdir(path))  # type: ignore[assignment]
os.supports_fd |= {os.scandir, os.listdir}
for package in PACKAGES:  # before any program runs: a copy in the submission is never used
    for module in MODULES:
        sys.modules[package + module] = pcgeval_guest
sys.path.append(str(Path(__file__).parent / "stand_ins"))  # packages that are imported by habit and not installed
sys.addaudithook(watch)
if "PCGEVAL_TRIAL" in os.environ:
    pcgeval_guest.begin()
