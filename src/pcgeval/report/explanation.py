"""Explain one trial: from the prompt and the reply over calls, level and classifier to its share of the team's total.

The figures are computed again from what the stages measured, and must add up to what `ranking.json` says. All texts are
those of strangers: whoever shows them makes them printable.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import sha256_file
from pcgeval.core.locks import dvc_is_running
from pcgeval.core.text import count, plain, shortened
from pcgeval.core.untrusted import read_text
from pcgeval.formats.failures import Failure
from pcgeval.formats.layout import (
    CLASSIFIER_FILE,
    OFFICIAL_RESULTS,
    RANKING_JSON,
    SIMULATIONS_FILE,
    SUBMISSIONS,
    StageDir,
    Trial,
    letter_file,
)
from pcgeval.formats.params import Params
from pcgeval.formats.results import RankedTeam, RankingFile, TrialRow, read_csv, result_doubts
from pcgeval.formats.stages import SimulatedTrial
from pcgeval.formats.trial_view import TrialFiles, TrialView
from pcgeval.formats.trials import FailedCall, SuppliedBlocks, TrialRecord
from pcgeval.generation.summaries import supplied_blocks
from pcgeval.generation.tasks import present_fingerprint
from pcgeval.levels.blocks import level_blocks
from pcgeval.levels.conversion import read_calls
from pcgeval.preview.drawing import CalledBlock, called_blocks
from pcgeval.scoring.formulas import TrialShare, score_competition, trial_share
from pcgeval.scoring.stages import CONSTANTS, TRIAL_SCORES, read_measured, rules_of, scored_submissions
from pcgeval.submissions.load import PROMPT_FILE, Program, Prompt, Submission, load_submission, submission_sha256

LONGEST_MESSAGE = 4_000  # characters of a message or an answer
MOST_MESSAGES = 40  # of one conversation: the first half and the last half


@dataclass(frozen=True)
class ConversationMessage:
    """One message; its speaker is `program` with a role, `prompt`, `model`, or `pcgeval` for a note."""

    speaker: str
    text: str


@dataclass(frozen=True)
class StepFile:
    """The file that a step of the evaluation wrote; `sha256` is None if it is not there.

    Of a program it is the folder, with the hash of all its names and contents.
    """

    step: str
    path: str
    sha256: str | None


@dataclass(frozen=True)
class Explanation:
    """One trial, as far as it was evaluated."""

    team: str
    kind: Literal["prompt", "program"]
    model: str
    trial: Trial
    record: TrialRecord | None  # None if the response was made elsewhere, as is `supplied`
    view: TrialView
    supplied: SuppliedBlocks | None  # of the blocks of the answer
    conversation: tuple[ConversationMessage, ...]  # as it was sent, without what a call repeats
    answer: str
    failure: Failure | None
    blocks: tuple[CalledBlock, ...]  # the calls in order; none if nothing was extracted
    best_of: tuple[int, int] | None  # the simulation that counts, from 1, and how many there were
    row: RankedTeam | None  # of the ranking; None if nothing is ranked yet
    share: TrialShare | None  # the figures up to the team's total, computed anew
    unscored: str | None  # why there is no share
    is_running: bool  # so that the ranking may be that of an earlier run
    is_outdated: bool  # made from another submission, model, seed or limits than the present ones
    differences: tuple[str, ...]  # where published figures are others; none during a run
    files: tuple[StepFile, ...]  # of each step, in order

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for JSON; exact figures are texts."""
        record = self.record
        values = asdict(replace(self, record=None, row=None, share=None))
        del values["record"], values["view"], values["row"], values["share"], values["is_outdated"]
        return {
            **values,
            **{name: getattr(record, name, None) for name in ("digest", "answered_by", "tokens", "seed")},
            "model_name": record and record.model,
            "calls": record and len(record.exchanges),
            "flags": [asdict(flag) for flag in record.flags] if record else [],
            "stability": self.view.stability,
            "similarity": self.view.similarity,
            "letter": self.trial.letter,
            "trial": self.trial.number,
            "failed_stage": self.failure and self.failure.type.stage,
            "reason": self.failure and str(self.failure),
            "cause": self.failure and self.failure.type.owner,
            "score": self.share and plain(self.share.trial.score),
            "best_of": self.best_of and {"simulation": self.best_of[0], "of": self.best_of[1]},
            "probabilities": {probability.label: probability.probability for probability in self.view.probabilities},
            "rank": self.row and self.row.rank,
            "status": self.row and self.row.status,
            "arithmetic": self.share and _figures(self.share),
        }


