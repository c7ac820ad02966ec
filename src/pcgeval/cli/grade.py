"""The command `pcgeval grade`: a team, a submission that was not run, or an attempt to reproduce a paper."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pcgeval.cli.options import BaseUrl, Host, Json, TrustPrograms, group, print_json, within
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr

if TYPE_CHECKING:
    from pcgeval.core.params import Model, Params
    from pcgeval.rubric.grades import JudgeOutput

MAX_TEMPERATURE = 2.0  # of the common endpoints
MIN_CONTEXT, MAX_CONTEXT = 1024, 2**24  # as in params.yaml
_OF_TRIALS = ("num_ctx", "num_predict", "seed", "temperature")  # options that a model of params.yaml has for trials

Submission = Annotated[str, typer.Argument(metavar="SUBMISSION", help="A team of params.yaml, or a folder.")]
Rubric = Annotated[
    str | None, typer.Option(metavar="ID", help="A folder of data/rubrics or a file; default: as in params.yaml.")
]
Paper = Annotated[str | None, typer.Option(metavar="ID", help="The paper that the submission attempts to reproduce.")]
PapersDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Default: as in params.yaml, or data/papers.")]
Judge = Annotated[
    Literal["simple", "checks", "random", "dummy", "human"] | None,
    typer.Option(help="Default: as in params.yaml; simple with --model, human with --grades."),
]
ModelName = Annotated[
    str | None,
    typer.Option(metavar="M", help="The judge: a model of params.yaml, a local one, OpenAI's, or a server's."),
]
Votes = Annotated[int | None, typer.Option(metavar="N", help="How often the model grades each leaf.")]
Temperature = Annotated[
    float | None,
    typer.Option(metavar="T", callback=within(0, MAX_TEMPERATURE), help="Of the model; votes differ only above 0."),
]
Context = Annotated[
    int | None,
    typer.Option(metavar="N", callback=within(MIN_CONTEXT, MAX_CONTEXT), help="Tokens of a call with its answer."),
]
AnswerTokens = Annotated[
    int | None, typer.Option(metavar="N", min=16, help="Room for an answer; default: the model's.")
]
Effort = Annotated[str | None, typer.Option(metavar="E", help="Of a reasoning model: low, medium, high, ...")]
Seed = Annotated[int | None, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Of the judge; default: 0.")]
Prompts = Annotated[
    Literal["pcgeval", "paperbench"] | None,
    typer.Option(help="The family of prompts; default: as in params.yaml, or pcgeval."),
]
Deadline = Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop asking the model after that.")]
HumanGrades = Annotated[Path | None, typer.Option(metavar="FILE", help="A person's grades, as YAML or CSV.")]
CodeOnly = Annotated[bool, typer.Option("--code-only", help="Grade the leaves about code only.")]
ResourcesProvided = Annotated[
    bool, typer.Option("--resources-provided", help="Give no weight to acquiring data and models.")
]
MaxDepth = Annotated[int | None, typer.Option(metavar="N", help="Grade everything deeper than N levels as a whole.")]
IgnoreChecks = Annotated[bool, typer.Option("--ignore-checks", help="Ask the model about leaves with a check too.")]
InvalidAsZero = Annotated[bool, typer.Option("--invalid-as-zero", help="Count leaves without a grade as 0.")]
Reproduce = Annotated[bool, typer.Option("--reproduce", help="Run reproduce.sh first, on a copy in the sandbox.")]
Network = Annotated[bool, typer.Option("--network", help="Let reproduce.sh use the network.")]
Recording = Annotated[Path | None, typer.Option(metavar="FILE", help="Replies of the model to replay.")]
ExchangesFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the model's replies to this recording, too.")
]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the grade there too, as JSON.")]

app = group()


@app.command()
def grade(
    submission: Submission,
    rubric: Rubric = None,
    paper: Paper = None,
    papers_dir: PapersDir = None,
    judge: Judge = None,
    model: ModelName = None,
    host: Host = None,
    base_url: BaseUrl = None,
    votes: Votes = None,
    temperature: Temperature = None,
    reasoning_effort: Effort = None,
    seed: Seed = None,
    context: Context = None,
    answer_tokens: AnswerTokens = None,
    prompts: Prompts = None,
    deadline: Deadline = None,
    grades: HumanGrades = None,
    code_only: CodeOnly = False,
    resources_provided: ResourcesProvided = False,
    max_depth: MaxDepth = None,
    ignore_checks: IgnoreChecks = False,
    invalid_as_zero: InvalidAsZero = False,
    reproduce: Reproduce = False,
    network: Network = False,
    trust_programs: TrustPrograms = False,
    recording: Recording = None,
    exchanges: ExchangesFile = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Grade a submission by a rubric and print the tree.

    Exit code 1 means that the score is only a guess.
    """
    from pcgeval.cli.settings import load_params_or_default
    from pcgeval.core import layout
    from pcgeval.core.files import write_json
    from pcgeval.judge import grading
    from pcgeval.judge.client import CallFiles
    from pcgeval.judge.run import grade_submission
    from pcgeval.judge.settings import JudgeSettings
    from pcgeval.judge.stage import competition_task, team_settings
    from pcgeval.sandbox.reproduction import SandboxComputer

    params = load_params_or_default()
    own = {"temperature": temperature, "reasoning_effort": reasoning_effort, "num_predict": answer_tokens}
    given: dict[str, Any] = {
        "judge": judge or ("human" if grades else "simple" if model else None),
        "model": _judge_model(params, model, host, base_url, own),
        "seed": seed,
        "votes": votes,
        "prompts": prompts,
        "context": context,
        "deadline": deadline,
        "papers_dir": papers_dir and str(papers_dir),
        "human_grades": grades,
        "max_depth": max_depth,
        "code_only": code_only or None,
        "resources_provided": resources_provided or None,
        "ignore_checks": ignore_checks or None,
        "official_invalid_as_zero": invalid_as_zero or params.rubric.official_invalid_as_zero,
    }
    named = {name: value for name, value in given.items() if value is not None}
    settings = JudgeSettings.checked({**dict(params.rubric), **named})
    address = host or base_url
    _refuse_contradictions(settings.judge, rubric, paper, address, model, reproduce, settings.code_only, network)
    if host and base_url:
        raise typer.BadParameter("--host and --base-url both say where the model is. Leave one of them out.")
    report = grading.GradingProgress(f"grade {submission}") if settings.judge == "simple" else grading.no_report
    recordings = [recording] if recording else []
    if paper is None and submission in params.teams:
        settings = team_settings(settings, submission)
        kept = (layout.judge_recording_file(submission), layout.judgement_file(submission))
        recordings += [path for path in kept if path.is_file()]
    calls = CallFiles(recordings=tuple(recordings), export=exchanges)
    if paper is None:
        task = competition_task(params, submission, rubric=rubric)
        with calls.opened(task.folder, settings) as log:
            output = grading.grade(task, settings, log, report)
            calls.write_export(log, keep_others=True)
    else:
        computer = SandboxComputer(network=network, trust_programs=trust_programs) if reproduce else None
        output = grade_submission(submission, paper, settings, computer, calls, report)
    if out is not None:
        write_json(out, output.to_json())
    _print_grade(output, json=json)


