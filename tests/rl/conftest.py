"""Shared by the tests with `verifiers`: traces made by hand, and whole episodes without a network."""

import asyncio
import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_servers import JsonHandler, ThreadedServer

Reply = str | tuple[str, ...]  # a text, or commands for the shell


@pytest.fixture
def trace_of() -> Callable[..., Any]:
    """Return a function that makes a finished trace of a task with one reply, as after a rollout."""
    vf = pytest.importorskip("verifiers.v1", reason="the extra verifiers is not installed")

    def make(task: Any, reply: str | None = None) -> Any:
        facts = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        agent = vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig()))
        nodes = [vf.MessageNode(message=vf.UserMessage(content=task.data.prompt_text))]
        if reply is not None:
            nodes.append(vf.MessageNode(parent=0, message=vf.AssistantMessage(content=reply), sampled=True))
        return vf.Trace(task=facts, agent=agent, nodes=nodes, ok=True, is_completed=True)

    return make


class ScriptedChat(ThreadedServer):
    """An endpoint of OpenAI's interface that streams these replies in order, the last one for ever."""

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        super().__init__()
        self.replies = replies

    def post(self, request: JsonHandler, body: dict[str, Any]) -> None:
        answered = sum(message["role"] == "assistant" for message in body["messages"])
        reply = self.replies[min(answered, len(self.replies) - 1)]
        delta: dict[str, Any] = {"role": "assistant", "content": reply}
        if isinstance(reply, tuple):
            calls = [{"name": "shell", "arguments": json.dumps({"command": command})} for command in reply]
            tools = [{"index": i, "id": f"{i}", "type": "function", "function": call} for i, call in enumerate(calls)]
            delta = {"role": "assistant", "content": None, "tool_calls": tools}
        choice = {"index": 0, "delta": delta, "finish_reason": "tool_calls" if "tool_calls" in delta else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": body["model"], "usage": usage}
        text = f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\ndata: [DONE]\n\n"
        request.send(200, text.encode(), "text/event-stream")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that plays one whole episode of an environment's first task against replies.

    The harness is the real one; only uv does not fetch its packages.
    """
    vf = pytest.importorskip("verifiers.v1", reason="the extra verifiers is not installed")
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

    def run(env: Any, *replies: Reply) -> Any:
        with ScriptedChat(replies) as server:
            return asyncio.run(episode(env, f"{server.address}/v1"))

    return run
