"""The taskset of paper reproduction: grades of hand-built traces, what cannot be graded, and whole episodes."""

import asyncio
import shlex
import shutil
from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest
from model_servers import ScriptedEndpoint

import pcgeval
from pcgeval.core.errors import PcgevalError
from pcgeval.formats.params import Model
from pcgeval.judge.settings import GradingError, JudgeSettings
from pcgeval.rubric.output import JudgeOutput
from pcgeval.rubric.papers import GOLD, PaperError

vf = pytest.importorskip("verifiers.v1", reason="`make environments` installs the extra verifiers")

from pcgeval.rl import paper_environment  # noqa: E402
from pcgeval.rl.paper_environment import (  # noqa: E402
    AttemptState,
    PaperTask,
    PaperTaskConfig,
    PaperTaskset,
)

pytestmark = pytest.mark.needs_sandbox
PAPERS = Path(__file__).parents[2] / "data" / "papers"
PAPER = "block-letters"
SUBMISSIONS = PAPERS / PAPER / "submissions"


def environment(**settings):
    return pcgeval.load_environment(**{"papers_dir": PAPERS, "judge_type": "checks", **settings})


def first_task(**settings) -> PaperTask:
    return next(iter(environment(**settings).taskset))


def attempted(trace_of, task: PaperTask, folder: Path, submission: str | None):
    """Return a trace whose agent has left a submission in its working folder."""
    trace = trace_of(task, "Done.")
    (folder / "work").mkdir(parents=True)
    if submission is not None:
        shutil.copytree(SUBMISSIONS / submission, folder / "work", dirs_exist_ok=True)
    trace.state = AttemptState(folder=str(folder))
    return trace


def test_the_settings_arrive():
    settings = JudgeSettings(context=9000, prompts="paperbench", max_depth=2)
    env = environment(judge_type="dummy", judge_settings=settings)
    judge = {"judge": "dummy", "papers_dir": str(PAPERS)}
    assert next(iter(env.taskset)).config.judge == settings.model_copy(update=judge)
    agent = env.config.agent
    assert (agent.harness.id, agent.runtime.type) == ("null", "subprocess")  # only our tool
    with pytest.raises(ValueError, match="must be simple, checks, random or dummy"):
        environment(judge_type="human")
    assert first_task(judge_type=pcgeval.SimpleJudge).config.judge.model.name == "gpt-4o-2024-08-06"
    local = first_task(judge_type="simple", judge_model="smollm2:135m-instruct-q4_1")
    assert local.config.judge.model.backend == "llamacpp"
    assert PaperTaskConfig(judge={"context": 9000}).judge.judge == "simple"  # as on vf-eval's command line
    assert vf.import_taskset("pcgeval-papers").PaperTaskset is PaperTaskset


def test_the_judge_is_the_one_that_the_settings_name():
    def judge(**settings):
        return first_task(**{"judge_type": "simple", **settings}).config.judge.judge

    checks = JudgeSettings(judge="checks")
    assert judge(judge_settings=checks) == "checks"
    wide = JudgeSettings(max_width=1)  # names no judge
    assert judge() == judge(judge_settings=wide) == judge(judge_model="nobody:1b", judge_settings=wide) == "simple"
    for other in ({"judge_type": "dummy"}, {"judge_model": "nobody:1b"}):
        with pytest.raises(GradingError, match=r"name the judge checks, but .* means (dummy|simple)"):
            judge(judge_settings=checks, **other)
    with pytest.raises(ValueError, match="no person grades attempts"):
        judge(judge_settings=JudgeSettings(judge="human"))


def test_a_judge_that_cannot_be_asked_is_refused_before_the_agents_first_token(monkeypatch, tmp_path):
    class Runtime:
        type, workdir = "subprocess", tmp_path

    def refused(message):
        with pytest.raises(PcgevalError, match=message):
            asyncio.run(first_task(judge_type="simple").setup(None, Runtime))

    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    refused("gpt-4o-2024-08-06 needs a key. Set OPENAI_API_KEY")
    with ScriptedEndpoint(lists=["another"]) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        refused(r"gpt-4o-2024-08-06 is not at http.*it has another")
    assert not (tmp_path / "attempt").exists()


def test_all_papers_are_tasks_unless_some_are_named(tmp_path, monkeypatch):
    def ids(**settings):
        return [task.data.paper_id for task in environment(**settings).taskset]

    for name in ("zebra", "ant"):
        shutil.copytree(PAPERS / PAPER, tmp_path / "papers" / name)
    assert ids(papers_dir=tmp_path / "papers") == ["ant", "zebra"]
    assert ids(papers_dir=tmp_path / "papers", paper_ids=["zebra"]) == ["zebra"]
    assert ids(papers_dir=tmp_path / "papers", paper_ids="zebra") == ["zebra"]
    with pytest.raises(PcgevalError, match="paper_ids names no paper"):
        environment(paper_ids=[])
    with pytest.raises(PaperError, match="no paper 'rice'"):
        environment(paper_ids=["rice"])
    monkeypatch.chdir(tmp_path)  # where there are none, the package's example is the task
    assert ids(papers_dir="data/papers") == [PAPER]


