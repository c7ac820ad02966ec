"""Install the interface packages and watch for other hosts; Python runs this before a program.

Only the program's own process is affected, and none of this is relied upon: the rules are enforced by the broker at the
other end of the pipe, in a process that the program cannot reach. All here runs on Python 3.9 and later without
packages, and starts quickly: it is run once a trial.
"""  # noqa: INP001 - found through PYTHONPATH, as all here

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pcgeval.generation.guest import pcgeval_pipe
else:
    import pcgeval_pipe

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - loading pathlib would take milliseconds
PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")  # three generations of one interface


class InterfaceFinder:
    """Import all generations from one folder, and first: a copy in the submission is never used."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG004
        """Return the interface for one of its names, None for any other."""
        if name not in PACKAGES:
            return None
        folder = f"{HERE}/interface"
        file = f"{folder}/__init__.py"
        spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file, is_package=True)
        spec.submodule_search_locations = [folder]
        spec.has_location = True
        return spec


class SortedScan:
    """An os.scandir sorted by name: the order of names on a disk must not decide an answer."""

    def __init__(self, path: Any = None) -> None:
        """Read the whole folder; raises what os.scandir raises."""
        with _scandir(path) as entries:
            self._entries = iter(sorted(entries, key=lambda entry: entry.name))

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        """Return the entries."""
        return self._entries

    def __next__(self) -> os.DirEntry[Any]:
        """Return the next entry."""
        return next(self._entries)

    def __enter__(self) -> SortedScan:  # noqa: PYI034 - typing.Self is younger than Python 3.9
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Have nothing to close."""

    def close(self) -> None:
        """Have nothing to close."""


def sorted_names(path: Any = None) -> list[Any]:
    """Return what os.listdir returns, by name."""
    return sorted(_listdir(path))


def watch(event: str, details: tuple[Any, ...]) -> None:
    """Tell the broker when the program looks up or calls a machine; the sandbox has no network anyway."""
    if event.startswith("socket."):
        if event in {"socket.getaddrinfo", "socket.gethostbyname"}:
            host = details[0]
        elif event in {"socket.connect", "socket.sendto", "socket.sendmsg"} and isinstance(details[1], tuple):
            host = details[1][0]
        else:
            return
        if host:
            pcgeval_pipe.tell_contact(
                f"tried to reach {host.decode(errors='replace') if isinstance(host, bytes) else host}"
            )


_scandir, _listdir = os.scandir, os.listdir
os.scandir = SortedScan  # type: ignore[assignment]
os.listdir = sorted_names
os.supports_fd |= {os.scandir, os.listdir}
sys.meta_path.insert(0, InterfaceFinder)
sys.path.append(f"{HERE}/stand_ins")  # for packages that are imported by habit and not installed
sys.addaudithook(watch)
