"""Gather the evidence from a competition's folders.

Submissions and responses are untrusted: links are not followed, sizes are bounded, and a text that cannot be read has
the reason instead.
"""

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

from pydantic import TypeAdapter

from pcgeval.checks.evidence import Document, Evidence, ModelEvidence, TrialEvidence
from pcgeval.core.errors import FileError
from pcgeval.core.files import rewritten_folder, write_json
from pcgeval.core.untrusted import UntrustedFileError, files_below, read_bytes, read_text
from pcgeval.formats.layout import (
    DATA,
    EVIDENCE,
    SUBMISSIONS,
    evidence_file,
    letter_file,
    stage_dir,
    summaries_file,
    trial_file,
)
from pcgeval.formats.params import Params, Team
from pcgeval.formats.stages import (
    DiversityFile,
    SimilarityFile,
    StabilityFile,
    by_trial,
    read_outcomes,
    read_stage_file,
)
from pcgeval.formats.trials import read_summaries
from pcgeval.submissions.load import Program, SubmissionError, find_readme, load_submission

MAX_DOCUMENT_BYTES = 1_000_000
_MODEL_EVIDENCE: TypeAdapter[ModelEvidence] = TypeAdapter(ModelEvidence)
_PROMPT_SUFFIXES = (".md", ".py", ".txt")  # where a program may keep its messages to a model
_NO_DECISIONS = Team()
MAX_REPLY_BYTES = 16 * 2**20  # what the extraction reads of a response
# A line of code that starts a loop in Python or a language with braces; prose such as "for the letter I" does not.
_LOOP = re.compile(r"^[ \t]*+(?:for|while)\b[^\n{:]*+[{:]", re.MULTILINE)
_FENCED = re.compile(r"```(.*?)(?:```|\Z)", re.DOTALL)


def evidence_stage(params: Params, root: Path = Path()) -> None:
    """Gather the results of all trials into `data/evidence/<team>/<model>.json`, for the rubric's checks."""
    with rewritten_folder(root / EVIDENCE, keep=root / DATA / "raw"):
        for model, team in product(params.models, params.teams):
            evidence = _MODEL_EVIDENCE.dump_python(gather_model(params, model, team, root))
            write_json(root / evidence_file(model, team), evidence)


def read_evidence(params: Params, team: str, root: Path = Path()) -> Evidence:
    """Read a team's submission and its evidence with all models; one without evidence was not run."""
    evidence = gather_submission(root / SUBMISSIONS / team, team, params.limits.prompt_words, params.teams[team])
    paths = {model: root / evidence_file(model, team) for model in params.models}
    if missing := [model for model, path in paths.items() if not path.exists()]:
        return replace(evidence, no_results=f"the submission was not run with {', '.join(missing)}")
    models = tuple(read_stage_file(path, _MODEL_EVIDENCE.validate_json) for path in paths.values())
    return replace(evidence, models=models, no_results="")


def gather_submission(folder: Path, team: str, prompt_words: int, decisions: Team = _NO_DECISIONS) -> Evidence:
    """Read a submission that need not have been run."""
    try:
        is_program = isinstance(load_submission(folder, decisions).work, Program)
    except SubmissionError:  # an invalid submission is read as one with a prompt
        is_program = False
    readme = find_readme(folder) or folder / "README.md"
    prompt = _program_texts(folder, readme) if is_program else _document(folder / "prompt.txt")
    return Evidence(team, prompt_words, _document(readme), prompt, is_program)


def gather_model(params: Params, model: str, team: str, root: Path = Path()) -> ModelEvidence:
    """Read a team's results with one model from all stages; raise FileError if an output is missing or incomplete."""
    raw, stability, similarity, diversity = (
        root / stage_dir(name, model, team) for name in ("raw", "stability", "similarity", "diversity")
    )
    outcomes, summaries = read_outcomes(stability), read_summaries(root / summaries_file(model, team))
    results: list[TrialEvidence] = []
    rates: dict[str, float] = {}
    for letter in params.competition.characters:
        rates[letter] = DiversityFile.read(letter_file(diversity, letter)).rate
        stabilities = by_trial(StabilityFile.read(letter_file(stability, letter)).levels)
        classified = SimilarityFile.read(letter_file(similarity, letter))
        similarities, predictions = by_trial(classified.trials), by_trial(classified.predictions)
        for trial in params.trials(letter):
            outcome, number = outcomes.get(trial), trial.number
            stable, similar, prediction = stabilities.get(number), similarities.get(number), predictions.get(number)
            if outcome is None or (outcome.failure is None and not (stable and similar and prediction)):
                raise FileError(f"{stability} or {similarity}: lacks values of {trial}. Run `dvc repro`.")
            probabilities = [one.probability for one in prediction.probabilities] if prediction else []
            shape = None if outcome.failed_stage == "generate" else _shape(trial_file(raw, "raw", team, trial))
            results.append(
                TrialEvidence(
                    model=model,
                    trial=trial,
                    failure=outcome.failure,
                    has_loop=shape and shape[0],
                    has_open_fence=shape and shape[1],
                    stability=stable.score if stable else None,
                    similarity=similar.similarity if similar else None,
                    # the official field `label` of a trial is the target
                    on_top=similar is not None and similar.similarity >= max(probabilities, default=math.inf),
                    usage=summaries[trial].usage if trial in summaries else None,
                )
            )
    return ModelEvidence(model, tuple(results), rates)


def _program_texts(folder: Path, readme: Path) -> Document:
    """Join the texts and sources of a program without its README, up to the size limit of a document."""
    parts: list[bytes] = []
    left = MAX_DOCUMENT_BYTES
    try:
        for path in files_below(folder):
            if left > 0 and path.suffix in _PROMPT_SUFFIXES and path != readme:
                parts.append(read_bytes(path, left, cut=True))
                left -= len(parts[-1])
    except UntrustedFileError as error:
        return Document("the program", "unreadable", reason=str(error))
    return Document("the program", "read", b"\n".join(parts).decode("utf-8", errors="replace"))


def _document(path: Path) -> Document:
    try:
        return Document(path.name, "read", read_text(path, MAX_DOCUMENT_BYTES))
    except UntrustedFileError as error:
        reason = f"{path.name} {error.reason}"
        return Document(path.name, "unreadable" if error.kind == "system" else "refused", reason=reason)


def _shape(path: Path) -> tuple[bool, bool] | None:
    """Return whether a response has a loop and an open fence; None without a response (the outcome says why)."""
    if not path.exists():
        return None
    content = read_bytes(path, MAX_REPLY_BYTES, follow_link=True, cut=True)  # DVC may link
    text = content.decode("utf-8", errors="replace")
    has_loop = any(_LOOP.search(fenced[1]) for fenced in _FENCED.finditer(text))
    return has_loop, text.count("```") % 2 == 1
