"""The params and models that commands work with, inside a competition's folder and elsewhere."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pcgeval.cli.options import assign
from pcgeval.core.errors import PcgevalError
from pcgeval.core.text import printable_name
from pcgeval.formats.layout import PACKAGED_DATA
from pcgeval.formats.params import ANY_CLASSIFIER, Model, Params, load_params, parse_params
from pcgeval.llm.backends import find_model, named_model
from pcgeval.llm.protocol import full_name

_LOCAL_PARAMS = PACKAGED_DATA / "competitions" / "local.yaml"  # of `pcgeval init`: the same prompt, the same replies
_FINAL_TRIALS = 10  # per letter, in the final of 2025


class SettingsError(PcgevalError):
    """An option has an invalid value."""


def load_params_or_default(assignments: Sequence[str] = ()) -> Params:
    """Return params.yaml of the working directory, or default params without teams if there is none.

    Each of `assignments` is a `KEY=VALUE` that overrides a key.
    """
    params = load_params() if Path("params.yaml").is_file() else default_params()
    if not assignments:
        return params
    values = params.model_dump(mode="json", exclude_unset=True) | {
        "teams": dict.fromkeys(params.teams or ["participant"])
    }
    for assignment in assignments:
        assign(values, assignment)
    return parse_params(values, "--set", context=ANY_CLASSIFIER).model_copy(update={"teams": params.teams})


def default_params() -> Params:
    """Return the params that apply outside a competition's folder: those of `pcgeval init`, without teams."""
    params = load_params(_LOCAL_PARAMS)
    return params.model_copy(
        update={
            "competition": params.competition.model_copy(update={"name": "rehearsal", "trials": _FINAL_TRIALS}),
            "teams": {},
            "similarity": params.similarity.model_copy(update={"model": str(PACKAGED_DATA / "classifier")}),
            "scoring": params.scoring.model_copy(update={"baseline": None}),
        }
    )


def find_model_to_ask(params: Params, name: str, host: str | None, base_url: str | None = None) -> Model:
    """Return the model that a name means, with a backend that asks it for real.

    Args:
        params: The competition.
        name: The key or name of a model of params.yaml or of a local model, or its beginning; otherwise, and always
            with an address, the name that a server has for it.
        host: The address of an Ollama server.
        base_url: An endpoint of OpenAI's interface.
    """
    is_addressed = host is not None or base_url is not None
    model = _known_model(params, name, may_be_short=not is_addressed) or Model(backend="recorded", name=name)
    if model.backend != "recorded" and not is_addressed:
        return model
    try:
        asked = named_model(model.name, base_url, host)
    except ValidationError as error:
        raise SettingsError(f"{str(error.errors()[0]['msg']).removeprefix('Value error, ')}.") from error
    digest, options = model.digest, model.options or {"num_predict": 1000}
    if asked.backend == "openai":
        digest, options = None, {option: value for option, value in options.items() if option != "num_ctx"}
    elif host is not None and find_model(model.name):
        digest = None  # Ollama hashes the same model in another way
    return asked.model_copy(update={"digest": digest, "options": options, "profile": model.profile})


def _known_model(params: Params, name: str, *, may_be_short: bool) -> Model | None:
    """Return the model of params.yaml, or the local model, with this key or name, or with one that begins with it."""
    models = {model.name: model for model in (*default_params().models.values(), *params.models.values())}
    models |= params.models
    same = [model for model in models.values() if full_name(model.name) == full_name(name)]
    if name in models or same:
        return models.get(name) or same[0]
    longer = {model.name: model for key, model in models.items() if key.casefold().startswith(name.casefold())}
    if not name or not may_be_short or not longer:
        return None
    if len(longer) > 1:
        raise SettingsError(
            f"model {printable_name(name)}: could be {' or '.join(sorted(longer))}. Write more of the name, or name "
            "the server that has a model of this name with --host or --base-url."
        )
    return next(iter(longer.values()))
