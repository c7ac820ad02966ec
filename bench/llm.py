"""What asking a language model costs besides the model, in CPU time; one figure a line."""

import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pcgeval.llm.llamacpp import LlamaCpp
from pcgeval.llm.local_models import LOCAL_MODELS, cached_path
from pcgeval.llm.ollama_server import OllamaModel
from pcgeval.llm.protocol import ChatRequest, Message
from pcgeval.llm.serve import LocalServer

TOKENS = 32
CALLS = 200
SMOLLM = LOCAL_MODELS[-1]
OPTIONS = {"temperature": 1, "seed": 1, "num_predict": TOKENS, "num_ctx": 512}
REQUEST = ChatRequest(SMOLLM.name, SMOLLM.sha256, (Message("user", "Name ten colours."),), OPTIONS)

_PART = {"model": "stub", "message": {"role": "assistant", "content": "word "}, "done": False}
_END = {**_PART, "done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": TOKENS}
_REPLY = b"".join(json.dumps(part).encode() + b"\n" for part in [*[_PART] * TOKENS, _END])


class Stub(BaseHTTPRequestHandler):
    """Answers every request at once with the same streamed reply."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(_REPLY)))
        self.end_headers()
        self.wfile.write(_REPLY)

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
    """Compare the backend with the barest client, on a server that takes no time."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Stub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])

        def bare() -> None:
            connection.request("POST", "/api/chat", b"{}")
            connection.getresponse().read()

        model = OllamaModel("stub", f"http://127.0.0.1:{server.server_address[1]}")
        asked, floor = cpu_milliseconds(lambda: model.chat(REQUEST, 60), CALLS), cpu_milliseconds(bare, CALLS)
        print(f"llm.ollama_backend {asked - floor:.2f} cpu_ms/call over a bare client ({TOKENS} streamed parts)")
        server.shutdown()


def server_overhead() -> None:
    """Compare `serve-local` with llama.cpp asked directly: the same request, turn by turn."""
    path = cached_path(SMOLLM)
    if not path.is_file():
        print(f"llm.serve_local skipped: {SMOLLM.name} is not fetched")
        return
    direct = LlamaCpp(path, context=512, threads=1)
    with LocalServer("127.0.0.1", 0, {SMOLLM.name: path}, threads=1) as server:
        server.RequestHandlerClass.log_message = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        served = OllamaModel(SMOLLM.name, server.address)
        pairs = [
            (
                cpu_milliseconds(lambda: served.chat(REQUEST, 60), 1),
                cpu_milliseconds(lambda: direct.chat(REQUEST, 60), 1),
            )
            for _ in range(5)
        ]
        server.shutdown()
    over = statistics.median(mine - theirs for mine, theirs in pairs)
    tokens = direct.chat(REQUEST, 60).output_tokens
    seconds = statistics.median(theirs for _, theirs in pairs) / 1000
    print(f"llm.serve_local {over:.1f} cpu_ms/call over llama.cpp in process ({tokens} tokens)")
    print(f"llm.llamacpp {tokens / seconds:.1f} tokens/cpu_s of {SMOLLM.name}, prompt included")
    direct.close()


if __name__ == "__main__":
    client_overhead()
    server_overhead()
