"""Evaluate a stream of responses into a Hugging Face dataset of Parquet files, and continue a killed run.

The first of equal texts goes to a worker, in batches and in the order of the input; each worker measures the first of
equal levels. Memory holds a few batches, the remembered measurements and the rows of one part.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from pcgeval.bulk.level_table import (
    CARD,
    InputRow,
    LevelRow,
    count_rows,
    dataset_card,
    engine_sha256,
    import_pyarrow,
    input_files,
    level_table,
    parquet_bytes,
    read_rows,
)
from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import sha256_json, sha256_text, to_json, write_bytes, write_text
from pcgeval.core.locks import lock_folder
from pcgeval.core.packages import installed_versions
from pcgeval.core.untrusted import read_text
from pcgeval.evaluator.image import white_rows
from pcgeval.evaluator.physics import simulate_or_reason
from pcgeval.evaluator.stage import installed_engine, installed_packages
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import LETTERS, PACKAGED_DATA, own_or_packaged
from pcgeval.formats.params import PhysicsParams, Similarity
from pcgeval.parallel import received_folder
from pcgeval.parallel.processes import chosen_scheduler, end_unguarded_worker, map_batches
from pcgeval.preview.level_score import TextKind, check_text_kind, text_kind, walk_to_level
from pcgeval.similarity.classifier import loaded_classifier
from pcgeval.similarity.preprocessing import RowRuns
from pcgeval.similarity.source import resolve_source
from pcgeval.similarity.stage import packages_of

ROWS_PER_PART = 10_000
REMEMBERED = 50_000  # texts here and levels in each worker: some 1 kB each, and 4 bytes for each number of an embedding
MOST_ROWS = 1000  # from which a batch takes the texts that are new
COLUMNS_VERSION = 4  # raise it when the columns change, so that no run continues parts with others
_CARD_START = "`pcgeval evaluate` scored these levels:"
_NOTE = b"pcgeval"  # the key of the note in a part's metadata
_KNOWN: dict[tuple[str, str], LevelRow] = {}  # of this process, by the hashes of the settings and the level


class EvaluationError(PcgevalError):
    """An output folder belongs to another input or to other settings, or holds another dataset."""


class EvaluationSummary(BaseModel):
    """The outcome of all rows of an input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    failed: dict[str, int]  # by stage; rows of the stage `input` could not be read
    parts: int  # files


class _PartNote(BaseModel):
    """The metadata of a part."""

    rows: int
    failed: dict[str, int]
    input_sha256: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class _Work:
    """Evaluates batches of texts in any process; `settings` are those of the parts' notes."""

    settings: dict[str, Any]
    physics: PhysicsParams
    similarity: Similarity
    classifier: Path | None  # the folder; None measures stability alone

    def __call__(self, texts: Sequence[str]) -> list[LevelRow]:
        """Return the measurements of each text, or the reason of its failure."""
        walks = [walk_to_level(text, self.settings["read_as"] or text_kind(text)) for text in texts]
        settings = sha256_json(self.settings)
        keys = [(settings, sha256_text(walk.xml or "")) for walk in walks]
        if len(_KNOWN) > REMEMBERED:
            _KNOWN.clear()
        new = {key: walk.xml for key, walk in zip(keys, walks, strict=True) if walk.xml and key not in _KNOWN}
        _KNOWN.update(zip(new, self._measured(list(new.values())), strict=True))
        pairs = zip(keys, walks, strict=True)
        return [_KNOWN[key] if walk.failure is None else LevelRow.failed(walk.failure) for key, walk in pairs]

    def _measured(self, levels: Sequence[str]) -> list[LevelRow]:
        """Return the measurements of levels in XML, which do not depend on the letter."""
        ends = [simulate_or_reason(xml, self.physics, paths=False) for xml in levels]
        rows = [
            LevelRow.failed(end)
            if isinstance(end, Failure)
            else LevelRow(blocks=end.total_blocks, moved=end.moving_blocks, stability=end.score, starts=end.starts)
            for end in ends
        ]
        drawn = {place: end for place, end in enumerate(ends) if not isinstance(end, Failure)}
        if self.classifier is not None and drawn:
            folder = received_folder(self.classifier, self.settings["classifier"])
            classifier = loaded_classifier(folder, device=self.similarity.device, precision=self.similarity.precision)
            predictions = classifier.predict([RowRuns.of_runs(*white_rows(end)) for end in drawn.values()])
            measured = zip(drawn, predictions.probabilities, predictions.embeddings, strict=True)
            for place, probabilities, embedding in measured:
                vector = embedding.astype(np.float32) if self.settings["embeddings"] else None
                rows[place] = replace(rows[place], probabilities=tuple(probabilities.tolist()), embedding=vector)
        return rows


