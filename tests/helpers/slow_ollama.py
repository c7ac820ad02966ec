"""A slow, small server with Ollama's interface: its replies follow from the request, and it counts what was asked."""

import json
from collections.abc import Callable
from typing import Any

from threaded_server import JsonHandler, ThreadedServer

from pcgeval.llm.blame import TEXT
from pcgeval.llm.protocol import ChatRequest, Message

DIGEST = "ab" * 32


class SlowOllama(ThreadedServer):
    """Serves the model `m:1`, a reply in so many `seconds`.

    `status` gives the HTTP status for a request by its last message: 200 for a reply, 0 for no answer.
    `asked` are the keys of the requests but the neutral ones, which `neutral` counts; `answered` is how many replies
    were sent.
    """

    def __init__(self, seconds: float = 0.02, *, status: Callable[[str], int] = lambda _: 200) -> None:
        super().__init__()
        self.seconds, self.status, self.digest = seconds, status, DIGEST
        self.asked: list[str] = []
        self.answered = self.neutral = 0
        self.neutral_seconds = 0.0
        self.name = "m:1"  # as the answering model calls itself

    def words(self, asked: dict[str, Any], key: str) -> list[str]:
        """Return the reply piece by piece."""
        return [f"answer {key[:12]}\n", "```\n", f"drop_block('b11', {len(asked['messages'])})\n", "```\n"]

    def get(self, request: JsonHandler) -> None:
        request.send_json(200, {"models": [{"model": "m:1", "name": "m:1", "digest": self.digest, "size": 1}]})

    def post(self, request: JsonHandler, asked: dict[str, Any]) -> None:
        messages = tuple(Message(**message) for message in asked["messages"])
        key = ChatRequest(asked["model"], self.digest, messages, asked["options"], asked.get("format")).key
        is_neutral = messages[-1].content == TEXT
        with self.lock:
            self.neutral += is_neutral
            self.asked += [] if is_neutral else [key]
        status = self.status(messages[-1].content)
        seconds = self.neutral_seconds if is_neutral else self.seconds
        if self.stopping.wait(seconds if status else None):
            request.close_connection = True
        elif status != 200:
            request.send_error(status, "CUDA out of memory")
        else:
            end = {"done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 9}
            lines = [
                {"message": {"role": "assistant", "content": word}}
                for word in (["ready"] if is_neutral else self.words(asked, key))
            ]
            lines.append({"message": {"role": "assistant", "content": ""}, **end})
            request.send(200, "".join(f"{json.dumps({'model': self.name, **line})}\n" for line in lines).encode())
            with self.lock:
                self.answered += 1
