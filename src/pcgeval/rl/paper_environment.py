"""The taskset of paper reproduction: an agent works in a folder with a shell, and the paper's rubric grades it."""
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import Field, SerializeAsAny, field_validator

from pcgeval.core.files import read_text
from pcgeval.core.layout import PAPERS
from pcgeval.core.params import Model
from pcgeval.judge import JUDGES
from pcgeval.judge.calls import CallFiles, check_judge
from pcgeval.judge.run import run_judge
from pcgeval.judge.settings import JudgeSettings
from pcgeval.rl.attempt import WORK, command_sandbox, prepare_attempt, programs_are_trusted
from pcgeval.rl.loading import JUDGE_MODEL, EnvironmentsError
from pcgeval.rl.shell_tool import AttemptState, Shell, ShellConfig
from pcgeval.rubric.grades import HEURISTIC, GradedTaskNode, JudgeOutput, get_grade_summary
from pcgeval.rubric.papers import GOLD, Paper, list_papers, load_paper
from pcgeval.rubric.tree import leaves
from pcgeval.sandbox.reproduction import SandboxComputer

__all__ = ["PaperEnv", "PaperTaskset"]

TASKSET_ID = "pcgeval-papers"
PROMPT = Path(__file__).parent / "prompts" / "paper.txt"
_RUN = "It is run with bash on a copy of the folder on another machine without network, for at most {:g} seconds."
_NOT_RUN = "It is read but not run: only the code is graded."
_FIGURES = ("num_leaf_nodes", "num_passed", "num_invalid_leaf_nodes")


class PaperData(vf.TaskData):
    """One paper to reproduce."""

    paper_id: str


class PaperTaskConfig(vf.TaskConfig):
    """Settings of an attempt and its grade."""

    papers_dir: Path = PAPERS
    """Papers as PaperBench lays them out; where there is no data/papers, the package's example paper."""
    code_only: bool = False
    """Grade the code alone; reproduce.sh is not run."""
    judge_type: str = "simple"
    """The judge: simple, checks, random or dummy."""
    judge_model: Model = Model(backend="llamacpp", name=JUDGE_MODEL)
    """The model of the judge `simple`, as in params.yaml."""
    judge_settings: JudgeSettings = JudgeSettings()
    """All other settings of the grading, as `rubric` in params.yaml: context, votes, prompts, max_depth, ..."""
    max_invalid: int = Field(0, ge=0)
    """Leaves that may be without a grade; with more of them, an attempt has no reward. With the judge `checks`, leaves
    that have no check do not count."""
    reproduce_seconds: float = Field(600.0, gt=0)
    """Time limit of reproduce.sh."""
    agent_seconds: float | None = Field(None, gt=0)
    """Time limit of the agent; the environment then grades the present files."""
    shell: ShellConfig = ShellConfig()
    """The agent's tool."""

    @field_validator("judge_type")
    @classmethod
    def _grades_rollouts(cls, value: str) -> str:
        known = [name for name, kind in JUDGES.items() if kind.for_rollouts]
        if value not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return value