@dataclass
class _Batch:
    """Rows of the input in order, and the texts among them that a worker measures."""

    rows: list[tuple[str, str | None, str | None, list[LevelRow]]] = field(default_factory=list)  # hash, id, letter ...
    new: dict[str, list[LevelRow]] = field(default_factory=dict)  # ... and measurements: empty until the worker returns


def evaluate(
    inputs: Path | str | Sequence[Path | str],
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
    """Score every level of an input and write the table of levels as a Hugging Face dataset.

    The table has the rows of the input in their order; `pcgeval.bulk.level_table` describes its columns. The same call
    continues a killed run after its finished parts. A script calls this under `if __name__ == "__main__":`.

    Args:
        inputs: A file `*.jsonl`, `*.ndjson` or `*.parquet` with the columns id, letter and text; a folder of such,
            without those in `out`; `-` for JSON lines on standard input; or several of these.
        out: The folder for `README.md` and `data/part-00000.parquet` and on: a new one, or that of an earlier run.
        similarity: The classifier; default: the one of the package.
        classify: With False, only simulate the levels.
        physics: Settings of the simulation; default: those of `params.yaml` as published.
        embeddings: Whether the table has the classifier's embeddings.
        read_as: The kind of the texts; None takes each text as `score_level` does.
        rows_per_part: The number of rows of each part but the last.
        processes: The number of processes; default: one for each core.
        scheduler: The address of a Dask cluster that does the work instead; default: that in PCGEVAL_SCHEDULER.
        begin: Called first with the number of rows that are in no finished part; None for standard input.
        report: Called with each new row.

    Raises:
        FileError: An input cannot be read; a faulty row is a row of the table.
        EvaluationError: The folder is a file or holds another dataset, or the input or a setting has changed.
        ClassifierError: The classifier cannot be loaded.
        ClusterError: The cluster cannot be used.
        MissingPackageError: An extra is not installed.
        WorkerError: No process can be started.
        ValueError: `rows_per_part` is below 1, or `read_as` is no kind of text.
    """
    end_unguarded_worker()
    if rows_per_part < 1:
        raise ValueError(f"rows_per_part {rows_per_part} must be at least 1")
    check_text_kind(read_as)
    scheduler = chosen_scheduler(scheduler)
    paths = [inputs] if isinstance(inputs, str | Path) else inputs
    files, folder = input_files(map(Path, paths), Path(out)), Path(out)
    _check_output(folder)
    import_pyarrow()
    similarity = similarity or Similarity(model=str(PACKAGED_DATA / "classifier"))
    physics = physics or PhysicsParams()
    model = str(own_or_packaged(Path(similarity.model)))
    source = resolve_source(model, similarity.revision) if classify else None
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
    with lock_folder(folder, folder / ".evaluate.lock"):
        notes = _finished_parts(folder, settings)
        total = count_rows(files)
        begin(None if total is None else total - sum(note.rows for note in notes))
        rows = _unfinished(read_rows(files), folder, notes, rows_per_part)
        results = _evaluated(work, rows, processes or os.cpu_count() or 1, scheduler, report)
        while (part := list(islice(results, rows_per_part))) or not notes:
            notes.append(_write_part(_part_file(folder, len(notes)), part, settings))
        return _write_card(folder, notes, settings)


def _check_output(folder: Path) -> None:
    if folder.is_file():
        raise EvaluationError(f"{folder}: is a file. Name a new or empty folder.")
    if (folder / CARD).exists() and _CARD_START not in read_text(folder / CARD, follow_link=True):
        raise EvaluationError(f"{folder}: holds another dataset, by its {CARD}. Name a new or empty folder.")


def _evaluated(
    work: _Work,
    rows: Iterator[InputRow],
    processes: int,
    scheduler: str | None,
    report: Callable[[LevelRow], None],
) -> Iterator[tuple[str, LevelRow]]:
    """Yield the hashes of the input's rows in order, each with its row of the table, which is reported."""
    under_way: deque[_Batch] = deque()

    def batches() -> Iterator[list[str]]:
        known: dict[str, list[LevelRow]] = {}
        batch = _Batch()
        for row in rows:
            sha256 = sha256_text(row.text)
            if row.fault is not None:
                measured = [LevelRow(failed_stage="input", reason=f"{row.place}: {row.fault}")]
            elif sha256 in known:
                measured = known[sha256]
            else:
                if len(known) == REMEMBERED:
                    known.clear()
                measured = known[sha256] = batch.new[row.text] = []
            batch.rows.append((_row_sha256(row, sha256), row.id, row.letter, measured))
            if len(batch.new) == work.similarity.batch or len(batch.rows) == MOST_ROWS:
                under_way.append(batch)
                yield list(batch.new)
                batch = _Batch()
        under_way.append(batch)
        yield list(batch.new)

    classifiers = {work.settings["classifier"]: work.classifier} if work.classifier else {}
    for results in map_batches(work, batches(), processes, scheduler, classifiers):
        batch = under_way.popleft()
        for measured, result in zip(batch.new.values(), results, strict=True):
            measured.append(result or LevelRow.failed(failure("simulation-crashed")))
        for row_sha256, identity, letter, measured in batch.rows:
            row = _joined(identity, letter, measured[0])
            report(row)
            yield row_sha256, row


def _part_file(folder: Path, number: int) -> Path:
    return folder / "data" / f"part-{number:05}.parquet"


def _finished_parts(folder: Path, settings: dict[str, Any]) -> list[_PartNote]:
    """Read the notes of the parts that an earlier run wrote with the same settings; refuse any other table."""
    pa = import_pyarrow()
    notes: list[_PartNote] = []
    while (path := _part_file(folder, len(notes))).exists():
        try:
            note = _PartNote.model_validate_json(pa.parquet.read_schema(path).metadata[_NOTE])
        except (pa.ArrowException, OSError, KeyError, TypeError, ValidationError) as error:
            raise FileError(f"{path}: is no part of an evaluation. Name a new folder.") from error
        if changed := [key for key, value in settings.items() if note.settings.get(key) != value]:
            other = f"comes from another {' and '.join(changed)}. Name a new folder, or use the old settings."
            raise EvaluationError(f"{path}: {other}")
        notes.append(note)
    parts = {_part_file(folder, number) for number in range(len(notes))}
    if others := sorted(set(path.parent.glob("*.parquet")) - parts):
        fault = "is no part of this evaluation, or an earlier part is missing"
        raise EvaluationError(f"{others[0]}: {fault}. Name a new or empty folder.")
    return notes


def _unfinished(
    rows: Iterator[InputRow], folder: Path, notes: Sequence[_PartNote], rows_per_part: int
) -> Iterator[InputRow]:
    """Yield the rows that no finished part has; refuse an input with changes in the finished rows, or with more."""

    def changed(number: int) -> EvaluationError:
        return EvaluationError(
            f"{_part_file(folder, number)}: comes from other rows than the input has from row "
            f"{number * rows_per_part + 1} on: it was changed, or has grown. Put it back, or name a new folder."
        )

    for number, note in enumerate(notes):
        if _combined(_row_sha256(row, sha256_text(row.text)) for row in islice(rows, note.rows)) != note.input_sha256:
            raise changed(number)
    for row in rows:
        if notes and notes[-1].rows < rows_per_part:
            raise changed(len(notes) - 1)
        yield row


def _write_part(path: Path, part: Sequence[tuple[str, LevelRow]], settings: dict[str, Any]) -> _PartNote:
    rows = [row for _, row in part]
    note = _PartNote(
        rows=len(rows),
        failed=dict(sorted(Counter(row.failed_stage for row in rows if row.failed_stage).items())),
        input_sha256=_combined(sha256 for sha256, _ in part),
        settings=settings,
    )
    engine = engine_sha256(settings["engine"], settings["packages"], settings["physics"])
    table = level_table(rows, engine, settings["classifier"], embeddings=settings["embeddings"])
    text = to_json(note.model_dump(), indent=None).encode()
    write_bytes(path, parquet_bytes(table.replace_schema_metadata({_NOTE: text})))
    return note


def _write_card(folder: Path, notes: Sequence[_PartNote], settings: dict[str, Any]) -> EvaluationSummary:
    failed = sum((Counter(note.failed) for note in notes), Counter[str]())
    rows = sum(note.rows for note in notes)
    summary = EvaluationSummary(rows=rows, failed=dict(sorted(failed.items())), parts=len(notes))
    outcome = to_json({**summary.model_dump(), "settings": settings})
    text = f"{_CARD_START}\n\n```json\n{outcome}\n```\n\n"
    write_text(folder / CARD, dataset_card("Scored levels", "data/*.parquet", text))
    return summary


def _joined(identity: str | None, letter: str | None, measured: LevelRow) -> LevelRow:
    """Return the measurements of a row's level with the scores for its letter."""
    similarity = score = None
    if measured.failed_stage is not None:
        score = 0.0 if measured.failed_stage != "input" else None
    elif letter and measured.probabilities and measured.stability is not None:
        similarity = measured.probabilities[LETTERS.index(letter)]
        score = measured.stability * similarity
    return replace(measured, id=identity, letter=letter, similarity=similarity, score=score)


def _row_sha256(row: InputRow, text_sha256: str) -> str:
    return sha256_json([row.place, row.id, row.letter, row.fault, text_sha256])


def _combined(hashes: Iterable[str]) -> str:
    return sha256_text("".join(hashes))
