"""The tables of many levels: responses, read row by row in bounded memory, and levels in Parquet: level_table.md."""

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import yaml

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_json
from pcgeval.core.packages import packages_for
from pcgeval.core.text import printable_line, printable_name, well_formed
from pcgeval.core.untrusted import files_below, open_regular
from pcgeval.formats.failures import Failure
from pcgeval.formats.layout import LETTERS
from pcgeval.formats.stages import is_recognised

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

CARD = "README.md"  # of a Hugging Face dataset
MAX_TEXT = 16 * 2**20  # bytes of a response, and of a line
MAX_ID = 1000  # characters
_STDIN = Path("-")
_PARQUET = ".parquet"
_SUFFIXES = (".jsonl", ".ndjson", _PARQUET)
_INPUT_COLUMNS = ("id", "letter", "text")
_BATCH_ROWS = 64  # of a Parquet file in memory


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
    text, share, truth = pa.string(), pa.float64(), pa.bool_()
    types: dict[Any, Any] = {
        str | None: text,
        int | None: pa.int32(),
        float | None: share,
        bool | None: truth,
        Sequence[float] | None: pa.list_(share),
    }
    columns = {
        field.name: types[field.type] for field in fields(LevelRow) if field.name not in {"probabilities", "embedding"}
    }
    columns |= {"likeliest": text, "recognised": truth}
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
    columns = resources.files(__package__).joinpath("level_table.md").read_text("utf-8")
    settings = {"pretty_name": name, "configs": [{"config_name": "default", "data_files": data_files}]}
    front_matter = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    return f"---\n{front_matter}---\n\n# {name}\n\n{notes}{columns}"


@dataclass(frozen=True, slots=True)
class InputRow:
    """One row: a letter and a text, or a fault."""

    place: str  # the file and the line, or the row of a Parquet file, from 1
    id: str | None = None  # None if it cannot be read
    letter: str | None = None  # A to Z; None if it cannot be read
    text: str = ""
    fault: str | None = None  # a clause that follows the place


def input_files(inputs: Iterable[Path], out: Path) -> list[tuple[str, Path]]:
    """Return the names and paths of the input files, in order; of a folder, all of a known form but the output."""
    files: list[tuple[str, Path]] = []
    for path in inputs:
        if path.is_dir():
            output = path / os.path.relpath(out.resolve(), path.resolve())
            below = [file for file in files_below(path, with_links=True) if file.suffix in _SUFFIXES]
            below = [file for file in below if not file.is_relative_to(output)]
            if not below:
                raise FileError(f"{path}: holds no file *.jsonl, *.ndjson or *.parquet. Name the files themselves.")
            files += [(printable_name(file.relative_to(path).as_posix()), file) for file in below]
        elif path == _STDIN or path.suffix in _SUFFIXES:
            files.append(("stdin" if path == _STDIN else printable_name(path.name), path))
        else:
            raise FileError(f"{path}: is no *.jsonl, *.ndjson or *.parquet. Rename it, or give its lines to stdin (-).")
    return files


def read_rows(files: Sequence[tuple[str, Path]]) -> Iterator[InputRow]:
    """Yield all rows in order; raise FileError if a file cannot be read, or a Parquet file lacks a column."""
    for name, path in files:
        yield from _parquet_rows(name, path) if path.suffix == _PARQUET else _json_rows(name, path)


def count_rows(files: Sequence[tuple[str, Path]]) -> int | None:
    """Return the number of rows; None with standard input. Raise FileError if a file cannot be read."""
    total = 0
    for _, path in files:
        if path == _STDIN:
            return None
        if path.suffix == _PARQUET:
            with _parquet_file(path) as file:
                total += file.metadata.num_rows
        else:
            with open_regular(path, follow_link=True) as lines:
                total += sum(1 for _ in _lines(lines))
    return total


def _json_rows(name: str, path: Path) -> Iterator[InputRow]:
    with nullcontext(sys.stdin.buffer) if path == _STDIN else open_regular(path, follow_link=True) as file:
        for number, line in _lines(file):
            yield _json_row(f"{name} line {number}", line)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each line that is not empty; of a line over `MAX_TEXT`, one byte more."""
    number = 0
    while line := file.readline(MAX_TEXT + 1):
        number += 1
        rest = line
        while len(rest) > MAX_TEXT and not rest.endswith(b"\n"):
            rest = file.readline(MAX_TEXT + 1)
        if line.strip() or len(line) > MAX_TEXT:
            yield number, line


def _json_row(place: str, line: bytes) -> InputRow:
    if len(line) > MAX_TEXT:
        return InputRow(place, fault=f"is longer than {MAX_TEXT} bytes")
    try:
        values = json.loads(line.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        return InputRow(place, fault=f"is not UTF-8 text ({error.reason} at byte {error.start})")
    except (ValueError, RecursionError) as error:
        return InputRow(place, fault=f"is not JSON ({printable_line(str(error))})")
    if not isinstance(values, dict):
        return InputRow(place, fault="is not a JSON object with id, letter and text")
    return _input_row(place, values)


def _parquet_rows(name: str, path: Path) -> Iterator[InputRow]:
    with _parquet_file(path) as file:
        if missing := [column for column in _INPUT_COLUMNS if column not in file.schema_arrow.names]:
            raise FileError(f"{path}: lacks the column {' and '.join(missing)}. Rename its columns.")
        number = 0
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(_INPUT_COLUMNS)):
            for row in range(batch.num_rows):
                number += 1
                try:
                    (values,) = batch.slice(row, 1).to_pylist()
                except UnicodeDecodeError as error:  # Parquet files are not checked when they are written
                    fault = f"is not UTF-8 text ({error.reason} at byte {error.start})"
                    yield InputRow(f"{name} row {number}", fault=fault)
                else:
                    yield _input_row(f"{name} row {number}", values)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    pa = import_pyarrow()
    try:
        with open_regular(path, follow_link=True) as file:
            yield pa.parquet.ParquetFile(file)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = printable_line(str(error))
        raise FileError(f"{path}: is not a readable Parquet file ({reason}). Write it again.") from error


def _input_row(place: str, values: Mapping[str, Any]) -> InputRow:
    identity, letter, text = _id(values.get("id")), values.get("letter"), values.get("text")
    known = letter if isinstance(letter, str) and len(letter) == 1 and letter in LETTERS else None
    fault = None
    if missing := [column for column in _INPUT_COLUMNS if column not in values]:
        fault = f"lacks {' and '.join(missing)}"
    elif identity is None:
        fault = f"the id is {_shown(values['id'])}, not a text of at most {MAX_ID} characters or a whole number"
    elif known is None:
        fault = f"the letter {_shown(letter)} must be A to Z"
    elif not isinstance(text, str) or len(text) > MAX_TEXT:
        fault = f"the text is {_shown(text)}, not a text of at most {MAX_TEXT} characters"
    return InputRow(place, identity, known, "" if fault else str(text), fault)


def _id(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return well_formed(value) if isinstance(value, str) and 0 < len(value) <= MAX_ID else None


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return f"'{printable_name(value, 40)}'" if isinstance(value, str) else f"of type {type(value).__name__}"
