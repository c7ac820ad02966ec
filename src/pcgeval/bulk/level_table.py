"""The table of levels in Parquet, a row each, of `pcgeval evaluate` and of a competition's report: level_table.md."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from pcgeval.core.files import sha256_json
from pcgeval.core.packages import packages_for
from pcgeval.core.text import well_formed
from pcgeval.formats.failures import Failure
from pcgeval.formats.layout import LETTERS
from pcgeval.formats.stages import is_recognised

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

CARD = "README.md"  # of a Hugging Face dataset


@dataclass(frozen=True, slots=True)
class LevelRow:
    """One level of the table; a value that it did not reach is None. The probabilities are those of A to Z."""

    id: str | None = None
    letter: str | None = None
    failed_stage: str | None = None
    kind: str | None = None
    reason: str | None = None
    blocks: int | None = None
    moved: int | None = None
    stability: float | None = None
    starts: Sequence[float] | None = None
    similarity: float | None = None
    score: float | None = None
    probabilities: Sequence[float] | None = None
    embedding: "NDArray[np.float32] | None" = None

    @classmethod
    def failed(cls, because: Failure) -> "LevelRow":
        """Return the row of a level that failed."""
        return cls(failed_stage=because.type.stage, kind=because.kind, reason=str(because))

    @property
    def likeliest(self) -> str | None:
        """The letter with the highest probability, the first of equal ones."""
        return LETTERS[self.probabilities.index(max(self.probabilities))] if self.probabilities else None

    @property
    def recognised(self) -> bool | None:
        """Whether it shows its letter; None where no letter was asked for, or without a classifier."""
        if self.failed_stage is None and self.similarity is None:
            return None
        return is_recognised(self.stability, self.similarity, self.probabilities or ())


def engine_sha256(engine: dict[str, str] | str, packages: dict[str, str], physics: dict[str, Any]) -> str:
    """Return one hash over the fields of `simulations.json` with these names."""
    return sha256_json([engine, packages, physics])


def import_pyarrow() -> Any:
    """Return the package pyarrow with its module for Parquet; raise MissingPackageError if it is not installed."""
    with packages_for("a table in Parquet"):
        import pyarrow  # noqa: ICN001, PLC0415 - slow to import
        import pyarrow.parquet  # noqa: PLC0415
    return pyarrow


def level_table(
    rows: Sequence[LevelRow], engine: str, classifier: str | None, *, embeddings: bool = False
) -> "pa.Table":
    """Return the table of some levels; `engine` and `classifier` stand in the rows that these computed."""
    pa = import_pyarrow()
    text, share, count = pa.string(), pa.float64(), pa.int32()
    columns = {"id": text, "letter": text, "failed_stage": text, "kind": text, "reason": text}
    columns |= {"blocks": count, "moved": count}
    columns |= {"stability": share, "starts": pa.list_(share), "similarity": share, "score": share, "likeliest": text}
    columns |= {"recognised": pa.bool_()}
    arrays = {name: pa.array([_plain(getattr(row, name)) for row in rows], column) for name, column in columns.items()}
    for number, letter in enumerate(LETTERS):
        values = [row.probabilities[number] if row.probabilities else None for row in rows]
        arrays[f"p_{letter}"] = pa.array(values, pa.float32())
    if embeddings:
        arrays["embedding"] = pa.array([row.embedding for row in rows], pa.list_(pa.float32()))
    arrays["engine"] = pa.array([None if row.stability is None else engine for row in rows], text)
    arrays["classifier"] = pa.array([classifier if row.probabilities else None for row in rows], text)
    return pa.table(arrays)


def _plain(value: object) -> object:
    return well_formed(value) if isinstance(value, str) else value


def parquet_bytes(table: "pa.Table") -> bytes:
    """Return a table as a Parquet file; the same version of pyarrow gives the same bytes on every machine."""
    sink = io.BytesIO()
    # Snappy, the default, compresses otherwise on other processors
    import_pyarrow().parquet.write_table(table, sink, compression="zstd", row_group_size=max(1, table.num_rows))
    return sink.getvalue()


def dataset_card(name: str, data_files: str, notes: str = "") -> str:
    """Return the card that makes a folder a Hugging Face dataset; `notes` come before the description of columns."""
    columns = files(__package__).joinpath("level_table.md").read_text("utf-8")
    settings = {"pretty_name": name, "configs": [{"config_name": "default", "data_files": data_files}]}
    front_matter = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    return f"---\n{front_matter}---\n\n# {name}\n\n{notes}{columns}"
