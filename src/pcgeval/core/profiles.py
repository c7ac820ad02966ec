"""Profiles of language models that judge: a model's limits, the fields that its endpoint takes, and its price.

A profile is found by the model's name and can be overridden field by field in params.yaml (`rubric.model.profile`).
A field that is None is unknown, or is not sent.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TOKEN_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
OPENAI_URL = "https://api.openai.com/v1"
USUAL_CONTEXT = 128_000  # tokens that a judge uses of a hosted model's context unless it is told otherwise
MAX_PRICE = 1e9  # with it the price of any grading is a finite number
_OWN_CONTEXT = 32_768  # the same for a model on a server of one's own, which needs memory for it


class Price(BaseModel):
    """US dollars per million tokens; `cached` is the price of input that the endpoint had in its cache."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    input: float = Field(ge=0, le=MAX_PRICE)
    output: float = Field(ge=0, le=MAX_PRICE)
    cached: float | None = Field(None, ge=0, le=MAX_PRICE)

    def cost(self, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """Return the price in US dollars of so many tokens; `cached_tokens` are part of `prompt_tokens`."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(prompt_tokens - cached_tokens, 0)
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1e6


class ModelProfile(BaseModel):
    """How a model is asked.

    Attributes:
        context: Tokens of a prompt and its answer together that the model can take.
        answer_tokens: Room for an answer in tokens, a reasoning model's thoughts included.
        reasoning_effort: low, medium, high, or what else the endpoint takes.
        temperature: The temperature; None for models that take none.
        seed: Whether a seed is sent.
        limit_field: The name of the field that bounds the answer.
        structured_output: How an answer in JSON is asked for.
        price: Its price.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    context: int | None = Field(None, ge=1024, le=2**24)
    answer_tokens: int | None = Field(4_000, ge=16)
    reasoning_effort: str | None = None
    temperature: int | float | None = Field(0, ge=0, le=2)
    seed: bool = True
    limit_field: Literal["max_tokens", "max_completion_tokens", "max_output_tokens"] | None = "max_tokens"
    structured_output: Literal["json_schema", "json_object"] | None = "json_schema"
    price: Price | None = None


def _hosted(context: int, price: tuple[float, float, float], **more: Any) -> ModelProfile:
    return ModelProfile(context=context, price=Price(input=price[0], output=price[1], cached=price[2]), **more)


_REASONING: dict[str, Any] = {
    "answer_tokens": 10_000,
    "temperature": None,
    "seed": False,
    "limit_field": "max_completion_tokens",
}
# Limits and list prices as the providers published them in 2025; they change, and params.yaml can override each.
# A name matches the first entry that is its beginning.
_KNOWN = {
    "o1": _hosted(200_000, (15.0, 60.0, 7.5), **_REASONING),
    "o3-mini": _hosted(200_000, (1.1, 4.4, 0.55), **_REASONING, reasoning_effort="high"),  # PaperBench's judge
    "o3": _hosted(200_000, (2.0, 8.0, 0.5), **_REASONING),
    "o4-mini": _hosted(200_000, (1.1, 4.4, 0.275), **_REASONING),
    "gpt-4o-mini": _hosted(128_000, (0.15, 0.6, 0.075)),
    "gpt-4o": _hosted(128_000, (2.5, 10.0, 1.25)),
    "gpt-4.1-nano": _hosted(1_047_576, (0.1, 0.4, 0.025)),
    "gpt-4.1-mini": _hosted(1_047_576, (0.4, 1.6, 0.1)),
    "gpt-4.1": _hosted(1_047_576, (2.0, 8.0, 0.5)),
    "gpt-5-nano": _hosted(400_000, (0.05, 0.4, 0.005), **_REASONING),
    "gpt-5-mini": _hosted(400_000, (0.25, 2.0, 0.025), **_REASONING),
    "gpt-5": _hosted(400_000, (1.25, 10.0, 0.125), **_REASONING),
    # open weights: the price is the server's
    "gpt-oss": ModelProfile(context=131_072, answer_tokens=10_000, temperature=1.0),
    "deepseek-reasoner": ModelProfile(
        context=131_072,
        answer_tokens=10_000,
        temperature=None,
        seed=False,
        structured_output="json_object",
        price=Price(input=0.55, output=2.19, cached=0.14),
    ),
    "deepseek-r1": ModelProfile(context=131_072, answer_tokens=10_000, temperature=0.6),
    "qwen3": ModelProfile(context=40_960, answer_tokens=6_000, temperature=0.6),
    # the local models; a CPU reads a few dozen tokens a second
    "qwen2.5-coder": ModelProfile(context=8_192, answer_tokens=2_000),
    "smollm2": ModelProfile(context=8_192, answer_tokens=2_000),
}
_OPENAI_ONLY = ("o1", "o3", "o4-mini", "gpt-3.5", "gpt-4", "gpt-4o", "gpt-5", "chatgpt-4o")


# The snapshots that cost what `_KNOWN` says, as the names themselves do. Names that begin alike, such as o1-pro or
# gpt-4o-2024-05-13, have other prices; the price of a name that is not here is unknown.
_SNAPSHOTS = {
    "o1": ("2024-12-17",),
    "o3": ("2025-04-16",),
    "o3-mini": ("2025-01-31",),
    "o4-mini": ("2025-04-16",),
    "gpt-4o": ("2024-08-06", "2024-11-20"),
    "gpt-4o-mini": ("2024-07-18",),
    "gpt-4.1": ("2025-04-14",),
    "gpt-4.1-mini": ("2025-04-14",),
    "gpt-4.1-nano": ("2025-04-14",),
    "gpt-5": ("2025-08-07",),
    "gpt-5-mini": ("2025-08-07",),
    "gpt-5-nano": ("2025-08-07",),
    "deepseek-reasoner": (),
}
_PRICED = {*_SNAPSHOTS, *(f"{name}-{date}" for name, dates in _SNAPSHOTS.items() for date in dates)}


def known_profile(name: str, *, is_hosted: bool = True) -> ModelProfile:
    """Return what is known of a model by its name; of an unknown one, the usual values of its kind of server.

    The price is that of the exact name, else None.
    """
    for known, profile in _KNOWN.items():
        if _begins(name, known):
            return profile if name in _PRICED else profile.model_copy(update={"price": None})
    return ModelProfile(context=USUAL_CONTEXT if is_hosted else _OWN_CONTEXT)


def is_openai_model(name: str) -> bool:
    """Tell whether a name is one of OpenAI's hosted models."""
    return any(_begins(name, known) for known in _OPENAI_ONLY) and not _begins(name, "gpt-oss")


def _begins(name: str, known: str) -> bool:
    """Tell whether a model's name, without its owner's, is the known one, perhaps with a version or size behind it."""
    bare = name.rpartition("/")[2].casefold()
    return bare.startswith(known) and not bare[len(known) :][:1].isalnum()
