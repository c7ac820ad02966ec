"""How figures, failures and zeros are put into words."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from pcgeval.core.conduct import FlagKind
from pcgeval.core.outcomes import Outcome
from pcgeval.report.html import shortened
from pcgeval.report.results import LetterResult, TrialResult

LONGEST_REASON = 240  # characters
_TINY = 0.001  # below it four decimals leave a single digit

Figure = float | Decimal


@dataclass(frozen=True)
class FailedStep:
    """A step in which a trial can fail: its stage, its output folder, and what the page calls the failure."""

    stage: str
    folder: str
    words: str


FAILED_STEPS = (
    FailedStep("generate", "raw", "reply failed"),
    FailedStep("extract", "intermediate", "no code"),
    FailedStep("convert", "levels", "no valid level"),
    FailedStep("simulate", "stability", "not simulated"),
    FailedStep("classify", "similarity", "not classified"),
)


def figure(value: Figure, digits: int = 3) -> str:
    """Return a number with so many decimals; nothing above 0 is shown as 0, and only 0 is."""
    if value <= 0:
        return "0"
    least = 10.0**-digits
    return f"{value:.{digits}f}" if value >= least else f"<{least:.{digits}f}"


def score_figure(value: Figure) -> str:
    """Return a score with four decimals, or as `3.1e-5` where those would say little."""
    if value <= 0 or value >= _TINY:
        return figure(value, 4)
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def count(number: int, singular: str) -> str:
    """Return `1 trial` or `2 trials`."""
    return f"{number} {singular}" if number == 1 else f"{number} {singular}s"


def failed_step(failure: Outcome) -> FailedStep:
    """Return the step in which a trial failed; trials.json names it by the stage or by the stage's folder."""
    name = failure.failed_step or ""
    return next((each for each in FAILED_STEPS if name in (each.stage, each.folder)), FailedStep(name, name, name))


def reason_of(failure: Outcome) -> str:
    """Return the recorded reason of a failure, without the step's name where it starts with it."""
    reason = (failure.reason or "no reason was recorded").removeprefix(f"{failed_step(failure).words}: ")
    return shortened(reason, LONGEST_REASON)


def flag_words(kind: FlagKind) -> str:
    """Return what the page calls a kind of flag."""
    return kind.replace("-", " ")


def zero_trial(trial: TrialResult) -> str | None:
    """Return why a trial that did not fail scores 0, or None if it scores."""
    if trial.stability == 0 and not trial.blocks:
        return "zero: the level is empty"
    if trial.stability == 0:
        return "zero: no block stayed in place"
    if trial.similarity == 0:
        return f"zero: nothing of {_article(trial.trial.letter)} in it"
    return None


def zero_letter(letter: LetterResult) -> str | None:
    """Return why a letter with scoring trials scores 0 all the same, or None."""
    if letter.scores is None or letter.scores.diversity or not any(trial.score for trial in letter.trials):
        return None
    if sum(trial.failure is None for trial in letter.trials) < 2:
        return "zero: one level alone has no diversity"
    return "zero: to the classifier all levels are alike"


def spoken_list(names: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def _article(letter: str) -> str:
    return f"an {letter}" if letter in "AEFHILMNORSX" else f"a {letter}"
