"""An endpoint of OpenAI's interface that judges as `scripted_judge` does, and can be as strict as a hosted model's."""

import time
from os.path import commonprefix
from typing import Any

from scripted_judge import answer, kind_of
from threaded_server import JsonHandler, ThreadedServer


class ScriptedEndpoint(ThreadedServer):
    """Answers chats; `asked` are the bodies that it answered, `prompts` their texts, `refused` the other bodies.

    It refuses fields (and says what to use instead, if anything), prompts of more tokens than `limit`, and what goes
    beyond `most` chats. `usage`: it reports tokens of four characters, some of them cached, as earlier prompts began
    alike. `lists` are its models, if it lists any; `ranked` answers which files to look at.
    """

    def __init__(
        self,
        *,
        refuses: dict[str, str] | None = None,
        usage: bool = True,
        limit: float = float("inf"),
        lists: list[str] | None = None,
        ranked: str | None = None,
    ) -> None:
        super().__init__()
        self.refuses, self.usage, self.limit, self.lists, self.ranked = refuses or {}, usage, limit, lists, ranked
        self.most, self.seconds = float("inf"), 0.0
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
        if error := self.error(body, prompt):
            self.refused.append(body)
            request.send_json(429 if error["code"] == "insufficient_quota" else 400, {"error": error})
        else:
            self.asked.append(body)
            request.send_json(200, self.reply(body, prompt))
            self.prompts.append(prompt)

    def error(self, body: dict[str, Any], prompt: str) -> dict[str, str] | None:
        """Return what is wrong with a request, as OpenAI says it."""
        for name, instead in self.refuses.items():
            if name in body:
                text = f"Unsupported parameter: '{name}' is not supported with this model."
                text += f" Use '{instead}' instead." if instead else ""
                return {"message": text, "param": name, "code": "unsupported_parameter"}
        if len(self.asked) >= self.most:
            return {"message": "No more.", "code": "insufficient_quota"}
        if len(prompt) // 4 > self.limit:
            text = f"This model's maximum context length is {self.limit} tokens. Please reduce the length."
            return {"message": text, "code": "context_length_exceeded"}
        return None

    def reply(self, body: dict[str, Any], prompt: str) -> dict[str, Any]:
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        text = answer(schema, body["messages"][-1]["content"])
        if self.ranked is not None and kind_of(schema) == "rank":
            text = self.ranked
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
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice]}
        return {**reply, "usage": usage} if self.usage else reply
