"""The command `explain`: a trial from its prompt to its share of the team's total, on one page."""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated

import typer

from pcgeval.cli.options import Json, group, print_json, terminal_width
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.text import count, plain, printable_line, printable_text
from pcgeval.formats.layout import Trial
from pcgeval.formats.params import load_params
from pcgeval.preview.drawing import block_text
from pcgeval.report.explanation import Explanation, explain as explain_trial
from pcgeval.scoring.formulas import TrialShare

_MOST_LINES = 5  # of a message; --json has all
_MOST_CALLS = 16
_MOST_LETTERS = 5
app = group()


@app.command()
def explain(
    team: Annotated[str, typer.Argument(metavar="TEAM", help="A team of params.yaml.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of params.yaml.")],
    letter: Annotated[str, typer.Argument(metavar="LETTER", help="A letter of the competition.")],
    trial: Annotated[int, typer.Argument(metavar="TRIAL", help="The number of the trial, from 1.")],
    json: Json = False,
) -> None:
    """Explain a trial, from its prompt to its share of the total.

    One page shows the prompt, the answer, the blocks that fell, the classifier's letters, every formula with its
    figures, and the SHA-256 of every file; --json has everything in full. The command computes the figures from the
    measurements. Exit code 1: the published results differ from them.
    """
    params = load_params()
    numbers = [str(number) for number in range(1, params.competition.trials + 1)]
    for argument, value, known in (
        ("team", team, params.teams),
        ("model", model, [*params.models]),
        ("letter", letter, [*params.competition.characters]),
        ("trial", str(trial), numbers),
    ):
        if value not in known:
            raise typer.BadParameter(f"{argument} {value!r}: params.yaml has {', '.join(known)}.")
    explained = explain_trial(params, team, model, Trial(letter, trial))
    if explained.is_outdated:
        print_stderr(
            f"warning: {letter}{trial} with {model}: made from another submission, model, seed or limits; the prompt "
            "below is the present one"
        )
    if json:
        print_json(explained.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in explain_lines(explained, terminal_width(piped=120)))
    if explained.differences:
        raise typer.Exit(EXIT_CHECK_FAILED)


def explain_lines(explained: Explanation, width: int) -> Iterator[str]:
    """Yield an explanation for a terminal of so many columns."""
    rank = f" (rank {explained.row.rank})" if explained.row and explained.row.rank else ""
    yield f"{explained.trial.letter}{explained.trial.number} of {explained.team} with {explained.model}{rank}"
    if record := explained.record:
        answered = f", answered as {printable_line(', '.join(record.answered_by))}" if record.answered_by else ""
        yield f"{printable_line(record.model)}{answered}, digest {record.digest}, seed {record.seed}"
    for title, part in (
        (explained.kind.capitalize(), _conversation(explained, width)),
        ("Answer", _answer(explained, width)),
        ("Level", _level(explained)),
        ("Classifier", _classifier(explained)),
        (f"Score: from this trial to the total of {explained.team}", _arithmetic(explained)),
        ("Files and their SHA-256", (f"{file.sha256 or 'missing'}  {file.path}" for file in explained.files)),
    ):
        yield from ("", title)
        yield from (f"  {line}".rstrip() for line in part)
    yield from ("", *_verdict(explained))


def _conversation(explained: Explanation, width: int) -> Iterator[str]:
    """Yield what the model was asked last, and what the conversation holds after its reply."""
    messages = explained.conversation
    last = max((number for number, message in enumerate(messages) if message.speaker == "model"), default=0)
    for message in messages[max(0, last - 1) :]:
        if not explained.answer or not message.text.startswith(explained.answer.rstrip()[:200]):
            speaker = "" if message.speaker == "prompt" else f"{message.speaker}: "
            yield from _message(speaker + message.text, width)


def _answer(explained: Explanation, width: int) -> Iterator[str]:
    if explained.answer:
        yield from _message(explained.answer, width)
    if record := explained.record:
        yield f"(calls: {len(record.exchanges)}, tokens: {record.tokens})"
    if failure := explained.failure:
        fault = "" if failure.type.owner == "submission" else f"; a fault of the {failure.type.owner}"
        yield f"FAILED in {failure.type.stage} ({failure.kind}): {printable_line(str(failure))}{fault}"
    if explained.supplied and explained.supplied.supplied:
        yield str(explained.supplied)
    yield from (f"flagged: {flag.kind}: {printable_line(flag.detail)}" for flag in (record.flags if record else ()))