class PaperTasksetConfig(vf.TasksetConfig):
    """Settings of the tasks."""

    paper_ids: tuple[str, ...] | None = None
    """All papers of `task.papers_dir` by default."""
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
        if self.config.judge_type == "simple":  # and the judge only after the agent was paid for
            await asyncio.to_thread(check_judge, self.config.judge_model)
        folder = Path(runtime.workdir) / "attempt"
        await asyncio.to_thread(prepare_attempt, self._paper(), folder)
        trace.state.folder = str(folder)

    @vf.reward
    async def reproduction(self, trace: vf.Trace) -> float:
        """Return the rubric's root score of the working folder, and record the grade.

        Without a grade, or with too many invalid leaves, raises EnvironmentsError: no reward instead of a 0.
        """
        if not trace.state.folder:
            raise EnvironmentsError("There is no folder to grade: the attempt is over. Its grade is info.grade.")
        output = await self._grade(Path(trace.state.folder) / WORK, self.config.judge_type)
        trace.state.grade = trace.info["grade"] = grade = output.to_json()
        by_category = get_grade_summary(output)["by_category"]
        metrics = {category.lower().replace(" ", "_"): part["score"] for category, part in by_category.items()}
        metrics |= {"score_low": output.score_bounds.low, "score_high": output.score_bounds.high}
        trace.record_metrics(metrics | {name: grade[name] for name in _FIGURES})
        invalid = [leaf for leaf in self._counted(output) if not leaf.valid_score]
        if output.judge_type == HEURISTIC or len(invalid) > self.config.max_invalid:
            reason = next(iter(output.warnings), invalid[0].explanation if invalid else "no leaf is graded")
            raise EnvironmentsError(
                f"{self.data.paper_id}: no reward, because {len(invalid)} leaves have no grade and max_invalid is "
                f"{self.config.max_invalid}: {reason}"
            )
        return output.score

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Return whether the paper's reproduction passes every check, without a model; None without one."""
        del runtime
        gold = self._paper().folder / GOLD
        if self.config.code_only or not gold.is_dir():
            return None
        checked = self._counted(await self._grade(gold, "checks"))
        return all(leaf.graded_score == 1 for leaf in checked) if checked else None

    def _paper(self) -> Paper:
        return load_paper(self.config.papers_dir, self.data.paper_id)

    async def _grade(self, folder: Path, judge_type: str) -> JudgeOutput:
        config, computer = self.config, None
        if not config.code_only:
            limits = {"seconds": config.reproduce_seconds, "trust_programs": programs_are_trusted()}
            computer = await asyncio.to_thread(SandboxComputer, **limits)
        settings = config.judge_settings.model_copy(update={"papers_dir": str(config.papers_dir)})
        return await run_judge(
            folder,
            self.data.paper_id,
            judge_type,
            config.code_only,
            config.judge_model,
            computer,
            settings=settings,
            calls=CallFiles(log=None),
        )

    def _counted(self, output: JudgeOutput) -> list[GradedTaskNode]:
        """Return the leaves that the judge should have graded."""
        checked = {leaf.path for leaf in leaves(self._paper().rubric) if leaf.check}
        return [
            leaf for leaf in output.graded_task_tree.leaves if output.judge_type != "checks" or leaf.path in checked
        ]


class PaperTaskset(vf.Taskset[PaperTask, PaperTasksetConfig]):
    """A task for each paper."""

    def load(self) -> Iterator[PaperTask]:
        """Yield the papers' tasks in the configured order, else by id; raise PcgevalError for a missing paper."""
        config = self.config.task
        ids = list_papers(config.papers_dir) if self.config.paper_ids is None else self.config.paper_ids
        if not ids:
            raise EnvironmentsError(f"{config.papers_dir}: holds no papers. Name the folder in task.papers_dir.")
        timeout = vf.TaskTimeout(agent=config.agent_seconds)
        for id_ in ids:
            prompt = _prompt(load_paper(config.papers_dir, id_), config)
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


def paper_environment(max_steps: int, paper_ids: Sequence[str] | None, task: Mapping[str, Any]) -> PaperEnv:
    """Return the environment as `pcgeval.load_environment` describes it; `task` has the fields of `PaperTaskConfig`."""
    taskset = {"id": TASKSET_ID, "paper_ids": None if paper_ids is None else tuple(paper_ids), "task": task}
    module = TASKSET_ID.replace("-", "_")  # verifiers imports it; it need not be installed to be used from Python
    if find_spec(module) is None:
        sys.modules[module] = sys.modules[__name__]
    env: PaperEnv = vf.load_environment(vf.resolve_env_config({"taskset": taskset, "agent": {"max_turns": max_steps}}))
    next(iter(env.taskset))  # an unknown or faulty paper is an error now
    return env


def _prompt(paper: Paper, config: PaperTaskConfig) -> str:
    run = _NOT_RUN if config.code_only else _RUN.format(config.reproduce_seconds)
    blacklist = "- Do not use what `../paper/blacklist.txt` lists.\n" if paper.blacklist else ""
    text = read_text(PROMPT).replace("<RUN>", run).replace("<BLACKLIST>\n", blacklist)
    return text.replace("<TITLE>", paper.title)
