"""Profiles of models that judge: limits, the fields that the endpoint takes, and the price, as in profiles.yaml.

params.yaml overrides a known profile field by field (`rubric.model.profile`). A field that is None is unknown, or is
not sent.
"""

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

TOKEN_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
OPENAI_URL = "https://api.openai.com/v1"
USUAL_CONTEXT = 128_000  # tokens of a hosted model's context that a judge uses by default
_LOCAL_CONTEXT = 32_768  # the same for a model on a local server, which needs memory for it
_MAX_PRICE = 1e9  # so that the price of any grading is a finite number


class Price(BaseModel):
    """US dollars per million tokens; `cached` is the price of input in the endpoint's cache."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    input: float = Field(ge=0, le=_MAX_PRICE)
    output: float = Field(ge=0, le=_MAX_PRICE)
    cached: float | None = Field(None, ge=0, le=_MAX_PRICE)

    def cost(self, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """Return the price in US dollars; `cached_tokens` are part of `prompt_tokens`."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(prompt_tokens - cached_tokens, 0)
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1e6


class ModelProfile(BaseModel):
    """The limits of a model, and the fields of a request to it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    context: int | None = Field(None, ge=1024, le=2**24)  # tokens of a prompt and its answer together
    answer_tokens: int | None = Field(4_000, ge=16)  # room for an answer, a reasoning model's thoughts included
    reasoning_effort: str | None = None  # low, medium, high, or what else the endpoint takes
    temperature: int | float | None = Field(0, ge=0, le=2)
    seed: bool = True  # whether a seed is sent
    # the name of the field that bounds the answer
    limit_field: Literal["max_tokens", "max_completion_tokens", "max_output_tokens"] | None = "max_tokens"
    structured_output: Literal["json_schema", "json_object"] | None = "json_schema"
    price: Price | None = None


_OPENAI_ONLY = ("o1", "o3", "o4-mini", "gpt-3.5", "gpt-4", "gpt-4o", "gpt-5", "chatgpt-4o")


class _KnownProfile(ModelProfile):
    snapshots: tuple[str, ...] = ()  # dates that may follow the name without another price


@cache
def _known() -> dict[str, _KnownProfile]:
    values = yaml.safe_load(files(__package__).joinpath("profiles.yaml").read_text("utf-8"))
    return TypeAdapter(dict[str, _KnownProfile]).validate_python(values)


def known_profile(name: str, *, is_hosted: bool = True) -> ModelProfile:
    """Return the known profile of a model's name, or the usual values of its kind of server."""
    for known, profile in _known().items():
        if _begins(name, known):
            is_priced = name in {known, *(f"{known}-{date}" for date in profile.snapshots)}
            return profile if is_priced else profile.model_copy(update={"price": None})
    return ModelProfile(context=USUAL_CONTEXT if is_hosted else _LOCAL_CONTEXT)


def is_openai_model(name: str) -> bool:
    """Tell whether a name is one of OpenAI's hosted models."""
    return any(_begins(name, known) for known in _OPENAI_ONLY) and not _begins(name, "gpt-oss")


def _begins(name: str, known: str) -> bool:
    """Tell whether a model's name, without its owner's, is the known one, maybe with a version or a size after it."""
    bare = name.rpartition("/")[2].casefold()
    return bare.startswith(known) and not bare[len(known) :][:1].isalnum()
