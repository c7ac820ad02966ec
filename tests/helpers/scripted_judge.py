"""A judge's model with replies that follow from the call: as a backend in this process, and as a slow Ollama server."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from pcgeval.core.files import sha256_json
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError

DIGEST = "ab" * 32
GRADE = "# Expectations\nThat it is there.\n# Reality\nIt is {there}.\n# Score\n{score}\n"


def kind_of(schema: Any) -> str:
    """Return which of the three calls it is: ranking and parsing ask for JSON."""
    if not schema:
        return "grade"
    return "rank" if "files" in schema["properties"] else "parse"


def answer(schema: Any, prompt: str) -> str:
    """Return a usable answer; whether a criterion is met follows from the prompt, so that a change shows."""
    kind = kind_of(schema)
    if kind == "rank":
        return json.dumps({"files": ["README.md"]})
    if kind == "parse":
        score = int(prompt.split("# Score\n")[1][0])
        return json.dumps({"valid_score": True, "score": score, "explanation": f"It scores {score}."})
    digest = sha256_json(prompt)
    score = int(digest, 16) % 2
    return GRADE.format(there=f"{'there' if score else 'not there'} ({digest[:9]})", score=score)


@dataclass
class ScriptedModel:
    """A backend; `fails` may raise in place of an answer, and is given the number of the call from 1."""

    fails: Callable[[int, ChatRequest], None] = lambda *_: None
    seconds: float = 0.0
    digest_: str = DIGEST
    requests: list[ChatRequest] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def digest(self) -> str:
        return self.digest_

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        with self.lock:
            self.requests.append(request)
            self.timeouts.append(timeout)
            number = len(self.requests)
        time.sleep(self.seconds)
        self.fails(number, request)
        prompt = request.messages[-1].content
        text = answer(request.schema, prompt)
        return ChatReply(text, len(prompt) // 4, len(text) // 4, "stop", number / 1000)

    @property
    def kinds(self) -> list[str]:
        return [kind_of(request.schema) for request in self.requests]


def dies_after(calls: int) -> Callable[[int, ChatRequest], None]:
    """Return what makes a backend die after so many calls."""

    def fails(number: int, _: ChatRequest) -> None:
        if number > calls:
            raise LlmError("nobody listens at http://127.0.0.1:9. Start the server.")

    return fails


def refuses(words: str) -> Callable[[int, ChatRequest], None]:
    """Return what makes a backend refuse every call with these words in it."""

    def fails(_: int, request: ChatRequest) -> None:
        if words in request.messages[-1].content:
            raise CallError(f"model m:1: refused ({words})")

    return fails


class SlowJudgeServer(ThreadingHTTPServer):
    """Serves the model `m:1` as Ollama does; a context manager that counts the questions and the answers sent whole."""

    daemon_threads = True

    def __init__(self, seconds: float = 0.02) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seconds = seconds
        self.asked: list[str] = []
        self.answered = 0
        self.is_down = False
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_down = True  # connections that are open already would be served for ever
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Clients are killed in these tests."""


class _Handler(BaseHTTPRequestHandler):
    server: SlowJudgeServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._begin()
        self._send({"models": [{"model": "m:1", "name": "m:1", "digest": DIGEST, "size": 1}]})
        self._chunk(b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.asked.append(sha256_json([asked["messages"], asked["options"], asked.get("format")]))
        time.sleep(self.server.seconds)
        if self.server.is_down:
            self.close_connection = True
            return
        self._begin()
        text = answer(asked.get("format"), asked["messages"][-1]["content"])
        self._send({"model": "m:1", "message": {"role": "assistant", "content": text}, "done": False})
        end = {"done": True, "done_reason": "stop", "prompt_eval_count": 70, "eval_count": 9}
        self._send({"model": "m:1", "message": {"role": "assistant", "content": ""}, **end})
        self._chunk(b"")
        with self.server.lock:
            self.server.answered += 1

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send(self, value: dict[str, Any]) -> None:
        self._chunk(json.dumps(value).encode() + b"\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def log_message(self, *_: object) -> None:
        """Quiet."""
