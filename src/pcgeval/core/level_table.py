"""The table of levels, a row each, as Parquet: what `pcgeval evaluate` writes, and a competition beside its report.

| column | type | |
|---|---|---|
| `id` | string | as in the input; `MODEL/TEAM/LETTER/TRIAL` in a competition |
| `letter` | string | the letter that was asked for |
| `failed_stage` | string | the stage in which the level failed; null if it did not |
| `reason` | string | why; null if it did not |
| `blocks`, `moved` | int32 | how many blocks the level has, and how many of them moved or broke |
| `stability` | float64 | share of blocks that stayed, 0 to 1 |
| `starts` | list of float64 | the stability of each of `physics.starts` jittered starts, which do not count |
| `similarity` | float64 | probability of the letter, 0 to 1 |
| `likeliest` | string | the letter with the highest probability |
| `p_A` ... `p_Z` | float32 | probability of each letter; rounded to 7 decimals, which single precision keeps |
| `embedding` | list of float32 | the classifier's CLS token; only where it was asked for |
| `engine` | string | hash of engine, physics and versions; see `engine_sha256` |
| `classifier` | string | SHA-256 over the classifier's files |

What a level did not reach is null, so that a mean over a column is one over the levels that have a value.
"""

import io
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pcgeval.core.files import sha256_json
from pcgeval.core.packages import packages_for
from pcgeval.core.untrusted import well_formed

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

LETTERS = string.ascii_uppercase
PARQUET_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class LevelRow:
    """One level of the table; None for what it did not reach.

    Attributes:
        probabilities: Of the letters A to Z.
        embedding: The classifier's CLS token.
    """

    id: str | None = None
    letter: str | None = None
    failed_stage: str | None = None
    reason: str | None = None
    blocks: int | None = None
    moved: int | None = None
    stability: float | None = None
    starts: Sequence[float] | None = None
    similarity: float | None = None
    probabilities: Sequence[float] | None = None
    embedding: "NDArray[np.float32] | None" = None

    @property
    def likeliest(self) -> str | None:
        """The letter with the highest probability, the first of equal ones."""
        return LETTERS[self.probabilities.index(max(self.probabilities))] if self.probabilities else None


def engine_sha256(engine: dict[str, str] | str, packages: dict[str, str], physics: dict[str, Any]) -> str:
    """Return one hash over what simulated and drew a level, the fields of `simulations.json` with the same names."""
    return sha256_json([engine, packages, physics])


def import_pyarrow() -> Any:
    """Return the package pyarrow with its module for Parquet.

    Raises:
        MissingPackageError: It is not installed.
    """
    with packages_for("a table in Parquet"):
        import pyarrow  # noqa: ICN001, PLC0415 - slow to import
        import pyarrow.parquet  # noqa: PLC0415
    return pyarrow


def level_table(
    rows: Sequence[LevelRow], engine: str, classifier: str | None, *, embeddings: bool = False
) -> "pa.Table":
    """Return the table of some levels.

    Args:
        rows: The levels.
        engine: The column `engine`, of levels that have a stability.
        classifier: The column `classifier`, of levels that have probabilities.
        embeddings: Whether there is a column for them.

    Raises:
        MissingPackageError: pyarrow is not installed.
    """
    pa = import_pyarrow()
    text, share, count, probability = pa.string(), pa.float64(), pa.int32(), pa.float32()
    columns: dict[str, tuple[Any, list[Any]]] = {
        "id": (text, [None if row.id is None else well_formed(row.id) for row in rows]),
        "letter": (text, [row.letter for row in rows]),
        "failed_stage": (text, [row.failed_stage for row in rows]),
        "reason": (text, [None if row.reason is None else well_formed(row.reason) for row in rows]),
        "blocks": (count, [row.blocks for row in rows]),
        "moved": (count, [row.moved for row in rows]),
        "stability": (share, [row.stability for row in rows]),
        "starts": (pa.list_(share), [row.starts for row in rows]),
        "similarity": (share, [row.similarity for row in rows]),
        "likeliest": (text, [row.likeliest for row in rows]),
    }
    for number, letter in enumerate(LETTERS):
        columns[f"p_{letter}"] = (
            probability,
            [row.probabilities[number] if row.probabilities else None for row in rows],
        )
    if embeddings:
        columns["embedding"] = (pa.list_(pa.float32()), [row.embedding for row in rows])
    columns["engine"] = (text, [None if row.stability is None else engine for row in rows])
    columns["classifier"] = (text, [classifier if row.probabilities else None for row in rows])
    arrays = [pa.array(values, kind) for kind, values in columns.values()]
    return pa.Table.from_arrays(arrays, names=list(columns))


def parquet_bytes(table: "pa.Table") -> bytes:
    """Return a table as a Parquet file: the same bytes with the same version of pyarrow, on every machine."""
    sink = io.BytesIO()
    # Snappy, the default, compresses otherwise on other processors
    import_pyarrow().parquet.write_table(table, sink, compression="zstd", row_group_size=max(1, table.num_rows))
    return sink.getvalue()
