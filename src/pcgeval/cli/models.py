"""The commands for local language models: `pcgeval models list`, `models fetch` and `serve-local`."""

import sys
from typing import Annotated

import typer

from pcgeval.cli.options import group

app = group()
models = group()
app.add_typer(models, name="models", help="List the local models, or fetch them into the cache.")


@models.command("list")
def list_models() -> None:
    """List the local models with their size, SHA-256 and licence."""
    from pcgeval.llm.local_models import LOCAL_MODELS, cached_path

    for model in LOCAL_MODELS:
        state = "fetched" if cached_path(model).is_file() else "not fetched"
        sys.stdout.write(f"{model.name}  {model.size / 1e6:.0f} MB  {model.sha256[:12]}  {model.licence}  {state}\n")


@models.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all local models.")] = None,
) -> None:
    """Download local models into the cache and print their paths."""
    from pcgeval.llm.local_models import LOCAL_MODELS
    from pcgeval.llm.local_models import fetch as fetch_model

    for name in names or [model.name for model in LOCAL_MODELS]:
        sys.stdout.write(f"{fetch_model(name)}\n")


@app.command()
def serve_local(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; the default is Ollama's.")] = 11434,
) -> None:
    """Serve the local models as Ollama and OpenAI do."""
    from pcgeval.serve.server import serve

    serve(host, port)
