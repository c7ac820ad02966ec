"""The command `pcgeval grade`: a team, a submission that was not run, or an attempt to reproduce a paper."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from pcgeval.checks.gathering import gather_submission
from pcgeval.cli.try_setting import rehearsed_model, usual_params
from pcgeval.core import layout
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.files import FileError, write_json
from pcgeval.core.params import Params, load_params
from pcgeval.judge.computer import Computer
from pcgeval.judge.exchanges import Exchanges, named_recordings
from pcgeval.judge.grading import GradingError, JudgeSettings, Matter, Report, grade, no_report
from pcgeval.judge.rendering import GradingProgress
from pcgeval.judge.run import Cut, grade_submission, kept_state
from pcgeval.judge.step import competition_matter, entry_subject, human_grades, judge_settings
from pcgeval.rubric.grades import HEURISTIC, JudgeOutput
from pcgeval.rubric.text import summary_lines, tree_lines

MAX_TEMPERATURE = 2  # of the common endpoints
MIN_CONTEXT, MAX_CONTEXT = 1024, 2**24  # as in params.yaml
_OWN_OPTIONS = ("num_ctx", "num_predict", "seed", "temperature")  # what a judge says itself, or has another usual value


def run_grade(arguments: argparse.Namespace) -> int:
    """Grade a submission and print the tree; exit code 1 says that there is only a guess."""
    is_competition = arguments.paper is None
    params = load_params() if is_competition or Path("params.yaml").is_file() else usual_params()
    settings = _settings(arguments, params)
    _check_meant(arguments, settings)
    report = GradingProgress(f"grade {arguments.submission}") if settings.judge == "simple" else no_report
    output = (_entry if is_competition else _attempt)(arguments, params, settings, report)
    if arguments.out is not None:
        write_json(arguments.out, output.to_json())
    if arguments.json:
        sys.stdout.write(json.dumps(output.to_json(), ensure_ascii=False) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in tree_lines(output.graded_task_tree))
    for line in summary_lines(output):
        print_stderr(line)
    return EXIT_CHECK_FAILED if output.judge_type == HEURISTIC else 0


def _settings(arguments: argparse.Namespace, params: Params) -> JudgeSettings:
    """Return the judge of params.yaml, with what the command line says instead."""
    settings = replace(
        judge_settings(params),
        human_grades=arguments.grades,
        ignore_checks=arguments.ignore_checks,
        invalid_as_zero=arguments.invalid_as_zero or params.rubric.official_invalid_as_zero,
    )
    if arguments.judge is not None:
        settings = replace(settings, judge=arguments.judge)
    elif arguments.grades is not None:
        settings = replace(settings, judge="human")
    elif arguments.model is not None:
        settings = replace(settings, judge="simple")
    if arguments.model is not None:
        model = rehearsed_model(params, arguments.model, arguments.host)
        options = {name: value for name, value in model.options.items() if name not in _OWN_OPTIONS}
        settings = replace(settings, model=model.model_copy(update={"options": options}))
    if arguments.temperature is not None and settings.model is not None:
        options = {**settings.model.options, "temperature": arguments.temperature}
        settings = replace(settings, model=settings.model.model_copy(update={"options": options}))
    if arguments.context is not None:
        settings = replace(settings, context=arguments.context)
    if arguments.votes is not None:
        settings = replace(settings, votes=arguments.votes)
    if arguments.deadline is not None:
        settings = replace(settings, deadline=arguments.deadline)
    return settings


def _check_meant(arguments: argparse.Namespace, settings: JudgeSettings) -> None:
    """Refuse words that contradict each other, or would have no effect."""
    if arguments.host is not None and arguments.model is None:
        raise GradingError("--host says where a model is asked. Name the model with --model, or leave --host out.")
    if arguments.temperature is not None and not 0 <= arguments.temperature <= MAX_TEMPERATURE:
        raise GradingError(f"--temperature is {arguments.temperature:g}. Give a number from 0 to {MAX_TEMPERATURE}.")
    if arguments.context is not None and not MIN_CONTEXT <= arguments.context <= MAX_CONTEXT:
        raise GradingError(f"--context is {arguments.context}. Give {MIN_CONTEXT} to {MAX_CONTEXT} tokens.")
    if arguments.reproduce and arguments.code_only:
        raise GradingError("--reproduce runs the code, --code-only says that it is only read. Leave one of them out.")
    if arguments.network and not arguments.reproduce:
        raise GradingError("--network is for the run of reproduce.sh. Give --reproduce too, or leave --network out.")
    if arguments.reproduce and settings.judge not in {"simple", "checks"}:
        raise GradingError(
            f"the judge {settings.judge} looks at no results, so nothing is to be run for it. Leave --reproduce out, "
            "or let the judge be simple or checks."
        )


def _attempt(arguments: argparse.Namespace, params: Params, settings: JudgeSettings, report: Report) -> JudgeOutput:
    """Grade an attempt to reproduce a paper."""
    return grade_submission(
        arguments.submission,
        arguments.paper,
        settings.judge,
        arguments.code_only,
        settings.model,
        _computer(arguments),
        papers_dir=arguments.papers_dir or params.rubric.papers_dir,
        resources_provided=arguments.resources_provided,
        max_depth=arguments.max_depth,
        seed=settings.seed,
        votes=settings.votes,
        context=settings.context,
        call_seconds=settings.call_seconds,
        deadline=settings.deadline,
        ignore_checks=settings.ignore_checks,
        invalid_as_zero=settings.invalid_as_zero,
        human_grades=settings.human_grades,
        exchanges=arguments.exchanges,
        recording=arguments.recording,
        report=report,
    )


def _computer(arguments: argparse.Namespace) -> Computer | None:
    if not arguments.reproduce:
        return None
    from pcgeval.sandbox.reproduction import SandboxComputer

    return SandboxComputer(network=arguments.network, trust_programs=arguments.trust_programs)


def _entry(arguments: argparse.Namespace, params: Params, settings: JudgeSettings, report: Report) -> JudgeOutput:
    """Grade a team of the competition by its results, or any submission's folder, which has none."""
    submission = arguments.submission
    folder = layout.SUBMISSIONS / submission if submission in params.teams else Path(submission)
    if submission not in params.teams and not folder.is_dir():
        known = ", ".join(params.teams)
        raise FileError(f"{submission}: neither a team of params.yaml ({known}) nor a folder. Name one of them.")
    recordings = named_recordings(arguments.recording)
    if submission in params.teams:
        recordings += [layout.judge_recording_file(submission), layout.judgement_file(submission)]
        if settings.judge == "human" and settings.human_grades is None:
            settings = replace(settings, human_grades=human_grades(params, submission))
    journal = arguments.exchanges or kept_state(folder) / "exchanges.jsonl"
    matter = _entry_matter(arguments, params, folder)
    with Exchanges(journal if settings.judge == "simple" else None, recordings) as exchanges:
        return grade(matter, settings, exchanges, report)


def _entry_matter(arguments: argparse.Namespace, params: Params, folder: Path) -> Matter:
    if arguments.reproduce:
        raise GradingError(
            "--reproduce is for attempts to reproduce a paper. Name the paper with --paper, or leave it out."
        )
    named = Path(arguments.rubric or params.rubric.id)
    rubric = named if named.is_file() else layout.rubric_file(str(named))
    matter = competition_matter(params, arguments.submission, rubric=rubric)
    if arguments.submission not in params.teams:
        name = folder.resolve().name
        matter = replace(
            matter,
            subject=lambda: entry_subject(folder, rubric),
            evidence=lambda: gather_submission(folder, name, params.limits.prompt_words),
        )
    cut = Cut(arguments.code_only, arguments.resources_provided, max_depth=arguments.max_depth)
    return replace(matter, rubric=cut.applied(matter.rubric))
