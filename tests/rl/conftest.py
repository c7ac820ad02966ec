"""Shared by the tests with `verifiers`: traces made by hand, and whole episodes without a network."""

import asyncio
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_servers import ScriptedChat


@pytest.fixture
def trace_of() -> Callable[..., Any]:
    """Return a function that makes a finished trace of a task with one reply, as after a rollout."""
    vf = pytest.importorskip("verifiers.v1", reason="`make environments` installs the extra verifiers")

    def make(task: Any, reply: str | None = None) -> Any:
        facts = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        agent = vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig()))
        nodes = [vf.MessageNode(message=vf.UserMessage(content=task.data.prompt_text))]
        if reply is not None:
            nodes.append(vf.MessageNode(parent=0, message=vf.AssistantMessage(content=reply), sampled=True))
        return vf.Trace(task=facts, agent=agent, nodes=nodes, ok=True, is_completed=True)

    return make


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that plays one whole episode of an environment's first task against replies.

    The harness is the real one; only uv does not fetch its packages.
    """
    vf = pytest.importorskip("verifiers.v1", reason="`make environments` installs the extra verifiers")
    from verifiers.v1.runtimes import subprocess

    async def prepared(runtime: Any, script: str, *_: object, **__: object) -> list[str]:
        await runtime.write("harness.py", script.encode())
        return [sys.executable, str(runtime.workdir / "harness.py")]

    monkeypatch.setattr(subprocess, "CACHE_DIR", tmp_path / "cache")
    monkeypatch.setattr(subprocess.SubprocessRuntime, "prepare_uv_script", prepared)
    monkeypatch.setenv("NO_KEY", uuid.uuid4().hex)

    async def episode(env: Any, base_url: str) -> Any:
        client = vf.EvalClientConfig(base_url=base_url, api_key_var="NO_KEY")
        context = vf.ModelContext(model="scripted", client=client, sampling=vf.SamplingConfig(max_tokens=100))
        async with env.serving():
            return await env.run_episode(next(iter(env.taskset)), context)

    def run(env: Any, *replies: str | tuple[str, ...]) -> Any:
        with ScriptedChat(replies) as server:
            return asyncio.run(episode(env, f"{server.address}/v1"))

    return run
