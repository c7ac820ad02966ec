"""Evaluate a stream of responses into a folder of Parquet files, and go on where a killed run stopped.

Rows flow in the order of the input and go to the workers in batches; each worker remembers the levels that it measured.
So memory holds a few batches, these levels and the rows of one part.
"""

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
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
ROWS_PER_PART = 10_000
REMEMBERED = 50_000  # levels in each worker, some 1 kB each, and 4 bytes for each number of an embedding
COLUMNS_VERSION = 2  # raise it when the columns change: parts with others are not continued
_FILES = re.compile(r"part-[0-9]{5,}\.parquet|_summary\.json|\..*")
_NOTE = b"pcgeval"  # the key of the note in a part's metadata
_KNOWN: dict[tuple[str, str], LevelRow] = {}  # of this process, by the hashes of the settings and the level


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


@dataclass(frozen=True)
class _Work:
    """Evaluates batches of rows, in whichever process; `settings` are those of the parts' notes."""

    settings: dict[str, Any]
    physics: PhysicsParams
    similarity: Similarity
    classifier: Path | None  # its folder; None measures stability alone

    def __call__(self, rows: Sequence[InputRow]) -> list[LevelRow]:
        """Return a row of the table for each row of the input."""
        read = [self._read(row) for row in rows]
        settings = sha256_json(self.settings)
        keys = [(settings, sha256_text(xml)) for _, xml in read]
        if len(_KNOWN) > REMEMBERED:
            _KNOWN.clear()
        new = {key: xml for key, (_, xml) in zip(keys, read, strict=True) if xml and key not in _KNOWN}
        _KNOWN.update(zip(new, self._measured(list(new.values())), strict=True))
        return [_joined(row, _KNOWN[key]) if xml else row for key, (row, xml) in zip(keys, read, strict=True)]

    def _read(self, row: InputRow) -> tuple[LevelRow, str]:
        """Return a row of the table with its level in XML, or with why it has none."""
        if row.fault is not None:
            return LevelRow(row.id, row.letter, "input", f"{row.place}: {row.fault}"), ""
        walk = walk_to_level(row.text, self.settings["read_as"] or text_kind(row.text))
        return LevelRow(row.id, row.letter, walk.failed_stage, walk.reason), walk.xml or ""

    def _measured(self, levels: Sequence[str]) -> list[LevelRow]:
        """Return what each level in XML gives, whichever letter was asked for."""
        ends = [end_of(xml, self.physics, paths=False) for xml in levels]
        pictures = [render(end) for end in ends if not isinstance(end, str)]
        vectors: Iterator[tuple[Any, Any]] = iter(())
        if self.classifier is not None and pictures:
            folder = received_folder(self.classifier, self.settings["classifier"])
            classifier = loaded_classifier(folder, device=self.similarity.device, precision=self.similarity.precision)
            predictions = classifier.predict(pictures)
            vectors = zip(predictions.probabilities, predictions.embeddings, strict=True)
        measured: list[LevelRow] = []
        for end in ends:
            if isinstance(end, str):
                measured.append(LevelRow(failed_stage="simulate", reason=end))
                continue
            row = LevelRow(blocks=end.total_blocks, moved=end.moving_blocks, stability=end.score, starts=end.starts)
            if self.classifier is not None:
                probabilities, embedding = next(vectors)
                vector = embedding.astype(np.float32) if self.settings["embeddings"] else None
                row = replace(row, probabilities=tuple(probabilities.tolist()), embedding=vector)
            measured.append(row)
        return measured


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
    work = _Work(settings, physics, similarity, source.folder if source else None)
    foreign = [path.name for path in folder.iterdir() if not _FILES.fullmatch(path.name)] if folder.exists() else []
    if foreign:
        raise EvaluationError(f"{folder}: holds {min(foreign)}, which is of no evaluation. Name a new or empty folder.")
    with lock_folder(folder, folder / ".evaluate.lock"):
        parts = _Parts(folder, settings)
        total = count_rows(files)
        begin(None if total is None else total - parts.finished_rows)
        rows = parts.unfinished(read_rows(files))
        for row, result in _evaluated(work, rows, processes or os.cpu_count() or 1, scheduler):
            report(result)
            parts.add(result, _row_sha256(row))
        return parts.finish()


