"""Measure what asking a language model costs besides the model, in CPU time; one figure a line."""

import http.client
import json
import statistics
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.llamacpp import LlamaCpp
from pcgeval.llm.local_models import LOCAL_MODELS, cached_path
from pcgeval.llm.ollama import OllamaServer
from pcgeval.llm.protocol import ChatReply, ChatRequest, LlmError, Message
from pcgeval.llm.recorded import RecordedModel
from pcgeval.llm.retry import ServedModel, Server
from pcgeval.serve.server import LocalServer

TOKENS = 32
CALLS = 200
TRIALS = 10_000
LISTED = 20  # models on the stub
SMOLLM = LOCAL_MODELS[-1]
OPTIONS = {"temperature": 1, "seed": 1, "num_predict": TOKENS, "num_ctx": 512}
REQUEST = ChatRequest(SMOLLM.name, SMOLLM.sha256, (Message("user", "Name ten colours."),), OPTIONS)
SHARED = ChatRequest(SMOLLM.name, SMOLLM.sha256, REQUEST.messages, {"temperature": 1, "seed": 1, "num_predict": TOKENS})

_NAMES = [SMOLLM.name, *(f"other:{number}" for number in range(1, LISTED))]
_PART = {"model": "stub", "message": {"role": "assistant", "content": "word "}, "done": False}
_END = {**_PART, "done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": TOKENS}
_CHOICE = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
_CHUNK = {"id": "1", "object": "chat.completion.chunk", "model": "stub", "choices": [_CHOICE]}
_USAGE = {"prompt_tokens": 9, "completion_tokens": TOKENS, "total_tokens": TOKENS + 9}
_LAST = {**_CHUNK, "choices": [{**_CHOICE, "delta": {}, "finish_reason": "stop"}], "usage": _USAGE}
_ANSWERS = {
    "/api/chat": b"".join(json.dumps(part).encode() + b"\n" for part in [*[_PART] * TOKENS, _END]),
    "/api/tags": json.dumps({"models": [{"model": name, "digest": SMOLLM.sha256} for name in _NAMES]}).encode(),
    "/v1/models": json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in _NAMES]}).encode(),
    "/v1/chat/completions": b"".join(
        b"data: " + json.dumps(part).encode() + b"\n\n" for part in [*[_CHUNK] * TOKENS, _LAST]
    )
    + b"data: [DONE]\n\n",
}


class Stub(BaseHTTPRequestHandler):
    """Answers every request at once with the same reply."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(_ANSWERS[self.path])))
        self.end_headers()
        self.wfile.write(_ANSWERS[self.path])

    do_GET = do_POST  # noqa: N815 - a name that http.server calls

    def log_message(self, *_: object) -> None:
        pass


def cpu_milliseconds(work: Callable[[], object], calls: int) -> float:
    """Return the CPU time of a call, client and server together; the first, which loads, is left out."""
    work()
    start = time.process_time()
    for _ in range(calls):
        work()
    return 1000 * (time.process_time() - start) / calls


def client_overhead() -> None:
    """Compare the backends with the barest client, on a server that takes no time."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Stub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
        servers: dict[str, tuple[str, Server]] = {"ollama": ("/api/chat", OllamaServer(SMOLLM.name, address))}
        try:
            from pcgeval.llm.openai import OpenAiServer  # noqa: PLC0415 - an optional extra

            servers["openai"] = ("/v1/chat/completions", OpenAiServer(SMOLLM.name, f"{address}/v1"))
        except LlmError as error:
            print(f"llm.openai_backend skipped: {error}")
        for name, (path, asked) in servers.items():
            model = ServedModel(SMOLLM.name, [asked])
            request = replace(SHARED, digest=model.digest())

            def bare(path: str = path) -> None:
                connection.request("POST", path, b"{}")
                connection.getresponse().read()

            def ask(model: ServedModel = model, request: ChatRequest = request) -> None:
                model.chat(request, 60)

            over = cpu_milliseconds(ask, CALLS) - cpu_milliseconds(bare, CALLS)
            print(f"llm.{name}_backend {over:.2f} cpu_ms/call over a bare client ({TOKENS} streamed parts)")
        server.shutdown()


def replay() -> None:
    """Read one big recording and replay it."""
    requests = [
        ChatRequest("stub", SMOLLM.sha256, (Message("user", "word " * 600),), {"temperature": 1, "seed": seed})
        for seed in range(TRIALS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "team.jsonl"
        reply = ChatReply("word " * 400, 600, 400, "stop", 9.5)
        write_recording(path, [LoggedCall(key=request.key, reply=reply) for request in requests])
        for trials in (TRIALS // 2, TRIALS):
            half = Path(folder) / f"{trials}.jsonl"
            half.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:trials]))
            start = time.process_time()
            model = RecordedModel.read(half, SMOLLM.sha256)
            seconds = time.process_time() - start
            tracemalloc.start()
            RecordedModel.read(half, SMOLLM.sha256)
            peak = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
            size = half.stat().st_size / 1e6
            print(
                f"llm.recorded_read {seconds:.2f} cpu_s and {peak:.0f} MB at most for {trials} trials ({size:.0f} MB)"
            )
        start = time.process_time()
        for request in requests:
            model.chat(request, 1)
        print(f"llm.recorded {TRIALS / (time.process_time() - start):.0f} trials/cpu_s replayed by the backend alone")


def server_overhead() -> None:
    """Compare `serve-local` with llama.cpp asked directly: the same request, turn by turn."""
    path = cached_path(SMOLLM)
    if not path.is_file():
        print(f"llm.serve_local skipped: {SMOLLM.name} is not fetched")
        return
    direct = LlamaCpp(path, context=512, threads=1)
    with LocalServer("127.0.0.1", 0, {SMOLLM.name: path}, threads=1) as server:
        served = ServedModel(SMOLLM.name, [OllamaServer(SMOLLM.name, server.address)])
        pairs = [
            (
                cpu_milliseconds(lambda: served.chat(REQUEST, 60), 1),
                cpu_milliseconds(lambda: direct.chat(REQUEST, 60), 1),
            )
            for _ in range(5)
        ]
    over = statistics.median(mine - theirs for mine, theirs in pairs)
    tokens = direct.chat(REQUEST, 60).output_tokens
    seconds = statistics.median(theirs for _, theirs in pairs) / 1000
    print(f"llm.serve_local {over:.1f} cpu_ms/call over llama.cpp in process ({tokens} tokens)")
    print(f"llm.llamacpp {tokens / seconds:.1f} tokens/cpu_s of {SMOLLM.name}, prompt included")
    direct.close()


if __name__ == "__main__":
    replay()
    client_overhead()
    server_overhead()
