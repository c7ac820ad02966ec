"""A slow, small server with Ollama's interface: its replies follow from the request, and it counts what was asked."""

import json
from collections.abc import Callable
from typing import Any

from threaded_server import JsonHandler, ThreadedServer

from pcgeval.llm.protocol import ChatRequest, Message

DIGEST = "ab" * 32


class SlowOllama(ThreadedServer):
    """Serves the model `m:1` on a port of this machine; a context manager.

    `asked` are the keys of the requests, `answered` is how many replies were sent to their end.
    """

    def __init__(self, seconds: float = 0.02, *, status: Callable[[str], int] = lambda _: 200) -> None:
        """Set how replies come.

        Args:
            seconds: For each reply.
            status: The HTTP status for a request by its last message, 200 for a reply; 0: the request gets no answer.
        """
        super().__init__(_Handler)
        self.seconds, self.status = seconds, status
        self.digest = DIGEST
        self.asked: list[str] = []
        self.answered = 0

    def key(self, asked: dict[str, Any]) -> str:
        """Return what identifies a request."""
        messages = tuple(Message(**message) for message in asked["messages"])
        return ChatRequest(asked["model"], self.digest, messages, asked["options"]).key

    def words(self, asked: dict[str, Any], key: str) -> list[str]:
        """Return the reply piece by piece."""
        return [f"answer {key[:12]}\n", "```\n", f"drop_block('b11', {len(asked['messages'])})\n", "```\n"]


class _Handler(JsonHandler):
    server: SlowOllama

    def do_GET(self) -> None:
        self._begin()
        self._send_line({"models": [{"model": "m:1", "name": "m:1", "digest": self.server.digest, "size": 1}]})
        self._chunk(b"")

    def do_POST(self) -> None:
        asked = self.body()
        key = self.server.key(asked)
        with self.server.lock:
            self.server.asked.append(key)
        status = self.server.status(asked["messages"][-1]["content"])
        if status == 0:
            self.server.stopping.wait()
            self.close_connection = True
            return
        if status != 200:
            self.send_error(status, "CUDA out of memory")
            return
        words = self.server.words(asked, key)
        self._begin()
        for word in words:
            if self.server.stopping.wait(self.server.seconds / len(words)):
                self.close_connection = True
                return
            self._send_line({"model": "m:1", "message": {"role": "assistant", "content": word}, "done": False})
        end = {"done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 9}
        self._send_line({"model": "m:1", "message": {"role": "assistant", "content": ""}, **end})
        self._chunk(b"")
        with self.server.lock:
            self.server.answered += 1

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send_line(self, value: dict[str, Any]) -> None:
        self._chunk(json.dumps(value).encode() + b"\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
