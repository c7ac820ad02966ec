"""Grade several submissions by one judge, one after the other, with one budget: runs, examples, attacked copies, teams.

A finished grade with a file is skipped unless what decided it has changed: the files, the settings or pcgeval. A note
in the state folder says what decided it; the grade's file has the same bytes wherever the submission lies. The stage
`grade` goes through the teams of the competition in the same way.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from pcgeval.checks.evidence import gather_submission, read_evidence
from pcgeval.core.console import print_stderr
from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import sha256_file, sha256_json, write_bytes, write_json
from pcgeval.core.untrusted import read_text
from pcgeval.formats.layout import (
    CALLS,
    GRADE_FILE,
    SUBMISSIONS,
    TASK_FILE,
    grade_file,
    human_grades_file,
    judge_recording_file,
    judgement_file,
    own_or_packaged,
    rubric_file,
)
from pcgeval.formats.params import Params
from pcgeval.judge.calls import CallFiles, JudgeClient, OpenBackend
from pcgeval.judge.prompts import CALL_KINDS, MAX_PICKED, prompt_version
from pcgeval.judge.run import attempt, grade_attempt, state_folder, state_of
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.judge.simple import LeafJudge
from pcgeval.llm.backends import model_file, open_backend
from pcgeval.llm.call_log import LoggedCall, read_recording, write_recording
from pcgeval.llm.protocol import usual_tokens
from pcgeval.rubric.explanation import summary_lines
from pcgeval.rubric.grades import CallUsage
from pcgeval.rubric.output import JudgeOutput, RubricIdentity, read_grade
from pcgeval.rubric.papers import PaperRun, submission_in
from pcgeval.rubric.tree import RESULT_ANALYSIS, load_rubric_with_checks
from pcgeval.submissions.load import Computer, computer_identity

# tokens of an answer where none was logged: o3-mini with high effort wrote about 1 260 for a grading call, its thoughts
# included; other models' words without thoughts were 60 to 300
_USUAL_ANSWERS = {"rank": 100, "grade": 300}
_THOUGHTS = {"rank": 500, "grade": 960}
_USUAL_ROOM = 4_000  # tokens; a model with more room for an answer thinks
_LEAST_CACHED = 1_024  # tokens
_COUNTS = ("calls", "known_calls", "prompt_tokens", "cached_tokens", "output_tokens", "leaves_of_results")
_NOT_DECIDING = ("deadline", "max_cost", "token_budget", "call_seconds", "max_width")  # settings that change no grade

T = TypeVar("T")
Fault = PcgevalError | OSError  # why a grading failed


@dataclass
class GradingPlan:
    """The calls that a grading would still make, about, and how many have replies already, which cost nothing."""

    name: str  # of the grading
    calls: int = 0  # that it would make
    known_calls: int = 0  # that the log answers
    prompt_tokens: int = 0  # that the model would read
    cached_tokens: int = 0  # of these, what its endpoint would have in its cache
    output_tokens: int = 0  # that it would write
    leaves_of_results: int = 0  # leaves about results that are asked about only after reproduce.sh has made some
    cost: float | None = 0.0  # in US dollars; None where the model's price is unknown and it would be asked


@dataclass(frozen=True)
class Grading:
    """One of several gradings by a judge."""

    name: str
    open: Callable[[], AbstractContextManager[GradingTask]]  # gives the submission and its rubric
    file: Path | None = None  # where the grade goes; without one it is never skipped
    # the files and folders that decide it; the package's change with its version
    inputs: Callable[[], Sequence[Path]] = tuple


def grade_all(
    gradings: Iterable[Grading], client: JudgeClient, computer: Computer | None = None, *, title: str = "grade "
) -> Iterator[tuple[str, JudgeOutput | Fault]]:
    """Yield the name of each grading, and its grade, or why it failed; one that fails does not stop the others.

    A computer runs each submission's reproduce.sh first. The title stands before the name above the progress.
    """
    return _for_each(gradings, partial(_grade, client=client, computer=computer, title=title))


def plan_all(gradings: Iterable[Grading], client: JudgeClient) -> Iterator[tuple[str, GradingPlan | Fault]]:
    """Yield the name of each grading, and what it would cost, without a run of reproduce.sh, or why it would fail."""

    def plan(grading: Grading) -> GradingPlan:
        with grading.open() as task:
            return plan_grading(grading.name, task, client)

    return _for_each(gradings, plan)


def _for_each(gradings: Iterable[Grading], act: Callable[[Grading], T]) -> Iterator[tuple[str, T | Fault]]:
    for grading in gradings:
        result: T | Fault
        try:
            result = act(grading)
        except (PcgevalError, OSError) as error:
            result = error
        yield grading.name, result


def _grade(grading: Grading, client: JudgeClient, computer: Computer | None, title: str) -> JudgeOutput:
    """Grade, unless that is done, and write the file of the grade."""
    if (file := grading.file) is not None:
        file.parent.mkdir(parents=True, exist_ok=True)  # without a grade in it, `pcgeval rubric table` names the run
        inputs = _inputs(grading, client.settings, computer)
        note = state_folder(file) / "finished.json"  # the SHA-256 of what decided the grade, and of its file
        if file.is_file() and note.is_file() and json.loads(note.read_bytes()) == [inputs, sha256_file(file)]:
            output = read_grade(file)
            client.count(grading.name, output.token_usage.total)
            return output
        file.unlink(missing_ok=True)  # it is out of date
    if computer is not None and (reason := client.reason_to_end()) is not None:
        raise GradingError(f"reproduce.sh was not run: {reason}")
    with grading.open() as task:
        output = grade_attempt(task, client, computer, f"{title}{grading.name}")
    if file is not None:
        write_json(file, output.to_json())
        if output.partial is None and not client.settings.is_replay:  # a replay reads recordings, which may change
            write_json(note, [inputs, sha256_file(file)])
    return output


def _inputs(grading: Grading, settings: JudgeSettings, computer: Computer | None) -> str:
    """Return a hash of all that decides a grading, as far as names, sizes and times of files tell."""
    places = [*grading.inputs(), *([settings.checks_file] if settings.checks_file else [])]
    values = settings.model_dump(mode="json", exclude={*_NOT_DECIDING})
    if settings.model is not None:
        del values["model"]["concurrency"]
    run_by = None if computer is None else computer_identity(computer)
    files = [(str(place.resolve()), state_of(place)) for place in places]
    return sha256_json([version("pcgeval"), prompt_version(settings.prompts), values, run_by, files])


def run_gradings(runs: Iterable[PaperRun], out: Path, settings: JudgeSettings) -> list[Grading]:
    """Return the gradings of runs, whose grades go to `out` as GROUP/RUN/grade.json."""

    def grading(run: PaperRun) -> Grading:
        return Grading(
            run.id,
            open=lambda: attempt(submission_in(run.folder), run.paper_id, settings),
            file=out / run.group / run.name / GRADE_FILE,
            inputs=lambda: (submission_in(run.folder), Path(settings.papers_dir, run.paper_id)),
        )

    return [grading(run) for run in runs]


def total_plan(plans: Sequence[GradingPlan]) -> GradingPlan:
    """Return the plan of all gradings together."""
    costs = [plan.cost for plan in plans if plan.cost is not None]
    sums = {name: sum(getattr(plan, name) for plan in plans) for name in _COUNTS}
    return GradingPlan("all", **sums, cost=sum(costs) if len(costs) == len(plans) else None)


def plan_grading(name: str, task: GradingTask, client: JudgeClient) -> GradingPlan:
    """Return what a grading would cost; the client may have a log that is opened for reading alone.

    Raises RubricError if nothing would be graded, and LlmError if the model is not where it should be.
    """
    settings, model = client.settings, client.settings.model
    plan = GradingPlan(name)
    if settings.judge != "simple" or model is None or settings.is_replay:
        return plan
    task = replace(task, rubric=settings.graded_part(task.rubric))
    if client.digest is None and model.backend == "llamacpp":  # to open it would take its memory
        client.digest = sha256_file(model_file(model.name))
    elif client.digest is None and model.backend == "ollama":  # its list of models: nothing is asked
        client.digest = open_backend(model).digest()
    judge, before = LeafJudge(task, client), ""
    asked = [leaf for leaf in task.rubric.leaves if judge.asks_about(leaf)]
    # the files that leaves have chosen before decide in which order the prompts show them
    ranked = ((leaf, files) for leaf in asked if len(files := judge.offered(leaf)) > MAX_PICKED)
    judge.rank_all([leaf for leaf, files in ranked if client.knows(judge.rank_call(leaf, files))], 1)
    usual = {kind: _answer_tokens(client, kind) for kind in _USUAL_ANSWERS}
    for leaf in asked:
        if judge.zero_reason(leaf) is not None:
            plan.leaves_of_results += leaf.task_category == RESULT_ANALYSIS
            continue
        for call in judge.planned_calls(leaf):
            if client.knows(call):
                plan.known_calls += 1
                continue
            prompt = "\n".join(message.content for message in client.fitted(call).messages)
            cached = usual_tokens(os.path.commonprefix([before, prompt]))  # noqa: RUF071 - of texts, not of paths
            before = prompt
            plan.calls += 1
            plan.prompt_tokens += usual_tokens(prompt)
            plan.cached_tokens += cached if cached >= _LEAST_CACHED else 0
            plan.output_tokens += usual[call.kind]
    if plan.calls:
        price, tokens = settings.price, (plan.prompt_tokens, plan.output_tokens, plan.cached_tokens)
        plan.cost = None if price is None else price.cost(*tokens)
    return plan


def _answer_tokens(client: JudgeClient, kind: str) -> int:
    """Return the mean tokens of the model's logged answers to calls of this kind, else the stated figure."""
    settings = client.settings
    calls = (call for call in client.log.known if call.kind == kind and call.model == settings.judge_model.name)
    if lengths := [CallUsage.of(call.reply).output_tokens for call in calls if call.reply is not None]:
        return round(sum(lengths) / len(lengths))
    thinks = (settings.answer_tokens or 0) > _USUAL_ROOM
    return _USUAL_ANSWERS[kind] + (_THOUGHTS[kind] if thinks else 0)


