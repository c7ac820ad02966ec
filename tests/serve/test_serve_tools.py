"""Tools offered through `serve-local`: read from a model's text, and called by a real model for the official client."""

import json
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_model import ask

from pcgeval.llm.local_models import LOCAL_MODELS
from pcgeval.llm.protocol import Message
from pcgeval.llm.schemas import SchemaError
from pcgeval.serve.openai import CompletionBody
from pcgeval.serve.requests import parse_body
from pcgeval.serve.tools import Offer, ToolBody

NAN = float("nan")
SMOLLM = LOCAL_MODELS[-1]
BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a shell command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
END = {"type": "function", "function": {"name": "end", "strict": True}}
OFFER = Offer((ToolBody.model_validate(BASH), ToolBody.model_validate(END)))
LS = '{"name": "bash", "arguments": {"command": "ls"}}'
CALL = ("bash", '{"command": "ls"}')
USER = [{"role": "user", "content": "List the files with the tool."}]


def read_by(offer, text):
    said, calls = offer.read(text)
    assert all(call["type"] == "function" and call["id"].startswith("call_") for call in calls)
    return said, tuple((call["function"]["name"], call["function"]["arguments"]) for call in calls)


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        (f"<tool_call>\n{LS}\n</tool_call>", "", (CALL,)),
        (f"I look.\n<tool_call>{LS}</tool_call>", "I look.", (CALL,)),
        (f"<tool_call>{LS}", "", (CALL,)),
        (f"<tool_call>{LS}</tool_call>\n<tool_call>{LS}</tool_call>", "", (CALL, CALL)),
        (f"```json\n{LS}\n```", "", (CALL,)),
        (f"So:\n```json\n{LS}\n```\nDone.", "So:\n\nDone.", (CALL,)),
        (LS, "", (CALL,)),
        (f"{LS}\n{LS}", "", (CALL, CALL)),
        ('{"name": "bash", "parameters": {"command": "ls"}}', "", (CALL,)),
        ('{"name": "end"}', "", (("end", "{}"),)),
        ('<tool_call>{"name": "bash", "arguments": {"command": "é"}}', "", (("bash", '{"command": "é"}'),)),
    ],
)
def test_calls_are_read_however_small_models_write_them(text, said, calls):
    assert read_by(OFFER, text) == (said, calls)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        "<tool_call>",
        "<tool_call>ls</tool_call>",
        '<tool_call>{"name": "bash", "arguments": {"comm',
        '{"name": "rm", "arguments": {}}',
        '{"name": ["bash"], "arguments": {}}',
        '{"name": "bash", "arguments": "ls"}',
        '{"name": "bash", "arguments": {"n": NaN}}',
        '{"name": "bash", "arguments": {"n": 1e999}}',
        f"{LS} and more",
        f"Call {LS}",
        "[" * 100_000,
        '{"name": "bash", "arguments": {"n": ' + "9" * 5000 + "}}",
        "```\n" * 20_000,
        "<tool_call>" * 20_000,
    ],
)
def test_what_is_no_call_stays_text(text):
    assert read_by(OFFER, text) == (text, ())


@given(st.lists(st.sampled_from(["<tool_call>", "</tool_call>", "```json\n", "```", LS, "\n", "x"])).map("".join))
def test_any_text_is_read_in_whole(text):
    said, calls = read_by(OFFER, text)
    assert all(call == CALL for call in calls)
    assert calls or said == text


def test_one_call_where_parallel_ones_are_not_wanted():
    assert read_by(Offer(OFFER.tools, parallel=False), f"{LS}\n{LS}") == ("", (CALL,))


def test_a_call_that_must_be_made_has_a_schema():
    named = Offer(OFFER.tools, ("bash",)).schema
    assert named["properties"]["name"] == {"const": "bash"}
    assert named["properties"]["arguments"] == BASH["function"]["parameters"]
    assert len(Offer(OFFER.tools, ("bash", "end")).schema["anyOf"]) == 2
    endless = ToolBody.model_validate({"type": "function", "function": {"name": "x", "parameters": {"$ref": "#"}}})
    with pytest.raises(SchemaError, match="refers to itself"):
        Offer((endless,), ("x",)).schema  # noqa: B018


def read(**fields):
    return parse_body(CompletionBody, json.dumps({"model": "toy", "messages": USER, **fields}).encode())


def shown(**fields):
    return tuple(Message(**message) for message in read(**fields).wire["messages"])


def test_a_conversation_with_tools_is_shown_as_text():
    called = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    broken = {"id": "b", "type": "function", "function": {"name": "bash", "arguments": "{"}}
    history = [
        {"role": "developer", "content": "You work alone.", "name": "boss"},
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {"role": "assistant", "content": None, "tool_calls": [called, broken], "refusal": None, "audio": None},
        {"role": "tool", "tool_call_id": "a", "content": "a.txt"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "no JSON"}], "name": "bash"},
        {"role": "assistant", "content": "Done.", "tool_calls": None},
    ]
    messages = shown(messages=history, tools=[BASH], unheard_of=1)
    assert messages[0].role == "system"
    assert messages[0].content.startswith("You work alone.\n\n# Tools")
    assert '"name": "bash"' in messages[0].content
    assert messages[1:] == (
        Message("user", "Go."),
        Message(
            "assistant",
            f'<tool_call>\n{LS}\n</tool_call>\n<tool_call>\n{{"name": "bash", "arguments": "{{"}}\n</tool_call>',
        ),
        Message("user", "<tool_response>\na.txt\n</tool_response>\n<tool_response>\nno JSON\n</tool_response>"),
        Message("assistant", "Done."),
    )
    assert shown(tools=[BASH])[0].role == "system"
    assert shown(tools=[BASH], tool_choice="none") == (Message("user", USER[0]["content"]),)


