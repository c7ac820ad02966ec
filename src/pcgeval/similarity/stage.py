"""The stages classify and diversity: from the pictures of all models and teams to the official files.

Equal pictures are classified once. A file in `.cache` keeps the predictions of a classifier and code by the hash of the
picture, a line each, so a run classifies only new pictures. You may delete the folder.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from pcgeval.core.console import Progress
from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_bytes, sha256_json, write_json
from pcgeval.core.packages import installed_versions, source_sha256
from pcgeval.formats.layout import CLASSIFIER_FILE, DATA, LETTERS, letter_file, stage_dir, tag
from pcgeval.formats.params import Params, Similarity
from pcgeval.formats.stages import (
    ClassifierFile,
    FilePart,
    LabelProbability,
    PicturePrediction,
    SimilarityEntry,
    SimilarityFile,
    changed_teams,
    rate,
    trial_contents,
)
from pcgeval.parallel import received_folder
from pcgeval.parallel.processes import chosen_scheduler, map_batches
from pcgeval.similarity.source import ClassifierError, Source, numpy_settings, resolve_source

# Distances of rounded probabilities carry no more, and the last bits of a dot product depend on the processor.
_DIGITS = 7
CACHE = Path(".cache", "predictions")
PACKAGES = ("numpy", "pillow", "safetensors")  # that compute a small classifier
TORCH_PACKAGES = (*PACKAGES, "torch", "transformers")  # and any other


class Prediction(FilePart):
    """One picture's probabilities in the order A to Z, and its embedding."""

    probabilities: tuple[float, ...] = Field(min_length=len(LETTERS), max_length=len(LETTERS))
    embedding: tuple[float, ...] = Field(min_length=1)


def classify_stage(params: Params, root: Path = Path()) -> None:
    """Classify each picture once; write the official files and `classifier.json`.

    A trial without a picture has no entry; `trials.json` beside the stability files has the reason.
    """
    settings = params.similarity
    source = resolve_source(settings.model, settings.revision, root)
    classifier = ClassifierFile(
        name=source.name,
        revision=source.revision,
        sha256=source.sha256,
        precision=settings.precision,
        packages=installed_versions(*packages_of(source, settings)),
    )
    with changed_teams(
        params,
        root,
        [DATA / "similarity"],
        DATA / "images",
        reads=lambda *place: [stage_dir("images", *place)],
        writes=lambda *place: [stage_dir("similarity", *place)],
        made_from=lambda *_: [params.competition, settings, classifier],
    ) as changed:
        pictures = trial_contents(params, root, "images", changed)
        predictions = _predict(source, classifier, params, pictures.values(), root / CACHE)
        for model, team in changed:
            folder = root / stage_dir("similarity", model, team)
            for letter in params.competition.characters:
                rows = [
                    (f"{tag(team, trial)}.png", predictions[pictures[model, team, trial]])
                    for trial in params.trials(letter)
                    if (model, team, trial) in pictures
                ]
                _similarity_file(letter, rows).write(letter_file(folder, letter))
            classifier.write(folder / CLASSIFIER_FILE)


def packages_of(source: Source, settings: Similarity) -> tuple[str, ...]:
    """Return the packages that compute a prediction."""
    return PACKAGES if numpy_settings(source.folder, settings.device, settings.precision) else TORCH_PACKAGES


def _predict(
    source: Source, classifier: ClassifierFile, params: Params, pictures: Collection[bytes], cache: Path
) -> dict[bytes, Prediction]:
    """Return the prediction of each distinct picture; the network is loaded only if some are new."""
    if not pictures:
        return {}
    settings, code = params.similarity, source_sha256("similarity")
    cache_key = [classifier.sha256, classifier.precision, classifier.packages, code]
    file = cache / f"{sha256_json(cache_key)}.jsonl"
    picture_of = {sha256_bytes(picture).encode(): picture for picture in pictures}
    predictions = {picture_of[name]: prediction for name, prediction in _kept(file, picture_of.keys())}
    new = {picture: name for name, picture in picture_of.items() if picture not in predictions}
    if not new:
        return predictions
    ordered = list(new)
    batches = [ordered[start : start + settings.batch] for start in range(0, len(ordered), settings.batch)]
    cache.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lines, Progress("classify", len(new)) as progress:
        answers = _answers(source, settings, batches, chosen_scheduler(default=params.execution.scheduler))
        for batch, answer in zip(batches, answers, strict=True):
            for picture, prediction in zip(batch, answer, strict=True):
                progress.step()
                if prediction is None:
                    raise ClassifierError("every worker that classified a picture crashed. Check their memory.")
                # a killed run may have left a part of a line, so each begins with its line feed
                lines.write(b"\n%s %s" % (new[picture], prediction.model_dump_json().encode()))
                predictions[picture] = prediction
    return predictions


def _kept(file: Path, names: Collection[bytes]) -> Iterator[tuple[bytes, Prediction]]:
    """Yield the kept predictions of the pictures with these hashes; a damaged line counts as none."""
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        name, _, content = line.partition(b" ")
        if name in names:
            with suppress(ValidationError):
                yield name, Prediction.model_validate_json(content)


