"""Profiles of models that judge: limits, the fields that the endpoint takes, and the price, as in profiles.yaml.

params.yaml overrides a known profile field by field (`rubric.model.profile`). A field that is None is unknown, or is
not sent.
"""

from functools import cache
from importlib.resources import files

import yaml
from pydantic import TypeAdapter

from pcgeval.formats.params import Model, ModelProfile

TOKEN_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
OPENAI_URL = "https://api.openai.com/v1"
USUAL_CONTEXT = 128_000  # tokens of a hosted model's context that a judge uses by default
_LOCAL_CONTEXT = 32_768  # the same for a model on a local server, which needs memory for it
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


def profile_of(model: Model) -> ModelProfile:
    """Return the known profile of a model's name, with the fields of its `profile` in params.yaml instead."""
    known = known_profile(model.name, is_hosted=model.base_url is not None)
    if model.profile is None:
        return known
    return known.model_copy(update={name: getattr(model.profile, name) for name in model.profile.model_fields_set})


def is_openai_model(name: str) -> bool:
    """Tell whether a name is one of OpenAI's hosted models."""
    return any(_begins(name, known) for known in _OPENAI_ONLY) and not _begins(name, "gpt-oss")


def _begins(name: str, known: str) -> bool:
    """Tell whether a model's name, without its owner's, is the known one, maybe with a version or a size after it."""
    bare = name.rpartition("/")[2].casefold()
    return bare.startswith(known) and not bare[len(known) :][:1].isalnum()
