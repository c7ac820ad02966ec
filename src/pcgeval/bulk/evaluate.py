"""Evaluate a stream of responses into a folder of Parquet files, and go on where a killed run stopped.

Rows flow in the order of the input: one is read, its level is looked up among those that were measured, and new levels
go to the workers in batches. So memory holds a few batches, the levels that are remembered and the rows of one part.
"""

import os
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, ValidationError

from pcgeval.bulk.inputs import InputRow, count_rows, input_files, read_rows
from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import sha256_json, sha256_text, to_json, write_bytes, write_json
from pcgeval.core.layout import PACKAGED_DATA
from pcgeval.core.level_table import LETTERS, LevelRow, engine_sha256, import_pyarrow, level_table, parquet_bytes
from pcgeval.core.locks import lock_folder
from pcgeval.core.packages import installed_versions
from pcgeval.core.parallel import map_batches, received_folder
from pcgeval.core.params import PhysicsParams, Similarity
from pcgeval.evaluator.image import render
from pcgeval.evaluator.stage import CRASHED, installed_engine, installed_packages
from pcgeval.evaluator.walk import TextKind, end_of, text_kind, walk_to_level
from pcgeval.similarity.classifier import loaded_classifier
from pcgeval.similarity.source import resolve_source
from pcgeval.similarity.stage import packages_of

SUMMARY = "_summary.json"  # readers of a folder of Parquet files skip what begins so
LOCK = ".evaluate.lock"
ROWS_PER_PART = 10_000
REMEMBERED = 50_000  # levels, some 1 kB each, and 4 bytes for each number of an embedding
COLUMNS_VERSION = 2  # raise it when the columns change: parts with others are not continued
BATCH_ROWS = 1024  # after so many rows without enough new levels for a batch, a smaller one is sent
_OWN = re.compile(r"part-[0-9]{5,}\.parquet|_summary\.json|\..*")
_NOTE = b"pcgeval"  # the key of the note in a part's metadata


class EvaluationError(PcgevalError):
    """An output folder belongs to another input, to other settings, or to somebody else."""


class EvaluationSummary(BaseModel):
    """The outcome of all rows of an input.

    Attributes:
        rows: How many there are.
        failed: How many failed, by stage; those of the stage `input` could not be read.
        parts: How many files hold them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    failed: dict[str, int]
    parts: int


class _PartNote(BaseModel):
    """The metadata of a part: how it was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    failed: dict[str, int]
    input_sha256: str
    settings: dict[str, Any]


@dataclass(eq=False)
class _Level:
    """A level, and what was measured of it; its text is forgotten then."""

    xml: str
    measured: LevelRow | None = None


@dataclass
class _Batch:
    """Rows of the input with their levels, None for those that have none; and the levels that nobody measured yet."""

    rows: list[tuple[LevelRow, _Level | None]] = field(default_factory=list)
    new: list[_Level] = field(default_factory=list)


def evaluate(
    inputs: Sequence[Path | str],
    out: Path | str,
    *,
    similarity: Similarity | None = None,
    classify: bool = True,
    physics: PhysicsParams | None = None,
    embeddings: bool = False,
    read_as: TextKind | None = "response",
    rows_per_part: int = ROWS_PER_PART,
    processes: int | None = None,
    scheduler: str | None = None,
    begin: Callable[[int | None], None] = lambda _: None,
    report: Callable[[LevelRow], None] = lambda _: None,
) -> EvaluationSummary:
    """Score every level of an input and write the table of levels, `part-00000.parquet` and on.

    The rows are those of the input in its order; the files do not depend on the number of processes. A run that was
    killed is continued by the same call: finished parts are kept. `pcgeval.core.level_table` describes the
    columns; `score` is stability times similarity.

    Args:
        inputs: Files `*.jsonl`, `*.ndjson` or `*.parquet` with the columns id, letter and text; folders of such; or
            `-` for JSON lines on standard input.
        out: The folder for the parts and `_summary.json`: a new one, or that of an earlier run.
        similarity: The classifier; default: pcgeval's own.
        classify: Without it, levels are only simulated, and have no probabilities.
        physics: Settings of the simulation; default: those of `params.yaml` as published.
        embeddings: Whether the table has the classifier's embeddings.
        read_as: What the texts are; None takes each for what it looks like, as `score_level` does.
        rows_per_part: How many rows a part has, the last one excepted.
        processes: How many share the work; default: one for each core.
        scheduler: The address of a Dask cluster that does the work instead.
        begin: Called first with the number of rows that are not in a finished part; None for standard input.
        report: Called with each row that is new.

    Raises:
        FileError: An input cannot be read at all; a row that cannot be read is a row of the table.
        EvaluationError: The folder holds something else, or the input or a setting changed since.
        ClassifierError: The classifier cannot be loaded.
        ClusterError: The cluster cannot be used.
        MissingPackageError: An extra that is needed is not installed.
    """
    files, folder = input_files(map(Path, inputs)), Path(out)
    import_pyarrow()
    similarity = similarity or Similarity(model=str(PACKAGED_DATA / "classifier"))
    physics = physics or PhysicsParams()
    source = resolve_source(similarity.model, similarity.revision) if classify else None
    classifiers = {source.sha256: source.folder} if source else {}
    settings = {
        "engine": installed_engine(physics),
        "packages": installed_packages(physics),
        "physics": physics.model_dump(mode="json"),
        "parquet": installed_versions("pyarrow"),
        "classifier": source.sha256 if source else None,
        "precision": similarity.precision if source else None,
        "classifier_packages": installed_versions(*packages_of(source, similarity)) if source else {},
        "embeddings": embeddings,
        "read_as": read_as,
        "rows_per_part": rows_per_part,
        "columns": COLUMNS_VERSION,
    }
    measure = _LevelMeasurer(
        physics, source.folder if source else None, source.sha256 if source else "", similarity, embeddings
    )

    def results(batches: Iterable[Sequence[str]]) -> Iterator[Sequence[LevelRow | None]]:
        return map_batches(measure, batches, processes or os.cpu_count() or 1, scheduler, classifiers)

    _check_folder(folder)
    with lock_folder(folder, folder / LOCK):
        parts = _Parts(folder, settings)
        rows = count_rows(files)
        begin(None if rows is None else rows - sum(note.rows for note in parts.notes))
        batches = _batches(parts.unfinished(read_rows(files)), read_as, similarity.batch)
        for row in _measured(batches, results):
            report(row)
            parts.add(row)
        return parts.finish()


