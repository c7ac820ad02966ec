"""The grade of one team of the competition, as the stage `grade` makes it."""

from dataclasses import replace
from pathlib import Path

from pcgeval.checks.gathering import read_evidence
from pcgeval.core.files import read_text, sha256_file, write_bytes, write_json
from pcgeval.core.layout import (
    SUBMISSIONS,
    TASK_FILE,
    grade_file,
    human_grades_files,
    judge_recording_file,
    judgement_file,
    rubric_file,
)
from pcgeval.core.params import Params
from pcgeval.judge.asking import OpenBackend, usual_backend
from pcgeval.judge.exchanges import Exchanges
from pcgeval.judge.grading import GradingError, JudgeSettings, Matter, Report, grade, no_report
from pcgeval.judge.subject import Subject
from pcgeval.rubric.grades import JudgeOutput, RubricIdentity
from pcgeval.rubric.loading import load_rubric


def grade_step(
    params: Params,
    team: str,
    root: Path = Path(),
    report: Report = no_report,
    *,
    opened: OpenBackend = usual_backend,
) -> JudgeOutput:
    """Grade one team by the rubric and judge of params.yaml and write `data/grades/<team>/grade.json`.

    What a model says is kept in `data/judgements/<team>/exchanges.jsonl` as it comes. So a grading that was killed goes
    on where it was, and only a call whose criterion, files, model or prompts changed is made again.

    Args:
        params: The competition; all its models are looked at.
        team: The team's name.
        root: The competition's folder.
        report: Called after each leaf.
        opened: Opens the backend of the judge's model.

    Raises:
        RubricError: The rubric is faulty.
        FileError: The rubric is missing, or evidence or a recording is not what it should be.
        ExchangesError: The team is being graded at this moment.
        GradingError: The judge lacks what it needs.
    """
    path = root / rubric_file(params.rubric.id)
    matter = competition_matter(params, team, root)
    settings = judge_settings(params)
    if settings.judge == "human":
        settings = replace(settings, human_grades=human_grades(params, team, root))
    with Exchanges(root / judgement_file(team), [root / judge_recording_file(team)]) as exchanges:
        output = grade(matter, settings, exchanges, report, opened=opened)
        if settings.judge == "simple":  # another judge leaves what a model was once paid for
            exchanges.finish(is_complete=not output.warnings)
        output = replace(output, team=team, rubric=RubricIdentity(params.rubric.id, sha256_file(path)))
        write_json(root / grade_file(team), output.to_json())
    return output


def competition_matter(params: Params, team: str, root: Path = Path(), rubric: Path | None = None) -> Matter:
    """Return what is judged of a team: its submission, and what the stages made of it.

    Raises:
        RubricError: The rubric is faulty.
        FileError: The rubric or its task is missing or unreadable.
    """
    path = rubric or root / rubric_file(params.rubric.id)
    criteria, subject = load_rubric(path), entry_subject(root / SUBMISSIONS / team, path)
    return Matter(criteria, criteria, lambda: subject, lambda: read_evidence(params, team, root))


def entry_subject(folder: Path, rubric: Path) -> Subject:
    """Return what a model is told of a submission to the competition: its folder, and the task beside the rubric.

    Raises:
        FileError: The task is unreadable.
    """
    path = rubric.with_name(TASK_FILE)
    task = read_text(path) if path.is_file() else ""
    return Subject(folder, "competition", task, "", "", reproduce_log=None, log_written=None)


def judge_settings(params: Params) -> JudgeSettings:
    """Return the judge of params.yaml; where a person's grades lie is for each team to say."""
    rubric = params.rubric
    return JudgeSettings(
        judge=rubric.judge,
        seed=rubric.seed,
        invalid_as_zero=rubric.official_invalid_as_zero,
        model=rubric.model,
        votes=rubric.votes,
        context=rubric.context,
        call_seconds=rubric.call_seconds,
        deadline=rubric.deadline,
    )


def record_judgements(params: Params, root: Path = Path()) -> list[Path]:
    """Keep the judge's exchanges about each team as a recording that others replay; return the files written.

    A team that no model has judged has none.
    """
    written = []
    for team in params.teams:
        source = root / judgement_file(team)
        if source.is_file() and (content := source.read_bytes()):
            write_bytes(root / judge_recording_file(team), content)
            written.append(root / judge_recording_file(team))
    return written


def human_grades(params: Params, team: str, root: Path = Path()) -> Path:
    """Return the file of a person's grades of a team.

    Raises:
        GradingError: There is none, or there are two.
    """
    places = [root / path for path in human_grades_files(params.rubric.id, team)]
    found = [path for path in places if path.is_file()]
    if len(found) != 1:
        what = "both are there; keep one" if found else "neither is there"
        raise GradingError(f"team {team}: a person's grades belong into {places[0]} or {places[1]}: {what}.")
    return found[0]
