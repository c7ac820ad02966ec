"""The taskset of paper reproduction: an agent works in a folder with a shell, and the paper's rubric grades it."""
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import Field, SerializeAsAny, field_validator

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_json
from pcgeval.core.untrusted import read_text
from pcgeval.judge.calls import CallFiles, check_judge
from pcgeval.judge.run import grade_submission, graded_in_thread
from pcgeval.judge.settings import JudgeSettings
from pcgeval.rl.attempt import WORK, command_sandbox, prepare_attempt, run_command
from pcgeval.rubric.output import JudgeOutput, get_grade_summary
from pcgeval.rubric.papers import GOLD, Paper, list_papers, load_paper, width_problem
from pcgeval.sandbox.process import MEGABYTE
from pcgeval.sandbox.reproduction import SandboxComputer
from pcgeval.sandbox.sandbox import programs_are_trusted

__all__ = ["PaperEnv", "PaperTaskset"]

TASKSET_ID = "pcgeval-papers"
_RUN = "It is run with bash on a copy of the folder on another machine without network, for at most {:g} seconds."
_NOT_RUN = "It is read but not run: only the code is graded."
_NOT_OF_THE_ATTEMPT = ("endpoint", "stop", "mixed")  # what ends a grading and no submission can provoke
_ATTEMPTS = defaultdict[int, Iterator[int]](count)  # numbers of those that the random judge graded, by its seed


class EnvironmentsError(PcgevalError):
    """An environment cannot be loaded, or an attempt cannot be run or graded."""


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


class PaperData(vf.TaskData):
    """One paper to reproduce."""

    paper_id: str


class PaperTaskConfig(vf.TaskConfig):
    """Settings of an attempt and its grade."""

    judge: JudgeSettings = Field(default_factory=lambda: JudgeSettings.of(None))
    """The judge and the folder of papers, as `rubric` in params.yaml; the judge `simple` with GPT-4o by default."""
    reproduce_seconds: float = Field(600.0, gt=0)
    """Time limit of reproduce.sh."""
    agent_seconds: float | None = Field(None, gt=0)
    """Time limit of the agent; the environment then grades the present files."""
    shell: ShellConfig = ShellConfig()
    """The agent's tool."""

    @field_validator("judge", mode="before")
    @classmethod
    def _grades_rollouts(cls, value: Any) -> JudgeSettings:
        settings = value if isinstance(value, JudgeSettings) else JudgeSettings.of(None, **value)
        if settings.judge == "human":
            raise ValueError("must be simple, checks, random or dummy: no person grades attempts")
        return settings


class PaperTasksetConfig(vf.TasksetConfig):
    """Settings of the tasks."""

    paper_ids: tuple[str, ...] | None = None
    """All papers of `task.judge.papers_dir` by default."""
    task: SerializeAsAny[PaperTaskConfig] = PaperTaskConfig()


