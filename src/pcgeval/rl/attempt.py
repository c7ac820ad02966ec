"""An agent's attempt at a paper: its folders, and the commands that it runs in the sandbox.

The folder of an attempt has `paper`, the texts of the paper, and `work`. The agent's commands start in `work` and can
write nowhere else, and it is what the judge grades.
"""

from pathlib import Path

from pcgeval.core.files import write_text
from pcgeval.core.text import well_formed
from pcgeval.rubric.papers import Paper
from pcgeval.sandbox.process import MEGABYTE, ResourceLimits
from pcgeval.sandbox.reproduction import DiskLimits, check_room, disk_use, wait_within
from pcgeval.sandbox.sandbox import Sandbox, open_sandbox, programs_are_trusted

WORK, PAPER = "work", "paper"
MAX_COMMAND_BYTES = 100_000  # the kernel takes no longer argument than 131 072 bytes
SHOWN_BYTES = 8_000  # of the beginning and of the end of a command's output
MAX_FILES = 20_000
LIMITS = ResourceLimits(file_bytes=256 * MEGABYTE, output_bytes=256 * MEGABYTE, kept_output_bytes=SHOWN_BYTES)


def prepare_attempt(paper: Paper, folder: Path) -> None:
    """Make the folders of an attempt; the agent may see the texts of the paper, but not the rubric."""
    (folder / WORK).mkdir(parents=True)
    texts = {"paper.md": paper.paper, "addendum.md": paper.addendum, "blacklist.txt": "\n".join(paper.blacklist)}
    for name, text in texts.items():
        if text:
            write_text(folder / PAPER / name, text)
    (folder / PAPER).chmod(0o755)


def command_sandbox() -> Sandbox:
    """Return the sandbox for an agent's commands; raise SandboxError without one."""
    return open_sandbox(LIMITS, trust_programs=programs_are_trusted())


def run_command(sandbox: Sandbox, folder: Path, command: str, seconds: float, max_bytes: int) -> str:
    """Run a command line with bash in the working folder, without network; its files stay, its processes end.

    `max_bytes` limits the folder's size; one that was larger before may not grow. Return the shortened output, and the
    exit code or why the command was stopped. Raises SandboxError if the sandbox fails or the disk is full.
    """
    text = well_formed(command)  # an argument cannot hold a lone surrogate
    if "\0" in text or len(text.encode()) > MAX_COMMAND_BYTES:
        return f"[the command was not run: give one without NUL and of at most {MAX_COMMAND_BYTES} bytes]"
    work, paper = folder / WORK, folder / PAPER
    check_room(work)
    size, files = disk_use(work)  # a folder that is too large already can still be cleared up
    allowed = DiskLimits(max(max_bytes, size), max(MAX_FILES, files))
    words = ["/bin/bash", "-c", 'cd -- "$1" && exec /bin/bash -c "$2" 2>&1', "shell", str(work), text]
    process = sandbox.start(words, folder=paper, readable=(paper,), writable=(work,))
    ending, printed = wait_within(process, seconds, work, allowed)
    how = f"exit code {ending.code}" if ending.reason is None else f"the command {ending.reason}"
    return f"{printed.rstrip()}\n[{how}]".lstrip("\n")
