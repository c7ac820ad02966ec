"""Gathering the evidence from a competition's folders.

Submissions and responses come from strangers: links are not followed, sizes are bounded, and each text that cannot be
had carries the reason. The results come from our own stages: where they are incomplete, nothing is said about them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any

from pcgeval.checks.evidence import STAGES, Document, Evidence, LetterResult, ModelEvidence, Reply, Stage, TrialResult
from pcgeval.core import layout
from pcgeval.core.conduct import read_conduct
from pcgeval.core.files import FileError, files_below, read_json
from pcgeval.core.layout import Trial, letter_file, step_folder, trial_file
from pcgeval.core.outcomes import read_outcomes
from pcgeval.core.params import Params
from pcgeval.submissions.entry_point import find_readme
from pcgeval.submissions.load import Program, SubmissionError, load_notes, load_work

MAX_DOCUMENT_BYTES = 1_000_000
_PROMPT_SUFFIXES = (".md", ".py", ".txt")  # where a program may keep what it says to a model
MAX_REPLY_BYTES = 16 * 2**20  # what the extraction reads of a response
# A line of code that starts a loop in Python or a language with braces; prose such as "for the letter I" does not.
_LOOP = re.compile(r"^[ \t]*+(?:for|while)\b[^\n{:]*+[{:]", re.MULTILINE)
_FENCED = re.compile(r"```(.*?)(?:```|\Z)", re.DOTALL)
_TRIAL_NUMBER = re.compile(r"_([0-9]{1,6})(?:\.[A-Za-z]{1,8})?$")
# trials.json names the step that failed either by the stage or by the folder that the stage fills
_STAGE_OF_STEP: Mapping[str, Stage] = {
    **{stage: stage for stage in STAGES},
    "raw": "generate",
    "intermediate": "extract",
    "levels": "convert",
    "stability": "simulate",
    "images": "simulate",
    "similarity": "classify",
}


def gather_submission(folder: Path, team: str, prompt_words: int) -> Evidence:
    """Read a submission that need not have been run."""
    is_program = _is_program(folder)
    readme = find_readme(folder) or folder / "README.md"
    return Evidence(
        team=team,
        prompt_words=prompt_words,
        readme=_document(readme),
        prompt=_program_texts(folder, readme) if is_program else _document(folder / "prompt.txt"),
        is_program=is_program,
    )


def gather_model(params: Params, model: str, team: str, root: Path = Path()) -> ModelEvidence:
    """Read what all stages made of a team's submission with one model, below a competition's folder.

    Raises:
        FileError: A stage's output is missing, incomplete or not what it should be.
    """
    trials = tuple(_trial_results(params, model, team, root))
    return ModelEvidence(trials, tuple(_letter_results(params, model, team, root)))


def _is_program(folder: Path) -> bool:
    try:
        return isinstance(load_work(folder, load_notes(folder)), Program)
    except SubmissionError:  # what cannot be run has no documents that count either
        return False


def _program_texts(folder: Path, readme: Path) -> Document:
    """Join what a program can take its prompts from, but its README, as far as a document may be long."""
    parts: list[bytes] = []
    left = MAX_DOCUMENT_BYTES
    for path in files_below(folder):
        if left > 0 and path.suffix in _PROMPT_SUFFIXES and path != readme:
            try:
                with path.open("rb") as file:
                    parts.append(file.read(left))
            except OSError as error:
                reason = f"{path.name} cannot be read ({error.strerror})"
                return Document("the program", "unreadable", reason=reason)
            left -= len(parts[-1])
    return Document("the program", "read", b"\n".join(parts).decode("utf-8", errors="replace"))


def _document(path: Path) -> Document:
    try:
        status = path.lstat()
        if not S_ISREG(status.st_mode):
            return Document(path.name, "refused", reason=f"{path.name} is no regular file")
        if status.st_size > MAX_DOCUMENT_BYTES:
            reason = f"{path.name} has {status.st_size} bytes, more than {MAX_DOCUMENT_BYTES}"
            return Document(path.name, "refused", reason=reason)
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Document(path.name, "refused", reason=f"{path.name} is missing")
    except UnicodeDecodeError as error:
        reason = f"{path.name} is no UTF-8 text ({error.reason} at byte {error.start})"
        return Document(path.name, "refused", reason=reason)
    except OSError as error:
        return Document(path.name, "unreadable", reason=f"{path.name} cannot be read ({error.strerror})")
    return Document(path.name, "read", text)


def _trial_results(params: Params, model: str, team: str, root: Path) -> list[TrialResult]:
    folders = {step: root / step_folder(step, model, team) for step in ("raw", "stability", "similarity")}
    outcomes = read_outcomes(folders["similarity"])
    stability = _by_trial(_letter_files(params, folders["stability"]), "raws", "tag")
    classified = _letter_files(params, folders["similarity"])
    similarity = _by_trial(classified, "trials", "id")
    predictions = _by_trial(classified, "similarities", "id")
    results = []
    for trial in layout.trials(params):
        outcome = outcomes.get(trial)
        if outcome is None:
            raise FileError(f"{folders['similarity'] / layout.TRIALS_FILE}: lacks {trial}. Run `dvc repro`.")
        stage = None if outcome.reason is None else _stage(outcome.failed_step, folders["similarity"])
        if stage is None and not (trial in stability and trial in similarity):
            raise FileError(f"{folders['similarity']}: {trial} passed but lacks its values. Run `dvc repro`.")
        results.append(
            TrialResult(
                model=model,
                trial=trial,
                failed_stage=stage,
                reason=outcome.reason or "",
                reply=None if stage == "generate" else _reply(trial_file(folders["raw"], "raw", team, trial)),
                stability=_probability(stability.get(trial), "score", folders["stability"]),
                similarity=_probability(similarity.get(trial), "similarity", folders["similarity"]),
                on_top=_on_top(similarity.get(trial), predictions.get(trial), folders["similarity"]),
                conduct=read_conduct(folders["raw"], team, trial),
            )
        )
    return results


def _stage(step: str | None, folder: Path) -> Stage:
    if step is None or step not in _STAGE_OF_STEP:
        raise FileError(f"{folder / layout.TRIALS_FILE}: unknown failed_step {step!r}. Run `dvc repro`.")
    return _STAGE_OF_STEP[step]


def _letter_results(params: Params, model: str, team: str, root: Path) -> list[LetterResult]:
    folder = root / step_folder("diversity", model, team)
    if not folder.is_dir():
        raise FileError(f"{folder}: is missing. Run `dvc repro` to make it.")
    results = []
    for letter in params.competition.characters:
        path = letter_file(folder, letter)
        diversity = _number(read_json(path), "diversityRate", path) if path.exists() else None
        results.append(LetterResult(model, letter, diversity))
    return results


def _letter_files(params: Params, folder: Path) -> dict[Path, Any]:
    """Read the official files of all letters; the stages may leave out a letter without levels."""
    paths = [letter_file(folder, letter) for letter in params.competition.characters]
    return {path: read_json(path) for path in paths if path.exists()}


def _by_trial(files: Mapping[Path, Any], table: str, name: str) -> dict[Trial, Mapping[str, Any]]:
    """Return the entries of one list in the files of all letters; of several for one trial the first counts."""
    found: dict[Trial, Mapping[str, Any]] = {}
    for path, value in files.items():
        entries = value.get(table, []) if isinstance(value, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise FileError(f"{path}: no list {table!r} of objects. Run `dvc repro` to make it again.")
        for entry in entries:
            if number := _TRIAL_NUMBER.search(str(entry.get(name, ""))):
                found.setdefault(Trial(path.stem, int(number[1])), entry)
    return found


def _probability(entry: Mapping[str, Any] | None, key: str, path: Path) -> float | None:
    if entry is None:
        return None
    value = _number(entry, key, path)
    if not 0 <= value <= 1:
        raise FileError(f"{path}: {key!r} is {value!r}, not from 0 to 1. Run `dvc repro` to make it again.")
    return value


def _number(entry: Any, key: str, path: Path) -> float:
    value = entry.get(key) if isinstance(entry, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise FileError(f"{path}: {key!r} is {value!r:.60}, not a number. Run `dvc repro` to make it again.")
    return value


def _on_top(entry: Mapping[str, Any] | None, prediction: Mapping[str, Any] | None, path: Path) -> bool:
    """Say whether no label is more probable than the target; the official `label` of a trial is the target itself."""
    if entry is None:
        return False
    raws = prediction.get("raws") if prediction else None
    if not isinstance(raws, list) or not raws:
        raise FileError(f"{path}: {entry.get('id')!r:.60} has no probabilities. Run `dvc repro` to make it again.")
    return _number(entry, "similarity", path) >= max(_number(raw, "softmax_prob", path) for raw in raws)


def _reply(path: Path) -> Reply | None:
    """Look at a response; None where there is none (the trial's outcome says why)."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_REPLY_BYTES).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}). Make it a readable file.") from error
    return Reply(
        has_loop=any(_LOOP.search(fenced[1]) for fenced in _FENCED.finditer(text)),
        has_open_fence=text.count("```") % 2 == 1,
    )
