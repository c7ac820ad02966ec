"""An endpoint of OpenAI's interface that judges as `scripted_judge` does, and can be as strict as a hosted model's."""

import time
from os.path import commonprefix
from typing import Any

from scripted_judge import answer
from threaded_server import JsonHandler, ThreadedServer

# what OpenAI says of a field that its reasoning models do not take
UNSUPPORTED = "Unsupported parameter: '{}' is not supported with this model.{}"


class ScriptedEndpoint(ThreadedServer):
    """Answers every chat; `asked` are the bodies that it answered, `refused` those that it did not.

    Args:
        refuses: Fields that it does not take, and what it says to use instead, if anything.
        usage: Whether it reports tokens: four characters each, of which it had a prefix of earlier prompts in a cache.
        thinks: What each answer begins with.
        limit: The context in tokens.
        lists: The models that it lists; None: it offers no list.
        ranked: Its answer to which files to look at.

    Attributes:
        most: How many chats it answers; the others get the status and the code `ends_with`.
        seconds: How long it takes for an answer.
        most_at_once: How many chats it had at a time.
    """

    def __init__(
        self,
        *,
        refuses: dict[str, str] | None = None,
        usage: bool = True,
        thinks: str = "",
        limit: int = 10**9,
        lists: list[str] | None = None,
        ranked: str | None = None,
    ) -> None:
        super().__init__(_Handler)
        self.refuses, self.usage, self.thinks, self.limit = refuses or {}, usage, thinks, limit
        self.lists, self.ranked = lists, ranked
        self.most: int | None = None
        self.ends_with, self.seconds = (429, "insufficient_quota"), 0.0
        self.at_once = self.most_at_once = 0
        self.asked: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.prompts: list[str] = []

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    def cached(self, prompt: str) -> int:
        """Return the longest prefix that an earlier prompt began with, in characters."""
        prefixes = (commonprefix([prompt, earlier]) for earlier in self.prompts)  # noqa: RUF071 - texts, not paths
        return max(map(len, prefixes), default=0)


class _Handler(JsonHandler):
    server: ScriptedEndpoint

    def do_GET(self) -> None:
        lists = self.server.lists
        if lists is None:
            self.send_json(404, {"error": {"message": "no list"}})
        else:
            self.send_json(200, {"object": "list", "data": [{"id": model} for model in lists]})

    def do_POST(self) -> None:
        body, server = self.body(), self.server
        for name, instead in server.refuses.items():
            if name in body:
                server.refused.append(body)
                text = UNSUPPORTED.format(name, f" Use '{instead}' instead." if instead else "")
                error = {"message": text, "param": name, "code": "unsupported_parameter"}
                return self.send_json(400, {"error": {"type": "invalid_request_error", **error}})
        if server.most is not None and len(server.asked) >= server.most:
            status, code = server.ends_with
            return self.send_json(status, {"error": {"message": "No more.", "code": code}})
        with server.lock:
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        time.sleep(server.seconds)
        with server.lock:
            server.at_once -= 1
        prompt = "\n".join(message["content"] for message in body["messages"])
        if len(prompt) // 4 > server.limit:
            server.refused.append(body)
            text = f"This model's maximum context length is {server.limit} tokens. Please reduce the length."
            return self.send_json(400, {"error": {"message": text, "code": "context_length_exceeded"}})
        return self._answer(body, prompt)

    def _answer(self, body: dict[str, Any], prompt: str) -> None:
        server = self.server
        server.asked.append(body)
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        text = answer(schema, body["messages"][-1]["content"])
        if server.ranked is not None and schema is not None and "files" in schema["properties"]:
            text = server.ranked
        text = server.thinks + text
        message = {"role": "assistant", "content": text, "reasoning_content": "# Score\n1\nnot the answer"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": len(text) // 4,
            "total_tokens": (len(prompt) + len(text)) // 4,
            "prompt_tokens_details": {"cached_tokens": server.cached(prompt) // 4},
        }
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice]}
        server.prompts.append(prompt)
        self.send_json(200, {**reply, "usage": usage} if server.usage else reply)
