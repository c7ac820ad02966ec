"""The key by which recorded replies are found: it may never change for requests that recordings have."""

import json
from pathlib import Path

from pcgeval.core.files import sha256_bytes
from pcgeval.llm.protocol import ChatRequest, Message
from pcgeval.llm.recorded import RecordedModel

DATA = Path(__file__).parents[2] / "data"
DIGEST = "ab" * 32
SMOLLM = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REQUEST = ChatRequest("toy:1b", DIGEST, (Message("user", "Hi"),), {"temperature": 1, "seed": 5})


def key_of(**values):
    """The definition, word for word: the SHA-256 of the request as JSON, sorted and without spaces."""
    return sha256_bytes(json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def test_the_key_without_a_schema_is_the_one_of_the_first_recordings():
    messages = [{"role": "user", "content": "Hi"}]
    values = {"model": "toy:1b", "digest": DIGEST, "messages": messages, "options": {"temperature": 1, "seed": 5}}
    assert REQUEST.key == key_of(**values)
    schema = {"type": "object"}
    assert ChatRequest(**{**vars(REQUEST), "schema": schema}).key == key_of(**values, schema=schema)


def test_a_recorded_reply_is_still_found():
    prompt = (DATA / "submissions" / "zero-shot" / "prompt.txt").read_text("utf-8")
    options = {"temperature": 1, "repeat_penalty": 1.1, "num_predict": 200, "num_ctx": 2048, "seed": 1604650089}
    messages = (Message("user", prompt.replace("<OBJECT>", "A")),)
    request = ChatRequest("smollm2:135m-instruct-q4_1", SMOLLM, messages, options)
    assert request.key == "33a8bda818371abaf952635d796795bc8d5c96b0aaf53081d5b08da5731ea949"
    model = RecordedModel.read(DATA / "recordings" / "smollm2-135m" / "zero-shot" / "calls.jsonl", SMOLLM)
    reply = model.chat(request, 1)
    assert reply.text.startswith("Yes, I can help you with this!")
