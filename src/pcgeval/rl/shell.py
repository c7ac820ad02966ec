"""The one tool of an agent that reproduces a paper: a shell, each of whose commands the programs' sandbox holds.

`verifiers` starts this module as a process of its own for each attempt (MCP over HTTP on this machine).
"""
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"

import asyncio
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import Field

from pcgeval.rl.attempts import Attempt, command_sandbox, run_command
from pcgeval.sandbox.process import MEGABYTE


class AttemptState(vf.State):
    """What is known of an attempt while it lasts, in this process and in the shell's."""

    folder: str = ""
    """The attempt's folder on this machine."""
    commands: int = 0
    """How many commands were run."""
    grade: dict[str, Any] | None = None
    """The grading as `JudgeOutput.to_json` has it, from the end of the attempt on."""

    def __getitem__(self, key: str) -> Any:
        """Return a field by name: `state["grade"]`."""
        if key not in type(self).model_fields:
            raise KeyError(key)
        return getattr(self, key)


class ShellConfig(vf.ToolsetConfig):
    """What one command may use, beside the sandbox's limits on memory and processes."""

    command_seconds: float = Field(300.0, gt=0)
    """After so long a command is stopped."""
    work_megabytes: int = Field(1_000, ge=1)
    """The most that the working folder may hold."""


class Shell(vf.Toolset[ShellConfig, AttemptState]):
    """Runs commands in an attempt's working folder."""

    TOOL_PREFIX = None  # the tool's name is `shell` alone

    async def setup(self) -> None:
        """Try the sandbox out.

        Raises:
            SandboxError: There is none.
        """
        self._sandbox = await asyncio.to_thread(command_sandbox)

    @vf.tool
    async def shell(self, command: str) -> str:
        """Run a command line with bash in your working folder and return what it printed and its exit code.

        Files stay for the next command; processes, the current folder and variables do not. There is no network.
        """
        self.state.commands += 1
        attempt, config = Attempt(Path(self.state.folder)), self.config
        most_bytes = config.work_megabytes * MEGABYTE
        result = await asyncio.to_thread(
            run_command, self._sandbox, attempt, command, config.command_seconds, most_bytes
        )
        return result.to_text()


if __name__ == "__main__":
    Shell.run()
