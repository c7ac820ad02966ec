"""Explain one trial: from the prompt and the reply over calls, level and classifier to its share of the team's total.

The figures are computed again from what the stages measured, and must add up to what `ranking.json` says. All texts are
those of strangers: whoever shows them makes them printable.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import read_text, sha256_file
from pcgeval.core.layout import (
    CLASSIFIER_FILE,
    EXTENSIONS,
    OFFICIAL_RESULTS,
    RANKING_JSON,
    SIMULATIONS_FILE,
    STAGE_DIRS,
    SUBMISSIONS,
    Trial,
    letter_file,
    stage_dir,
    trial_file,
)
from pcgeval.core.locks import dvc_is_running
from pcgeval.core.params import Params
from pcgeval.core.stage_files import (
    LabelProbability,
    RankedTeam,
    RankingFile,
    SimilarityFile,
    SimulatedTrial,
    SimulationsFile,
    StabilityFile,
    TrialRow,
    by_trial,
    plain,
    read_csv,
    read_outcomes,
)
from pcgeval.core.trials import Flag, SuppliedBlocks, TrialRecord, read_record, record_path
from pcgeval.evaluator.drawing import CalledBlock, called_blocks
from pcgeval.generation.summaries import supplied_blocks
from pcgeval.levels.blocks import Block, level_blocks
from pcgeval.levels.calls import Call, read_calls
from pcgeval.report.conversation import LONGEST_MESSAGE, ConversationMessage, conversation
from pcgeval.report.formats import shortened
from pcgeval.scoring.formulas import TrialShare, score_competition, trial_share
from pcgeval.scoring.official_files import CONSTANTS, TRIAL_SCORES
from pcgeval.scoring.stages import read_measured, rules_of
from pcgeval.submissions.load import (
    PROMPT_FILE,
    Program,
    Submission,
    load_submission,
    load_submissions,
    submission_sha256,
)

_Content = TypeVar("_Content")


@dataclass(frozen=True)
class StepFile:
    """The file that a step of the evaluation wrote, or for a program its folder; `sha256` is None if it is not there.

    That of a program is the hash of all its names and contents, as `pcgeval submit` and the page have it.
    """

    step: str
    path: str
    sha256: str | None


@dataclass(frozen=True)
class ExplainedTrial:
    """What the stages wrote of one trial, as far as it was evaluated.

    Attributes:
        failed_stage: Where it failed; None if it did not.
        supplied: How many blocks of the answer the submission told the model before the model named them.
        cause: Whose fault that was, if not the submission's; such a trial is done again.
        conversation: The messages in the order in which they were sent; what a call repeats is left out.
        answer: What was handed in, cut if it is long.
        score: Its line of the official results; None before the stage `score`.
        picture: The file of its level's picture.
    """

    trial: Trial
    failed_stage: str | None
    reason: str | None
    cause: str | None
    flags: tuple[Flag, ...]
    supplied: SuppliedBlocks | None
    calls: int | None
    tokens: int | None
    seed: int | None
    conversation: tuple[ConversationMessage, ...]
    answer: str
    stability: float | None
    similarity: float | None
    score: Decimal | None
    picture: Path | None

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for JSON."""
        values = asdict(self)
        trial = values.pop("trial")
        return {
            **values,
            "letter": trial["letter"],
            "trial": trial["number"],
            "score": None if self.score is None else plain(self.score),
            "picture": None if self.picture is None else str(self.picture),
        }


