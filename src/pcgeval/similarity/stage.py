"""The stage classify: from the pictures of one model and team to the official similarity files."""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image
from pydantic import Field

from pcgeval.core.errors import FileError
from pcgeval.core.files import empty_folder, sha256_bytes, sha256_json
from pcgeval.core.layout import CLASSIFIER_FILE, Trial, letter_file, trial_file
from pcgeval.core.packages import installed_versions
from pcgeval.core.params import Similarity
from pcgeval.core.spread import folder_here, spread
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
from pcgeval.similarity.classifier import Classifier, Predictions, loaded_classifier, runs_in_numpy
from pcgeval.similarity.source import LABELS, Source, resolve_source

# Predictions are kept by the hashes of classifier and picture and by the versions of packages, so that no picture is
# inferred twice: outside the outputs, as teams, models and runs share them, and it can be deleted any time.
CACHE = Path(".cache") / "predictions"
PACKAGES = ("numpy", "pillow", "safetensors")  # that a prediction of a small classifier comes from
TORCH_PACKAGES = (*PACKAGES, "torch", "transformers")  # and of any other
PICTURE_SIDE = 1024  # pixels
PICTURE_BYTES = 4 * 2**20  # far above any black-and-white picture of that size


class Prediction(StageFile):
    """One picture's probabilities in the order A to Z, and its embedding."""

    probabilities: tuple[float, ...] = Field(min_length=len(LABELS), max_length=len(LABELS))
    embedding: tuple[float, ...] = Field(min_length=1)


def prediction_file(cache: Path, maker: str, picture_sha256: str) -> Path:
    """Return where a prediction about a picture is kept; its maker by `made_by`."""
    return cache / maker / picture_sha256[:2] / f"{picture_sha256}.json"


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
    scheduler: str | None = None,
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
        scheduler: The address of a Dask cluster that classifies instead.

    Raises:
        ClassifierError: The classifier cannot be fetched.
        ClusterError: The cluster cannot be used.
        FileError: `trials.json` of the pictures is missing.
    """
    wanted = list(trials)
    before = read_outcomes(images)
    source = resolve_source(settings.model, settings.revision, root)
    packages = installed_versions(*packages_of(source, settings))
    classifier = ClassifierFile(
        name=source.name,
        revision=source.revision,
        sha256=source.sha256,
        precision=settings.precision,
        packages=packages,
    )
    fates: dict[Trial, TrialOutcome] = {}
    pictures: dict[Trial, _Picture] = {}
    for trial in wanted:
        fates[trial] = before.get(trial) or failed(trial, "classify", f"{images} lacks this trial; run `dvc repro`")
        if fates[trial].reason is None:
            found = _read_picture(trial_file(images, "images", team, trial))
            if isinstance(found, _Picture):
                pictures[trial] = found
            else:
                fates[trial] = failed(trial, "classify", found)
    predictions = _predict(source, settings, pictures.values(), cache_root, scheduler)
    for trial, picture in pictures.items():
        answer = predictions[picture.sha256]
        fates[trial] = (
            failed(trial, "classify", f"{picture.path.name} {answer}")
            if isinstance(answer, str)
            else (succeeded(trial))
        )
    empty_folder(similarity, keep=images)
    for letter in sorted({trial.letter for trial in wanted}):
        of_letter = [picture for trial, picture in pictures.items() if trial.letter == letter]
        answers = [(picture.path.name, predictions[picture.sha256]) for picture in of_letter]
        rows = [(name, answer) for name, answer in answers if isinstance(answer, Prediction)]
        similarity_file(letter, rows).write(letter_file(similarity, letter))
    classifier.write(similarity / CLASSIFIER_FILE)
    outcomes = [fates[trial] for trial in wanted]
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
    _predict(source, settings, pictures, cache_root, None)


def packages_of(source: Source, settings: Similarity) -> tuple[str, ...]:
    """Return the packages that a prediction comes from."""
    return PACKAGES if runs_in_numpy(source.folder, settings.device, settings.precision) else TORCH_PACKAGES


def made_by(source: Source, settings: Similarity) -> str:
    """Return one hash over all that decides a prediction beside the picture."""
    return sha256_json([source.sha256, settings.precision, installed_versions(*packages_of(source, settings))])


def _read_picture(path: Path) -> _Picture | str:
    """Return the bytes of a picture, or the reason why it cannot be classified."""
    try:
        content = read_bounded(path, PICTURE_BYTES, follow_link=True)  # DVC may link its cache
    except UntrustedFileError as error:
        return f"{path.name} {error.reason}"
    return _Picture(path, sha256_bytes(content), content)


def _fault(picture: _Picture) -> str | None:
    """Return why the bytes are no picture of a level, in words that follow its name."""
    try:
        with Image.open(io.BytesIO(picture.content), formats=["PNG"]) as image:
            if image.size != (PICTURE_SIDE, PICTURE_SIDE):
                return f"is {image.width} x {image.height} pixels, not {PICTURE_SIDE} x {PICTURE_SIDE}"
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return f"is a broken PNG ({error})"
    return None


def _predict(
    source: Source, settings: Similarity, pictures: Iterable[_Picture], cache_root: Path, scheduler: str | None
) -> dict[str, Prediction | str]:
    """Return the prediction of each distinct picture by its hash, or why there is none.

    The network is loaded only if some are new.
    """
    maker = made_by(source, settings)
    found: dict[str, Prediction | str] = {}
    new: dict[str, _Picture] = {}
    for picture in pictures:
        if picture.sha256 in found or picture.sha256 in new:
            continue
        try:
            found[picture.sha256] = Prediction.read(prediction_file(cache_root, maker, picture.sha256))
        except FileError:  # missing, or damaged
            if fault := _fault(picture):
                found[picture.sha256] = fault
            else:
                new[picture.sha256] = picture
    if new:
        queue = list(new.values())
        batches = [queue[start : start + settings.batch] for start in range(0, len(queue), settings.batch)]
        for batch, answers in zip(batches, _answers(source, settings, batches, scheduler), strict=True):
            for picture, answer in zip(batch, answers, strict=True):
                if answer is not None:
                    answer.write(prediction_file(cache_root, maker, picture.sha256))
                found[picture.sha256] = answer or "ended every worker that classified it"
    return found


def _answers(
    source: Source, settings: Similarity, batches: Sequence[Sequence[_Picture]], scheduler: str | None
) -> Iterator[Sequence[Prediction | None]]:
    """Yield the predictions of each batch, of this machine or of a cluster."""
    if scheduler is None:
        classifier = Classifier.load(source.folder, device=settings.device, precision=settings.precision)
        yield from map(_predictions, classifier.predict_batches(batches, lambda picture: _opened(picture.content)))
        return
    sha256 = source.sha256
    work = partial(_classify_there, folder=source.folder, sha256=sha256, settings=settings)
    contents = ([picture.content for picture in batch] for batch in batches)
    yield from spread(work, contents, 1, scheduler, {sha256: source.folder})


def _classify_there(contents: Sequence[bytes], folder: Path, sha256: str, settings: Similarity) -> list[Prediction]:
    """Classify pictures on a worker of a cluster, which loads the classifier once."""
    folder = folder_here(folder, sha256)
    classifier = loaded_classifier(folder, device=settings.device, precision=settings.precision)
    return _predictions(classifier.predict([_opened(each) for each in contents]))


def _opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


def _predictions(found: Predictions) -> list[Prediction]:
    return [
        Prediction(probabilities=tuple(row.tolist()), embedding=tuple(embedding.tolist()))
        for row, embedding in zip(found.probabilities, found.embeddings, strict=True)
    ]


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