def test_arguments_that_no_json_can_say_are_shown_as_text():
    called = {"function": {"name": "bash", "arguments": '{"n": NaN}'}}
    (message,) = shown(messages=[{"role": "assistant", "tool_calls": [called]}])
    assert '"arguments": "{\\"n\\": NaN}"' in message.content


class Engine:
    """Answers as llama.cpp does, always with the same text."""

    def __init__(self, text):
        self.text, self.asked = text, []

    @asynccontextmanager
    async def post(self, _, body, *, reuse_prefix):
        assert not reuse_prefix
        self.asked.append(body)
        choice = {"index": 0, "message": {"role": "assistant", "content": self.text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        yield httpx.Response(200, json={"id": "1", "created": 1, "model": "toy", "choices": [choice], "usage": usage})


@pytest.fixture
def answered(server, monkeypatch):
    def post(text, **fields):
        monkeypatch.setattr(server.manager, "_load", lambda *_: Engine(text))
        body = json.dumps({"model": "toy", "messages": USER, "tools": [BASH, END], **fields}).encode()
        status, content = ask(server, "POST", "/v1/chat/completions", body)
        assert status == 200
        return content.decode()

    return post


def test_calls_are_worded_whole_and_streamed(answered):
    choice = json.loads(answered(LS))["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    text = f"I look. <tool_call>{LS}</tool_call>"
    events = answered(text, stream=True, stream_options={"include_usage": True}).split("\n\n")
    call, end, costs = (json.loads(event.removeprefix("data: ")) for event in events[:-2])
    assert events[-2:] == ["data: [DONE]", ""]
    assert call["choices"][0]["delta"]["content"] == "I look."
    assert call["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
    assert end["choices"][0]["finish_reason"] == "tool_calls"
    assert costs["usage"]["total_tokens"] == 8
    text = json.loads(answered("Hello"))["choices"][0]
    assert (text["message"]["content"], text["finish_reason"]) == ("Hello", "stop")
    assert "tool_calls" not in text["message"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tools": [{}]}, "tools.0.type"),
        ({"tools": [{"type": "code", "function": {"name": "a"}}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"x": NAN}}}]},
            "tools.0: Out",
        ),
        ({"tools": [BASH, BASH]}, "the same name"),
        ({"tools": [BASH] * 200}, "tools"),
        ({"tools": [BASH], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [BASH], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "no tool 'x'"),
        ({"tool_choice": "required"}, "no tools are offered"),
        ({"tools": [BASH], "response_format": {"type": "json_object"}}, "together with tools"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format"),
        ({"functions": [{"name": "a"}]}, "functions is not supported"),
        ({"top_logprobs": 3}, "top_logprobs is not supported"),
        ({"guided_json": {}, "guided_regex": "a"}, "guided_regex is not supported"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, "messages.0.tool_calls.0"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages.0.tool_calls"),
    ],
)
def test_bad_offers_are_refused(server, fields, message):
    body = json.dumps({"model": "toy", "messages": USER, **fields}).encode()
    status, content = ask(server, "POST", "/v1/chat/completions", body)
    assert status == 400
    assert message in json.loads(content)["error"]["message"]


@pytest.mark.llm
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_calls_the_tool_that_it_must_call(local_server, stream):
    openai = pytest.importorskip("openai", reason="the extra openai is not installed")
    create = openai.OpenAI(base_url=f"{local_server.address}/v1", api_key="none", max_retries=0).chat.completions.create
    asked = {"model": SMOLLM.name, "messages": USER, "tools": [BASH, END], "temperature": 0, "max_tokens": 60}
    more = {"extra_body": {"num_ctx": 512}, "tool_choice": {"type": "function", "function": {"name": "bash"}}}
    if stream:
        parts = [part.choices[0] for part in create(**asked, **more, stream=True) if part.choices]
        (call,) = [call for part in parts for call in part.delta.tool_calls or ()]
        reason = parts[-1].finish_reason
    else:
        choice = create(**asked, **more).choices[0]
        ((call,), reason) = (choice.message.tool_calls, choice.finish_reason)
    assert (call.function.name, reason) == ("bash", "tool_calls")
    assert isinstance(json.loads(call.function.arguments)["command"], str)
    endless = {"type": "function", "function": {"name": "x", "parameters": {"$ref": "#"}}}
    with pytest.raises(openai.BadRequestError, match="refers to itself"):
        create(**{**asked, "tools": [endless]}, tool_choice="required")
