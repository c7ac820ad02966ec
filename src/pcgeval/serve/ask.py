"""What `serve-local` is asked, brought to one form, and how it is put to llama.cpp."""

from dataclasses import dataclass

from pcgeval.llm.llamacpp import Completion, LlamaCpp, OnText, PromptTooLongError, message_bodies, sampling
from pcgeval.llm.protocol import Message
from pcgeval.serve.answers import Answers, OllamaAnswers
from pcgeval.serve.requests import AskBody, ChatBody, GenerateBody

_MARKERS = 16  # tokens that a chat template may put around a message, at most


@dataclass(frozen=True)
class Ask:
    """A request to chat or to generate."""

    body: AskBody
    messages: tuple[Message, ...]
    raw_prompt: str | None  # instead of messages
    answers: Answers

    @property
    def empty(self) -> bool:
        """Whether nothing is asked: the model is only loaded or unloaded."""
        return not self.messages and self.raw_prompt is None


def chat_ask(body: ChatBody) -> Ask:
    """Read a request to /api/chat."""
    # a tool's message reaches the model through its template, like any other
    messages = tuple(Message(message.role, message.content) for message in body.messages)  # type: ignore[arg-type]
    answers = OllamaAnswers(body.wanted, lambda text: {"message": {"role": "assistant", "content": text}})
    return Ask(body, messages, None, answers)


def generate_ask(body: GenerateBody) -> Ask:
    """Read a request to /api/generate: one user message, or with `raw` a prompt without a template."""
    system = (Message("system", body.system),) if body.system else ()
    messages = (*system, Message("user", body.prompt)) if body.prompt and not body.raw else ()
    answers = OllamaAnswers(body.wanted, lambda text: {"response": text})
    return Ask(body, messages, body.prompt if body.prompt and body.raw else None, answers)


def complete(engine: LlamaCpp, ask: Ask, on_text: OnText) -> Completion:
    """Ask the engine; a chat that is too long loses its oldest messages until it fits, unless `truncate` is false.

    Raises:
        PromptTooLongError: The system's messages and the last one are too long by themselves.
        CallError: llama.cpp refused the request.
    """
    body = {**sampling(ask.body.options.model_dump(exclude_none=True)), **ask.body.response_format}
    if ask.body.options.stop:
        body["stop"] = list(ask.body.options.stop)
    if ask.raw_prompt is not None:
        return engine.complete({**body, "prompt": ask.raw_prompt}, on_text)
    messages = ask.messages
    while True:
        try:
            return engine.complete({**body, "messages": message_bodies(messages)}, on_text)
        except PromptTooLongError as error:
            shorter = without_oldest(messages, error.excess) if ask.body.truncate else messages
            if len(shorter) == len(messages):
                raise
            messages = shorter


def without_oldest(messages: tuple[Message, ...], excess: int) -> tuple[Message, ...]:
    """Drop the oldest messages but the system's and the last one: at least one, and none too many.

    A message holds no more tokens than its bytes and the markers around it. Dropping until the sum of these bounds is
    over the excess (in tokens) therefore never drops a message too many; what is still too long comes back here.
    """
    kept: list[Message] = []
    bound = 0
    for message in messages[:-1]:
        if message.role != "system" and bound <= excess:
            bound += len(message.content.encode("utf-8", "surrogatepass")) + _MARKERS
        else:
            kept.append(message)
    return (*kept, messages[-1])
