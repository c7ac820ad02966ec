"""A judge's model with replies that follow from the call: as a backend in this process, and as a slow Ollama server."""

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slow_ollama import DIGEST, SlowOllama

from pcgeval.core.files import sha256_json
from pcgeval.formats.failures import failure
from pcgeval.llm.protocol import BlameVerdict, CallError, ChatReply, ChatRequest, LlmError

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