def _refuse_contradictions(
    judge: str,
    rubric: str | None,
    paper: str | None,
    address: str | None,
    model: str | None,
    reproduce: bool,
    code_only: bool,
    network: bool,
) -> None:
    looks_at_results = judge in {"simple", "checks"}
    for is_wrong, advice in (
        (rubric and paper, "--rubric and --paper both name criteria. Leave one of them out."),
        (
            address and not model,
            "--host and --base-url say where a model is asked. Name the model with --model, or leave them out.",
        ),
        (reproduce and code_only, "--reproduce runs the code, --code-only only reads it. Leave one of them out."),
        (reproduce and not looks_at_results, f"the judge {judge} needs no results. Leave --reproduce out."),
        (reproduce and not paper, "--reproduce is for attempts to reproduce a paper. Name the paper with --paper."),
        (network and not reproduce, "--network is for the run of reproduce.sh. Give --reproduce too."),
    ):
        if is_wrong:
            raise typer.BadParameter(advice)


def _print_grade(output: "JudgeOutput", *, json: bool) -> None:
    from pcgeval.rubric.grades import HEURISTIC
    from pcgeval.rubric.text import summary_lines, tree_lines

    if json:
        print_json(output.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in tree_lines(output.graded_task_tree))
    for line in summary_lines(output):
        print_stderr(line)
    if output.judge_type == HEURISTIC:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _judge_model(
    params: "Params", name: str | None, host: str | None, base_url: str | None, own: dict[str, Any]
) -> "Model | None":
    """Return the model of the command line, or else of params.yaml, with the options of the command line."""
    from pcgeval.cli.settings import find_model_to_ask

    model = params.rubric.model
    if name is not None:
        model = find_model_to_ask(params, name, host, base_url)
        options = {option: value for option, value in model.options.items() if option not in _OF_TRIALS}
        left_out = sorted(set(model.options) - set(options))
        if left_out and name in {*params.models, *(each.name for each in params.models.values())}:
            print_stderr(f"model {name}: {', '.join(left_out)} in params.yaml are for trials, and not for the judge")
        model = model.model_copy(update={"options": options})
    given = {option: value for option, value in own.items() if value is not None}
    return model and model.model_copy(update={"options": {**model.options, **given}})