def explain(params: Params, team: str, model: str, trial: Trial) -> Explanation:
    """Explain a trial of the competition in the working directory, as far as it was evaluated."""
    submission = load_submission(SUBMISSIONS / team, params.teams[team])
    files = TrialFiles(model, team, during_run=True)
    paths, record, view = files.official(trial), files.record(trial), files.view(trial)
    if not paths["raw"].is_file():
        message = "there is no reply yet. Run `make final-eval`; `pcgeval status` shows its progress."
        raise FileError(f"{paths['raw']}: {message}")
    response = read_text(paths["raw"], follow_link=True)
    fingerprint = present_fingerprint(params, model, submission)
    simulated, is_running = view.level, dvc_is_running(Path())
    share, unscored = _share(params, team, model, trial)
    ranking = RankingFile.read(RANKING_JSON) if RANKING_JSON.exists() else None
    row = next((row for row in ranking.teams if row.team == team), None) if ranking else None
    differences: list[str] = []
    if ranking and not is_running:
        differences += (f"{RANKING_JSON}: {doubt}" for doubt in result_doubts(params, ranking))
        differences += _differences(share, row, team) if share else ()
    return Explanation(
        team=team,
        kind="program" if isinstance(submission.work, Program) else "prompt",
        model=model,
        trial=trial,
        record=record,
        view=view,
        supplied=supplied_blocks(submission.work, response, record) if record else None,
        conversation=_shortened(list(_conversation(submission, trial, record))) if record else (),
        answer=shortened(response, LONGEST_MESSAGE),
        failure=record.failure if record and record.failure else view.failure,
        blocks=tuple(_blocks(paths, simulated)),
        best_of=(simulated.best_of, params.physics.trials) if simulated and simulated.best_of else None,
        row=row,
        share=share,
        unscored=unscored,
        is_running=is_running,
        is_outdated=record is not None and fingerprint(trial, record.digest) != record.fingerprint,
        differences=tuple(differences),
        files=tuple(_step_files(files, trial, is_program=isinstance(submission.work, Program))),
    )


def _share(params: Params, team: str, model: str, trial: Trial) -> tuple[TrialShare | None, str | None]:
    """Return the figures up to the team's total, or why there are none."""
    if reason := params.teams[team].disqualified:
        return None, f"the team is disqualified, so it has no scores: {reason}"
    try:
        results = read_measured(params, params.models, scored_submissions(params))
        scores = score_competition(results, rules_of(params))
    except PcgevalError as error:  # a letter's weight needs the results of all teams
        return None, f"not all teams are evaluated yet: {error}"
    return trial_share(scores, model, team, trial.letter, trial.number), None


def _conversation(submission: Submission, trial: Trial, record: TrialRecord) -> Iterator[ConversationMessage]:
    """Yield the messages of a trial as they were sent, without what a call repeats of the one before."""
    length = 0  # messages of the call before, its reply included
    for call in record.calls:
        if isinstance(call, FailedCall):
            yield ConversationMessage("pcgeval", f"call {call.turn} got no reply: {call.failure}")
            continue
        if isinstance(submission.work, Prompt) and call.messages is None:
            yield ConversationMessage("prompt", submission.work.for_letter(trial.letter))
        elif call.messages is not None:
            if length and call.repeats != length:
                repeated = f"with {count(call.repeats, 'message')} of the one before" if call.repeats else "anew"
                yield ConversationMessage("pcgeval", f"the conversation begins {repeated}")
            for message in call.messages:
                yield ConversationMessage(f"program as {message.role}", message.content)
            length = (call.repeats or 0) + len(call.messages) + 1
        yield ConversationMessage("model", call.reply.text)


