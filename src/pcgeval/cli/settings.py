"""The params, models and submissions that commands work with, in a competition's folder and outside of one."""

from pathlib import Path

from pydantic import ValidationError

from pcgeval.core.errors import PcgevalError
from pcgeval.core.layout import PACKAGED_DATA
from pcgeval.core.params import Model, Params, load_params, parse_params
from pcgeval.llm.backends import named_model
from pcgeval.submissions.load import Program, Prompt, Submission, load_prompt, load_submission

# the limits of LLMs4PCG 2025 and the settings of the demo, for a participant who has only the package
_DEFAULT_PARAMS = {
    "competition": {
        "name": "rehearsal",
        "edition": "-",
        "characters": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "trials": 10,
        "seed": 0,
    },
    "teams": ["participant"],
    "models": {"model": {"backend": "recorded", "name": "none"}},
    "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
    "physics": {},
    "similarity": {"model": str(PACKAGED_DATA / "classifier")},
    "diversity": {},
    "scoring": {},
    "rubric": {},
}


class SettingsError(PcgevalError):
    """An option has an invalid value."""


def load_params_or_default() -> Params:
    """Return params.yaml of the working directory, or the default params where there is none."""
    return load_params() if Path("params.yaml").is_file() else default_params()


def default_params() -> Params:
    """Return the params that hold outside a competition's folder; they have no teams."""
    return parse_params(_DEFAULT_PARAMS, "the default params").model_copy(update={"teams": ()})


def load_submission_or_file(path: Path) -> Submission:
    """Read a submission's folder, the file that starts a program, or a prompt.

    Raises:
        SettingsError: There is no such file or folder, or it is a file of another kind.
        SubmissionError: It cannot be read, or is none of them.
    """
    path = path.resolve()
    if not path.exists():
        raise SettingsError(f"{path}: there is no such submission. Name its folder, its .py file or its prompt.txt.")
    if path.is_dir():
        return load_submission(path)
    if path.suffix not in {".py", ".txt"}:
        remedy = "Unpack a zip file. Name the submission's folder, its .py file or its prompt.txt."
        raise SettingsError(f"{path}: is neither a program nor the text of a prompt. {remedy}")
    folder = path.parent
    is_program = path.suffix == ".py" and path.is_file()
    work = Program(folder, path.name) if is_program else Prompt(load_prompt(path))
    return Submission(folder.name, work)


def find_model_to_ask(params: Params, name: str, host: str | None, base_url: str | None = None) -> Model:
    """Return one of params' models by its key or name, or else the one that `named_model` finds.

    A model that params replays is asked for real: in this process if it is a local model, else on the server.

    Raises:
        SettingsError: The address is no URL.
    """
    known = {**{model.name: model for model in params.models.values()}, **params.models}
    model = known.get(name, Model(backend="recorded", name=name))
    if model.backend != "recorded" and host is None and base_url is None:
        return model
    try:
        found = named_model(model.name, base_url, host)
    except ValidationError as error:
        raise SettingsError(f"{str(error.errors()[0]['msg']).removeprefix('Value error, ')}.") from error
    digest = None if found.backend == "openai" else model.digest
    options = model.options or {"num_predict": 1000}
    return found.model_copy(update={"digest": digest, "options": options, "profile": model.profile})


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