@dataclass(frozen=True)
class _LevelMeasurer:
    """Measures levels with these settings; called with a batch of them, in this process or another.

    Attributes:
        physics: The settings of the simulation.
        classifier: The folder of the classifier; None measures stability alone.
        classifier_sha256: The hash of its files.
        similarity: Where and with what precision the classifier computes.
        embeddings: Whether to keep the classifier's embeddings.
    """

    physics: PhysicsParams
    classifier: Path | None
    classifier_sha256: str
    similarity: Similarity
    embeddings: bool

    def __call__(self, levels: Sequence[str]) -> list[LevelRow]:
        """Return what each level in XML gives, whichever letter was asked for."""
        measured: list[LevelRow] = []
        pictures: dict[int, Image.Image] = {}
        for number, xml in enumerate(levels):
            end = end_of(xml, self.physics, paths=False)
            if isinstance(end, str):
                measured.append(LevelRow(failed_stage="simulate", reason=end))
                continue
            measured.append(
                LevelRow(blocks=end.total_blocks, moved=end.moving_blocks, stability=end.score, starts=end.starts)
            )
            pictures[number] = render(end)
        if self.classifier is None or not pictures:
            return measured
        folder = received_folder(self.classifier, self.classifier_sha256)
        classifier = loaded_classifier(folder, device=self.similarity.device, precision=self.similarity.precision)
        found = classifier.predict(list(pictures.values()))
        for row, number in enumerate(pictures):
            embedding = found.embeddings[row].astype(np.float32) if self.embeddings else None
            probabilities = tuple(found.probabilities[row].tolist())
            measured[number] = replace(measured[number], probabilities=probabilities, embedding=embedding)
        return measured


def _batches(rows: Iterable[InputRow], read_as: TextKind | None, size: int) -> Iterator[_Batch]:
    """Yield the rows in batches of `size` levels that were not met lately."""
    known: OrderedDict[str, _Level] = OrderedDict()
    batch = _Batch()
    for count, row in enumerate(rows, start=1):
        made, xml = _read(row, read_as)
        if xml is None:
            batch.rows.append((made, None))
        else:
            key = sha256_text(xml)
            if key not in known:
                known[key] = _Level(xml)
                batch.new.append(known[key])
            known.move_to_end(key)
            batch.rows.append((made, known[key]))
        if len(known) > REMEMBERED:
            known.popitem(last=False)
        if len(batch.new) == size or count % BATCH_ROWS == 0:
            yield batch
            batch = _Batch()
    yield batch


def _read(row: InputRow, read_as: TextKind | None) -> tuple[LevelRow, str | None]:
    """Return a row of the table with its level in XML, or with why it has none."""
    if row.fault is not None:
        return LevelRow(row.id, row.letter, "input", f"{row.place}: {row.fault}"), None
    walk = walk_to_level(row.text, read_as or text_kind(row.text))
    return LevelRow(row.id, row.letter, walk.failed_stage, walk.reason), walk.xml


def _measured(
    batches: Iterable[_Batch], results: Callable[[Iterable[Sequence[str]]], Iterable[Sequence[LevelRow | None]]]
) -> Iterator[LevelRow]:
    """Yield the rows of all batches in order; the levels of a row were sent with its batch or with one before."""
    under_way: deque[_Batch] = deque()

    def sent() -> Iterator[list[str]]:
        for batch in batches:
            under_way.append(batch)
            yield [level.xml for level in batch.new]

    for found in results(sent()):
        batch = under_way.popleft()
        for level, measured in zip(batch.new, found, strict=True):
            level.xml, level.measured = "", measured or LevelRow(failed_stage="simulate", reason=CRASHED)
        for row, of_row in batch.rows:
            yield _joined(row, of_row.measured) if of_row and of_row.measured else row


