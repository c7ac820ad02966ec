"""A small real server with OpenAI's chat completions, whose replies are given beforehand."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from threaded_server import JsonHandler, ThreadedServer

Reply = str | tuple[str, ...]  # a text, or commands for the shell
Script = Callable[[list[dict[str, Any]]], Reply]  # from the conversation to the reply


def in_order(*replies: Reply) -> Script:
    """Return the script that gives these replies by the number of answers before; the last one for ever."""

    def script(messages: list[dict[str, Any]]) -> Reply:
        answered = sum(message["role"] == "assistant" for message in messages)
        return replies[min(answered, len(replies) - 1)]

    return script


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """Give the base URL of a server as long as it runs."""

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            body = self.body()
            message, reason = as_message(script(body["messages"]))
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            head = {"id": "c", "created": 0, "model": body["model"], "usage": usage}
            key = "delta" if body.get("stream") else "message"
            choice = {"index": 0, key: message, "finish_reason": reason}
            kind = "chat.completion.chunk" if body.get("stream") else "chat.completion"
            value = {**head, "object": kind, "choices": [choice]}
            if body.get("stream"):
                self.send(200, f"data: {json.dumps(value)}\n\ndata: [DONE]\n\n".encode(), "text/event-stream")
            else:
                self.send_json(200, value)

    with ThreadedServer(Handler) as server:
        yield f"{server.address}/v1"


def as_message(reply: Reply) -> tuple[dict[str, Any], str]:
    """Return a reply as the interface has it, and the reason of its end."""
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}, "stop"
    calls = [
        {
            "index": index,
            "id": f"call-{index}",
            "type": "function",
            "function": {"name": "shell", "arguments": json.dumps({"command": command})},
        }
        for index, command in enumerate(reply)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
