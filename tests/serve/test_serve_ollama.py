import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.llm.llamacpp import Completion, PromptTooLongError
from pcgeval.llm.protocol import Message
from pcgeval.serve.ollama import complete
from pcgeval.serve.requests import ChatBody, GenerateBody, RequestError, parse_body

MESSAGES = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), st.text("aé ", max_size=12)),
    min_size=1,
    max_size=12,
).map(tuple)


def tokens(messages):
    """A tokenizer of one token a character and three markers around a message."""
    return sum(3 + len(message["content"]) for message in messages)


class Engine:
    """Answers what fits, as llama.cpp does: a prompt that fills the context does not."""

    def __init__(self, context):
        self.context, self.served, self.refused = context, None, 0

    async def stream(self, body):
        if tokens(body["messages"]) >= self.context:
            self.refused += 1
            raise PromptTooLongError(tokens(body["messages"]), self.context)
        self.served = body
        yield Completion("x", 1, 1, "stop", 0.0, 0.0)


def ollama_keeps(messages, context):
    """Ollama's rule, word for word: leave out ever more of the oldest messages, keep the system's and the last."""
    for start in range(len(messages)):
        kept = [message for message in messages[:start] if message.role == "system"] + list(messages[start:])
        if tokens([{"content": message.content} for message in kept]) < context:
            return [message.content for message in kept]
    return None


def ask(engine, messages, **fields):
    body = ChatBody.model_validate({"model": "toy", **fields})

    async def parts():
        return [part async for part in complete(engine, body, messages)]

    return asyncio.run(parts())


@given(MESSAGES, st.integers(1, 120))
def test_the_messages_that_ollama_would_keep_are_kept(messages, context):
    engine, expected = Engine(context), ollama_keeps(messages, context)
    if expected is None:
        with pytest.raises(PromptTooLongError):
            ask(engine, messages)
    else:
        ask(engine, messages)
        assert [message["content"] for message in engine.served["messages"]] == expected


def test_thousands_of_messages_need_few_attempts():
    engine = Engine(4096)
    ask(engine, tuple(Message("user", "word") for _ in range(10_000)))
    assert tokens(engine.served["messages"]) > 4080
    assert engine.refused < 100


def test_a_client_may_forbid_truncation():
    engine = Engine(20)
    with pytest.raises(PromptTooLongError):
        ask(engine, (Message("user", "x" * 20), Message("user", "y")), truncate=False)
    assert engine.refused == 1


def test_options_go_under_llama_cpp_s_names():
    engine = Engine(99)
    options = {"num_predict": 3, "seed": 4, "stop": ["a"], "num_gpu": 1, "unheard_of": 2}
    ask(engine, (Message("user", "x"),), options=options, format="json")
    assert (engine.served["max_tokens"], engine.served["seed"], engine.served["stop"]) == (3, 4, ["a"])
    assert engine.served["response_format"] == {"type": "json_object"}
    assert engine.served["repeat_penalty"] == 1.1
    assert not {"num_gpu", "unheard_of", "num_ctx"} & set(engine.served)
    ask(engine, (Message("user", "x"),))
    assert engine.served["seed"] == -1  # as Ollama: another text each time


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("-1s", -1),
        ("0", 0),
        ("0s", 0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        (10, 10),
        (None, 300),
    ],
)
def test_keep_alive_is_a_duration(given, seconds):
    body = parse_body(ChatBody, f'{{"model": "toy", "keep_alive": {json.dumps(given)}}}'.encode())
    assert body.keep_alive == seconds


@pytest.mark.parametrize("given", ["", "5", "m", "5 m", "5m!", "--5m", "٣s", [], {}])
def test_other_durations_are_refused(given):
    with pytest.raises(RequestError, match="keep_alive"):
        parse_body(ChatBody, f'{{"model": "toy", "keep_alive": {json.dumps(given)}}}'.encode())


def test_raw_takes_no_system_message():
    with pytest.raises(RequestError, match="raw mode"):
        parse_body(GenerateBody, b'{"model": "toy", "raw": true, "system": "x", "prompt": "y"}')