def _evaluated(
    work: _Work, rows: Iterator[InputRow], processes: int, scheduler: str | None
) -> Iterator[tuple[InputRow, LevelRow]]:
    """Yield the rows of the input in order, each with its row of the table."""
    under_way: deque[list[InputRow]] = deque()

    def batches() -> Iterator[list[InputRow]]:
        while batch := list(islice(rows, work.similarity.batch)):
            under_way.append(batch)
            yield batch

    classifiers = {work.settings["classifier"]: work.classifier} if work.classifier else {}
    for results in map_batches(work, batches(), processes, scheduler, classifiers):
        for row, result in zip(under_way.popleft(), results, strict=True):
            yield row, result or LevelRow(row.id, row.letter, "simulate", CRASHED)


class _Parts:
    """The parts of an output folder: those that are finished, and the one that is being filled."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder, self._settings = folder, settings
        self._rows_per_part: int = settings["rows_per_part"]
        self._rows: list[LevelRow] = []
        self._hashes: list[str] = []  # of the input of these rows
        self._notes: list[_PartNote] = []
        while (path := self._path(len(self._notes))).exists():
            self._notes.append(self._read_note(path))

    @property
    def finished_rows(self) -> int:
        """How many rows the finished parts have."""
        return sum(note.rows for note in self._notes)

    def unfinished(self, rows: Iterator[InputRow]) -> Iterator[InputRow]:
        """Yield the rows that no finished part has, after comparing the others with what these were made from."""
        for number, note in enumerate(self._notes):
            if _combined(_row_sha256(row) for row in islice(rows, note.rows)) != note.input_sha256:
                raise self._other_input(number)
        is_whole = not self._notes or self._notes[-1].rows == self._rows_per_part
        for row in rows:
            if not is_whole:
                raise self._other_input(len(self._notes) - 1)
            yield row

    def add(self, row: LevelRow, input_sha256: str) -> None:
        """Add a row to the part that is being filled, and write it when it is full."""
        self._rows.append(row)
        self._hashes.append(input_sha256)
        if len(self._rows) == self._rows_per_part:
            self._write()

    def finish(self) -> EvaluationSummary:
        """Write the last part, and the outcome of all rows."""
        if self._rows or not self._notes:
            self._write()
        failed = sum((Counter(note.failed) for note in self._notes), Counter[str]())
        summary = EvaluationSummary(
            rows=self.finished_rows, failed=dict(sorted(failed.items())), parts=len(self._notes)
        )
        write_json(self._folder / SUMMARY, {**summary.model_dump(), "settings": self._settings})
        return summary

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:05}.parquet"

    def _other_input(self, number: int) -> EvaluationError:
        first = number * self._rows_per_part + 1
        return EvaluationError(
            f"{self._path(number)}: was made from other rows than the input has from row {first} on: it was changed, "
            "or has grown. Put the input back, or name a new folder."
        )

    def _write(self) -> None:
        pa, settings, rows = import_pyarrow(), self._settings, self._rows
        note = _PartNote(
            rows=len(rows),
            failed=dict(sorted(Counter(row.failed_stage for row in rows if row.failed_stage).items())),
            input_sha256=_combined(self._hashes),
            settings=settings,
        )
        engine = engine_sha256(settings["engine"], settings["packages"], settings["physics"])
        table = level_table(rows, engine, settings["classifier"], embeddings=settings["embeddings"])
        scores = pa.array([_score(row) for row in rows], pa.float64())
        table = table.add_column(table.schema.get_field_index("similarity") + 1, "score", scores)
        text = to_json(note.model_dump(), indent=None).encode()
        write_bytes(self._path(len(self._notes)), parquet_bytes(table.replace_schema_metadata({_NOTE: text})))
        self._notes.append(note)
        self._rows, self._hashes = [], []

    def _read_note(self, path: Path) -> _PartNote:
        pa = import_pyarrow()
        try:
            note = _PartNote.model_validate_json(pa.parquet.read_schema(path).metadata[_NOTE])
        except (pa.ArrowException, OSError, KeyError, TypeError, ValidationError) as error:
            raise FileError(f"{path}: is no whole part of an evaluation. Remove it, and it is made again.") from error
        if changed := [key for key, value in self._settings.items() if note.settings.get(key) != value]:
            raise EvaluationError(
                f"{path}: was made with another {' and '.join(changed)}. Name a new folder, or use the old settings."
            )
        return note


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


def _row_sha256(row: InputRow) -> str:
    return sha256_json([row.place, row.id, row.letter, row.fault, sha256_text(row.text)])


def _combined(hashes: Iterable[str]) -> str:
    return sha256_text("".join(hashes))
