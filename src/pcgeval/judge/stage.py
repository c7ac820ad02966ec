"""The stage grade: the grade of each team of the competition."""

from dataclasses import replace
from pathlib import Path

from pcgeval.checks.gathering import gather_submission, read_evidence
from pcgeval.core.console import print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text, remove_others, sha256_file, write_bytes, write_json
from pcgeval.core.layout import (
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
from pcgeval.core.params import Params
from pcgeval.judge.calls import CallFiles, OpenBackend
from pcgeval.judge.grading import grade
from pcgeval.judge.prompts import CALL_KINDS
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.llm.backends import open_backend
from pcgeval.llm.call_log import LoggedCall, read_recording, write_recording
from pcgeval.rubric.explanation import summary_lines
from pcgeval.rubric.grades import JudgeOutput, RubricIdentity
from pcgeval.rubric.tree import load_rubric_with_checks


def grade_stage(params: Params, root: Path = Path(), *, open_backend: OpenBackend = open_backend) -> None:
    """Grade every team of the competition in the folder `root`; see `grade_team`."""
    for team in params.teams:
        output = grade_team(params, team, root, open_backend=open_backend)
        for line in summary_lines(output)[: len(output.warnings) + 1]:
            print_stderr(f"grade of {team}: {line}")
    (root / JUDGEMENTS).mkdir(parents=True, exist_ok=True)  # DVC wants it also where no model judged
    remove_others(root / JUDGEMENTS, {root / judgement_file(team) for team in params.teams})
    remove_others(root / GRADES, {root / grade_file(team) for team in params.teams})


def grade_team(
    params: Params, team: str, root: Path = Path(), *, open_backend: OpenBackend = open_backend
) -> JudgeOutput:
    """Grade one team by the rubric and judge of params.yaml and write `data/grades/<team>/grade.json`.

    A model is asked only what the call log, the recording and the last grade do not know. The calls that the grade used
    are written to `data/judgements/<team>/calls.jsonl`, from which `pcgeval export recordings` makes the recording.

    Raises:
        RubricError: The rubric is faulty.
        FileError: The rubric is missing, or evidence or a recording is not what it should be.
        GradingError: The judge lacks what it needs.
    """
    task = competition_task(params, team, root)
    settings = team_settings(JudgeSettings.checked(dict(params.rubric)), team, root)
    used = root / judgement_file(team)
    files = [root / judge_recording_file(team), *([] if settings.is_replay else [used])]
    client = CallFiles(root / CALLS, tuple(path for path in files if path.is_file())).client(settings, open_backend)
    output, log = grade(task, client, f"grade {team}"), client.log
    if log.used:  # after a grading that ended early, the calls before stay too
        others = read_recording(used) if output.partial and used.is_file() else ()
        calls = {call.key: call for call in (*others, *log.used)}
        write_recording(used, sorted(calls.values(), key=_recording_order))
    identity = RubricIdentity(params.rubric.id, sha256_file(root / rubric_file(params.rubric.id)))
    output = replace(output, team=team, rubric=identity)
    write_json(root / grade_file(team), output.to_json())
    return output


def _recording_order(call: LoggedCall) -> tuple[str, int, int, int, str]:
    """Return the place of a call in a recording: by leaf, vote, kind and attempt, whenever it was made."""
    kinds: tuple[str, ...] = CALL_KINDS
    return call.leaf or "", call.vote or 0, kinds.index(call.kind or kinds[0]), call.attempt or 0, call.key


def competition_task(
    params: Params,
    submission: str,
    root: Path = Path(),
    rubric: str | None = None,
    checks_file: Path | None = None,
) -> GradingTask:
    """Return a team with its results, or any other submission's folder without any, and the rubric.

    The rubric is a folder of data/rubrics or a file, by default the rubric of params.yaml; `checks_file`, by default
    the checks.yaml beside it, gives leaves of it checks besides.

    Raises:
        RubricError: The rubric is faulty.
        FileError: There is no such submission, or the rubric or its task is missing or unreadable.
    """
    is_file = rubric is not None and Path(rubric).is_file()
    path = Path(rubric or "") if is_file else own_or_packaged(root / rubric_file(rubric or params.rubric.id))
    tree, checks = load_rubric_with_checks(path, checks_file)
    if submission in params.teams:
        folder, evidence = root / SUBMISSIONS / submission, read_evidence(params, submission, root)
    elif (folder := Path(submission)).is_dir():
        evidence = gather_submission(folder, folder.resolve().name, params.limits.prompt_words)
    else:
        known = ", ".join(params.teams) or "none"
        raise FileError(f"{submission}: neither a team of params.yaml ({known}) nor a folder. Name one of them.")
    rules = path.with_name(TASK_FILE)
    rules_text = read_text(rules) if rules.is_file() else ""
    return GradingTask(tree, folder, evidence, paper=rules_text, checks_sha256=checks)


def team_settings(settings: JudgeSettings, team: str, root: Path = Path()) -> JudgeSettings:
    """Return the settings with the file of a person's grades of a team, if a person judges."""
    if settings.judge != "human" or settings.human_grades is not None:
        return settings
    file = root / human_grades_file(settings.id, team)
    if not file.is_file():
        raise GradingError(f"team {team}: a person's grades belong into {file}, which does not exist. Write it.")
    return settings.model_copy(update={"human_grades": file})


def record_judgements(params: Params, root: Path = Path()) -> list[Path]:
    """Copy the calls that the last grade of each team used to its recording; return the recordings written."""
    judged = [team for team in params.teams if (file := root / judgement_file(team)).is_file() and file.stat().st_size]
    for team in judged:
        write_bytes(root / judge_recording_file(team), (root / judgement_file(team)).read_bytes())
    return [root / judge_recording_file(team) for team in judged]
