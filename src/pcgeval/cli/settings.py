"""The params and models that commands work with, in a competition's folder and outside of one."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pcgeval.cli.options import assign
from pcgeval.core.errors import PcgevalError
from pcgeval.core.layout import PACKAGED_DATA
from pcgeval.core.params import Model, Params, load_params, parse_params
from pcgeval.core.untrusted import printable_name
from pcgeval.llm.backends import named_model
from pcgeval.llm.local_models import LOCAL_MODELS, find_model, full_name

# the limits of LLMs4PCG 2025, and the demo's seed and models, for a participant who has only the package: the same
# prompt gets the same replies here and there
_DEFAULT_PARAMS = {
    "competition": {
        "name": "rehearsal",
        "edition": "-",
        "characters": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "trials": 10,
        "seed": 6280,
    },
    "teams": ["participant"],
    "models": {
        re.sub(r"[^A-Za-z0-9_-]", "-", model.name): {
            "backend": "llamacpp",
            "name": model.name,
            "digest": model.sha256,
            "options": {"temperature": 1, "repeat_penalty": 1.1, "num_predict": 200, "num_ctx": 2048},
        }
        for model in LOCAL_MODELS
    },
    "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
    "physics": {},
    "similarity": {"model": str(PACKAGED_DATA / "classifier")},
    "diversity": {},
    "scoring": {},
    "rubric": {},
}


class SettingsError(PcgevalError):
    """An option has an invalid value."""


def load_params_or_default(assignments: Sequence[str] = ()) -> Params:
    """Return params.yaml of the working directory, or the default params, without teams, where there is none.

    Args:
        assignments: `KEY=VALUE`, keys of params.yaml that have another value.

    Raises:
        BadParameter: One is no assignment.
        ParamsError: A value is invalid.
    """
    params = load_params() if Path("params.yaml").is_file() else default_params()
    if not assignments:
        return params
    values = params.model_dump(mode="json", exclude_unset=True) | {"teams": params.teams or _DEFAULT_PARAMS["teams"]}
    for assignment in assignments:
        assign(values, assignment)
    return parse_params(values, "--set").model_copy(update={"teams": params.teams})


def default_params() -> Params:
    """Return the params that hold outside a competition's folder; they have no teams."""
    return parse_params(_DEFAULT_PARAMS, "the default params").model_copy(update={"teams": ()})


def find_model_to_ask(params: Params, name: str, host: str | None, base_url: str | None = None) -> Model:
    """Return one of params' models, a local model, or else the one that `named_model` returns.

    A model that params replays is asked for real: in this process if it is a local model, else on the server.

    Args:
        params: The competition.
        name: Its key or name in params, the name of a local model, or the beginning of one of these; with an address,
            or if it is none of them, the name that a server has for it.
        host: An Ollama server.
        base_url: An endpoint of OpenAI's interface.

    Raises:
        SettingsError: Several models begin so, or the address is no URL.
    """
    is_addressed = host is not None or base_url is not None
    model = known_model(params, name, may_be_short=not is_addressed) or Model(backend="recorded", name=name)
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
        digest = None  # Ollama's of the same model is another one than its file's
    return asked.model_copy(update={"digest": digest, "options": options, "profile": model.profile})


def known_model(params: Params, name: str, *, may_be_short: bool = True) -> Model | None:
    """Return one of params' models or a local one by its key, its name or, if that is wanted, the beginning of these.

    Raises:
        SettingsError: Several models begin so.
    """
    models = {model.name: model for model in (*default_params().models.values(), *params.models.values())}
    models |= params.models
    if name in models:
        return models[name]
    wanted = full_name(name)
    for model in models.values():
        if full_name(model.name) == wanted:
            return model
    begun = {model.name: model for key, model in models.items() if key.casefold().startswith(name.casefold())}
    if not name or not may_be_short or not begun:
        return None
    if len(begun) > 1:
        raise SettingsError(
            f"model {printable_name(name)}: could be {' or '.join(sorted(begun))}. Write more of it; or name the "
            "server that has a model of this name, with --host or --base-url."
        )
    return next(iter(begun.values()))


def params_for_try(params: Params, model: Model, letters: str, trials: int) -> Params:
    """Return params reduced to some letters, a number of trials and one model.

    Raises:
        SettingsError: The letters or the number are invalid.
    """
    if not letters or not set(letters) <= set(params.competition.characters) or len(set(letters)) < len(letters):
        raise SettingsError(
            f"letters {letters!r}: give letters of the competition ({params.competition.characters}), each once."
        )
    if not 1 <= trials <= 1000:
        raise SettingsError(f"trials {trials}: give a number from 1 to 1000.")
    key = re.sub(r"[^\w.-]", "-", model.name).lstrip(".") or "model"  # part of a path
    competition = params.competition.model_copy(update={"characters": "".join(sorted(letters)), "trials": trials})
    return params.model_copy(update={"competition": competition, "models": {key: model}})
