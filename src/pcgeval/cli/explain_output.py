"""The text of `pcgeval explain`: from a trial's prompt to its share of the team's total."""

import textwrap
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import zip_longest

from pcgeval.cli.level_output import block_text, drawing
from pcgeval.core.console import count
from pcgeval.core.stage_files import plain
from pcgeval.core.untrusted import printable_line, printable_text
from pcgeval.report.explanation import Explanation
from pcgeval.scoring.formulas import TrialShare

MOST_LINES = 5  # of a message
MOST_CALLS = 16
MOST_LETTERS = 5
_HASH = 12  # hexadecimal digits of a hash
_FALLEN = ("moved", "broke")


def explain_lines(explained: Explanation, width: int, *, long: bool = False) -> Iterator[str]:
    """Yield an explanation for a terminal of so many columns; `long` has whole messages and hashes, and all calls."""
    digits = None if long else _HASH
    heading = f"{explained.trial.letter}{explained.trial.number} of {explained.team} with {explained.model}"
    if explained.row is not None:
        heading += f" ({explained.row.status if explained.row.rank is None else f'rank {explained.row.rank}'})"
    yield heading
    if explained.model_name is not None and explained.digest is not None:
        yield f"{printable_line(explained.model_name)}, digest {explained.digest[:digits]}"
    files = [
        f"{file.step:10}  {file.sha256[:digits] if file.sha256 else 'missing':{_HASH}}  {file.path}"
        for file in explained.files
    ]
    for title, part in (
        (explained.kind.capitalize(), _asked(explained, width, long=long)),
        ("Answer", _answered(explained, width, long=long)),
        ("Level", _built(explained, width, long=long)),
        ("Classifier", _seen(explained)),
        (f"Score: from this trial to the total of {explained.team}", _arithmetic(explained)),
        ("Files and their SHA-256", files),
    ):
        yield from ("", title)
        yield from (f"  {line}".rstrip() for line in part)
    yield from ("", *_verdict(explained))


def _asked(explained: Explanation, width: int, *, long: bool) -> Iterator[str]:
    messages = explained.conversation
    if not messages:
        yield "none: no record of the conversation"
        return
    if explained.kind == "program" and not long:
        yield f"{count(explained.calls or 0, 'call')} to the model; the last one:"
        last = max((number for number, message in enumerate(messages) if message.speaker == "model"), default=0)
        messages = messages[max(0, last - 1) : last + 1]
    if explained.answer and messages[-1].text.startswith(explained.answer.rstrip()[:200]):
        messages = messages[:-1]  # it follows as the answer
    for message in messages:
        speaker = "" if message.speaker == "prompt" else f"{message.speaker}: "
        yield from _message(speaker + message.text, width, long=long)


def _answered(explained: Explanation, width: int, *, long: bool) -> Iterator[str]:
    if explained.answer:
        yield from _message(explained.answer, width, long=long)
    if explained.calls is not None:
        yield f"({count(explained.calls, 'call')}, {explained.tokens} tokens, seed {explained.seed})"
    if explained.failed_stage == "generate":
        yield _failure(explained)
    if explained.supplied and explained.supplied.supplied:
        yield str(explained.supplied)
    yield from (f"flagged: {flag.kind}: {printable_line(flag.detail)}" for flag in explained.flags)


def _message(text: str, width: int, *, long: bool) -> Iterator[str]:
    """Yield the lines of a text as a terminal shows them; without `long` the first few."""
    lines: list[str] = []
    for line in printable_text(text.strip()).splitlines():
        lines += textwrap.wrap(line, max(1, width - 2), replace_whitespace=False) or [""]
    shown = lines if long else lines[:MOST_LINES]
    yield from shown
    if len(lines) > len(shown):
        yield f"... and {count(len(lines) - len(shown), 'more line')}"


def _failure(explained: Explanation) -> str:
    fault = "" if explained.cause is None else f"; a fault of the {explained.cause}"
    return f"FAILED in {explained.failed_stage}: {printable_line(explained.reason or 'no reason was recorded')}{fault}"


