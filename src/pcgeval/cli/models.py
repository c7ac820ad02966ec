"""The commands for local language models: `pcgeval models list`, `fetch` and `serve`."""

import socket
import sys
from typing import Annotated

import typer

from pcgeval.cli.options import Json, group, print_json, print_table

app = group()
models = group()
app.add_typer(models, name="models", help="List the local models, fetch them into the cache, or serve one.")


@models.command("list")
def list_models(json: Json = False) -> None:
    """List the local models with their size, SHA-256 and licence."""
    from pcgeval.llm.backends import LOCAL_MODELS, cached_path

    columns = ("model", "bytes", "sha256", "licence", "fetched")
    rows = [
        (model.name, model.size, model.sha256, model.licence, cached_path(model).is_file()) for model in LOCAL_MODELS
    ]
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, [(name, f"{size:,}", sha256[:12], *map(str, rest)) for name, size, sha256, *rest in rows])


@models.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Default: all local models.")] = None,
) -> None:
    """Download local models into the cache and print their paths."""
    from pcgeval.llm.backends import LOCAL_MODELS
    from pcgeval.llm.backends import fetch as fetch_model

    for name in names or [model.name for model in LOCAL_MODELS]:
        sys.stdout.write(f"{fetch_model(name)}\n")


@models.command()
def serve(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A local model.")],
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port to listen on.")] = 8080,
) -> None:
    """Serve a local model on this machine, with OpenAI's interface, until Ctrl-C."""
    from pcgeval.llm.backends import model_file
    from pcgeval.llm.openai import serve as serve_model

    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended leaves it free
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise typer.BadParameter(f"port {port}: {error.strerror}. Choose another one with --port.") from error
    serve_model(model_file(name, None), name, port)
