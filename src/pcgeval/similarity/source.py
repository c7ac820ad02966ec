"""The files of a classifier: a folder, or a hub id with the revision that pins its bytes; checked before loading."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import tree_sha256
from pcgeval.core.packages import packages_for
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import LETTERS, PACKAGED_DATA
from pcgeval.formats.params import COMMIT, HUB_ID

Precision = Literal["float64", "float32", "bfloat16"]

FILES = ("config.json", "model.safetensors", "preprocessor_config.json")  # that decide a prediction
SHIPPED_SHA256 = "ecddf687e9ea29a195f3d9e563757094e22ec1b98a3908ca1bd3f28fd2e7626a"  # of data/classifier


class ClassifierError(PcgevalError):
    """A classifier is missing, incomplete, not pinned, or does not tell the 26 letters apart."""


@dataclass(frozen=True)
class Source:
    """A classifier's files in a local folder, with the name for the results."""

    name: str
    revision: str | None
    folder: Path

    @cached_property
    def sha256(self) -> str:
        """One hash over weights, configuration and preprocessing."""
        return tree_sha256(self.folder, FILES)


def check_source(source: str | Path, revision: str | None, root: Path = Path()) -> None:
    """Check a folder's files and labels or a hub id's revision, without the network; raise ClassifierError."""
    if _is_folder(source, root):
        _check_folder(root / source)
    elif not COMMIT.fullmatch(revision or ""):
        raise ClassifierError(
            f"classifier {source}: revision {revision!r} does not pin its bytes. "
            "Set similarity.revision to the 40-digit commit that the model's page shows under 'Files and versions'."
        )


def resolve_source(source: str | Path | None, revision: str | None, root: Path = Path()) -> Source:
    """Return a classifier's files, of a folder, of the hub, or of the package for None; raise ClassifierError."""
    source = PACKAGED_DATA / "classifier" if source is None else source
    check_source(source, revision, root)
    if _is_folder(source, root):
        return Source(str(source), revision, root / source)
    folder = _fetch(str(source), str(revision))
    _check_folder(folder)
    return Source(str(source), revision, folder)


def _is_folder(source: str | Path, root: Path) -> bool:
    return isinstance(source, Path) or (root / source).is_dir() or not HUB_ID.fullmatch(source)


def _check_folder(folder: Path) -> None:
    for name in FILES:
        if not (folder / name).is_file():
            raise ClassifierError(
                f"{folder / name}: is missing. A classifier folder holds {', '.join(FILES)}, as `save_pretrained` of "
                "model and image processor write them; `git restore data/classifier` brings ours back."
            )
    letter_columns(folder)


def letter_columns(folder: Path) -> list[int]:
    """Return the numbers of the model's outputs for A to Z; raise ClassifierError if it has other labels."""
    try:
        config: Any = read_json(folder / "config.json")
    except FileError as error:
        raise ClassifierError(str(error)) from error
    names = config.get("id2label") if isinstance(config, dict) else None
    columns = {str(label): str(column) for column, label in names.items()} if isinstance(names, dict) else {}
    if set(columns) != set(LETTERS) or sorted(columns.values()) != sorted(map(str, range(len(LETTERS)))):
        labels = f"{len(columns)} different labels ({', '.join(sorted(columns))[:80]})"
        raise ClassifierError(
            f"{folder / 'config.json'}: id2label has {labels}, not the letters A to Z. Choose another classifier."
        )
    return [int(columns[label]) for label in LETTERS]


def unloadable(folder: Path, error: Exception) -> ClassifierError:
    """Return the error about a classifier that cannot be loaded."""
    return ClassifierError(f"{folder}: is not a readable image classifier ({first_line(error)}). Restore its files.")


def lacking_weights(folder: Path, names: Collection[str]) -> ClassifierError:
    """Return the error about a classifier without some weights."""
    lacking = f"{min(names)}{', ...' if len(names) > 1 else ''}"
    return ClassifierError(f"{folder / 'model.safetensors'}: lacks {lacking}. Save the model with `save_pretrained`.")


def first_line(error: Exception) -> str:
    """Return the first line of another package's error."""
    return str(error).strip().split("\n")[0]


def _fetch(hub_id: str, revision: str) -> Path:
    with packages_for("a classifier of the hub"):
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import, and only hub ids need it
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(FILES)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ClassifierError(
            f"classifier {hub_id} at {revision}: cannot be fetched from the hub ({first_line(error)}). Check the name, "
            "the revision and the network; or put the three files into a folder, a competition's into data/classifier."
        ) from error