def grade_stage(
    params: Params, root: Path = Path(), teams: Iterable[str] = (), *, open_backend: OpenBackend = open_backend
) -> dict[str, JudgeOutput]:
    """Grade teams, by default all, by the rubric and judge of params.yaml; write `data/grades/<team>/grade.json`.

    A model is asked only what the call log, the recordings and the last grades do not know; each team has a budget, so
    that none can use up another's. The calls that a grade used are written to `data/judgements/<team>/calls.jsonl`,
    from which `pcgeval export recordings` makes the recording. The error of a grading that fails is raised once the
    other teams are graded: a RubricError, a FileError for what is missing, a GradingError if the judge lacks something.
    """
    settings = JudgeSettings.checked(dict(params.rubric))
    files_of_team = [judge_recording_file] if settings.is_replay else [judge_recording_file, judgement_file]
    files = [root / file(team) for file in files_of_team for team in params.teams]
    client = CallFiles(root / CALLS, [file for file in files if file.is_file()]).client(settings, open_backend)
    gradings = [Grading(team, partial(competition_task, params, team, root)) for team in teams or params.teams]
    outputs: dict[str, JudgeOutput] = {}
    errors: list[Fault] = []
    for team, output in grade_all(gradings, client):
        client.begin_budget()
        if isinstance(output, Fault):
            errors.append(output)
            continue
        _keep_calls(root / judgement_file(team), output, client)
        rubric = own_or_packaged(root / rubric_file(params.rubric.id))
        identity = RubricIdentity(params.rubric.id, sha256_file(rubric))
        outputs[team] = replace(output, team=team, rubric=identity)
        write_json(root / grade_file(team), outputs[team].to_json())
        for line in summary_lines(output)[: len(output.warnings) + 1]:
            print_stderr(f"grade of {team}: {line}")
    if errors:
        raise errors[0]
    return outputs


