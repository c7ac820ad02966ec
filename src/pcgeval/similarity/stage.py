"""The stage classify: from the pictures of one model and team to the official similarity files."""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from PIL import Image
from pydantic import Field

from pcgeval.core.errors import FileError
from pcgeval.core.files import empty_folder, sha256_bytes, sha256_json
from pcgeval.core.layout import CLASSIFIER_FILE, Trial, letter_file, trial_file
from pcgeval.core.packages import installed_versions
from pcgeval.core.params import Similarity
from pcgeval.core.stage_files import (
    ClassifierFile,
    LabelProbability,
    PicturePrediction,
    SimilarityEntry,
    SimilarityFile,
    StageFile,
    TrialOutcome,
    failed,
    rate,
    read_outcomes,
    succeeded,
    write_outcomes,
)
from pcgeval.core.untrusted import UntrustedFileError, read_bounded
from pcgeval.similarity.source import LABELS, Source, resolve_source

# Predictions are kept by the hashes of classifier and picture and by the versions of packages, so that no picture is
# inferred twice: outside the outputs, as teams, models and runs share them, and it can be deleted any time.
CACHE = Path(".cache") / "predictions"
PACKAGES = ("numpy", "pillow", "safetensors", "torch", "transformers")  # that a prediction comes from
PICTURE_SIDE = 1024  # pixels
PICTURE_BYTES = 4 * 2**20  # far above any black-and-white picture of that size


class Prediction(StageFile):
    """One picture's probabilities in the order A to Z, and its embedding."""

    probabilities: tuple[float, ...] = Field(min_length=len(LABELS), max_length=len(LABELS))
    embedding: tuple[float, ...] = Field(min_length=1)


def prediction_file(cache: Path, classifier_sha256: str, picture_sha256: str) -> Path:
    """Return where the prediction of a classifier about a picture is kept."""
    made_by = sha256_json([classifier_sha256, installed_versions(*PACKAGES)])
    return cache / made_by / picture_sha256[:2] / f"{picture_sha256}.json"


@dataclass(frozen=True)
class _Picture:
    path: Path
    sha256: str
    content: bytes


def classify_stage(
    images: Path,
    similarity: Path,
    team: str,
    trials: Iterable[Trial],
    settings: Similarity,
    cache_root: Path = CACHE,
    root: Path = Path(),
) -> list[TrialOutcome]:
    """Classify every picture of a team once; write the official files, `trials.json` and `classifier.json`.

    Args:
        images: The folder of one model and team with the pictures and their `trials.json`.
        similarity: The folder to fill; it is emptied first.
        team: The team's name, part of the file names.
        trials: The trials to go through; a trial that failed before is carried on.
        settings: Which classifier, and how many pictures at once.
        cache_root: Where predictions of earlier runs lie.
        root: The folder that a classifier's folder is relative to.

    Raises:
        ClassifierError: The classifier cannot be fetched.
        FileError: `trials.json` of the pictures is missing.
    """
    wanted = list(trials)
    before = read_outcomes(images)
    source = resolve_source(settings.model, settings.revision, root)
    classifier = ClassifierFile(
        name=source.name, revision=source.revision, sha256=source.sha256, packages=installed_versions(*PACKAGES)
    )
    outcomes: list[TrialOutcome] = []
    pictures: dict[Trial, _Picture] = {}
    for trial in wanted:
        outcome = before.get(trial) or failed(trial, "classify", f"{images} lacks this trial; run `dvc repro`")
        if outcome.reason is None:
            found = _read_picture(trial_file(images, "images", team, trial))
            if isinstance(found, _Picture):
                pictures[trial] = found
                outcome = succeeded(trial)
            else:
                outcome = failed(trial, "classify", found)
        outcomes.append(outcome)
    kept = partial(prediction_file, cache_root, classifier.sha256)
    predictions = _predict(source, settings, pictures.values(), kept)
    empty_folder(similarity, keep=images)
    for letter in sorted({trial.letter for trial in wanted}):
        found_here = [picture for trial, picture in pictures.items() if trial.letter == letter]
        rows = [(picture.path.name, predictions[picture.sha256]) for picture in found_here]
        similarity_file(letter, rows).write(letter_file(similarity, letter))
    classifier.write(similarity / CLASSIFIER_FILE)
    write_outcomes(similarity, outcomes)
    return outcomes


def predict_pictures(
    paths: Iterable[Path], settings: Similarity, cache_root: Path = CACHE, root: Path = Path()
) -> None:
    """Put the predictions of pictures of several teams where `classify_stage` looks: the network is loaded once.

    Raises:
        ClassifierError: The classifier cannot be fetched.
    """
    source = resolve_source(settings.model, settings.revision, root)
    pictures = [found for found in map(_read_picture, paths) if isinstance(found, _Picture)]
    _predict(source, settings, pictures, partial(prediction_file, cache_root, source.sha256))


def _read_picture(path: Path) -> _Picture | str:
    """Return the picture, or the reason why it cannot be classified."""
    try:
        content = read_bounded(path, PICTURE_BYTES, follow_link=True)  # DVC may link its cache
    except UntrustedFileError as error:
        return f"{path.name} {error.reason}"
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.size != (PICTURE_SIDE, PICTURE_SIDE):
                return f"{path.name} is {image.width} x {image.height} pixels, not {PICTURE_SIDE} x {PICTURE_SIDE}"
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return f"{path.name} is a broken PNG ({error})"
    return _Picture(path, sha256_bytes(content), content)


def _predict(
    source: Source, settings: Similarity, pictures: Iterable[_Picture], kept: Callable[[str], Path]
) -> dict[str, Prediction]:
    """Return the prediction of each distinct picture; the network is loaded only if some are new."""
    found: dict[str, Prediction] = {}
    new: dict[str, _Picture] = {}
    for picture in pictures:
        try:
            found[picture.sha256] = Prediction.read(kept(picture.sha256))
        except FileError:  # missing, or damaged
            new[picture.sha256] = picture
    if new:
        from pcgeval.similarity.classifier import Classifier  # noqa: PLC0415 - torch takes seconds to import

        classifier = Classifier.load(source.folder, device=settings.device)
        queue = iter(new.values())
        while batch := list(islice(queue, settings.batch)):
            answer = classifier.predict([Image.open(io.BytesIO(picture.content)) for picture in batch])
            for picture, row, embedding in zip(batch, answer.probabilities, answer.embeddings, strict=True):
                prediction = Prediction(probabilities=tuple(row.tolist()), embedding=tuple(embedding.tolist()))
                prediction.write(kept(picture.sha256))
                found[picture.sha256] = prediction
    return found


def similarity_file(letter: str, rows: Sequence[tuple[str, Prediction]]) -> SimilarityFile:
    """Return a letter's file from the names of its pictures and their predictions, in the order of the trials."""
    column = LABELS.index(letter)
    trials = tuple(
        SimilarityEntry(name=name, label=letter, similarity=prediction.probabilities[column])
        for name, prediction in rows
    )
    predictions = tuple(
        PicturePrediction(
            name=name,
            probabilities=tuple(
                LabelProbability(id=index, label=label, probability=probability)
                for index, (label, probability) in enumerate(zip(LABELS, prediction.probabilities, strict=True))
            ),
            embedding=prediction.embedding,
        )
        for name, prediction in rows
    )
    mean = rate([each.similarity for each in trials])
    return SimilarityFile(count=len(rows), rate=mean, trials=trials, predictions=predictions)