def _shortened(messages: list[ConversationMessage]) -> tuple[ConversationMessage, ...]:
    """Cut long messages, and leave out the middle of a long conversation, with a note in its place."""
    half = MOST_MESSAGES // 2
    if len(messages) > MOST_MESSAGES:
        note = ConversationMessage("pcgeval", f"{len(messages) - 2 * half} messages are left out here")
        messages = [*messages[:half], note, *messages[-half:]]
    return tuple(ConversationMessage(message.speaker, shortened(message.text, LONGEST_MESSAGE)) for message in messages)


def _blocks(files: Mapping[StageDir, Path], simulated: SimulatedTrial | None) -> list[CalledBlock]:
    """Return each call with the fate of its block: the stages keep their order."""
    code, level = files["intermediate"], files["levels"]
    calls = [call.text for call in read_calls(read_text(code, follow_link=True))] if code.exists() else []
    blocks = level_blocks(read_text(level, follow_link=True)) if level.exists() else ()
    if simulated is None or not len(calls) == len(blocks) == len(simulated.types):
        return [CalledBlock(number, call, "not simulated") for number, call in enumerate(calls, start=1)]
    return list(called_blocks(calls, blocks, simulated))


def _differences(share: TrialShare, row: RankedTeam | None, team: str) -> Iterator[str]:
    """Yield where published figures are others than those that follow from the measurements."""
    table, trial = OFFICIAL_RESULTS / share.model / TRIAL_SCORES, share.trial
    lines = read_csv(TrialRow, table) if table.exists() else ()
    places = {(line.team, line.letter, line.trial): line.score for line in lines}
    total, normalised = (row.total, row.normalised) if row else (None, None)
    scores = {model: scored.score for model, scored in row.models.items()} if row else {}
    place = f"{trial.letter}{trial.trial}"
    figures = [
        (f"{RANKING_JSON}: the total of {team}", total, share.total.total),
        (f"{RANKING_JSON}: the normalised total of {team}", normalised, share.total.normalised),
        *(
            (f"{RANKING_JSON}: the score of {team} with {name}", scores.get(name), share.prompts[name])
            for name in share.prompts
        ),
        (f"{table}: the score of {team}'s trial {place}", places.get((team, trial.letter, trial.trial)), trial.score),
    ]
    for figure, value, computed in figures:
        if value != computed:
            shown = "missing" if value is None else plain(value)
            yield f"{figure} is {shown}; by the measurements it is {plain(computed)}"


def _step_files(files: TrialFiles, trial: Trial, *, is_program: bool) -> Iterator[StepFile]:
    """Yield the files that decide a trial's score, by the step that wrote them."""
    submission, official = SUBMISSIONS / files.team, OFFICIAL_RESULTS / files.model
    folders, paths = files.folders, files.official(trial)
    if is_program:
        yield StepFile("submission", submission.as_posix(), submission_sha256(submission))
    for step, path in (
        *(() if is_program else (("submission", submission / PROMPT_FILE),)),
        ("generate", files.record_file(trial)),
        ("generate", paths["raw"]),
        ("extract", paths["intermediate"]),
        ("convert", paths["levels"]),
        ("simulate", folders["stability"] / SIMULATIONS_FILE),
        ("simulate", letter_file(folders["stability"], trial.letter)),
        ("simulate", paths["images"]),
        ("classify", folders["similarity"] / CLASSIFIER_FILE),
        ("classify", letter_file(folders["similarity"], trial.letter)),
        ("diversity", letter_file(folders["diversity"], trial.letter)),
        ("score", official / CONSTANTS),
        ("score", official / TRIAL_SCORES),
        ("rank", RANKING_JSON),
    ):
        yield StepFile(step, path.as_posix(), sha256_file(path) if path.is_file() else None)


def _figures(share: TrialShare) -> dict[str, Any]:
    """Return the exact figures as texts in plain notation, in the order of the formulas."""
    weight = share.weight
    return {
        "weight": {
            **{name: plain(getattr(weight, name)) for name in ("stability", "similarity", "diversity")},
            "product": plain(weight.weight),
        },
        "trial_score": plain(share.trial.score),
        "trials": {trial.trial: plain(trial.score) for trial in share.trials},
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
