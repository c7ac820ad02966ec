"""What is sent to the judge's model for a call: messages, options, and the key by which a reply is found again.

The key is the SHA-256 of the request: model and digest, options, messages and schema, and the endpoint where the digest
pins only a name. An endpoint with less context than the settings say gets a shorter request, but the key stays that of
the request by the settings, so that a replay finds the reply.
"""

from pcgeval.core.files import sha256_json
from pcgeval.core.params import Model
from pcgeval.judge.prompts import FittedCall, JudgeCall
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.protocol import CallError, ChatRequest, Option

_LEAST_CONTEXT = 1024  # tokens; a smaller number in a refusal is something else
_LESS_CONTEXT = 0.8  # of the context, after a refusal that names none
_SETTABLE_CONTEXT = ("ollama", "llamacpp")  # the backends that take num_ctx
_OF_SETTINGS = ("num_ctx", "num_predict", "seed")  # options that are settings of the judge


def served_model(model: Model, context: int | None = None) -> Model:
    """Return a model without the options that are settings of the judge, but with its context where it takes one."""
    options = {name: value for name, value in model.options.items() if name not in _OF_SETTINGS}
    context_option = {"num_ctx": context} if context is not None and model.backend in _SETTABLE_CONTEXT else {}
    return model.model_copy(update={"options": options | context_option})


def fitted_call(call: JudgeCall, settings: JudgeSettings) -> FittedCall:
    """Return a call as it fits the context of the settings; raises ContextError."""
    return call.fitted(settings.context_tokens, _room(call, settings) or 0)


def request_key(call: JudgeCall, settings: JudgeSettings, digest: str | None) -> str:
    """Return the key of a call; raises CallError where it has no room."""
    model = settings.judge_model
    values = {
        "model": model.name,
        "digest": digest,
        "endpoint": model.base_url,
        "options": _options(call, settings),
        "messages": [[message.role, message.content] for message in fitted_call(call, settings).messages],
        "schema": call.schema,
    }
    return sha256_json(values)


def request_of(call: JudgeCall, settings: JudgeSettings, digest: str | None, context: int) -> ChatRequest:
    """Return the request of a call to an endpoint with so much context; raises CallError where it has no room."""
    model, options, fitted = settings.judge_model, _options(call, settings), fitted_call(call, settings)
    if model.backend in _SETTABLE_CONTEXT:
        options["num_ctx"] = settings.context_tokens
    if context < settings.context_tokens:
        if "num_predict" in options:
            options["num_predict"] = min(int(options["num_predict"]), context // 2)
        fitted = call.fitted(context, int(options.get("num_predict", 0)))
    schema = call.schema if model.known_profile.structured_output else None
    return ChatRequest(model.name, digest or "", fitted.messages, options, schema, adaptable=True)


def less_context(context: int, named: int | None) -> int:
    """Return the context to try next at an endpoint that finds a prompt too long and may name its context."""
    return named if named is not None and _LEAST_CONTEXT <= named < context else int(context * _LESS_CONTEXT)


def _options(call: JudgeCall, settings: JudgeSettings) -> dict[str, Option]:
    """Return the options that decide an answer: the profile's, then the user's own; what is None is not sent."""
    model, profile = settings.judge_model, settings.judge_model.known_profile
    usual = {"temperature": profile.temperature, "reasoning_effort": profile.reasoning_effort}
    options = {name: value for name, value in usual.items() if value is not None}
    options |= {name: value for name, value in model.options.items() if name not in _OF_SETTINGS}
    if profile.seed or "seed" in model.options:
        options["seed"] = int(model.options.get("seed", settings.seed)) + call.vote
    if (room := _room(call, settings)) is not None:
        options["num_predict"] = room
    return options


def _room(call: JudgeCall, settings: JudgeSettings) -> int | None:
    """Return the room for the answer in tokens; CallError where one that was cut off has no more room."""
    usual = settings.answer_tokens
    if call.rooms == 1:
        return usual
    if usual is None:  # the same call again would be the same reply, counted twice
        raise CallError("the endpoint cut the answer off, and the profile has no answer_tokens to raise")
    if (most := min(call.rooms * usual, settings.context_tokens // 2)) < 1.5 * usual:
        raise CallError(f"the answer has more than {usual} tokens, and the context has no more room for it")
    return most
