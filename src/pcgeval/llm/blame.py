"""The table of blame: from what came back to one request to whose fault it is that there is no reply.

`verdict_on` is a pure function. It never blames a submission for more than a prompt that is too long or that a content
filter refused; everything that it cannot decide is `undecided`, and a neutral call decides (`llm.neutral`).
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from pcgeval.formats.failures import failure
from pcgeval.formats.trials import MAX_COUNT
from pcgeval.llm.protocol import BlameVerdict, full_name

# why replies end; other words, such as `abort` or `load`, are no end of a reply
FILTERED = "content_filter"
REFUSAL = "refusal"  # the interface's field of this name holds the reply
ENDS = frozenset({"stop", "length", FILTERED, REFUSAL, "eos", "eos_token", "end_turn", "stop_sequence", "max_tokens"})
CUT_OFF = frozenset({"length", "max_tokens"})  # of ENDS: the reply is not whole

_ACCESS = frozenset({401, 402, 403})
NOT_OFFERED = frozenset({404, 405, 501})  # no such model, or no such address
_BUSY = frozenset({408, 409, 425, 429, 503, 529})  # the server names itself
_CONTEXT = re.compile(
    r"context_length_exceeded|(?:maximum|max|exceeds?|available|model's|loaded with) (?:the |a )?(?:model's )?"
    r"(?:maximum )?context|context (?:length|size|window) (?:is )?(?:exceeded|overflow)|context (?:the )?overflows"
    r"|greater than the context|exceed_context_size|prompt is too long|too many tokens|reduce the length",
    re.IGNORECASE,
)
_CONTEXT_SIZE = re.compile(r"(?:context[^.0-9]{0,60}?|n_ctx\D{0,5})([0-9]{3,8})", re.IGNORECASE)
_FILTER = re.compile(
    r"content[_ -]?(?:filter|policy|management)|data_inspection_failed|moderation|flagged|safety (?:system|filter)",
    re.IGNORECASE,
)
_PLACES = ("param", "loc", "path", "field", "location", "parameter")  # keys whose values place an error
# other names of options by which servers know them, by the names in params.yaml
_OTHER_NAMES = {
    "num_predict": ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict"),
    "repeat_penalty": ("repetition_penalty",),
    "reasoning_effort": ("think", "thinking", "reasoning"),
    "stream": ("stream_options", "streaming"),
    "name": ("model",),
}
_ONLY_PLACED = frozenset({"name"})  # `model` stands in messages about anything


@dataclass(frozen=True)
class Answer:
    """What came back to one request; token counts and names are as the server reports them.

    Attributes:
        status: The HTTP status; None where no HTTP answer came.
        body: The body of an error, on one line.
        trouble: Why there is no whole answer, in our words; empty for a whole one.
        end: Why the reply ended; None if it did not.
        model: How the answering model calls itself; None if the server does not say it.
        wait: The seconds that the server asks to wait.
    """

    status: int | None = None
    body: str = ""
    trouble: str = ""
    end: str | None = None
    prompt_tokens: object = None
    output_tokens: object = None
    model: str | None = None
    wait: float = 0.0


@dataclass(frozen=True)
class Sent:
    """What was sent, as far as a server can refuse it.

    Attributes:
        model: The model that was asked.
        fields: The names in params.yaml of the fields that were sent, by the server's names.
        room: The room for the reply in tokens; None without a limit.
    """

    model: str
    fields: Mapping[str, str]
    room: int | None = None


def verdict_on(answer: Answer, sent: Sent) -> BlameVerdict:
    """Return whose fault an answer is; see the module."""
    if answer.status is not None and not 200 <= answer.status < 300:
        return _on_refusal(answer, sent)
    if answer.trouble:
        context = _on_context(answer, sent)
        return context or BlameVerdict("undecided", answer.trouble)
    if answer.end not in ENDS:
        return BlameVerdict("undecided", f"the reply ended with {answer.end!r}")
    if not is_count(answer.prompt_tokens) or not is_count(answer.output_tokens) or not answer.output_tokens:
        tokens = f"{answer.prompt_tokens!r:.40} tokens read and {answer.output_tokens!r:.40} written"
        return BlameVerdict("undecided", f"the server reports {tokens}")
    if answer.model and not same_model(sent.model, answer.model):
        return BlameVerdict("settings", f"the server answers as {answer.model}", "name", "model", is_certain=True)
    return BlameVerdict("reply")


def _on_refusal(answer: Answer, sent: Sent) -> BlameVerdict:
    """Return the verdict on an error status."""
    status, reason = answer.status or 0, f"the server answered {answer.status}"
    is_refused = 400 <= status < 500 and status not in _BUSY
    if (status in _ACCESS and not _FILTER.search(answer.body)) or "insufficient_quota" in answer.body:
        return BlameVerdict("settings", "the server refuses access", is_certain=True)
    if status not in _BUSY and (verdict := _on_context(answer, sent)):
        return verdict
    if is_refused and _FILTER.search(answer.body):
        return BlameVerdict("request", reason, failure=failure("filtered", detail=answer.body))
    if is_refused and (verdict := _on_field(answer, sent, reason)):
        return verdict
    if status in NOT_OFFERED:
        return BlameVerdict("settings", reason, "name", "model", is_certain=True)
    return BlameVerdict("server" if status in _BUSY else "undecided", reason)


def _on_field(answer: Answer, sent: Sent, reason: str) -> BlameVerdict | None:
    """Return the verdict on a refusal that places or names a field that was sent."""
    places = [*_placed(_json(answer.body))]
    if placed := next(_fields_in(places, sent.fields, in_words=False), None):
        return BlameVerdict("settings", reason, sent.fields[placed], placed, is_certain=True)
    if answer.status not in NOT_OFFERED and (
        named := next(_fields_in([answer.body], sent.fields, in_words=True), None)
    ):
        return BlameVerdict("settings", reason, sent.fields[named], named)
    return None


def _on_context(answer: Answer, sent: Sent) -> BlameVerdict | None:
    """Return the verdict on a context that is exceeded, by the prompt or by the room that the settings ask for."""
    if not _CONTEXT.search(answer.body):
        return None
    found = _CONTEXT_SIZE.search(answer.body)
    context = int(found[1]) if found else None
    if context is not None and sent.room is not None and 2 * sent.room > context:
        reason = f"num_predict {sent.room} leaves too little of the context of {context} tokens"
        sent_as = next((name for name, ours in sent.fields.items() if ours == "num_predict"), None)
        return BlameVerdict("settings", reason, "num_predict", sent_as, is_certain=True, context=context)
    size = "" if context is None else f" of {context} tokens"
    failed = failure("context-exceeded", size=size, detail=answer.body)
    return BlameVerdict("request", "the prompt is too long", failure=failed, context=context)


def _fields_in(texts: Collection[str], fields: Mapping[str, str], *, in_words: bool) -> Iterator[str]:
    """Yield the sent fields that texts name, in quotes first; `in_words` are whole sentences, else single names."""
    names = {
        name: sent_as
        for sent_as, ours in fields.items()
        if not (in_words and ours in _ONLY_PLACED)
        for name in (sent_as, ours, *_OTHER_NAMES.get(ours, ()))
    }
    if not in_words:
        for text in texts:
            yield from (names[part] for part in re.split(r"[.\[\]/]", text) if part in names)
        return
    for pattern in (r"[\"'`\\]{}[\"'`\\.]", r"(?<![\w-]){}(?![\w-])"):
        for text in texts:
            found = {name: re.search(pattern.format(_spelt(name)), text, re.IGNORECASE) for name in names}
            for name in sorted((name for name in names if found[name]), key=lambda name: found[name].start()):  # type: ignore[union-attr]
                yield names[name]


def _spelt(name: str) -> str:
    """Return the pattern of a name, whose words a sentence may separate in another way."""
    return re.escape(name).replace("_", "[ _-]")


def _json(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _placed(values: Any, key: str = "") -> Iterator[str]:
    """Yield the texts below the keys that place an error, and nothing of a place in the messages."""
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _placed(value, name if isinstance(value, str | list) else "")
    elif isinstance(values, list):
        texts = [value for value in values if isinstance(value, str)]
        if key not in _PLACES:
            texts = []
        if "messages" not in texts:
            yield from texts
        for value in values:
            if isinstance(value, dict | list):
                yield from _placed(value)
    elif key in _PLACES and isinstance(values, str) and not values.startswith("messages"):
        yield values


def is_count(tokens: object) -> TypeGuard[int]:
    """Tell whether a server's number of tokens is one."""
    return isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= MAX_COUNT


def same_model(asked: str, answering: str) -> bool:
    """Tell whether an answering model is the one that was asked, maybe with its version or without its owner."""
    if full_name(asked) == full_name(answering):
        return True
    one, other = (re.split(r"[/\\]", name.casefold())[-1] for name in (asked, answering))
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and not long[len(short) :][:1].isalnum()
