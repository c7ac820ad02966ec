"""A submission that is handed in as a folder."""

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pcgeval.submissions.findings import Finding, error
from pcgeval.submissions.handed_in import CHUNK, MOST_FILES, HandInError, Item, Listing
from pcgeval.submissions.names import DEEPEST, VENV_FILE, left_out

_MOST_ENTRIES = 4 * MOST_FILES  # with the folders and with what is left out


class FolderHandIn:
    """A submission's folder; links in it are never followed."""

    def __init__(self, path: Path) -> None:
        """Take a folder that exists."""
        self._path = path

    def listing(self) -> Listing:
        """List the regular files in the order of their names; folders that are left out are not entered."""
        walk = _Walk(self._path)
        walk.run()
        # the disk's own order must not show
        items = sorted(walk.items, key=lambda item: os.fsencode(item.name))
        findings = sorted([*walk.findings, *walk.links_to_outside()], key=lambda each: os.fsencode(each.place))
        return Listing(tuple(items), tuple(findings))

    def chunks(self, item: Item) -> Iterator[bytes]:
        """Yield the bytes of a listed file, which may have become something else since."""
        try:
            # without O_NONBLOCK, opening a pipe would wait for somebody to write
            handle = os.open(self._path / item.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(handle, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise HandInError("is no regular file any more; put the file itself there")
                while chunk := file.read(CHUNK):
                    yield chunk
        except OSError as fault:
            raise HandInError(f"cannot be read ({fault.strerror}); make it readable") from fault


class _Walk:
    """One walk through a folder, as far as it is bounded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.items: list[Item] = []
        self.findings: list[Finding] = []
        self._left = _MOST_ENTRIES
        self._waiting = [""]  # folders, each with a final slash but the first
        self._linked: dict[tuple[int, int], list[str]] = {}  # the names here of each file that has several
        self._links: dict[tuple[int, int], int] = {}  # how many it has anywhere

    def run(self) -> None:
        while self._waiting:
            prefix = self._waiting.pop()
            try:
                with os.scandir(self.root / prefix) as scan:
                    entries = list(islice(scan, self._left + 1))
            except OSError as fault:
                self.findings.append(error(prefix, f"cannot be read ({fault.strerror}); make it readable"))
                continue
            self._left -= len(entries)
            if self._left < 0:
                self.findings.append(error("", f"there are over {_MOST_ENTRIES} files and folders; leave most out"))
                return
            if prefix and any(entry.name == VENV_FILE for entry in entries):
                self.items.append(Item(prefix + VENV_FILE, 0))
                continue
            for entry in entries:
                self._look_at(prefix + entry.name, entry.stat(follow_symlinks=False))

    def _look_at(self, name: str, status: os.stat_result) -> None:
        if left_out(name):
            self.items.append(Item(name, 0))
        elif stat.S_ISDIR(status.st_mode) and name.count("/") < DEEPEST:
            self._waiting.append(f"{name}/")
        elif stat.S_ISDIR(status.st_mode):
            self.findings.append(error(name, f"is a folder over {DEEPEST} deep; put its files higher up"))
        elif stat.S_ISLNK(status.st_mode):
            self.findings.append(error(name, "is a link; put the file itself there"))
        elif not os.access(self.root / name, os.R_OK):
            self.findings.append(error(name, "cannot be read; make it readable"))
        elif stat.S_ISREG(status.st_mode):
            self.items.append(Item(name, status.st_size))
            if status.st_nlink > 1:
                self._linked.setdefault((status.st_dev, status.st_ino), []).append(name)
                self._links[status.st_dev, status.st_ino] = status.st_nlink
        else:
            self.findings.append(error(name, "is a pipe, a socket or a device; take it out"))

    def links_to_outside(self) -> Iterator[Finding]:
        """Yield an error for each file that has another name elsewhere, where it may be somebody's secret."""
        for key, names in self._linked.items():
            if self._links[key] > len(names):
                yield error(min(names), "is a hard link to a file outside of the submission; put a copy there")
