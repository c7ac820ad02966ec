"""The output of `pcgeval try`: each trial as it ends, and the means of the letters at the end."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pcgeval.cli.level_output import level_lines
from pcgeval.cli.options import print_json, print_table
from pcgeval.core.console import count, duration
from pcgeval.core.files import read_text
from pcgeval.core.layout import Trial
from pcgeval.core.trials import SuppliedBlocks, TrialRecord
from pcgeval.core.untrusted import printable_line
from pcgeval.evaluator.level_score import LevelScore

_SHOWN_WIDTH = 160  # characters of a line of a program or model


@dataclass(frozen=True)
class TriedTrial:
    """One trial: its level with all its scores, or the reason why there is none.

    Attributes:
        trial: Its letter and number.
        record: How the response came about.
        response: The file with it.
        level: What the response is worth; one that failed in `generate` if there is no response.
        picture: The evaluator's picture, 1024 x 1024; None where no level was simulated.
        printed: The file with what the program printed; None if it printed nothing.
        supplied: How many blocks of the response the submission told the model before the model named them.
        is_new: Whether the trial was done just now.
    """

    trial: Trial
    record: TrialRecord
    response: Path
    level: LevelScore
    picture: Path | None
    printed: Path | None
    supplied: SuppliedBlocks
    is_new: bool

    @property
    def seconds(self) -> float:
        """Seconds that the model took for all calls of the trial."""
        return sum(exchange.reply.seconds for exchange in self.record.exchanges)

    def to_json(self) -> dict[str, object]:
        """Return the trial as values for JSON."""
        return {
            "letter": self.trial.letter,
            "trial": self.trial.number,
            "score": self.level.score,
            "stability": self.level.stability,
            "similarity": self.level.similarity,
            "failed_stage": self.level.failed_stage,
            "reason": self.level.reason,
            "likeliest": [list(pair) for pair in self.level.likeliest],
            "picture": str(self.picture) if self.picture else None,
            "printed": str(self.printed) if self.printed else None,
            "calls": len(self.record.exchanges),
            "tokens": self.record.tokens,
            "supplied": asdict(self.supplied),
            "seconds": round(self.seconds, 3),
            "flags": [{"kind": flag.kind, "detail": flag.detail} for flag in self.record.flags],
        }


@dataclass(frozen=True)
class LetterSummary:
    """The means over all trials of a letter, failed ones counted as 0.

    Attributes:
        team: Whose trials these are.
        letter: The letter.
        trials: The number of trials.
        failed: How many of them failed; None where that is not known.
        stability: The mean share of blocks that stayed.
        similarity: The mean probability of the letter.
        score: The mean of stability times similarity.
        diversity: The mean distance of the trials; None for a single one.
    """

    team: str
    letter: str
    trials: int
    failed: int | None
    stability: float
    similarity: float
    score: float
    diversity: float | None


def describe(trial: TriedTrial) -> str:
    """Return a trial in a line: its scores, or why it has none."""
    name = f"{trial.trial.letter}{trial.trial.number}"
    cost = f"{count(len(trial.record.exchanges), 'call')}, {trial.record.tokens} tokens, {trial.seconds:.1f} s"
    return f"{name}: {trial.level.verdict} ({cost}{'' if trial.is_new else ', done before'})"


def trial_text(trial: TriedTrial) -> str:
    """Return a trial in lines: its scores or its failure, the level before and after, and what its program printed."""
    lines = [describe(trial)]
    if trial.supplied.supplied:
        lines.append(f"  {trial.supplied}")
    lines += [f"  flagged: {flag.kind}: {flag.detail}" for flag in trial.record.flags]
    if trial.level.simulated:
        lines += [f"    {line}".rstrip() for line in level_lines(trial.level)]
    elif trial.record.reason is None:  # there is a response, and no level in it: its end shows why
        lines += ["  the response ends:", *_last_lines(trial.response, 6)]
    cut_off = [exchange for exchange in trial.record.exchanges if exchange.reply.done_reason == "length"]
    if cut_off:
        tokens = cut_off[-1].reply.output_tokens
        lines.append(f"  the model's reply was cut off after {tokens} tokens, the model's num_predict or num_ctx")
    if trial.printed:
        lines += [f"  printed, {trial.printed}:", *_last_lines(trial.printed, 20)]
    lines += [f"  {path}" for path in (trial.response, trial.picture) if path and path.stat().st_size]
    return "\n".join(lines)


def print_summary(
    tried: Sequence[TriedTrial],
    letters: Sequence[LetterSummary],
    baseline: Sequence[LetterSummary],
    full_trials: int,
    *,
    json: bool,
) -> None:
    """Print the means, or everything as JSON.

    Args:
        tried: The trials.
        letters: The means of the letters.
        baseline: Those of the competition's baseline; may be empty.
        full_trials: The trials of a whole evaluation with this model.
        json: Print JSON.
    """
    seconds = full_trials * sum(trial.seconds for trial in tried) / len(tried)  # of a whole evaluation
    if json:
        print_json(
            {
                "trials": [trial.to_json() for trial in sorted(tried, key=lambda trial: trial.trial)],
                "letters": [asdict(letter) for letter in letters],
                "baseline": [asdict(letter) for letter in baseline],
                "full_run": {"trials": full_trials, "seconds": round(seconds, 1)},
            }
        )
        return
    columns = ("letter", "team", "trials", "failed", "stability", "similarity", "score", "diversity")
    in_order = sorted([*letters, *baseline], key=lambda letter: letter.letter)
    print_table((*columns, "score x diversity"), map(_row, in_order))
    notes = ["means of all trials, a failed one counts 0; a letter's weight comes on top of it in a competition"]
    if not baseline:
        where = "in the folder of a competition that has evaluated them"
        notes.insert(0, f"the baseline's results with this model are shown {where}")
    failed = sum(trial.level.reason is not None for trial in tried)
    notes.append(f"{count(len(tried), 'trial')}, {failed} failed")
    if seconds:
        pace = f"takes about {duration(seconds)} at this pace"
        notes[-1] += f"; a full run with this model, {full_trials} trials, {pace}"
    sys.stdout.writelines(f"{note}\n" for note in notes)


def _last_lines(path: Path, most: int) -> list[str]:
    """Return the last lines of a file, where an error stands, each cut to a width."""
    lines = read_text(path).splitlines()
    shown = [line if len(line) <= _SHOWN_WIDTH else f"{line[:_SHOWN_WIDTH]}..." for line in lines[-most:]]
    if len(lines) > most:
        shown.insert(0, f"[lines before these: {len(lines) - most}]")
    return [f"  | {line}" for line in shown]


def _row(letter: LetterSummary) -> list[str]:
    """Return a line of the table; what is not known is a dash."""
    row = [letter.letter, printable_line(letter.team), str(letter.trials)]
    row += ["-" if letter.failed is None else str(letter.failed), f"{letter.stability:.3f}"]
    row += [f"{letter.similarity:.4f}", f"{letter.score:.4f}"]
    if letter.diversity is None:
        return [*row, "-", "-"]
    return [*row, f"{letter.diversity:.4f}", f"{letter.score * letter.diversity:.6f}"]
