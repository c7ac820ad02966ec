"""An agent's attempt at a paper: its folders, and commands that run in the programs' sandbox and end with it."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pcgeval.core.files import write_text
from pcgeval.rubric.papers import Paper
from pcgeval.sandbox.disk import DiskAllowance, check_room, disk_use, limited_disk
from pcgeval.sandbox.process import MEGABYTE, Allowance
from pcgeval.sandbox.sandbox import TRUST_PROGRAMS, Sandbox, open_sandbox

MOST_COMMAND_BYTES = 100_000  # the kernel takes no longer argument than 131 072 bytes
SHOWN_BYTES = 8_000  # of the beginning and of the end of what a command prints
MOST_FILES = 20_000
ALLOWANCE = Allowance(file_bytes=256 * MEGABYTE)


@dataclass(frozen=True)
class Attempt:
    """The folders of one attempt, side by side: the agent may change `work` alone."""

    folder: Path

    @property
    def work(self) -> Path:
        """Where commands are started: what lies here in the end is graded."""
        return self.folder / "work"

    @property
    def paper(self) -> Path:
        """What the agent is given to read."""
        return self.folder / "paper"


@dataclass(frozen=True)
class CommandResult:
    """What a command printed, shortened, and how it ended: its exit code, or why it was stopped."""

    output: str
    code: int | None
    reason: str | None

    def to_text(self) -> str:
        """Return it as the agent reads it."""
        ending = f"exit code {self.code}" if self.reason is None else f"the command {self.reason}"
        return f"{self.output.rstrip()}\n[{ending}]".lstrip("\n")


def prepare_attempt(paper: Paper, folder: Path) -> Attempt:
    """Make the folders of an attempt; of the paper only what those who reproduce it may see, thus no rubric."""
    attempt = Attempt(folder)
    attempt.work.mkdir(parents=True)
    texts = {"paper.md": paper.paper, "addendum.md": paper.addendum, "blacklist.txt": "\n".join(paper.blacklist)}
    for name, text in texts.items():
        if text:
            write_text(attempt.paper / name, text)
            (attempt.paper / name).chmod(0o644)
    attempt.paper.chmod(0o755)
    return attempt


def command_sandbox() -> Sandbox:
    """Return the sandbox for an agent's commands; they are trusted only where programs are.

    Raises:
        SandboxError: There is none, and programs are not trusted.
    """
    return open_sandbox(ALLOWANCE, trust_programs=programs_are_trusted())


def programs_are_trusted() -> bool:
    """Whether programs may run without a sandbox where there is none."""
    return os.environ.get(TRUST_PROGRAMS) == "1"


def run_command(sandbox: Sandbox, attempt: Attempt, command: str, seconds: float, most_bytes: int) -> CommandResult:
    """Run one command line with bash in the working folder, without network.

    Nothing of it goes on afterwards; what it wrote into the working folder stays.

    Args:
        sandbox: Where it runs.
        attempt: Whose command it is.
        command: What the agent wrote.
        seconds: After so long it is stopped.
        most_bytes: Stopped as well once the working folder is larger, unless it was before; and where hardly any of
            the disk is free.

    Raises:
        SandboxError: The sandbox itself could not be set up, or the disk is full already.
    """
    text = command.encode("utf-8", errors="replace").decode()  # a lone surrogate can be no argument
    if "\0" in text or len(text.encode()) > MOST_COMMAND_BYTES:
        return CommandResult("", None, f"was not run: give one without NUL and of at most {MOST_COMMAND_BYTES} bytes")
    check_room(attempt.work)
    allowed = _allowed(attempt.work, most_bytes)
    with tempfile.TemporaryFile() as printed:
        number = printed.fileno()
        script = f'exec >&{number} 2>&1 {number}>&-; cd -- "$1" && exec /bin/bash -c "$2"'
        process = sandbox.start(
            ["/bin/bash", "-c", script, "shell", str(attempt.work), text],
            folder=attempt.paper,
            readable=(attempt.paper,),
            writable=(attempt.work,),
            descriptors=(number,),
        )
        with limited_disk(process, attempt.work, allowed):
            ending = process.wait(seconds)
        return CommandResult(_shortened(printed), ending.code, ending.reason)


def _allowed(folder: Path, most_bytes: int) -> DiskAllowance:
    """Return what may lie in a folder; in one that is too large already, what clears it up may still run."""
    before = disk_use(folder)
    return DiskAllowance(max(most_bytes, before.total_bytes), max(MOST_FILES, before.files))


def _shortened(printed: BinaryIO) -> str:
    """Return the beginning and the end of a file."""
    size = printed.seek(0, os.SEEK_END)
    printed.seek(0)
    head = printed.read(SHOWN_BYTES if size > 2 * SHOWN_BYTES else size)
    if len(head) == size:
        return head.decode(errors="replace")
    printed.seek(-SHOWN_BYTES, os.SEEK_END)
    tail = printed.read()
    left_out = size - 2 * SHOWN_BYTES
    return f"{head.decode(errors='replace')}\n[... {left_out} bytes left out ...]\n{tail.decode(errors='replace')}"