class PaperTask(vf.Task[PaperData, AttemptState, PaperTaskConfig]):
    """Reproduce one paper."""

    @classmethod
    def toolsets(cls, config: PaperTaskConfig) -> list[vf.Toolset]:
        """Return the shell."""
        return [Shell(config.shell)]

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """Make the attempt's folders inside the runtime's.

        Raises PcgevalError early, without a runtime on this machine, a sandbox, a valid paper or the judge's model.
        """
        if runtime.type != "subprocess":
            raise EnvironmentsError("The shell runs on this machine. Give --env.agent.runtime.type subprocess.")
        await asyncio.to_thread(command_sandbox)  # the tool's process would report an error minutes later
        if self.config.judge.judge == "simple":  # and the judge only after the agent was paid for
            await asyncio.to_thread(check_judge, self.config.judge.judge_model)
        folder = Path(runtime.workdir) / "attempt"
        await asyncio.to_thread(prepare_attempt, self._paper(), folder)
        trace.state.folder = str(folder)

    @vf.reward
    async def reproduction(self, trace: vf.Trace) -> float:
        """Return the rubric's root score of the working folder, and record the grade; leaves without one count as 0.

        The random judge draws anew for each attempt. Raises EnvironmentsError, so that there is no reward, only if
        what no submission can provoke has ended the grading and left the score unknown by more than `max_width`.
        """
        if not trace.state.folder:
            raise EnvironmentsError("There is no folder to grade: the attempt is over. Its grade is info.grade.")
        judge = self.config.judge
        if judge.judge == "random":
            drawn = sha256_json([judge.seed, next(_ATTEMPTS[judge.seed])])
            judge = judge.model_copy(update={"seed": int(drawn[:7], 16)})
        output = await self._grade(Path(trace.state.folder) / WORK, judge)
        trace.state.grade = grade = output.to_json()
        trace.info["grade"] = json.loads(json.dumps(grade))
        by_category = get_grade_summary(output)["by_category"]
        metrics = {category.lower().replace(" ", "_"): part["score"] for category, part in by_category.items()}
        low, high = output.score_bounds
        names = ("num_leaf_nodes", "num_passed", "num_invalid_leaf_nodes", "evidence_share")
        figures = {name: grade[name] for name in names if name in grade}
        trace.record_metrics({**metrics, **figures, "score_low": low, "score_high": high})
        if output.ended_by in _NOT_OF_THE_ATTEMPT and (problem := width_problem(output, judge.max_width)):
            raise EnvironmentsError(f"{self.data.paper_id}: no reward, because {problem}")
        return output.score

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Return whether the paper's reproduction passes every check, without a model; None without one."""
        del runtime
        paper, judge = self._paper(), JudgeSettings.of(self.config.judge, judge="checks")
        checked = {leaf.path for leaf in paper.rubric.leaves if leaf.check}
        if judge.code_only or not checked or not (paper.folder / GOLD).is_dir():
            return None
        output = await self._grade(paper.folder / GOLD, judge)
        return all(leaf.graded_score == 1 for leaf in output.graded_task_tree.leaves if leaf.path in checked)

    def _paper(self) -> Paper:
        return load_paper(Path(self.config.judge.papers_dir), self.data.paper_id)

    async def _grade(self, folder: Path, judge: JudgeSettings) -> JudgeOutput:
        computer = None
        if not judge.code_only:
            limits = {"seconds": self.config.reproduce_seconds, "trust_programs": programs_are_trusted()}
            computer = await asyncio.to_thread(SandboxComputer, **limits)
        memory = CallFiles(log=None)
        return await graded_in_thread(grade_submission, folder, self.data.paper_id, judge, computer, memory)


class PaperTaskset(vf.Taskset[PaperTask, PaperTasksetConfig]):
    """A task for each paper."""

    def load(self) -> Iterator[PaperTask]:
        """Yield the papers' tasks in the configured order, else by id; raise PcgevalError for a missing paper."""
        config = self.config.task
        folder = Path(config.judge.papers_dir)
        ids = list_papers(folder) if self.config.paper_ids is None else self.config.paper_ids
        if self.config.paper_ids == ():
            raise EnvironmentsError("paper_ids names no paper. Name one, or leave it out for all papers.")
        if not ids:
            raise EnvironmentsError(f"{folder}: holds no papers. Name the folder in task.judge.papers_dir.")
        timeout = vf.TaskTimeout(agent=config.agent_seconds)
        for id_ in ids:
            prompt = _prompt(load_paper(folder, id_), config)
            yield PaperTask(PaperData(id=id_, name=id_, paper_id=id_, prompt=prompt, timeout=timeout), config)


class PaperEnvConfig(vf.EnvConfig):
    """Settings of the agent."""

    # a harness without tools: the model reaches this machine only through our shell
    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig(), max_turns=50)


class PaperEnv(vf.Env[PaperEnvConfig]):
    """One agent reproduces one paper."""

    async def run(self, task: PaperTask, agents: vf.Agents) -> None:
        """Run the agent until it ends or reaches its limit of answers."""
        await agents.agent.run(task)


def paper_environment(max_steps: int, paper_ids: str | Sequence[str] | None, judge: JudgeSettings) -> PaperEnv:
    """Return the environment as `pcgeval.load_environment` describes it."""
    ids = (paper_ids,) if isinstance(paper_ids, str) else paper_ids
    taskset = {"id": TASKSET_ID, "paper_ids": ids, "task": {"judge": judge}}
    module = TASKSET_ID.replace("-", "_")  # verifiers imports it; it need not be installed to be used from Python
    if find_spec(module) is None:
        sys.modules[module] = sys.modules[__name__]
    env: PaperEnv = vf.load_environment(vf.resolve_env_config({"taskset": taskset, "agent": {"max_turns": max_steps}}))
    next(iter(env.taskset))  # an unknown or faulty paper is an error now
    return env


def _prompt(paper: Paper, config: PaperTaskConfig) -> str:
    run = _NOT_RUN if config.judge.code_only else _RUN.format(config.reproduce_seconds)
    blacklist = "- Do not use what `../paper/blacklist.txt` lists.\n" if paper.blacklist else ""
    text = read_text(Path(__file__).parent / "prompts" / "paper.txt", follow_link=True)
    return text.replace("<RUN>", run).replace("<BLACKLIST>\n", blacklist).replace("<TITLE>", paper.title)


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
