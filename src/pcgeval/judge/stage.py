"""The stage grade: the grade of each team of the competition."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from pcgeval.checks.gathering import gather_submission, read_evidence
from pcgeval.core.console import print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text, remove_others, sha256_file, write_bytes, write_json
from pcgeval.formats.layout import (
    CALLS,
    GRADES,
    JUDGEMENTS,
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
from pcgeval.judge.many import Fault, Grading, grade_all
from pcgeval.judge.prompts import CALL_KINDS
from pcgeval.judge.settings import GradingTask, JudgeSettings
from pcgeval.llm.backends import open_backend
from pcgeval.llm.call_log import LoggedCall, read_recording, write_recording
from pcgeval.rubric.explanation import summary_lines
from pcgeval.rubric.grades import JudgeOutput, RubricIdentity
from pcgeval.rubric.tree import load_rubric_with_checks


def grade_stage(
    params: Params, root: Path = Path(), *, open_backend: OpenBackend = open_backend
) -> dict[str, JudgeOutput]:
    """Grade every team by the rubric and judge of params.yaml; write `data/grades/<team>/grade.json` and return all.

    A model is asked only what the call log, the recordings and the last grades do not know; each team has a budget, so
    that none can use up another's. The calls that a grade used are written to `data/judgements/<team>/calls.jsonl`,
    from which `pcgeval export recordings` makes the recording. The error of a grading that fails is raised once the
    other teams are graded: a RubricError, a FileError for what is missing, a GradingError if the judge lacks something.
    """
    settings = JudgeSettings.checked(dict(params.rubric))
    files_of_team = [judge_recording_file] if settings.is_replay else [judge_recording_file, judgement_file]
    files = [root / file(team) for file in files_of_team for team in params.teams]
    client = CallFiles(root / CALLS, tuple(filter(Path.is_file, files))).client(settings, open_backend)
    gradings = [Grading(team, partial(competition_task, params, team, root)) for team in params.teams]
    outputs: dict[str, JudgeOutput] = {}
    errors: list[Fault] = []
    for team, output in grade_all(gradings, client):
        client.begin_budget()
        if isinstance(output, Fault):
            errors.append(output)
            continue
        _keep_calls(root / judgement_file(team), output, client)
        identity = RubricIdentity(params.rubric.id, sha256_file(root / rubric_file(params.rubric.id)))
        outputs[team] = replace(output, team=team, rubric=identity)
        write_json(root / grade_file(team), outputs[team].to_json())
        for line in summary_lines(output)[: len(output.warnings) + 1]:
            print_stderr(f"grade of {team}: {line}")
    if errors:
        raise errors[0]
    (root / JUDGEMENTS).mkdir(parents=True, exist_ok=True)  # DVC wants it also where no model judged
    remove_others(root / JUDGEMENTS, {root / judgement_file(team) for team in params.teams})
    remove_others(root / GRADES, {root / grade_file(team) for team in params.teams})
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
        by_hand = root / human_grades_file(params.rubric.id, submission)
    elif (folder := Path(submission)).is_dir():
        evidence = gather_submission(folder, folder.resolve().name, params.limits.prompt_words)
    else:
        known = ", ".join(params.teams) or "none"
        raise FileError(f"{submission}: neither a team of params.yaml ({known}) nor a folder. Name one of them.")
    rules = path.with_name(TASK_FILE)
    rules_text = read_text(rules) if rules.is_file() else ""
    yield GradingTask(tree, folder, evidence, paper=rules_text, checks_sha256=checks, human_grades=by_hand)


def record_judgements(params: Params, root: Path = Path()) -> list[Path]:
    """Copy the calls that the last grade of each team used to its recording; return the recordings written."""
    judged = [team for team in params.teams if (file := root / judgement_file(team)).is_file() and file.stat().st_size]
    for team in judged:
        write_bytes(root / judge_recording_file(team), (root / judgement_file(team)).read_bytes())
    return [root / judge_recording_file(team) for team in judged]