def _message(text: str, width: int) -> Iterator[str]:
    """Yield the first lines of a text as a terminal shows them."""
    lines: list[str] = []
    for line in printable_text(text.strip()).splitlines():
        lines += textwrap.wrap(line, max(1, width - 2), replace_whitespace=False) or [""]
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"... and {count(len(lines) - _MOST_LINES, 'more line')}"


def _level(explained: Explanation) -> Iterator[str]:
    """Yield the calls with the fates of their blocks, fallen ones first."""
    fallen = [block for block in explained.blocks if block.fate in {"moved", "broke"}]
    others = [block for block in explained.blocks if block not in fallen]
    yield from (block_text(block) for block in [*fallen, *others][:_MOST_CALLS])
    if len(explained.blocks) > _MOST_CALLS:
        yield f"... and {len(explained.blocks) - _MOST_CALLS} more"
    if explained.view.stability is not None:
        best_of = explained.best_of
        which = f" (the best of {best_of[1]} simulations, number {best_of[0]})" if best_of else ""
        yield f"{len(others)} of {len(explained.blocks)} blocks stayed: stability {explained.view.stability:.6g}{which}"


def _classifier(explained: Explanation) -> Iterator[str]:
    view = explained.view
    if not view.probabilities or view.similarity is None:
        yield "not asked: there is no picture of a level"
        return
    likeliest = (f"{entry.label} {100 * entry.probability:.2f} %" for entry in view.probabilities[:_MOST_LETTERS])
    yield f"likeliest: {', '.join(likeliest)}"
    yield f"{explained.trial.letter}: similarity {view.similarity:.7g}"


def _arithmetic(explained: Explanation) -> Iterator[str]:
    share = explained.share
    if share is None:
        yield printable_line(explained.unscored or "")
        return
    steps = list(_steps(share))
    names = max(len(name) for name, _, _ in steps)
    yield from (f"{name:{names}}  {formula} = {_figure(result)}" for name, formula, result in steps)
    yield f"This trial adds {_figure(share.share)} to the total, {_figure(share.percent)} % of it."


def _steps(share: TrialShare) -> Iterator[tuple[str, str, Decimal]]:
    """Yield each formula: its name, the figures in it, and its result."""
    weight, trial, letter, prompt = share.weight, share.trial, share.letter, share.prompt
    factors = f"{_figure(weight.stability)} stability x {_figure(weight.similarity)} similarity"
    yield f"weight of {letter.letter}", f"{factors} x {_figure(weight.diversity)} diversity", weight.weight
    measured = f"{_figure(trial.stability)} stability x {_figure(trial.similarity)} similarity"
    yield f"trial {trial.trial}", f"{_figure(weight.weight)} weight x {measured}", trial.score
    yield "mean of its trials", _mean(trial.score, [score.score for score in share.trials]), share.mean
    yield "letter", f"{_figure(share.mean)} x {_figure(letter.diversity)} diversity", letter.score
    yield f"model {share.model}", _mean(letter.score, [score.score for score in prompt.letters]), prompt.score
    yield (
        "total",
        " + ".join(f"{_figure(score)} ({model})" for model, score in share.prompts.items()),
        share.total.total,
    )
    whole = f"{_figure(share.all_totals)} of all {share.teams} teams"
    yield "share of all points", f"100 % x {_figure(share.total.total)} / {whole}", share.total.normalised


def _mean(score: Decimal, scores: Sequence[Decimal]) -> str:
    return f"({_figure(score)} + {_figure(sum(scores, -score))} of the others) / {len(scores)}"


def _figure(value: Decimal) -> str:
    """Return a figure with six significant digits; the exact ones are in the JSON."""
    return f"{float(value):.6g}"


def _verdict(explained: Explanation) -> Iterator[str]:
    if explained.differences:
        yield from (f"DIFFERS: {printable_line(difference)}" for difference in explained.differences)
        yield "Run `make final-eval`. If figures still differ, `pcgeval audit` names the altered files."
    elif explained.is_running:
        yield "A run is in progress: results/ranking.json may be from an earlier one."
    elif explained.share and explained.row:
        total = plain(explained.share.total.total)
        yield f"The measurements give exactly the total of results/ranking.json: {total}"
