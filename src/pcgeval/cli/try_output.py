"""The output of `pcgeval try`: each level drawn in half blocks, its scores, the reasons for zeros, and the cost."""

from decimal import Decimal

from pcgeval.cli.level_output import drawing
from pcgeval.cli.try_submission import TriedTrial, TryResult
from pcgeval.core.console import duration


def describe(each: TriedTrial) -> str:
    """Return a trial in a line: its scores, or why it has none."""
    name = f"{each.trial.letter}{each.trial.number}"
    calls = len(each.record.exchanges)
    cost = f"{calls} call{'' if calls == 1 else 's'}, {each.record.tokens} tokens, {each.seconds:.1f} s"
    if each.reason is not None:
        return f"{name}: 0, failed in {each.failed_stage}: {each.reason} ({cost})"
    return f"{name}: {each.score:.4f} = stability {each.stability:.3f} x similarity {each.similarity:.4f} ({cost})"


def to_text(result: TryResult, full_trials: int) -> str:
    """Return a try as text for a terminal.

    Args:
        result: The trials.
        full_trials: The trials of a whole evaluation with this model.
    """
    lines = []
    for each in result.trials:
        lines += ["", describe(each)]
        lines += [f"  flagged: {flag.kind}: {flag.detail}" for flag in each.record.flags]
        lines += [f"    {line}" for line in (drawing(each.picture) if each.picture else [])]
        lines += [f"  {each.picture}"] if each.picture else []
    lines.append("")
    for letter, value in result.diversity.items():
        scores = [each.score or Decimal(0) for each in result.trials if each.trial.letter == letter]
        mean = sum(scores, Decimal(0)) / len(scores)
        lines.append(f"{letter}: mean score {mean:.4f} x diversity {value:.4f} = {mean * value:.6f} before its weight")
    failed = sum(each.reason is not None for each in result.trials)
    lines.append(f"{len(result.trials)} trials, {failed} failed")
    seconds = result.seconds_of_full_run(full_trials)
    lines.append(f"a full run with this model, {full_trials} trials, takes about {duration(seconds)} at this pace")
    return "\n".join(lines).lstrip("\n")


def to_json(result: TryResult, full_trials: int) -> dict[str, object]:
    """Return a try as JSON values."""
    return {
        "trials": [
            {
                "letter": each.trial.letter,
                "trial": each.trial.number,
                "stability": _float(each.stability),
                "similarity": _float(each.similarity),
                "failed_step": each.failed_stage,
                "reason": each.reason,
                "picture": str(each.picture) if each.picture else None,
                "calls": len(each.record.exchanges),
                "tokens": each.record.tokens,
                "seconds": round(each.seconds, 3),
                "flags": [{"kind": flag.kind, "detail": flag.detail} for flag in each.record.flags],
            }
            for each in result.trials
        ],
        "diversity": {letter: float(value) for letter, value in result.diversity.items()},
        "full_run": {
            "trials": full_trials,
            "seconds": round(result.seconds_of_full_run(full_trials), 1),
        },
    }


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)