def _built(explained: Explanation, width: int, *, long: bool) -> Iterator[str]:
    """Yield the picture of the end, beside it the calls with the fates of their blocks."""
    blocks = explained.blocks
    if explained.failed_stage == "generate":
        yield "nothing: there is no answer"
        return
    if explained.failed_stage in {"extract", "convert", "simulate"}:
        yield _failure(explained)
    shown = list(blocks)
    if not long:
        fallen_first = sorted(blocks, key=lambda block: block.fate not in _FALLEN)
        shown = sorted(fallen_first[:MOST_CALLS], key=lambda block: block.number)
    calls = [block_text(block) for block in shown]
    if len(shown) < len(blocks):
        calls.append(f"... and {len(blocks) - len(shown)} more")
    picture = drawing(explained.picture) if explained.picture else []
    across = max(map(len, picture), default=0)
    beside = [f"{left:{across}}   {right}" for left, right in zip_longest(picture, calls, fillvalue="")]
    is_wide = picture and max(map(len, beside)) <= width - 2
    yield from beside if is_wide else (*calls, *picture)
    if explained.stability is not None:
        stayed = sum(block.fate not in _FALLEN for block in blocks)
        best_of = explained.best_of
        which = f" (the best of {best_of[1]} simulations, number {best_of[0]})" if best_of else ""
        yield f"{stayed} of {len(blocks)} blocks stayed: stability {explained.stability:.6g}{which}"


def _seen(explained: Explanation) -> Iterator[str]:
    letter, similarity = explained.trial.letter, explained.similarity
    if explained.failed_stage == "classify":
        yield _failure(explained)
    if not explained.probabilities or similarity is None:
        yield "not asked: there is no picture of a level"
        return
    likeliest = (f"{entry.label} {100 * entry.probability:.2f} %" for entry in explained.probabilities[:MOST_LETTERS])
    place = 1 + [entry.label for entry in explained.probabilities].index(letter)
    yield f"likeliest: {', '.join(likeliest)}"
    yield f"{letter} ranks {place} of {len(explained.probabilities)}: similarity {similarity:.7g}"


def _arithmetic(explained: Explanation) -> Iterator[str]:
    if explained.share is None:
        yield printable_line(explained.unscored or "")
        return
    steps = list(_steps(explained.share))
    names = max(len(name) for name, _, _ in steps)
    formulas = max(len(formula) for _, formula, _ in steps)
    yield from (f"{name:{names}}  {formula:{formulas}} = {_figure(result)}" for name, formula, result in steps)
    share = explained.share
    yield f"This trial adds {_figure(share.share)} to the total, {_figure(share.percent)} % of it."


def _steps(share: TrialShare) -> Iterator[tuple[str, str, Decimal]]:
    """Yield each formula: its name, the figures in it, and its result."""
    weight, trial, letter, prompt = share.weight, share.trial, share.letter, share.prompt
    factors = f"{_figure(weight.stability)} stability x {_figure(weight.similarity)} similarity"
    yield f"weight of {letter.letter}", f"{factors} x {_figure(weight.diversity)} diversity", weight.weight
    measured = f"{_figure(trial.stability)} stability x {_figure(trial.similarity)} similarity"
    yield f"trial {trial.trial}", f"{_figure(weight.weight)} weight x {measured}", trial.score
    other_trials = [other.score for other in letter.trials if other.trial != trial.trial]
    yield "mean of its trials", _mean(trial.score, other_trials, "other"), share.mean
    yield "letter", f"{_figure(share.mean)} x {_figure(letter.diversity)} diversity", letter.score
    other_letters = [other.score for other in prompt.letters if other.letter != letter.letter]
    yield f"model {share.model}", _mean(letter.score, other_letters, "other letter"), prompt.score
    other_models = [f"{_figure(score)} ({model})" for model, score in share.prompts.items() if model != share.model]
    yield "total", " + ".join([_figure(prompt.score), *other_models]), share.total.total
    whole = f"{_figure(share.all_totals)} of all {share.teams} teams"
    yield "normalised", f"100 x {_figure(share.total.total)} / {whole}", share.total.normalised


def _mean(score: Decimal, others: Sequence[Decimal], word: str) -> str:
    if not others:
        return f"{_figure(score)} / 1"
    named = f"{len(others)} {word}s" if len(others) > 1 else f"the {word}"
    return f"({_figure(score)} + {_figure(sum(others, Decimal(0)))} of {named}) / {1 + len(others)}"


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
    elif explained.share:
        yield "There is no ranking to compare with yet."