@dataclass(frozen=True)
class Explanation:
    """All that there is to say about one trial.

    Attributes:
        kind: Whether the team handed in a prompt or a program.
        model_name: The model's name where it was asked, with the digest of its bytes; None without a record.
        blocks: The calls in order; none if nothing was extracted.
        best_of: Which of the simulations counts, from 1, and how many there were; None if it was not simulated.
        probabilities: All letters, the likeliest first; none if it was not classified.
        row: The team's line of the ranking; None if nothing is ranked yet.
        share: The figures up to the team's total, computed anew; None if there is no score, and `unscored` says why.
        is_running: Whether stages run now, so that the ranking may be that of an earlier run.
        differences: Where the ranking's figures differ from these, a sentence each; none during a run.
        files: The file of each step, in order.
    """

    team: str
    title: str
    kind: Literal["prompt", "program"]
    model: str
    model_name: str | None
    digest: str | None
    trial: ExplainedTrial
    blocks: tuple[CalledBlock, ...]
    best_of: tuple[int, int] | None
    probabilities: tuple[LabelProbability, ...]
    row: RankedTeam | None
    share: TrialShare | None
    unscored: str | None
    is_running: bool
    differences: tuple[str, ...]
    files: tuple[StepFile, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for JSON; exact figures are texts."""
        values = {name: getattr(self, name) for name in ("team", "title", "kind", "model", "model_name", "digest")}
        return {
            **values,
            **self.trial.to_json(),
            "blocks": [asdict(block) for block in self.blocks],
            "best_of": None if self.best_of is None else {"simulation": self.best_of[0], "of": self.best_of[1]},
            "probabilities": {probability.label: probability.probability for probability in self.probabilities},
            "rank": self.row and self.row.rank,
            "status": self.row and self.row.status,
            "arithmetic": None if self.share is None else _figures(self.share),
            "unscored": self.unscored,
            "is_running": self.is_running,
            "differences": list(self.differences),
            "files": [asdict(file) for file in self.files],
        }


def explain(params: Params, team: str, model: str, trial: Trial) -> Explanation:
    """Explain a trial of a competition in the present folder, as far as it was evaluated.

    Args:
        params: The competition.
        team: One of its teams.
        model: One of its models.
        trial: One of its letters and trials.

    Raises:
        FileError: There is no reply yet, or a file of a stage is broken or does not belong to the others.
        SubmissionError: The team's submission cannot be read.
    """
    submission = load_submission(SUBMISSIONS / team)
    path = record_path(stage_dir("raw", model, team), team, trial)
    record = read_record(path) if path.exists() else None
    explained, probabilities = _trial(submission, model, trial, record)
    simulations = _if_written(SimulationsFile.read, stage_dir("stability", model, team) / SIMULATIONS_FILE)
    levels = {Trial(level.letter, level.trial): level for level in (simulations.trials if simulations else ())}
    simulated = levels.get(trial)
    share, unscored = _share(params, team, model, trial)
    row, differences = None, []
    if RANKING_JSON.exists():
        row = next((line for line in RankingFile.read(RANKING_JSON).teams if line.team == team), None)
        differences = list(_differences(share, row, explained))
        if row is None:
            differences = [f"{RANKING_JSON}: has no team {team}; it is the ranking of an earlier run"]
    is_running = dvc_is_running(Path())
    return Explanation(
        team=team,
        title=submission.title,
        kind="program" if isinstance(submission.work, Program) else "prompt",
        model=model,
        model_name=record.model if record else None,
        digest=record.digest if record else None,
        trial=explained,
        blocks=tuple(_blocks(model, team, trial, simulated)),
        best_of=(simulated.best_of, params.physics.trials) if simulated and simulated.best_of else None,
        probabilities=probabilities,
        row=row,
        share=share,
        unscored=unscored,
        is_running=is_running,
        differences=() if is_running else tuple(differences),
        files=tuple(_files(submission, model, trial)),
    )


def _trial(
    submission: Submission, model: str, trial: Trial, record: TrialRecord | None
) -> tuple[ExplainedTrial, tuple[LabelProbability, ...]]:
    """Read what the stages wrote of a trial, and what the classifier saw in it."""
    team = submission.team
    folders = {name: stage_dir(name, model, team) for name in ("raw", "stability", "similarity", "images")}
    answer = trial_file(folders["raw"], "raw", team, trial)
    if not answer.is_file():
        raise FileError(f"{answer}: there is no reply yet. Run `make final-eval`; `pcgeval status` says how far it is.")
    response = read_text(answer)
    outcomes = _if_written(read_outcomes, folders["stability"]) or {}
    failed_stage, reason = (outcomes[trial].failed_stage, outcomes[trial].reason) if trial in outcomes else (None, None)
    if record and record.reason is not None:
        failed_stage, reason = "generate", record.reason
    stability = _if_written(StabilityFile.read, letter_file(folders["stability"], trial.letter))
    similarity = _if_written(SimilarityFile.read, letter_file(folders["similarity"], trial.letter))
    level = by_trial(stability.levels).get(trial.number) if stability else None
    classified = by_trial(similarity.trials).get(trial.number) if similarity else None
    prediction = by_trial(similarity.predictions).get(trial.number) if similarity else None
    rows = _if_written(partial(read_csv, TrialRow), OFFICIAL_RESULTS / model / TRIAL_SCORES) or ()
    place = (team, trial.letter, trial.number)
    picture = trial_file(folders["images"], "images", team, trial)
    explained = ExplainedTrial(
        trial=trial,
        failed_stage=failed_stage,
        reason=reason,
        cause=record.cause if record else None,
        flags=record.flags if record else (),
        supplied=supplied_blocks(submission.work, trial.letter, response, record) if record else None,
        calls=len(record.exchanges) if record else None,
        tokens=record.tokens if record else None,
        seed=record.seed if record else None,
        conversation=tuple(conversation(submission, trial, record)) if record else (),
        answer=shortened(response, LONGEST_MESSAGE),
        stability=level.score if level else None,
        similarity=classified.similarity if classified else None,
        score=next((row.score for row in rows if (row.team, row.letter, row.trial) == place), None),
        picture=picture if picture.is_file() else None,
    )
    return explained, prediction.likeliest if prediction else ()


def _if_written(read: Callable[[Path], _Content], path: Path) -> _Content | None:
    """Read a file of a stage; None if it is not there yet, or only half."""
    try:
        return read(path)
    except FileError:
        return None


def _share(params: Params, team: str, model: str, trial: Trial) -> tuple[TrialShare | None, str | None]:
    """Return the figures up to the team's total, or why there are none."""
    submissions = load_submissions(params.teams)
    if reason := submissions[team].notes.disqualified:
        return None, f"the team is disqualified, so it has no scores: {reason}"
    try:
        results = read_measured(params, params.models, submissions.values())
        scores = score_competition(results, rules_of(params))
    except PcgevalError as error:  # a letter's weight needs what all teams got
        return None, f"not all teams are evaluated yet: {error}"
    return trial_share(scores, model, team, trial.letter, trial.number), None


def _differences(share: TrialShare | None, row: RankedTeam | None, trial: ExplainedTrial) -> Iterator[str]:
    """Yield where published figures are others than those that the measurements make."""
    if share is None or row is None:
        return
    compared: list[tuple[str, Decimal | None, Decimal]] = [
        (f"{RANKING_JSON}: the total of {row.team}", row.total, share.total.total),
        (f"{RANKING_JSON}: the normalised total of {row.team}", row.normalised, share.total.normalised),
    ]
    for model, score in share.prompts.items():
        said = row.models[model].score if model in row.models else None
        compared.append((f"{RANKING_JSON}: the score of {row.team} with {model}", said, score))
    place = f"{trial.trial.letter}{trial.trial.number}"
    path = OFFICIAL_RESULTS / share.model / TRIAL_SCORES
    compared.append((f"{path}: the score of {row.team}'s trial {place}", trial.score, share.trial.score))
    for what, said, computed in compared:
        if said != computed:
            yield f"{what} is {'not there' if said is None else plain(said)}; the measurements make {plain(computed)}"


def _blocks(model: str, team: str, trial: Trial, simulated: SimulatedTrial | None) -> Iterator[CalledBlock]:
    """Yield each call with the fate of its block: the stages keep their order."""
    code = trial_file(stage_dir("intermediate", model, team), "intermediate", team, trial)
    calls: list[Call] = list(read_calls(read_text(code))) if code.exists() else []
    if simulated is None:
        yield from (CalledBlock(number, call.text, "not simulated") for number, call in enumerate(calls, start=1))
        return
    level = trial_file(stage_dir("levels", model, team), "levels", team, trial)
    blocks: tuple[Block, ...] = level_blocks(read_text(level)) if level.exists() else ()
    if not len(calls) == len(blocks) == len(simulated.types):
        raise FileError(
            f"{code}, {level}: {len(calls)} calls and {len(blocks)} blocks, of which {len(simulated.types)} were "
            "simulated: the files do not belong together. Run `make final-eval` to make them again."
        )
    yield from called_blocks([call.text for call in calls], blocks, simulated)


def _files(submission: Submission, model: str, trial: Trial) -> Iterator[StepFile]:
    """Yield the files that decide a trial's score, by the step that wrote them."""
    team, letter = submission.team, trial.letter
    if isinstance(submission.work, Program):
        yield StepFile("submission", (SUBMISSIONS / team).as_posix(), submission_sha256(SUBMISSIONS / team))
    folders = {name: stage_dir(name, model, team) for name in STAGE_DIRS}
    files = {name: trial_file(folders[name], name, team, trial) for name in EXTENSIONS}
    for step, path in (
        ("submission", SUBMISSIONS / team / PROMPT_FILE),
        ("generate", record_path(folders["raw"], team, trial)),
        ("generate", files["raw"]),
        ("extract", files["intermediate"]),
        ("convert", files["levels"]),
        ("simulate", folders["stability"] / SIMULATIONS_FILE),
        ("simulate", letter_file(folders["stability"], letter)),
        ("simulate", files["images"]),
        ("classify", folders["similarity"] / CLASSIFIER_FILE),
        ("classify", letter_file(folders["similarity"], letter)),
        ("diversity", letter_file(folders["diversity"], letter)),
        ("score", OFFICIAL_RESULTS / model / CONSTANTS),
        ("score", OFFICIAL_RESULTS / model / TRIAL_SCORES),
        ("rank", RANKING_JSON),
    ):
        if step != "submission" or not isinstance(submission.work, Program):
            yield StepFile(step, path.as_posix(), sha256_file(path) if path.is_file() else None)


def _figures(share: TrialShare) -> dict[str, Any]:
    """Return the exact figures as texts in plain notation, in the order of the formulas."""
    weight = share.weight
    return {
        "weight": {
            "stability": plain(weight.stability),
            "similarity": plain(weight.similarity),
            "diversity": plain(weight.diversity),
            "product": plain(weight.weight),
        },
        "trial_score": plain(share.trial.score),
        "trials": {trial.trial: plain(trial.score) for trial in share.letter.trials},
        "mean": plain(share.mean),
        "diversity": plain(share.letter.diversity),
        "letter_score": plain(share.letter.score),
        "letters": {letter.letter: plain(letter.score) for letter in share.prompt.letters},
        "model_score": plain(share.prompt.score),
        "models": {model: plain(score) for model, score in share.prompts.items()},
        "total": plain(share.total.total),
        "all_totals": plain(share.all_totals),
        "teams": share.teams,
        "normalised": plain(share.total.normalised),
        "share": plain(share.share),
        "percent": plain(share.percent),
    }