def _keep_calls(file: Path, output: JudgeOutput, client: JudgeClient) -> None:
    """Write the calls that a grade used; after a grading that ended early, those of before stay too."""

    def order(call: LoggedCall) -> tuple[str, int, int, str]:
        return call.leaf or "", call.vote or 0, kinds.index(call.kind or "rank"), call.key

    kinds: list[str] = [*CALL_KINDS]
    if client.used:
        others = read_recording(file) if output.partial and file.is_file() else ()
        calls = {call.key: call for call in (*others, *client.used.values())}
        write_recording(file, sorted(calls.values(), key=order))


@contextmanager
def competition_task(
    params: Params,
    submission: str,
    root: Path = Path(),
    rubric: str | None = None,
    checks_file: Path | None = None,
) -> Iterator[GradingTask]:
    """Give a team with its results, or any other submission's folder without any, and the rubric.

    The rubric is a folder of data/rubrics or a file, by default the rubric of params.yaml; `checks_file`, by default
    the checks.yaml beside it, gives leaves of it checks besides. Raises RubricError, or FileError for what is missing.
    """
    is_file = rubric is not None and Path(rubric).is_file()
    path = Path(rubric or "") if is_file else own_or_packaged(root / rubric_file(rubric or params.rubric.id))
    tree, checks = load_rubric_with_checks(path, checks_file)
    by_hand = None
    if submission in params.teams:
        folder, evidence = root / SUBMISSIONS / submission, read_evidence(params, submission, root)
        by_hand = None if is_file else root / human_grades_file(rubric or params.rubric.id, submission)
    elif (folder := Path(submission)).is_dir():
        evidence = gather_submission(folder, folder.resolve().name, params.limits.prompt_words)
    else:
        known = ", ".join(params.teams) or "none"
        raise FileError(f"{submission}: neither a team of params.yaml ({known}) nor a folder. Name one of them.")
    rules = path.with_name(TASK_FILE)
    rules_text = read_text(rules, follow_link=True) if rules.is_file() else ""
    yield GradingTask(tree, folder, evidence, paper=rules_text, checks_sha256=checks, human_grades=by_hand)


def record_judgements(params: Params, root: Path = Path()) -> list[Path]:
    """Copy the calls that the last grade of each team used to its recording; return the recordings written."""
    judged = [team for team in params.teams if (file := root / judgement_file(team)).is_file() and file.stat().st_size]
    for team in judged:
        write_bytes(root / judge_recording_file(team), (root / judgement_file(team)).read_bytes())
    return [root / judge_recording_file(team) for team in judged]