def _joined(row: LevelRow, measured: LevelRow) -> LevelRow:
    similarity = None
    if row.letter and measured.probabilities:
        similarity = measured.probabilities[LETTERS.index(row.letter)]
    return replace(measured, id=row.id, letter=row.letter, similarity=similarity)


def _score(row: LevelRow) -> float | None:
    """Return stability x similarity; 0 for a level that failed, None for what was not read or not classified."""
    if row.failed_stage is not None:
        return None if row.failed_stage == "input" else 0.0
    return None if row.stability is None or row.similarity is None else row.stability * row.similarity


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which somebody else's files lie: those of an evaluation would not be told from them."""
    if not folder.exists():
        return
    foreign = [path.name for path in folder.iterdir() if not _OWN.fullmatch(path.name)]
    if foreign:
        raise EvaluationError(f"{folder}: holds {min(foreign)}, which is of no evaluation. Name a new or empty folder.")


class _Parts:
    """The parts of an output folder: those that are finished, and the one that is being filled."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.settings = folder, settings
        self.rows_per_part: int = settings["rows_per_part"]
        self.notes: list[_PartNote] = []
        while (path := self._path(len(self.notes))).exists():
            self.notes.append(self._read_note(path))
        self.rows: list[LevelRow] = []
        self.hashes: deque[str] = deque()  # of the rows of the input that are in no finished part

    def unfinished(self, rows: Iterator[InputRow]) -> Iterator[InputRow]:
        """Yield the rows that no finished part has, after comparing the others with what these were made from."""
        for number, note in enumerate(self.notes):
            if _combined(_row_sha256(row) for row in islice(rows, note.rows)) != note.input_sha256:
                raise self._other_input(number)
        is_whole = not self.notes or self.notes[-1].rows == self.rows_per_part
        for row in rows:
            if not is_whole:
                raise self._other_input(len(self.notes) - 1)
            self.hashes.append(_row_sha256(row))
            yield row

    def add(self, row: LevelRow) -> None:
        """Add a row to the part that is being filled, and write it when it is full."""
        self.rows.append(row)
        if len(self.rows) == self.rows_per_part:
            self._write()

    def finish(self) -> EvaluationSummary:
        """Write the last part, and what became of all rows."""
        if self.rows or not self.notes:
            self._write()
        failed = sum((Counter(note.failed) for note in self.notes), Counter[str]())
        rows = sum(note.rows for note in self.notes)
        summary = EvaluationSummary(rows=rows, failed=dict(sorted(failed.items())), parts=len(self.notes))
        write_json(self.folder / SUMMARY, {**summary.model_dump(), "settings": self.settings})
        return summary

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:05}.parquet"

    def _other_input(self, number: int) -> EvaluationError:
        first = number * self.rows_per_part + 1
        return EvaluationError(
            f"{self._path(number)}: was made from other rows than the input has from row {first} on: it was changed, "
            "or has grown. Put the input back, or name a new folder."
        )

    def _write(self) -> None:
        pa, settings = import_pyarrow(), self.settings
        note = _PartNote(
            rows=len(self.rows),
            failed=dict(sorted(Counter(row.failed_stage for row in self.rows if row.failed_stage).items())),
            input_sha256=_combined(self.hashes.popleft() for _ in self.rows),
            settings=settings,
        )
        engine = engine_sha256(settings["engine"], settings["packages"], settings["physics"])
        table = level_table(self.rows, engine, settings["classifier"], embeddings=settings["embeddings"])
        scores = pa.array([_score(row) for row in self.rows], pa.float64())
        table = table.add_column(table.schema.get_field_index("similarity") + 1, "score", scores)
        text = to_json(note.model_dump(), indent=None).encode()
        write_bytes(self._path(len(self.notes)), parquet_bytes(table.replace_schema_metadata({_NOTE: text})))
        self.notes.append(note)
        self.rows = []

    def _read_note(self, path: Path) -> _PartNote:
        pa = import_pyarrow()
        try:
            note = _PartNote.model_validate_json(pa.parquet.read_schema(path).metadata[_NOTE])
        except (pa.ArrowException, OSError, KeyError, TypeError, ValidationError) as error:
            raise FileError(f"{path}: is no whole part of an evaluation. Remove it, and it is made again.") from error
        if changed := [key for key, value in self.settings.items() if note.settings.get(key) != value]:
            raise EvaluationError(
                f"{path}: was made with another {' and '.join(changed)}. Name a new folder, or use the old settings."
            )
        return note


def _row_sha256(row: InputRow) -> str:
    return sha256_json([row.place, row.id, row.letter, row.fault, sha256_text(row.text)])


def _combined(hashes: Iterable[str]) -> str:
    return sha256_text("".join(hashes))
