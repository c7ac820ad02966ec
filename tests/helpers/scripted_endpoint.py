"""An endpoint of OpenAI's interface that judges as `scripted_judge` does, and can be as strict as a hosted model's."""

import time
from os.path import commonprefix
from typing import Any

from scripted_judge import answer
from threaded_server import JsonHandler, ThreadedServer


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
