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
from pcgeval.judge.grading import GradingProgress, Report, grade, no_report
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.llm.backends import open_backend
from pcgeval.rubric.grades import JudgeOutput, RubricIdentity
from pcgeval.rubric.loading import load_rubric_with_checks
from pcgeval.rubric.text import summary_lines


def grade_stage(params: Params, root: Path = Path(), *, open_backend: OpenBackend = open_backend) -> None:
    """Grade every team by the rubric; what a model judge said before is not asked again.

    Args:
        params: The competition.
        root: Its folder.
        open_backend: Opens the judge's model.

    Raises:
        PcgevalError: As for `grade_team`; the teams before are graded.
    """
    for team in params.teams:
        report = GradingProgress(f"grade {team}") if params.rubric.judge == "simple" else no_report
        output = grade_team(params, team, root, report, open_backend=open_backend)
        for line in summary_lines(output)[: len(output.warnings) + 1]:
            print_stderr(f"grade of {team}: {line}")
    (root / JUDGEMENTS).mkdir(parents=True, exist_ok=True)  # DVC wants it also where no model judged
    remove_others(root / JUDGEMENTS, {root / judgement_file(team) for team in params.teams})
    remove_others(root / GRADES, {root / grade_file(team) for team in params.teams})


def grade_team(
    params: Params,
    team: str,
    root: Path = Path(),
    report: Report = no_report,
    *,
    open_backend: OpenBackend = open_backend,
) -> JudgeOutput:
    """Grade one team by the rubric and judge of params.yaml and write `data/grades/<team>/grade.json`.

    Replies of a model are kept in the call log as they come. So a grading that was killed goes on where it was, and
    only a call whose criterion, files, model or prompts changed is made again. The calls that the grade used are
    written to `data/judgements/<team>/calls.jsonl`, from which `pcgeval export recordings` makes the recording.

    Raises:
        RubricError: The rubric is faulty.
        FileError: The rubric is missing, or evidence or a recording is not what it should be.
        FolderBusyError: A model is being asked about the team at this moment.
        GradingError: The judge lacks what it needs.
    """
    task = competition_task(params, team, root)
    settings = team_settings(JudgeSettings.checked(dict(params.rubric)), team, root)
    recording = root / judge_recording_file(team)
    calls = CallFiles(root / CALLS, (recording,) if recording.is_file() else (), root / judgement_file(team))
    with calls.opened(task.folder, settings) as log:
        output = grade(task, settings, log, report, open_backend=open_backend)
        calls.write_export(log, keep_others=bool(output.warnings))
        identity = RubricIdentity(params.rubric.id, sha256_file(root / rubric_file(params.rubric.id)))
        output = replace(output, team=team, rubric=identity)
        write_json(root / grade_file(team), output.to_json())
    return output


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
    folder = root / SUBMISSIONS / submission if submission in params.teams else Path(submission)
    if submission not in params.teams and not folder.is_dir():
        known = ", ".join(params.teams) or "none"
        raise FileError(f"{submission}: neither a team of params.yaml ({known}) nor a folder. Name one of them.")
    tree, checks = load_rubric_with_checks(path, checks_file)
    if submission in params.teams:
        evidence = read_evidence(params, submission, root)
    else:
        evidence = gather_submission(folder, folder.resolve().name, params.limits.prompt_words)
    rules = path.with_name(TASK_FILE)
    rules_text = read_text(rules) if rules.is_file() else ""
    return GradingTask(tree, folder, evidence, paper=rules_text, checks_sha256=checks)


def team_settings(settings: JudgeSettings, team: str, root: Path = Path()) -> JudgeSettings:
    """Return the settings with the file of a person's grades of a team, if a person judges.

    Raises:
        GradingError: There is no such file.
    """
    if settings.judge != "human" or settings.human_grades is not None:
        return settings
    file = root / human_grades_file(settings.id, team)
    if not file.is_file():
        raise GradingError(f"team {team}: a person's grades belong into {file}, which does not exist. Write it.")
    return settings.model_copy(update={"human_grades": file})


def record_judgements(params: Params, root: Path = Path()) -> list[Path]:
    """Copy the calls that the last grade of each team used to the recordings that others replay.

    Return the files written; a team that no model has judged has none.
    """
    written = []
    for team in params.teams:
        source = root / judgement_file(team)
        if source.is_file() and (content := source.read_bytes()):
            write_bytes(root / judge_recording_file(team), content)
            written.append(root / judge_recording_file(team))
    return written
