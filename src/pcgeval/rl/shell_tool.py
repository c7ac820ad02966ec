"""The tool of an agent that reproduces a paper: a shell with commands in the sandbox.

`verifiers` starts this module as a separate process for each attempt (MCP over HTTP on this machine).
"""
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"

import asyncio
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import Field

from pcgeval.rl.attempt import command_sandbox, run_command
from pcgeval.sandbox.process import MEGABYTE


class AttemptState(vf.State):
    """The state of an attempt, shared by this process and the shell's; `state["grade"]` reads a field, too."""

    folder: str = ""
    """The attempt's folder on this machine."""
    grade: dict[str, Any] | None = None
    """`JudgeOutput.to_json()`, once the attempt has ended."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field by name, or the default where there is none."""
        return dict(self).get(key, default)

    def __getitem__(self, key: str) -> Any:
        """Return a field by name."""
        return dict(self)[key]


class ShellConfig(vf.ToolsetConfig):
    """Limits of a command beside the sandbox's own."""

    command_seconds: float = Field(300.0, gt=0)
    """Time limit of one command."""
    work_megabytes: int = Field(1_000, ge=1)
    """Size limit of the working folder."""


class Shell(vf.Toolset[ShellConfig, AttemptState]):
    """Run commands in an attempt's working folder."""

    TOOL_PREFIX = None  # the tool's name is `shell` alone

    async def setup(self) -> None:
        """Open the sandbox; raise SandboxError without one."""
        self._sandbox = await asyncio.to_thread(command_sandbox)

    @vf.tool
    async def shell(self, command: str) -> str:
        """Run a command line with bash in your working folder and return what it printed and its exit code.

        Files stay for the next command; processes, the current folder and variables do not. There is no network.
        """
        limits = self.config.command_seconds, self.config.work_megabytes * MEGABYTE
        return await asyncio.to_thread(run_command, self._sandbox, Path(self.state.folder), command, *limits)


if __name__ == "__main__":
    Shell.run()
