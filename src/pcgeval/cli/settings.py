"""The params, models and submissions that commands work with, in a competition's folder and outside of one."""

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
from pcgeval.submissions.load import Program, Prompt, Submission, load_prompt

_NO_KEY = re.compile(r"[^A-Za-z0-9_-]")
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
        _NO_KEY.sub("-", model.name): {
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
    """Return params.yaml of the working directory, or the default params where there is none.

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


def load_submission_file(path: Path) -> Submission:
    """Read the file that starts a program, or a prompt.

    Raises:
        SettingsError: There is no such file, or it is one of another kind.
        SubmissionError: It cannot be read.
    """
    path = path.resolve()
    if not path.exists():
        raise SettingsError(
            f"{path}: there is no such submission. Name its folder or zip file, its .py file or its prompt.txt."
        )
    if path.suffix not in {".py", ".txt"}:
        remedy = "Name the submission's folder or zip file, its .py file or its prompt.txt."
        raise SettingsError(f"{path}: is neither a program nor the text of a prompt. {remedy}")
    folder = path.parent
    is_program = path.suffix == ".py" and path.is_file()
    work = Program(folder, path.name) if is_program else Prompt(load_prompt(path))
    return Submission(folder.name, work)


def find_model_to_ask(params: Params, name: str, host: str | None, base_url: str | None = None) -> Model:
    """Return one of params' models, a local model, or else the one that `named_model` finds.

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
        found = named_model(model.name, base_url, host)
    except ValidationError as error:
        raise SettingsError(f"{str(error.errors()[0]['msg']).removeprefix('Value error, ')}.") from error
    digest, options = model.digest, model.options or {"num_predict": 1000}
    if found.backend == "openai":
        digest, options = None, {each: value for each, value in options.items() if each != "num_ctx"}
    elif host is not None and find_model(model.name):
        digest = None  # Ollama's of the same model is another one than its file's
    return found.model_copy(update={"digest": digest, "options": options, "profile": model.profile})


def known_model(params: Params, name: str, *, may_be_short: bool = True) -> Model | None:
    """Return one of params' models or a local one by its key, its name or, if that is wanted, the beginning of these.

    Raises:
        SettingsError: Several models begin so.
    """
    models = {each.name: each for each in (*default_params().models.values(), *params.models.values())}
    models |= params.models
    wanted = full_name(name)
    if exact := models.get(name) or next((each for each in models.values() if full_name(each.name) == wanted), None):
        return exact
    is_short = may_be_short and name
    begun = {each.name: each for key, each in models.items() if is_short and key.casefold().startswith(name.casefold())}
    if len(begun) > 1:
        raise SettingsError(
            f"model {printable_name(name)}: could be {' or '.join(sorted(begun))}. Write more of it; or name the "
            "server that has a model of this name, with --host or --base-url."
        )
    return next(iter(begun.values()), None)


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
    competition = params.competition.model_copy(update={"characters": "".join(sorted(letters)), "trials": trials})
    return params.model_copy(update={"competition": competition, "models": {model_key(model): model}})


def model_key(model: Model) -> str:
    """Return a model's name in a form that can be part of a path."""
    return "".join(each if each.isalnum() or each in "-_." else "-" for each in model.name).lstrip(".") or "model"