def _answers(
    source: Source, settings: Similarity, batches: Sequence[Sequence[bytes]], scheduler: str | None
) -> Iterator[Sequence[Prediction | None]]:
    """Yield the predictions of each batch, of the threads of this process or of a cluster."""
    work = partial(_classify, folder=source.folder, sha256=source.sha256, settings=settings)
    if scheduler is not None:
        yield from map_batches(work, batches, 1, scheduler, {source.sha256: source.folder})
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(work, batches)


def _classify(contents: Sequence[bytes], folder: Path, sha256: str, settings: Similarity) -> list[Prediction]:
    from pcgeval.similarity.classifier import loaded_classifier  # noqa: PLC0415 - numpy, and most runs have nothing new
    from pcgeval.similarity.preprocessing import read_png  # noqa: PLC0415

    folder = received_folder(folder, sha256)
    classifier = loaded_classifier(folder, device=settings.device, precision=settings.precision)
    predictions = classifier.predict([read_png(content) for content in contents])
    rows = zip(predictions.probabilities.tolist(), predictions.embeddings.tolist(), strict=True)
    return [
        Prediction(probabilities=tuple(probabilities), embedding=tuple(embedding)) for probabilities, embedding in rows
    ]


def _similarity_file(letter: str, rows: Sequence[tuple[str, Prediction]]) -> SimilarityFile:
    """Return a letter's file from the names of its pictures and their predictions, in the order of the trials."""
    column = LETTERS.index(letter)
    trials = tuple(
        SimilarityEntry(name=name, label=letter, similarity=prediction.probabilities[column])
        for name, prediction in rows
    )
    predictions = tuple(
        PicturePrediction(
            name=name,
            probabilities=tuple(
                LabelProbability(id=index, label=label, probability=probability)
                for index, (label, probability) in enumerate(zip(LETTERS, prediction.probabilities, strict=True))
            ),
            embedding=prediction.embedding,
        )
        for name, prediction in rows
    )
    mean = rate([trial.similarity for trial in trials])
    return SimilarityFile(count=len(rows), rate=mean, trials=trials, predictions=predictions)


def diversity_stage(params: Params, root: Path = Path()) -> None:
    """Write the official `data/diversity/<model>/<team>/<C>.json` of every letter from the similarity files.

    Distances and rates have 7 decimals, the same on every processor. `diversity.vectors` in params.yaml names the
    vectors: `softmax`, the 26 probabilities (the rules), or `cls`, the embeddings (the 2025 script).
    """
    rules, vectors = params.competition, params.diversity.vectors
    with changed_teams(
        params,
        root,
        [DATA / "diversity"],
        DATA / "similarity",
        reads=lambda *place: [stage_dir("similarity", *place)],
        writes=lambda *place: [stage_dir("diversity", *place)],
        made_from=lambda *_: [rules, vectors, installed_versions("numpy")],
    ) as changed:
        for (model, team), letter in product(changed, rules.characters):
            path = letter_file(root / stage_dir("similarity", model, team), letter)
            write_json(
                letter_file(root / stage_dir("diversity", model, team), letter),
                _diversity_file(path, vectors, rules.trials),
                indent=None,
            )


def _diversity_file(similarity: Path, vectors: Literal["softmax", "cls"], trials: int) -> dict[str, Any]:
    """Return the content of a letter's official file from that of its similarities."""
    from pcgeval.similarity.diversity import DiversityError, diversity, pair_distances  # noqa: PLC0415 - numpy, as above

    named = _read_vectors(similarity, vectors)
    names, rows = [name for name, _ in named], [row for _, row in named]
    try:
        rate = diversity(rows, trials)
    except DiversityError as error:
        raise DiversityError(f"{similarity}: {error}") from error
    pairs = zip(combinations(names, 2), pair_distances(rows), strict=True)
    return {
        "count": len(rows),
        "diversityRate": round(rate, _DIGITS),
        "trials": [{"trial": name, "vector": row} for name, row in named],
        "diversities": [
            {"pair": {"trial1": one, "trial2": other}, "distance": round(float(distance), _DIGITS)}
            for (one, other), distance in pairs
        ],
    }


def _read_vectors(path: Path, vectors: Literal["softmax", "cls"]) -> list[tuple[str, tuple[float, ...]]]:
    """Read the first `count` vectors of a similarity file, as the official script does; softmax ones by label."""
    content = SimilarityFile.read(path)
    if content.count is None or not 0 <= content.count <= len(content.predictions):
        raise FileError(f"{path}: count is {content.count} of {len(content.predictions)} trials. Classify again.")
    labels, rows = set(), []
    for prediction in content.predictions[: content.count]:
        ordered = sorted(prediction.probabilities, key=lambda probability: probability.label)
        labels.add(tuple(probability.label for probability in ordered))
        softmax = tuple(probability.probability for probability in ordered)
        vector = softmax if vectors == "softmax" else prediction.embedding
        if not vector:
            fault = f"{prediction.name[:100]!r} has no {vectors} vector. Classify again, or set diversity.vectors"
            raise FileError(f"{path}: {fault} to what the file has.")
        rows.append((prediction.name.split(".", 1)[0], vector))
    if vectors == "softmax" and len(labels) > 1:
        raise FileError(f"{path}: trials have different labels. Classify all trials with the same classifier.")
    return rows
