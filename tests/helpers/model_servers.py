"""Stand-ins for models: servers with the interfaces of Ollama and of OpenAI, a judge, and waits for them."""

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os.path import commonprefix
from typing import Any, Self

import pytest

from pcgeval.core.files import sha256_json
from pcgeval.formats.failures import failure
from pcgeval.llm.blame import TEXT
from pcgeval.llm.protocol import BlameVerdict, CallError, ChatReply, ChatRequest, LlmError, Message


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


class JsonHandler(BaseHTTPRequestHandler):
    """Leaves each answer to its server, reads and sends whole bodies, and logs nothing."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self.server.get(self)

    def do_POST(self) -> None:
        self.server.post(self, self.body())

    def body(self) -> Any:
        """Return the JSON value that was posted."""
        return json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))

    def send(self, status: int, content: bytes, kind: str = "application/json", **headers: str) -> None:
        """Send a whole answer; `_` in the name of a header stands for `-`."""
        self.send_response(status)
        for name, text in {"Content_Type": kind, "Content_Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(content)

    def send_json(self, status: int, value: Any) -> None:
        self.send(status, json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        """Quiet."""


class ThreadedServer(ThreadingHTTPServer):
    """Serves from the beginning of a `with` to its end; its `get` and `post` answer, or a handler of its own."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler] = JsonHandler) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.stopping = threading.Event()  # connections that are open already would be served for ever
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Clients hang up or are killed in many of these tests."""


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
    return evident(GRADE.format(there=f"{'there' if score else 'not there'} ({digest[:9]})", score=score), prompt)


def evident(grade: str, prompt: str) -> str:
    """Return a grade that quotes the first line of the first file of the prompt, if that asks for evidence."""
    file = re.search(r"<file [0-9a-f]+>\n(.+)\n+(.+)", prompt)
    if file is None or "# Evidence" not in prompt:
        return grade
    return grade.replace("# Score", f"# Evidence\nFile: {file[1]}\n```\n{file[2]}\n```\n# Score")


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


def refused(text: str) -> CallError:
    """Return the error of a call that a content filter refused: no neutral call follows."""
    return CallError(text, BlameVerdict("request", failure=failure("filtered")))


def dies_after(calls: int) -> Callable[[int, ChatRequest], None]:

    def fails(number: int, _: ChatRequest) -> None:
        if number > calls:
            raise LlmError("nobody listens at http://127.0.0.1:9. Start the server.")

    return fails


class SlowJudgeServer(SlowOllama):
    def words(self, asked: dict[str, Any], *_: object) -> list[str]:
        return [answer(asked.get("format"), asked["messages"][-1]["content"])]


class ScriptedEndpoint(ThreadedServer):
    """Answers chats; `asked` are the bodies that it answered, `prompts` their texts, `refused` the other bodies.

    It refuses fields (and says what to use instead, if anything), and answers in so many `seconds`. It counts tokens of
    four characters, some of them cached, as earlier prompts began alike. `lists` are its models, if it lists any.
    """

    def __init__(self, *, refuses: dict[str, str] | None = None, lists: list[str] | None = None) -> None:
        super().__init__()
        self.refuses, self.lists, self.seconds = refuses or {}, lists, 0.0
        self.asked: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.prompts: list[str] = []

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    def get(self, request: JsonHandler) -> None:
        if self.lists is None:
            request.send_json(404, {"error": {"message": "no list"}})
        else:
            request.send_json(200, {"object": "list", "data": [{"id": model} for model in self.lists]})

    def post(self, request: JsonHandler, body: dict[str, Any]) -> None:
        prompt = "\n".join(message["content"] for message in body["messages"])
        time.sleep(self.seconds)
        for name in self.refuses.keys() & body.keys():
            self.refused.append(body)
            text = f"Unsupported parameter: '{name}' is not supported with this model."
            text += f" Use '{self.refuses[name]}' instead." if self.refuses[name] else ""
            error = {"message": text, "param": name, "code": "unsupported_parameter"}
            request.send_json(400, {"error": error})
            return
        self.asked.append(body)
        request.send_json(200, self.reply(body, prompt))
        self.prompts.append(prompt)

    def reply(self, body: dict[str, Any], prompt: str) -> dict[str, Any]:
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        text = answer(schema, body["messages"][-1]["content"])
        message = {"role": "assistant", "content": text, "reasoning_content": "# Score\n1\nnot the answer"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        # the prefixes are of texts, not of paths
        cached = max((len(commonprefix([prompt, earlier])) for earlier in self.prompts), default=0)  # noqa: RUF071
        usage = {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": len(text) // 4,
            "total_tokens": (len(prompt) + len(text)) // 4,
            "prompt_tokens_details": {"cached_tokens": cached // 4},
        }
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
        return {**head, "choices": [choice], "usage": usage}


class ScriptedChat(ThreadedServer):
    """Streams these replies in order by OpenAI's interface, the last one for ever: texts, or commands for a shell."""

    def __init__(self, replies: tuple[str | tuple[str, ...], ...]) -> None:
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


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[Any] | None = None, *, seconds: float = 120
) -> None:
    """Wait until a condition holds; fail after so many seconds, or if the process ends that was to bring it about."""
    latest = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None and not condition():
            pytest.fail(f"The process ended meanwhile with exit code {process.returncode}: {process.communicate()}")
        if time.monotonic() > latest:
            pytest.fail(f"Nothing came in {seconds:g} s")
        time.sleep(0.005)


def wait_for_answers(server: SlowOllama, answers: int, process: subprocess.Popen[Any]) -> None:
    """Wait until a server has given so many answers, or the process that asks it has ended."""
    wait_until(lambda: server.answered >= answers or process.poll() is not None)