def test_the_reward_of_a_trace_is_the_root_score(trace_of, tmp_path):
    task, rewards = first_task(), []
    for submission in (None, "half", "reproduces"):
        trace = attempted(trace_of, task, tmp_path / f"{submission}", submission)
        asyncio.run(task.score(trace))
        rewards.append(trace.reward)
    assert rewards[0] < rewards[1] < rewards[2]
    grade = trace.state["grade"]
    assert trace.reward == trace.rewards["reproduction"].score == grade["score"]
    assert JudgeOutput.from_dict(trace.info["grade"]).to_json() == grade
    assert trace.metrics["num_passed"] == grade["num_passed"]
    assert [trace.metrics["score_low"], trace.metrics["score_high"]] == grade["score_bounds"]
    assert not (tmp_path / "reproduces" / "work" / "reproduce.log").exists()  # it ran on a copy


def test_code_only_grades_code_and_runs_nothing(trace_of, tmp_path):
    task = first_task(code_only=True, judge_type="random")
    assert "only the code is graded" in task.data.prompt
    trace = attempted(trace_of, task, tmp_path / "attempt", "reproduces")
    (tmp_path / "attempt/work/reproduce.sh").write_text("sleep 1000\n")
    asyncio.run(task.score(trace))
    assert trace.metrics["code_development"] == trace.reward
    assert "code_execution" not in trace.metrics


def test_a_dead_endpoint_is_no_reward_instead_of_0_unless_the_score_is_known_well_enough(trace_of, tmp_path):
    nobody = Model(backend="ollama", name="qwen2.5:7b", host="127.0.0.1:9")
    task = first_task(judge_type="simple", judge_model=nobody)
    trace = attempted(trace_of, task, tmp_path / "attempt", "reproduces")
    with pytest.raises(vf.TaskError, match=r"no reward.* 9 of 19 leaves were not judged"):  # so many have no check
        asyncio.run(task.score(trace))
    assert trace.rewards == {"reproduction": None}
    assert trace.state["grade"] == trace.info["grade"]
    task = first_task(judge_type="simple", judge_model=nobody, judge_settings=JudgeSettings(max_width=1))
    asyncio.run(task.score(trace))
    assert 0 < trace.reward == trace.metrics["score_low"] < trace.metrics["score_high"] == 1


def test_what_a_submission_can_provoke_never_costs_the_reward(trace_of, tmp_path):
    with ScriptedEndpoint() as endpoint:
        judge = {"judge_type": "simple", "judge_model": {"model": "m", "base_url": endpoint.base_url}}
        task = first_task(**judge, judge_settings=JudgeSettings(token_budget=1, max_width=0))
        trace = attempted(trace_of, task, tmp_path / "attempt", "reproduces")
        asyncio.run(task.score(trace))
    assert trace.metrics["num_invalid_leaf_nodes"] == 8
    assert 0 < trace.reward == trace.metrics["score_low"] < trace.metrics["score_high"]


def test_the_random_judge_draws_anew_for_each_attempt_and_again_in_a_new_process(trace_of, tmp_path, monkeypatch):
    def rewards(process):
        monkeypatch.setattr(paper_environment, "_ATTEMPTS", defaultdict(count))
        traces = []
        for number in range(3):
            task = first_task(judge_type="random", code_only=True)
            traces.append(attempted(trace_of, task, tmp_path / f"{process}-{number}", None))
            asyncio.run(task.score(traces[-1]))
        return [[leaf["score"] for leaf in pcgeval.extract_leaf_grades(trace.state["grade"])] for trace in traces]

    first = rewards(1)
    assert len(set(map(tuple, first))) == 3
    assert rewards(2) == first


def test_the_papers_own_reproduction_passes_every_check_without_a_model(tmp_path):
    assert asyncio.run(first_task(judge_type="simple", judge_model="nobody:1b").validate(None)) is True
    assert asyncio.run(first_task(code_only=True).validate(None)) is None
    shutil.copytree(PAPERS / PAPER, tmp_path / PAPER)
    task, gold = first_task(papers_dir=tmp_path), tmp_path / PAPER / GOLD
    shutil.copytree(SUBMISSIONS / "half", gold, dirs_exist_ok=True)
    assert asyncio.run(task.validate(None)) is False
    shutil.rmtree(gold)
    assert asyncio.run(task.validate(None)) is None


def test_a_whole_episode_of_an_agent_that_reproduces_the_paper(play):
    files = [path for path in sorted((SUBMISSIONS / "reproduces").iterdir()) if path.is_file()]
    written = tuple(f"printf %s {shlex.quote(path.read_text())} > {path.name}" for path in files)
    (trace,) = play(environment(max_steps=5), written, ("ls ../paper",), "Done.").traces
    assert (trace.errors, trace.stop_condition) == ([], "agent_completed")
    assert "paper.md" in str(trace.tool_messages[-1].content)
    assert (trace.reward, trace.metrics["num_passed"]) == (trace.info["grade"]["score"], 10)  # all that have a check
    assert not Path(trace.state.folder).exists()


def test_an_agent_that_runs_out_of_steps_is_graded_as_it_is(play):
    (trace,) = play(environment(max_steps=2), ("echo hi > README.md",)).traces
    assert (trace.stop_condition, trace.num_turns) == ("max_turns", 2)
    assert trace.rewards["reproduction"].score == trace.info["grade"]["score"]
