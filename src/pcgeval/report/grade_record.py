"""How a leaf was judged: the files looked at, the judge's own words, and what it took."""

from typing import Any

from pcgeval.report.html import NOTHING, Html, element, shortened
from pcgeval.report.words import count, figure
from pcgeval.rubric.judge_record import JudgeRecord, NotedVote, judge_record

LONGEST_LINE = 400  # characters
MOST_LINES = 30


def record(metadata: Any, answer: int) -> Html:
    """Return what the judge noted beside a leaf's grade, closed until somebody opens it; answers up to a length."""
    noted = judge_record(metadata)
    if noted.check:
        return element("small", "check ", element("code", shortened(noted.check, LONGEST_LINE)))
    parts = [
        *(element("p", shortened(line, LONGEST_LINE)) for line in _lines(noted)[:MOST_LINES]),
        *(part for number, vote in enumerate(noted.votes, start=1) for part in _vote(vote, number, noted, answer)),
        _cost(noted),
    ]
    if parts == [NOTHING]:
        return NOTHING
    summary = element("summary", "Graded by a person" if noted.author else "How it was judged")
    return element("details", summary, *parts, class_="judged")


def _lines(noted: JudgeRecord) -> list[str]:
    lines = [f"{noted.author}{f', {noted.date}' if noted.date else ''}"] if noted.author else []
    for each in noted.history:
        before = "no grade" if each.score is None else figure(each.score, 2)
        lines.append(f"Earlier {before}, by {each.author}{f' on {each.date}' if each.date else ''}: {each.reason}")
    if noted.picked:
        lines.append(f"Files shown, {len(noted.picked)} of {noted.offered}: {', '.join(noted.picked)}")
    lines += noted.file_notes
    return [*lines, noted.other] if noted.other else lines


def _vote(vote: NotedVote, number: int, noted: JudgeRecord, answer: int) -> list[Html]:
    """Return the model's whole answer, and why it came to no score if it did not."""
    score = "no score" if vote.score is None else figure(vote.score, 2)
    heading = f"Vote {number}: {score}" if len(noted.votes) > 1 else "The judge's words"
    parts = [element("h4", heading)]
    parts += [element("p", shortened(vote.reason, LONGEST_LINE))] if vote.reason else []
    parts += [element("pre", shortened(vote.answer, answer))] if vote.answer else []
    return parts


def _cost(noted: JudgeRecord) -> Html:
    calls = [
        f"{kind} {count(usage.calls, 'call')}, {usage.prompt_tokens:,} + {usage.output_tokens:,} tokens"
        for kind, usage in vars(noted.usage).items()
        if usage.calls
    ]
    agree = noted.agreement is not None and len(noted.votes) > 1
    calls += [f"votes agree to {noted.agreement:.0%}"] if agree else []
    return element("p", "; ".join(calls), class_="cost") if calls else NOTHING
