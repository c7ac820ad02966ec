"""README and the tutorial are sessions: their blocks run in order, in one shell each, from a fresh clone.

A line of a block that begins with `# ` is a line that the command above it prints; `...` stands for any text.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import pytest
from this_machine import SOAK, why_no_sandbox
from workspace import commit_all

from pcgeval.llm.backends import LOCAL_MODELS, cached_path

ROOT = Path(__file__).parents[2]
SESSIONS = ("README.md", "docs/tutorial.md")
CLONE = "pcgeval"
END = "end of the command:"
LIMIT = 800  # seconds of a command, on a busy machine
COMMAND = re.compile(  # with its continued lines and what it reads, and the lines that it should print
    r"^(?P<command>(?!# )\S(?:.*\\\n)*(?:.*<<'(?P<end>\w+)'\n(?s:.*?)\n(?P=end)|.*))\n(?P<expected>(?:# .*\n)*)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    document: str
    line: int
    language: str
    text: str

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each command with the lines that it should print."""
        expected = re.findall(r"^# (.*)$", self.text, re.MULTILINE)
        if self.language == "python":
            yield f"python - <<'PYTHON'\n{self.text}PYTHON", expected
            return
        for command in COMMAND.finditer(self.text):
            yield command["command"], [line.removeprefix("# ") for line in command["expected"].splitlines()]

    def why_not(self) -> str | None:
        """Return why this machine cannot run the block."""
        if "--reproduce" in self.text and (reason := why_no_sandbox()):
            return f"no sandbox starts here: {reason}"
        if asked := re.search(r"pcgeval (?:models fetch|try .*--model) ([\w.:-]+)", self.text):
            model = next(model for model in LOCAL_MODELS if model.name.startswith(asked[1]))
            if not cached_path(model).is_file():
                return f"{model.name} is not in the cache; `pcgeval models fetch {model.name}` downloads it"
            if self.document != "README.md" and not SOAK:
                return "README asks the same model; `make test-soak` asks it here, too"
        return None


def blocks() -> Iterator[Block]:
    for document in SESSIONS:
        text = (ROOT / document).read_text("utf-8")
        for fenced in re.finditer(r"^```(sh|python)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            yield Block(document, text.count("\n", 0, fenced.start()) + 1, fenced[1], fenced[2])


class Shell:
    """A shell in a folder, which runs one command after the other."""

    def __init__(self, folder: Path) -> None:
        left_out = ("MAKE", "PCGEVAL_", "PYTEST_", "VIRTUAL_ENV")
        names = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        names["PYTHONPATH"] = str(folder / CLONE / "src")  # whatever this environment has installed
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.folder = folder
        self.process = subprocess.Popen(
            ["bash"], cwd=folder, env=names, text=True, bufsize=1, start_new_session=True, **pipes
        )

    def run(self, command: str) -> tuple[int, str]:
        """Run a command, and return its exit code and all that it printed."""
        watch = Timer(LIMIT, os.killpg, (self.process.pid, signal.SIGKILL))
        watch.start()
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\necho '{END}' $?\n")
        shown = ""
        for line in self.process.stdout:
            before, end, code = line.partition(END)
            shown += before
            if end:
                watch.cancel()
                return int(code), shown
        raise EOFError(f"the shell ended: {shown}")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of this one as they are now."""
    folder = tmp_path_factory.mktemp("repository")
    list_files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(list_files, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    commit_all(folder)
    return folder


@pytest.fixture(scope="module")
def shells() -> Iterator[dict[str, Shell]]:
    """The shell of each document."""
    shells: dict[str, Shell] = {}
    yield shells
    for shell in shells.values():
        shell.process.communicate()


@pytest.mark.parametrize("block", [*blocks()], ids=lambda block: f"{block.document}:{block.line}")
def test_a_block_runs_and_prints_what_it_shows(block, repository, shells, tmp_path_factory):
    """`pytest -rP` shows the transcript."""
    if reason := block.why_not():
        pytest.skip(reason)
    if block.document not in shells:
        shells[block.document] = Shell(tmp_path_factory.mktemp("session"))
    shell = shells[block.document]
    for command, expected in block.commands():
        code, printed = shell.run(command.replace("git clone URL", f"git clone --quiet {repository}"))
        print(f"$ {command}\n{printed}", end="")
        # the replies of a model differ between processors, so that all trials may fail
        assert code == 0 or (code == 1 and command.startswith("pcgeval try")), printed
        lines = iter(" ".join(line.split()) for line in printed.splitlines())
        for line in expected:
            pattern = re.escape(" ".join(line.split())).replace(r"\.\.\.", ".*")
            assert any(re.fullmatch(pattern, shown) for shown in lines), f"{command}: {line}\n{printed}"
        if command.startswith("git clone"):  # `make setup` then installs nothing
            (shell.folder / CLONE / ".venv").mkdir()
            (shell.folder / CLONE / ".venv/bin").symlink_to(Path(sys.executable).parent)
            (shell.folder / CLONE / ".venv/.ready").touch()
